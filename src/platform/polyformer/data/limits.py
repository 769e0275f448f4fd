"""Which examples are too long or empty, and what is said about them."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, Literal

from polyformer.data.cutting import Cut, cut_together
from polyformer.data.reading import Unread, said_of_unread

__all__ = ["ColumnLimits", "Report", "Together", "apply_limits"]

Rows = dict[str, list[Any]]


@dataclass(frozen=True)
class Report:
    """What became of the examples of a split. Two add up.

    >>> print(Report(kept=98, empty_dropped=2))
    98 examples; dropped: 2 with an empty field
    """

    kept: int = 0
    empty_dropped: int = 0
    long_dropped: int = 0
    truncated: int = 0
    blank_lines: int = 0
    damaged_lines: int = 0
    damaged_files: int = 0

    def __add__(self, other: "Report") -> "Report":
        return Report(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    def __str__(self) -> str:
        dropped = [(self.empty_dropped, "with an empty field"), (self.long_dropped, "too long")]
        said = ", ".join(f"{count:,} {why}" for count, why in dropped if count)
        cut = f"; cut to the limit: {self.truncated:,}" if self.truncated else ""
        unread = said_of_unread(Unread(self.blank_lines, self.damaged_lines, self.damaged_files))
        return f"{self.kept:,} examples" + (f"; dropped: {said}" if said else "") + cut + unread


@dataclass(frozen=True)
class Together:
    """A limit on the ids of several columns together; what is over it is cut.

    Args:
        columns: which columns; the longest one is cut first.
        most: the most ids in all of them.
        cut: what is kept of a column that is cut.
    """

    columns: tuple[str, ...]
    most: int
    cut: Cut = "head"


@dataclass(frozen=True)
class ColumnLimits:
    """Limits on encoded columns.

    Args:
        longest: the most ids per example in each column; None for no limit. Columns not named here are left alone, and so
            are names without a column.
        too_long: what happens to an example over a limit.
        empty: what happens to an example without ids in one of the columns.
        together: a limit on several columns together.

    >>> ColumnLimits({"source": 2}, too_long="truncate").empty
    'drop'
    """

    longest: Mapping[str, int | None] = field(default_factory=dict)
    too_long: Literal["drop", "truncate"] = "drop"
    empty: Literal["drop", "keep"] = "drop"
    together: Together | None = None


def apply_limits(rows: Rows, limits: ColumnLimits) -> tuple[Rows, Report]:
    """The rows that stay, and the count of the others.

    >>> apply_limits({"source": [[4, 5, 6], [], [7]]}, ColumnLimits({"source": 2}, too_long="truncate"))[0]
    {'source': [[4, 5], [7]]}
    """
    kept: list[int] = []
    empty = long = truncated = 0
    count = len(next(iter(rows.values()), []))
    longest = {name: most for name, most in limits.longest.items() if name in rows}
    for at in range(count):
        over = [name for name, most in longest.items() if most is not None and len(rows[name][at]) > most]
        if limits.empty == "drop" and any(not rows[name][at] for name in longest):
            empty += 1
        elif over and limits.too_long == "drop":
            long += 1
        else:
            for name in over:
                rows[name][at] = rows[name][at][: longest[name]]
            truncated += (limits.together is not None and _cut(rows, at, limits.together)) or bool(over)
            kept.append(at)
    if len(kept) < count:
        rows = {name: [values[at] for at in kept] for name, values in rows.items()}
    return rows, Report(len(kept), empty, long, truncated)


def _cut(rows: Rows, at: int, limit: Together) -> bool:
    """Cuts an example's columns to what they may have together; whether they had more."""
    ids = [rows[name][at] for name in limit.columns]
    if sum(map(len, ids)) <= limit.most:
        return False
    for name, shorter in zip(limit.columns, cut_together(ids, limit.most, limit.cut), strict=True):
        rows[name][at] = shorter
    return True
