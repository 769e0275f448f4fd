"""Runs that differ only in the seed as one row, with mean and spread."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from polyformer.experiments.runs import Run
from polyformer.experiments.settings import differing, identity, in_words

__all__ = ["Mark", "Measured", "Row", "rows_of"]

UNTOLD = ("seed", "logger", "wandb")
"""Settings that are no difference: seeds make the runs of one row, and who else is told changes nothing."""

MANY = 4
"""Runs that differ in more settings than these have their names in the table."""


@dataclass(frozen=True)
class Measured:
    """A quantity over the runs of a row.

    Args:
        values: One for each run that has it.
        runs: How many runs the row has.
    """

    values: tuple[float, ...]
    runs: int

    @property
    def mean(self) -> float | None:
        """Of the values; None where there is none."""
        return fmean(self.values) if self.values else None

    @property
    def spread(self) -> float | None:
        """The standard deviation from run to run (n - 1 below the line); None for fewer than two."""
        return stdev(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True)
class Mark:
    """A value that a metric is to reach.

    Args:
        metric: Such as `val/loss`.
        value: What is to be reached.
    """

    metric: str
    value: float

    def reached(self, run: Run, side: str) -> dict[str, float] | None:
        """The first row of a run's history at which the mark is reached, from above where the better side is "min"."""
        sign = 1.0 if side == "max" else -1.0
        for row in run.history:
            if self.metric in row and sign * (row[self.metric] - self.value) >= 0:
                return row
        return None


@dataclass(frozen=True)
class Row:
    """Runs with the same settings.

    Args:
        differences: The settings that tell this row from others.
        runs: By seed.
    """

    differences: dict[str, Any]
    runs: tuple[Run, ...]

    @property
    def name(self) -> str:
        """What tells it apart, in short: `position=Rotary, d_model=64`; the run's name where nothing does, or too much."""
        if "run" in self.differences:
            return self.runs[0].name
        last = [key.rpartition(".")[2] for key in self.differences]
        keys = [short if last.count(short) == 1 else key for key, short in zip(self.differences, last, strict=True)]
        told = [f"{key}={in_words(value)}" for key, value in zip(keys, self.differences.values(), strict=True)]
        return ", ".join(told) or self.runs[0].name

    def metric(self, name: str) -> Measured:
        """A metric over its runs."""
        return self._over(run.metrics.get(name) for run in self.runs)

    def result(self, name: str) -> Measured:
        """Another entry of `results.json`, such as `train_seconds`."""
        return self._over(run.results.get(name) for run in self.runs)

    def reaching(self, mark: Mark, side: str, what: str) -> Measured:
        """The "step", "tokens" or "seconds" at which its runs reach a mark."""
        return self._over((mark.reached(run, side) or {}).get(what) for run in self.runs)

    def _over(self, values: Any) -> Measured:
        kept = tuple(float(value) for value in values if value is not None and not math.isnan(value))
        return Measured(kept, len(self.runs))


def rows_of(runs: Sequence[Run]) -> list[Row]:
    """Runs, put into rows in the order in which they come.

    Two runs with the same settings and the same seed are rows of their own, told apart by their names; so are runs that differ
    in very much.
    """
    keys = differing([run.settings for run in runs], ignored=UNTOLD)
    groups: dict[str, list[Run]] = {}
    for run in runs:
        chosen = identity([run.settings.get(key) for key in keys])
        while any(run.seed == other.seed for other in groups.get(chosen, [])):
            chosen += "'"
        groups.setdefault(chosen, []).append(run)
    alike = {chosen.rstrip("'") for chosen in groups if chosen.endswith("'")}
    rows = []
    for chosen, members in groups.items():
        is_named = chosen.rstrip("'") in alike or (len(keys) > MANY and len(members) == 1)
        told = {"run": members[0].name} if is_named else {}
        told |= {key: members[0].settings[key] for key in keys if key in members[0].settings}
        rows.append(Row(told, tuple(sorted(members, key=lambda run: run.seed))))
    return rows
