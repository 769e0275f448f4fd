"""Runs side by side: which settings differ, what they came to, which may be ranked, and which differences are chance."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from polyformer.experiments.comparable import WITHOUT_TOKENS, Refusal, refusals
from polyformer.experiments.rows import Mark, Measured, Row, rows_of
from polyformer.experiments.runs import Run, side_of
from polyformer.experiments.significance import Verdict, verdicts_of

__all__ = ["Column", "Comparison", "compare_runs", "plain"]

MAIN = ("bleu", "f1", "perplexity", "bits_per_byte", "accuracy", "micro_f1", "exact_match", "rmse", "loss")
"""What a task is judged by, the first of these that it has, where neither the user nor the run's settings say it."""


@dataclass(frozen=True)
class Column:
    """A measured column.

    Args:
        title: With its unit.
        kind: How numbers are written: "number", "count", "seconds" or "bytes".
        cells: One for each row.
        best: The rows with the best mean; none where it is not ranked.
    """

    title: str
    kind: str
    cells: list[Measured]
    best: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Comparison:
    """The runs of one task side by side.

    Args:
        task: The task's name.
        rows: In the order of the ranking where there is one.
        settings: The settings that differ.
        columns: What was measured.
        ranked_by: The metric that decides the order; none where that is refused.
        refused: What is not ranked, and why.
        verdicts: Tests on the test set.
        notes: What else is to be known.
    """

    task: str
    rows: list[Row]
    settings: list[str]
    columns: list[Column]
    ranked_by: str | None
    refused: list[Refusal]
    verdicts: list[Verdict]
    notes: list[str] = field(default_factory=list)


def compare_runs(
    runs: Sequence[Run],
    metrics: Sequence[str] = (),
    by: str | None = None,
    marks: Sequence[Mark] = (),
    baseline: str | None = None,
    tested: bool = True,
) -> list[Comparison]:
    """Compares the finished runs, those of each task for themselves.

    Args:
        runs: At least one of them finished.
        metrics: Which are shown; none: those of the test, or where no run has one, of the validation.
        by: The metric that they are ranked by; None: the one that the run's settings or its task name.
        marks: Values whose time is to be told.
        baseline: The name of a run or a row that the others are tested against; None: the first run given.
        tested: Whether differences on the test set are tested.

    Raises:
        ValueError: If none is finished, or there is no such metric or baseline.
    """
    finished = [run for run in runs if run.is_finished]
    if not finished:
        raise ValueError("none of these runs has finished: there is no results.json in any of them")
    waiting = [f"not finished, left out: {run.path}" for run in runs if not run.is_finished and not run.is_pruned]
    waiting += [f"ended early by a search, left out: {run.path}" for run in runs if run.is_pruned]
    tasks = dict.fromkeys(run.task for run in finished)
    found = []
    for task in tasks:
        members = [run for run in finished if run.task == task]
        chosen = list(metrics) or _shown(members)
        found.append(_compare(task, members, chosen, by, marks, baseline, tested))
    found[0].notes.extend(waiting)
    if baseline is not None and not any(_has(one.rows, baseline) for one in found):
        known = ", ".join(row.name for one in found for row in one.rows)
        raise ValueError(f"--baseline {baseline}: no such run or row; there are {known}")
    return found


def _compare(
    task: str, runs: list[Run], metrics: list[str], by: str | None, marks: Sequence[Mark], baseline: str | None, tested: bool
) -> Comparison:
    there = [name for name in metrics if any(name in run.metrics for run in runs)]
    if not there:
        known = ", ".join(sorted({name for run in runs for name in run.metrics}))
        raise ValueError(f"no run of {task} has {', '.join(metrics) or 'a metric'}; there are {known}")
    asked = [*there, *([by] if by else []), *(mark.metric for mark in marks)]
    rows, refused = rows_of(runs), refusals(runs, list(dict.fromkeys(asked)))
    closed = {name for refusal in refused for name in refusal.metrics}
    order_by = _order_by(runs, there, by, closed)
    first = next((row for row in rows if baseline is not None and _has([row], baseline)), rows[0])
    others = [row for row in rows if row is not first]
    verdicts = verdicts_of(first, others) if tested and _are_tested(runs) else []
    if order_by is not None:
        sign = 1.0 if side_of(runs, order_by) == "min" else -1.0
        means = {id(row): row.metric(order_by).mean for row in rows}
        rows.sort(key=lambda row: (means[id(row)] is None, sign * (means[id(row)] or 0.0)))
    sides = {name: side_of(runs, name) for name in asked if name not in closed}
    columns = [_metric_column(name, rows, sides.get(name)) for name in there] + _costs(rows) + _marked(rows, marks, sides)
    settings = list(dict.fromkeys(key for row in rows for key in row.differences))
    return Comparison(task, rows, settings, columns, order_by, refused, verdicts, _notes(rows, verdicts))


def _has(rows: Sequence[Row], name: str) -> bool:
    return any(name == row.name or name in (run.name, str(run.path)) for row in rows for run in row.runs)


def _are_tested(runs: Sequence[Run]) -> bool:
    return any(name.startswith("test/") for run in runs for name in run.metrics)


def _shown(runs: Sequence[Run]) -> list[str]:
    """The metrics of the test, otherwise of the validation; not those of single classes."""
    names = list(dict.fromkeys(name for run in runs for name in run.metrics))
    split = "test/" if _are_tested(runs) else "val/"
    return [name for name in names if name.startswith(split) and name.count("/") == 1]


def _order_by(runs: Sequence[Run], metrics: list[str], by: str | None, closed: set[str]) -> str | None:
    """The metric that the rows are ordered by.

    Raises:
        ValueError: If the one that is asked for is none, or must not be ranked.
    """
    if by is not None:
        if not any(by in run.metrics for run in runs):
            raise ValueError(f"--by {by}: no run has it; there are {', '.join(metrics)}")
        return None if by in closed else by
    judged = (runs[0].results.get("monitor") or ("val/loss",))[0]  # the loss, where a task names nothing better
    monitor = runs[0].settings.get("training.monitor") or (None if judged == "val/loss" else judged)
    preferred = [str(monitor).rpartition("/")[2]] if monitor else []
    for short in [*preferred, *MAIN]:
        for name in metrics:
            if name.rpartition("/")[2] == short:
                if name not in closed:
                    return name
                free = [other for other in metrics if other.rpartition("/")[2] in WITHOUT_TOKENS and other not in closed]
                return free[-1] if free else None
    return None


def _metric_column(name: str, rows: list[Row], side: str | None) -> Column:
    """A metric with its best where its better side is given, which it is where it may be ranked."""
    cells = [row.metric(name) for row in rows]
    means = [cell.mean for cell in cells if cell.mean is not None]
    if side is None or len(set(means)) < 2:
        return Column(name, "number", cells)
    best = min(means) if side == "min" else max(means)
    return Column(name, "number", cells, frozenset(place for place, cell in enumerate(cells) if cell.mean == best))


def _costs(rows: list[Row]) -> list[Column]:
    wanted = (
        ("parameters", "parameters", "count"),
        ("steps", "steps", "count"),
        ("tokens trained on", "tokens", "count"),
        ("tokens per second", "tokens_per_second", "count"),
        ("training time", "train_seconds", "seconds"),
        ("peak memory", "peak_memory_bytes", "bytes"),
    )
    return [Column(title, kind, [row.result(name) for row in rows]) for title, name, kind in wanted]


def _marked(rows: list[Row], marks: Sequence[Mark], sides: dict[str, str]) -> list[Column]:
    """The times to marks of metrics that may be ranked."""
    found = []
    for mark in (mark for mark in marks if mark.metric in sides):
        for what, kind in (("seconds", "seconds"), ("step", "count"), ("tokens", "count")):
            title = f"{'time' if what == 'seconds' else what} to {mark.metric} {mark.value:g}"
            found.append(Column(title, kind, [row.reaching(mark, sides[mark.metric], what) for row in rows]))
    return found


def _notes(rows: list[Row], verdicts: list[Verdict]) -> list[str]:
    notes = []
    if any(len(row.runs) > 1 for row in rows):
        notes.append("\u00b1 is the standard deviation from seed to seed")
    lonely = [row.name for row in rows if len(row.runs) == 1]
    if len(rows) > 1 and lonely:
        few = len(lonely) < len(rows)
        notes.append(f"one seed only, so no spread: {'; '.join(lonely)}" if few else "one seed each, so no spread")
    made = sum(len(verdict.figures) for verdict in verdicts)
    if made > 1:
        notes.append(f"{made} tests were made; their p-values are each for itself, without a correction for their number")
    return notes


def plain(comparison: Comparison) -> dict[str, Any]:
    """All of it in dictionaries, lists and scalars."""
    rows = []
    for place, row in enumerate(comparison.rows):
        measured = {column.title: _plain_cell(column.cells[place]) for column in comparison.columns}
        runs = [{"path": str(run.path), "seed": run.seed, "command": run.command} for run in row.runs]
        rows.append({"name": row.name, "settings": row.differences, "runs": runs, "measured": measured})
    return {
        "task": comparison.task,
        "ranked_by": comparison.ranked_by,
        "rows": rows,
        "refused": [asdict(refusal) for refusal in comparison.refused],
        "tests": [asdict(verdict) for verdict in comparison.verdicts],
        "notes": comparison.notes,
    }


def _plain_cell(cell: Measured) -> dict[str, Any]:
    return {"mean": cell.mean, "spread": cell.spread, "values": list(cell.values), "runs": cell.runs}
