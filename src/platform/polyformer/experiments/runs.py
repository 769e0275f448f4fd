"""Reading run folders."""

import csv
import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from glob import glob
from pathlib import Path
from typing import Any

import yaml

from polyformer.better import better_side
from polyformer.experiments.settings import flat
from polyformer.plain import whole_lines

__all__ = ["EXAMPLES", "PRUNED", "Run", "find_runs", "side_of"]

EXAMPLES = "test.jsonl.gz"
"""What a test leaves of each example: one line of JSON, in the order of the examples."""
PRUNED = "pruned.json"
"""Why a search ended a training early."""
RESULTS = {"metrics", "data", "fingerprints", "signatures"}
"""What in `results.json` has keys of its own."""
LATE = 0.1
"""Share of a training that its last figures are means over."""


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
        file = self.path / "config.yaml"
        with _readable(file, "not readable as settings", "leave this run out"):
            return flat(_mapping(yaml.safe_load(file.read_text(encoding="utf-8"))))

    @cached_property
    def results(self) -> dict[str, Any]:
        """What `results.json` holds; nothing where the run has not finished."""
        file = self.path / "results.json"
        if not file.exists():
            return {}
        advice = f"leave this run out, or remove the file and go on with the run: platform fit --run {self.path} --resume"
        with _readable(file, "not readable as JSON", advice):
            content = _mapping(json.loads(file.read_text(encoding="utf-8")))
            for name in RESULTS & content.keys():
                _mapping(content[name], f"`{name}`")
        return content

    @property
    def is_finished(self) -> bool:
        """Whether its results are there."""
        return bool(self.results)

    @property
    def is_pruned(self) -> bool:
        """Whether a search ended it early."""
        return not self.is_finished and (self.path / PRUNED).is_file()

    @property
    def seed(self) -> int:
        """Its seed."""
        return int(self.settings.get("seed", 0))

    @property
    def task(self) -> str:
        """The task's name."""
        return str(self.results.get("task") or self.settings.get("task"))

    @cached_property
    def command(self) -> str:
        """The command that trained it, where it is in the folder of a sweep; otherwise nothing."""
        file = self.path.parent / "sweep.yaml"
        with _readable(file, "not readable as YAML", "remove it; nothing but the commands of the runs is taken from it here"):
            cells = yaml.safe_load(file.read_text(encoding="utf-8")) if file.is_file() else None
        cell = cells.get(self.name) if isinstance(cells, dict) else None
        return f"platform fit {cell['words']}" if isinstance(cell, dict) and "words" in cell else ""

    @cached_property
    def history(self) -> list[dict[str, float]]:
        """The rows of `metrics.csv`, each with the metrics it has; a last line without an end is left out."""
        file = self.path / "metrics.csv"
        if not file.exists():
            return []
        with _readable(file, "not readable as rows of numbers", "remove that line, or leave this run out"):
            reader = csv.DictReader(io.StringIO(whole_lines(file), newline=""))
            return [_numbers(row, reader.line_num) for row in reader]

    def curve(self, metric: str, against: str = "step") -> list[tuple[float, float]]:
        """A metric over the training, as pairs.

        Args:
            metric: Such as `val/loss`.
            against: "step", "tokens" or "seconds" (of training alone, without validations).
        """
        return [(row[against], row[metric]) for row in self.history if metric in row and against in row]

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Its results, and of what was logged while it trained (`train/...`) the last value.

        Losses and accuracies of training are means over its last tenth, since a single record is of few examples.
        """
        trained = [row for row in self.history if any(name.startswith("train/") for name in row)]
        last = {name: value for row in trained for name, value in row.items() if name.startswith("train/")}
        last |= {name: late_mean(trained, name) for name in last if name.endswith(("loss", "accuracy"))}
        given = {name: value for name, value in self.results.get("metrics", {}).items() if isinstance(value, (int, float))}
        return {**last, **given}

    @cached_property
    def examples(self) -> list[dict[str, Any]]:
        """What the test has left of each example; nothing where there was no test, or an older version made it."""
        file = self.path / EXAMPLES
        if not file.exists():
            return []
        advice = f"write it anew: {self.anew}"
        with _readable(file, "not readable as lines of JSON", advice), gzip.open(file, "rt", encoding="utf-8") as lines:
            return [_mapping(json.loads(line), "each line") for line in lines]

    @property
    def anew(self) -> str:
        """The command that writes them anew."""
        data = " --data.test FILE" if self.settings.get("data.test", "") is None else ""  # it was trained without a test
        return f"platform test --ckpt_path {self.path} --examples {self.path / EXAMPLES}{data}"

    @property
    def no_examples(self) -> str:
        """What to do where there are none."""
        return f"{self.path / EXAMPLES} is missing; write it: {self.anew}"


def find_runs(places: Sequence[str], online: Callable[[str], Run] | None = None) -> list[Run]:
    """The runs that paths, patterns and names in `runs/` mean, each once; a folder of runs means all in it.

    Args:
        places: Such as `runs/first`, `first`, `runs/pos*`, the folder of a sweep, or on Weights & Biases
            `entity/project/run`, also with `wandb:` before it.
        online: Finds those that are not here.

    Raises:
        ValueError: If there is nothing at one of them.
    """
    found: dict[Path, Run] = {}
    for place in places:
        remote = place.removeprefix("wandb:")
        paths = sorted(path for pattern in (place, str(Path("runs") / place)) for path in glob(pattern))
        folders = [folder for path in paths for folder in _run_folders(Path(path))]
        if not folders and online is not None and re.fullmatch(r"[\w.-]+/[\w .-]+/[\w-]+", remote):
            found[Path("wandb:", remote)] = online(remote)
        elif not folders:
            there = sorted(folder.name for folder in Path("runs").glob("*") if folder.is_dir())
            names = f"; in runs/ there are {', '.join(there[:12])}" if there else ""
            raise ValueError(f"{place}: no run and no folder of runs{names}")
        found |= {folder.resolve(): Run(folder) for folder in folders}
    return list(found.values())


def side_of(runs: Sequence[Run], metric: str) -> str:
    """The better side of a metric: of the one that a run is judged by what its task says, on any split; otherwise by the name.

    Args:
        runs: Those that have it.
        metric: Such as `test/mae`.
    """
    for run in runs:
        judged, side = run.results.get("monitor") or ("", "")
        if judged.partition("/")[2] == metric.partition("/")[2]:
            return str(side)
    return better_side(metric)


def late_mean(rows: Sequence[dict[str, float]], name: str) -> float:
    """A quantity over the records of the last tenth of the steps; each weighs as many steps as it is of.

    >>> rows = [{"step": 80.0, "a": 9.0}, {"step": 95.0, "a": 1.0}, {"step": 100.0, "a": 3.0}]
    >>> late_mean(rows, "a")
    1.5
    """
    rows = [row for row in rows if name in row]
    begins = [0.0, *(row["step"] for row in rows[:-1])]
    late = [
        (row[name], row["step"] - begin)
        for row, begin in zip(rows, begins, strict=True)
        if row["step"] > (1.0 - LATE) * rows[-1]["step"]
    ]
    return sum(value * size for value, size in late) / sum(size for _, size in late)


@contextmanager
def _readable(file: Path, fault: str, advice: str) -> Iterator[None]:
    """Within it a file is read; where that fails, one line names it, and says what to do.

    Raises:
        ValueError: If the file is damaged.
    """
    try:
        yield
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark else ""
        raise ValueError(f"{file}: {fault}: {getattr(error, 'problem', None) or 'no YAML'}{line}; {advice}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: {fault}: byte {error.start} is not UTF-8; {advice}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise ValueError(f"{file}: {fault}: it is cut off, or damaged otherwise; {advice}") from None
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{file}: {fault}: {error}; {advice}") from None


def _mapping(content: Any, what: str = "it") -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ValueError(f"{what} must be keys and values, but there is {json.dumps(content, default=str)[:40]}")
    return content


def _numbers(row: dict[str, Any], line: int) -> dict[str, float]:
    """The numbers of a row, without the columns that it does not fill."""
    found = {}
    for name, value in row.items():
        if value and name:
            try:
                found[name] = float(value)
            except ValueError:
                raise ValueError(f"line {line} has {value!r} for `{name}`") from None
    if "step" not in found:
        raise ValueError(f"line {line} has no `step`")
    return found


def _run_folders(path: Path) -> list[Path]:
    """The run folders at a path or beneath it; what lies in a run folder is no run, as what Weights & Biases keeps there."""
    found = []
    for folder, inner, files in os.walk(path):
        if "config.yaml" in files:
            found.append(Path(folder))
            inner.clear()
    return sorted(found)
