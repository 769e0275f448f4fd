"""What is met while files are read: lines and files that cannot be, and lines in which there is nothing."""

import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

__all__ = ["Damaged", "NoColumn", "NoText", "Reading", "Unread", "said_of_unread"]

log = logging.getLogger("polyformer")

Damaged = Literal["stop", "skip"]

SHOWN = 5  # faults that are said one by one; the others are counted


class NoColumn(ValueError):
    """A column is not there: a mistake in the settings, not damage, so it is never passed over."""


class NoText(ValueError):
    """A field holds neither a text nor a number: rarely damage, so passing it over is not offered."""


@dataclass(frozen=True)
class Unread:
    """How much was left out while files were read.

    >>> Unread(blank_lines=2)
    Unread(blank_lines=2, damaged_lines=0, damaged_files=0)
    """

    blank_lines: int = 0
    damaged_lines: int = 0
    damaged_files: int = 0


class Tally:
    """How many lines of each file were met. Files are read in order: so each is counted once, however often it is read.

    >>> tally = Tally()
    >>> for number in (3, 8, 3, 8, 9):
    ...     tally.meet("a.jsonl", number)
    >>> tally.total, tally.met
    (3, {'a.jsonl': [9, 3]})
    """

    def __init__(self) -> None:
        self.met: dict[str, list[int]] = {}
        """Of each file the number of the last one, and how many there were up to it."""

    def meet(self, path: str, number: int) -> None:
        """A line was met."""
        last, count = self.met.get(path, (0, 0))
        if number > last:
            self.met[path] = [number, count + 1]

    def join(self, met: dict[str, list[int]]) -> None:
        """Another reader has met these, perhaps in the same files."""
        for path, found in met.items():
            self.met[path] = max(found, self.met.get(path, found))

    @property
    def total(self) -> int:
        """How many there were."""
        return sum(count for _, count in list(self.met.values()))  # a list, since a thread may be reading


class Reading:
    """How files are read: what happens at a line or a file that cannot be read, and how many there were.

    Args:
        damaged: whether the first one stops the run, or all are passed over and counted; None stops too, and names no key.

    >>> reading = Reading("skip")
    >>> reading.line("a.jsonl", 3, "a.jsonl, line 3: broken JSON")
    >>> reading.unread
    Unread(blank_lines=0, damaged_lines=1, damaged_files=0)
    """

    def __init__(self, damaged: Damaged | None = None) -> None:
        if damaged not in (None, "stop", "skip"):
            raise ValueError(f"`data.damaged` must be stop or skip, but is {damaged!r}")
        self.damaged = damaged
        self.lists: tuple[str, ...] = ()  # our names of the fields that may be lists
        self._blank, self._lines = Tally(), Tally()
        self._files: set[str] = set()
        self._said = 0

    def blank(self, path: str | Path, number: int) -> None:
        """A line holds nothing where a line is an object."""
        self._blank.meet(str(path), number)

    def line(self, path: str | Path, number: int, message: str) -> None:
        """A line of a file cannot be read. Raises ValueError, with the message, unless it is to be passed over."""
        self._meet(message, "leaves out what cannot be read")
        self._lines.meet(str(path), number)

    def file(self, path: str | Path, message: str) -> None:
        """A file cannot be read from some place on. Raises ValueError, with the message, unless it is to be passed over."""
        self._meet(message, "goes on with the next file")
        self._files.add(str(path))

    def is_broken(self, path: str | Path) -> bool:
        """Whether a file could not be read to its end."""
        return str(path) in self._files

    @property
    def unread(self) -> Unread:
        """The counts."""
        return Unread(self._blank.total, self._lines.total, len(self._files))

    @property
    def met(self) -> dict[str, Any]:
        """What was met where, in plain values."""
        return {"blank": dict(self._blank.met), "lines": dict(self._lines.met), "files": sorted(self._files)}

    def join(self, met: dict[str, Any]) -> None:
        """Counts what another reader has met too, which may have read the same files."""
        self._blank.join(met["blank"])
        self._lines.join(met["lines"])
        self._files |= set(met["files"])

    def _meet(self, message: str, remedy: str) -> None:
        if self.damaged != "skip":
            raise ValueError(message + (f"; `data.damaged: skip` {remedy}" if self.damaged else "")) from None
        self._said += 1
        if self._said <= SHOWN:
            log.warning("passed over: %s", message)


def said_of_unread(unread: Unread) -> str:
    """The counts as an end of a report; empty where all was read.

    >>> said_of_unread(Unread(blank_lines=1, damaged_files=2))
    '; not read: 1 blank line, 2 damaged files'
    """
    counts = [(count, name.replace("_", " ")) for name, count in asdict(unread).items() if count]
    said = ", ".join(f"{count:,} {name if count > 1 else name.removesuffix('s')}" for count, name in counts)
    return f"; not read: {said}" if said else ""
