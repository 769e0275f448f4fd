"""The folder of a sweep: what it is made of, and how far each training is."""

import fcntl
import hashlib
import shlex
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from polyformer.experiments.runs import PRUNED
from polyformer.experiments.sweep import Cell
from polyformer.plain import to_json
from polyformer.shipped import shipped

__all__ = ["SweepFolder"]


class SweepFolder:
    """`runs/NAME/`: a run folder for each cell, what they printed in `output/`, and `sweep.yaml`, which says what they are.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def run_of(self, cell: Cell) -> Path:
        """The run folder of a cell."""
        return self.path / cell.name

    def output_of(self, cell: Cell) -> Path:
        """Where what its training prints is kept."""
        return self.path / "output" / f"{cell.name}.txt"

    def lock_of(self, cell: Cell) -> Path:
        """The file that whoever trains a cell holds a lock on."""
        return self.path / "output" / f".{cell.name}.lock"

    def is_finished(self, cell: Cell) -> bool:
        """Whether its results are there."""
        return (self.run_of(cell) / "results.json").is_file()

    def is_over(self, cell: Cell) -> bool:
        """Whether it is finished, or was ended early for good."""
        return self.is_finished(cell) or (self.run_of(cell) / PRUNED).is_file()

    def mark_pruned(self, cell: Cell, why: dict[str, float]) -> None:
        """Writes down in the run folder that a search ended the training early, and why."""
        run = self.run_of(cell)
        run.mkdir(exist_ok=True)
        temporary = run / f".{PRUNED}"
        temporary.write_text(to_json(why, indent=2) + "\n", encoding="utf-8")
        temporary.replace(run / PRUNED)

    def words_for(self, cell: Cell) -> list[str]:
        """The words of `platform` that begin a cell, or go on with it."""
        run = self.run_of(cell)
        if (run / "config.yaml").is_file():
            return ["fit", "--run", str(run), "--resume"]
        return ["fit", *cell.words, "--run", str(run)]

    def clear(self, cell: Cell) -> None:
        """Removes what a training leaves that was killed before it had written its config, so that it can begin anew."""
        run = self.run_of(cell)
        if run.is_dir() and not (run / "config.yaml").exists():
            for name in ("log.txt", ".config.yaml"):
                (run / name).unlink(missing_ok=True)
            if (run / "checkpoints").is_dir() and not any((run / "checkpoints").iterdir()):
                (run / "checkpoints").rmdir()

    def accept(self, cells: Sequence[Cell]) -> None:
        """Writes down what the cells are, beside what is known of earlier ones; several processes may do so at once.

        Raises:
            ValueError: If a cell that has been begun would now be another training.
        """
        file = self.path / "sweep.yaml"
        now = {cell.name: {"words": shlex.join(cell.words), "configs": _digests(cell)} for cell in cells}
        with self._alone():
            known: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else {}
            for cell in cells:
                self._compare(cell, known.get(cell.name, now[cell.name]), now[cell.name])
            temporary = self.path / f".sweep.{uuid.uuid4().hex}.yaml"
            text = yaml.safe_dump({**known, **now}, sort_keys=False, allow_unicode=True, width=1000)
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(file)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Within it, nobody else writes `sweep.yaml`."""
        (self.path / "output").mkdir(parents=True, exist_ok=True)
        with (self.path / "output" / ".sweep.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _compare(self, cell: Cell, before: dict[str, Any], now: dict[str, Any]) -> None:
        """Refuses a cell that has been begun as another training."""
        if self.run_of(cell).exists() and before != now:
            how = "with other settings" if before["words"] != now["words"] else "when its config file was another"
            raise ValueError(f"{self.run_of(cell)} was begun {how}; choose another --name, or remove that folder")


def _digests(cell: Cell) -> list[str]:
    """Of its config files: sixteen hexadecimal digits each."""
    return [hashlib.sha256(Path(shipped(file)).read_bytes()).hexdigest()[:16] for file in cell.settings["config"]]
