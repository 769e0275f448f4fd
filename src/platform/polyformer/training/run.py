"""The run folder: what every training leaves behind."""

import csv
import fcntl
import io
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from polyformer.plain import appended, to_json, whole_file, whole_lines

__all__ = ["MetricsFile", "RunFolder", "SamplesFile"]


class RunFolder:
    """`runs/NAME/`, or NAME itself if it has a slash.

    Args:
        name: The run's name.

    Raises:
        ValueError: For a name that no folder of its own can have.
    """

    def __init__(self, name: str) -> None:
        if name.strip() in ("", ".", "..") or not name.isprintable():
            raise ValueError(f"`--run` must be a name or a path, but is {name!r}")
        self.path = Path(name) if "/" in name or os.sep in name else Path("runs") / name
        self.name = name

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keeps other processes from training into the folder meanwhile; a process that dies gives way by that.

        The lock is the process's own, not that of workers it forks. Where the file system knows no locks, nobody is kept away.

        Raises:
            ValueError: If another process trains into it.
        """
        with self._lock.open("w") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                raise ValueError(f"the run `{self.name}` is being trained by another process ({self.path})") from None
            except OSError:
                pass
            yield

    @property
    def _lock(self) -> Path:
        return self.path / ".lock"

    def create(self) -> None:
        """Makes the folder.

        Raises:
            ValueError: If a run of this name exists, with the two ways out.
        """
        if self.config.exists() or self.checkpoints.exists():
            raise ValueError(
                f"the run `{self.name}` exists already ({self.path}): go on with it by `--run {self.name} --resume`, or "
                "choose another `--run`"
            )
        self.checkpoints.mkdir(parents=True)

    @property
    def has_learned(self) -> bool:
        """Whether there is anything to go on with."""
        return (self.path / "metrics.csv").exists() or (self.checkpoints / "last.ckpt").exists()

    def discard(self) -> None:
        """Removes what a training wrote that ended before anything was learned, so that its name is free again.

        Anything else that lies in the folder stays.
        """
        for file in (self.config, self.path / "log.txt", self._lock):
            file.unlink(missing_ok=True)
        for folder in (self.checkpoints, self.path):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()

    def write_results(self, results: dict[str, Any]) -> None:
        """Writes `results.json` in one piece."""
        with whole_file(self.path / "results.json") as file:
            file.write(to_json(results, indent=2) + "\n")

    def write_pictures(self, pictures: dict[str, Any]) -> dict[str, Path]:
        """Writes figures to `pictures/NAME.png`; where each of them is."""
        files = {name: self.path / "pictures" / f"{name}.png" for name in pictures}
        for name, figure in pictures.items():
            (self.path / "pictures").mkdir(exist_ok=True)
            with warnings.catch_warnings():  # for each character that no font here has
                warnings.simplefilter("ignore", UserWarning)
                figure.savefig(files[name])
        return files


class MetricsFile(Logger):
    """Appends metrics to a CSV file, one row for each step and kind of metric; a new metric adds a column.

    Args:
        path: The file; rows in it beyond the step that training resumes from are dropped when training starts.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.columns: list[str] = []
        self.rows: list[dict[str, str]] = []

    @property
    def name(self) -> str:
        return "csv"

    @property
    def version(self) -> str:
        return ""

    @rank_zero_only
    def log_hyperparams(self, *args: Any) -> None:
        """Nothing: the settings are in config.yaml."""

    @rank_zero_only
    def resume(self, trained: int, validated: int) -> None:
        """Reads the rows of an earlier session; those beyond will be made again.

        Args:
            trained: The step up to which rows of training are kept.
            validated: The same of validations, of which the first after each step is kept; a second is of a mean of weights.
        """
        if self.path.exists():
            reader = csv.DictReader(io.StringIO(whole_lines(self.path), newline=""))
            seen: set[int] = set()
            self.rows = []
            for row in reader:
                step = int(row["step"])
                if any(value and name.startswith("val/") for name, value in row.items()):
                    is_kept = step <= validated and step not in seen
                    seen.add(step)
                else:
                    is_kept = step <= trained
                self.rows += [row] if is_kept else []
            self.columns = list(reader.fieldnames or [])
            self._rewrite()

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        row = {"step": str(step), **{name: repr(float(value)) for name, value in metrics.items()}}
        self.rows.append(row)
        fresh = [name for name in row if name not in self.columns]
        if fresh:
            self.columns += fresh
            self._rewrite()
            return
        with appended(self.path) as file:
            csv.DictWriter(file, self.columns).writerow(row)

    def _rewrite(self) -> None:
        with whole_file(self.path) as file:
            writer = csv.DictWriter(file, self.columns)
            writer.writeheader()
            writer.writerows(self.rows)


class SamplesFile:
    """Appends what a model answered at each validation to a file of JSON lines.

    Args:
        path: The file; rows in it beyond the step that training resumes from are dropped when training starts.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []

    def resume(self, step: int) -> None:
        """Reads the rows of an earlier session up to ``step``; later ones will be made again."""
        if self.path.exists():
            lines = whole_lines(self.path).split("\n")[:-1]
            self.rows = [row for row in map(json.loads, lines) if row["step"] <= step]
            with whole_file(self.path) as file:
                file.writelines(f"{to_json(row)}\n" for row in self.rows)

    def add(self, rows: list[dict[str, Any]]) -> None:
        """Appends rows; each has the "step" of its validation."""
        self.rows = [*self.rows, *rows]
        with appended(self.path) as file:
            file.writelines(f"{to_json(row)}\n" for row in rows)
