"""Reading run folders."""

import csv
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from glob import glob
from pathlib import Path
from typing import Any

import yaml

from polyformer.experiments.settings import flat

__all__ = ["EXAMPLES", "Run", "find_runs"]

EXAMPLES = "test.jsonl.gz"
"""What a test leaves of each example: one line of JSON, in the order of the examples."""


@dataclass(frozen=True)
class Run:
    """What one training has left.

    Args:
        path: Its folder.

    Raises:
        ValueError: On reading a file that is broken.
    """

    path: Path

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.name

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Its settings by dotted keys."""
        try:
            return flat(yaml.safe_load((self.path / "config.yaml").read_text(encoding="utf-8")))
        except (yaml.YAMLError, AttributeError) as error:
            raise ValueError(f"{self.path / 'config.yaml'}: not readable as settings: {error}") from None

    @cached_property
    def results(self) -> dict[str, Any]:
        """What `results.json` holds; nothing where the run has not finished."""
        file = self.path / "results.json"
        try:
            content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        except json.JSONDecodeError as error:
            raise ValueError(f"{file}: not readable as JSON: {error}") from None
        return content

    @property
    def is_finished(self) -> bool:
        """Whether its results are there."""
        return bool(self.results)

    @property
    def seed(self) -> int:
        """Its seed."""
        return int(self.settings.get("seed", 0))

    @property
    def task(self) -> str:
        """The task's name."""
        return str(self.results.get("task") or self.settings.get("task"))

    @cached_property
    def history(self) -> list[dict[str, float]]:
        """The rows of `metrics.csv`, each with the metrics it has."""
        file = self.path / "metrics.csv"
        if not file.exists():
            return []
        with file.open(newline="", encoding="utf-8") as lines:
            return [{name: float(value) for name, value in row.items() if value and name} for row in csv.DictReader(lines)]

    def curve(self, metric: str, against: str = "step") -> list[tuple[float, float]]:
        """A metric over the training, as pairs.

        Args:
            metric: Such as `val/loss`.
            against: "step", "tokens" or "seconds" (of training alone, without validations).
        """
        return [(row[against], row[metric]) for row in self.history if metric in row and against in row]

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Its results, and of what was logged while it trained (`train/...`) the last value."""
        last = {name: value for row in self.history for name, value in row.items() if name.startswith("train/")}
        given = {name: value for name, value in self.results.get("metrics", {}).items() if isinstance(value, (int, float))}
        return {**last, **given}

    @cached_property
    def examples(self) -> list[dict[str, Any]]:
        """What the test has left of each example; nothing where there was no test, or an older version made it."""
        file = self.path / EXAMPLES
        if not file.exists():
            return []
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]


def find_runs(places: Sequence[str]) -> list[Run]:
    """The runs that paths, patterns and names in `runs/` mean, each once; a folder of runs means all in it.

    Args:
        places: Such as `runs/first`, `first`, `runs/pos*`, or the folder of a sweep.

    Raises:
        ValueError: If there is nothing at one of them.
    """
    found: dict[Path, Run] = {}
    for place in places:
        paths = sorted(path for pattern in (place, str(Path("runs") / place)) for path in glob(pattern))
        folders = [folder for path in paths for folder in _run_folders(Path(path))]
        if not folders:
            there = sorted(folder.name for folder in Path("runs").glob("*") if folder.is_dir())
            names = f"; in runs/ there are {', '.join(there[:12])}" if there else ""
            raise ValueError(f"{place}: no run and no folder of runs{names}")
        found |= {folder.resolve(): Run(folder) for folder in folders}
    return list(found.values())


def _run_folders(path: Path) -> list[Path]:
    if (path / "config.yaml").is_file():
        return [path]
    return sorted(config.parent for config in path.rglob("config.yaml")) if path.is_dir() else []
