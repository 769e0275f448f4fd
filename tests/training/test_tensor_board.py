"""Runs in TensorBoard, read back with its own reader where it is installed."""

import sys
from pathlib import Path

import pytest

from polyformer.cli import main

from ..cli.small import SMALL, fit, metrics_of, results_of


def test_what_is_not_installed_is_said_before_anything_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ValueError, match=r"`logger` tensorboard needs a package that is not installed: pip"):
        fit(tmp_path, "--logger", "tensorboard")
    assert not (tmp_path / "run").exists()


def test_a_tracker_that_does_not_exist_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    assert main(["fit", "--config", str(tmp_path / "small.yaml"), "--run", str(tmp_path / "run"), "--logger", "wandbb"]) == 2
    said = capsys.readouterr().err
    assert "logger" in said and "wandb" in said and "tensorboard" in said and len(said.splitlines()) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_run_is_there_once_when_it_was_resumed(tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert fit(tmp_path, "--logger", "tensorboard") == 0
    run = tmp_path / "run"
    assert main(["fit", "--run", str(run), "--resume", "--trainer.max_steps", "14", "--debug"]) == 0
    events = reader.EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    for name in ("train/loss", "val/bleu"):
        kept = [(int(row["step"]), float(row[name])) for row in metrics_of(run) if row[name]]
        found = [(event.step, event.value) for event in events.Scalars(name)]
        assert [step for step, _ in found] == [step for step, _ in kept]
        assert [value for _, value in found] == pytest.approx([value for _, value in kept], rel=1e-6)
    assert events.Scalars("test/bleu")[-1].value == pytest.approx(results_of(run)["metrics"]["test/bleu"])
    assert [event.step for event in events.Tensors("samples/text_summary")] == [5, 10, 14]
    assert "attention" in events.Tags()["images"]
