"""What is met while files are read: lines and files that cannot be, and lines in which there is nothing."""

import logging
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

__all__ = ["Damaged", "NoColumn", "Reading", "Unread", "said_of_unread"]

log = logging.getLogger("polyformer")

Damaged = Literal["stop", "skip"]

SHOWN = 5  # faults that are said one by one; the others are counted


class NoColumn(ValueError):
    """A column is not there: a mistake in the settings, not damage, so it is never passed over."""


@dataclass(frozen=True)
class Unread:
    """How much was left out while files were read.

    >>> Unread(blank_lines=2)
    Unread(blank_lines=2, damaged_lines=0, damaged_files=0)
    """

    blank_lines: int = 0
    damaged_lines: int = 0
    damaged_files: int = 0


class Reading:
    """What happens at a line or a file that cannot be read, and how many there were.

    A file that is read again is counted again from zero.

    Args:
        damaged: whether the first one stops the run, or all are passed over and counted; None stops too, and names no key.

    >>> reading = Reading("skip")
    >>> reading.line("a.jsonl", "a.jsonl, line 3: broken JSON")
    >>> reading.unread
    Unread(blank_lines=0, damaged_lines=1, damaged_files=0)
    """

    def __init__(self, damaged: Damaged | None = None) -> None:
        if damaged not in (None, "stop", "skip"):
            raise ValueError(f"`data.damaged` must be stop or skip, but is {damaged!r}")
        self.damaged = damaged
        self._blank: Counter[str] = Counter()
        self._lines: Counter[str] = Counter()
        self._files: set[str] = set()
        self._said = 0

    def begin(self, path: str | Path) -> None:
        """A file is about to be read from its beginning."""
        self._blank.pop(str(path), None)
        self._lines.pop(str(path), None)
        self._files.discard(str(path))

    def blank(self, path: str | Path) -> None:
        """A line holds nothing where a line is an object."""
        self._blank[str(path)] += 1

    def line(self, path: str | Path, message: str) -> None:
        """A line of a file cannot be read. Raises ValueError, with the message, unless it is to be passed over."""
        self._meet(message, "leaves out what cannot be read")
        self._lines[str(path)] += 1

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
        return Unread(self._blank.total(), self._lines.total(), len(self._files))

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
