"""Trainings that no tracker can stop, wherever it fails."""

from pathlib import Path
from typing import Any

import pytest

from polyformer.training import RunFolder, fitting
from polyformer.training.tracking import Start, Tracker, Trackers

from ..cli.small import fit, results_of


class Broken(Tracker):
    """Raises in one of its methods, and remembers which were called."""

    title = "Broken"

    def __init__(self, method: str = "") -> None:
        self.method, self.called = method, list[str]()

    def _call(self, name: str) -> None:
        self.called.append(name)
        if name == self.method:
            raise ConnectionError("gone\nfor good")

    def start(self, start: Start) -> None:
        self._call("start")

    def metrics(self, metrics: dict[str, float], step: int) -> None:
        self._call("metrics")

    def samples(self, rows: Any) -> None:
        self._call("samples")

    def best(self, metrics: dict[str, float]) -> None:
        self._call("best")

    def finish(self, results: dict[str, Any], pictures: dict[str, Path]) -> None:
        self._call("finish")

    def end(self, failed: bool) -> None:
        self._call(f"end, failed: {failed}")


@pytest.mark.parametrize("method", ["start", "metrics", "samples", "best", "finish", "end, failed: False"])
def test_a_tracker_that_fails_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    broken, sound = Broken(method), Broken()
    monkeypatch.setattr(fitting, "make_trackers", lambda settings: [broken, sound])
    assert fit(tmp_path, "--trainer.max_steps", "3") == 0
    assert broken.called.count(method) == 1 and broken.called[-1] == method
    assert sound.called[0] == "start" and sound.called[-2:] == ["finish", "end, failed: False"]
    said = (tmp_path / "run" / "log.txt").read_text()
    assert said.count("Broken has failed, the training goes on without it: ConnectionError: gone\n") == 1
    assert results_of(tmp_path / "run")["steps"] == 3


def test_a_training_that_fails_ends_its_trackers(tmp_path: Path) -> None:
    tracker = Broken()
    trackers = Trackers([tracker], RunFolder(str(tmp_path)))
    with pytest.raises(KeyboardInterrupt), trackers:
        trackers.log_metrics({"val/loss": 1.0}, 1)  # not started, as on other ranks
        trackers.start(lambda: Start(trackers.run, {}, {}, 0))
        raise KeyboardInterrupt
    assert tracker.called == ["start", "end, failed: True"]
