"""The table of the field: what the same settings came to in several tasks, side by side."""

from collections.abc import Sequence

from polyformer.experiments.comparison import Column, Comparison
from polyformer.experiments.rows import Measured, Row
from polyformer.experiments.settings import identity

__all__ = ["field_of"]

ACCURACIES = ("train/accuracy", "test/accuracy")
COSTS = ("training time", "parameters")
NOTHING = Measured((), 0)


def field_of(comparisons: Sequence[Comparison]) -> Comparison | None:
    """One comparison with a row for each set of settings, and for each task its accuracies, its own metric and its costs.

    Where single tasks have settings of their own that differ, there is nothing to put side by side.

    Returns:
        The comparison, whose columns begin with the task's name; None where fewer than two rows are there in several tasks.
    """
    names = list(dict.fromkeys(_key(row) for comparison in comparisons for row in comparison.rows))
    shared = [name for name in names if sum(any(_key(row) == name for row in one.rows) for one in comparisons) > 1]
    if len(shared) < 2:
        return None
    rows = [next(row for one in comparisons for row in one.rows if _key(row) == name) for name in shared]
    there = [one for one in comparisons if any(_key(row) in shared for row in one.rows)]
    columns = [column for comparison in there for column in _columns(comparison, shared)]
    settings = list(dict.fromkeys(key for row in rows for key in row.differences))
    return Comparison("All tasks", rows, settings, columns, None, [], [])


def _key(row: Row) -> str:
    return identity(row.differences)


def _columns(comparison: Comparison, names: Sequence[str]) -> list[Column]:
    """The task's columns, with its rows in the order of the names."""
    own = comparison.ranked_by or next(iter(_metrics(comparison)), None)
    wanted = dict.fromkeys([*ACCURACIES, *([own] if own else []), *COSTS])
    places = {_key(row): place for place, row in enumerate(comparison.rows)}
    found = []
    for title in wanted:
        column = next((column for column in comparison.columns if column.title == title), None)
        if column is None and title in ACCURACIES:
            column = Column(title, "number", [row.metric(title) for row in comparison.rows])
        if column is not None and any(cell.values for cell in column.cells):
            cells = [column.cells[places[name]] if name in places else NOTHING for name in names]
            best = frozenset(at for at, name in enumerate(names) if places.get(name) in column.best)
            found.append(Column(f"{comparison.task}: {title}", column.kind, cells, best))
    return found


def _metrics(comparison: Comparison) -> list[str]:
    return [column.title for column in comparison.columns if column.title.startswith("test/")]
