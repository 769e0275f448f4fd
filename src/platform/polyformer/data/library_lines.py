"""Which package of Python's standard library does a line of code come from: a first classification without any file."""

import difflib
import sysconfig
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from polyformer.data.batches import BatchSettings
from polyformer.data.cache import file_digest, key_digest
from polyformer.data.cutting import TextLimits
from polyformer.data.labelled import LabelledData, chance
from polyformer.data.library import library_files
from polyformer.data.lines import read_lines
from polyformer.text import TokenizerSettings

__all__ = ["LibraryLines"]

PACKAGES = ("asyncio", "email", "http", "importlib", "logging", "multiprocessing", "tkinter", "unittest", "xml")
SHORTEST = 12  # characters; what is shorter is `else:` or `return None`, which may come from anywhere
SHARE = 0.1  # of the lines, for validation, and as many for test


class LibraryLines(LabelledData):
    """Lines of code, each with the package it is in. Lines that two packages share are left out.

    No line is in two splits: which one it is in follows from the line alone.

    Args:
        packages: the packages, by name; nine that most installations have if None.
        lines: the most lines of each package; all if None.
        limits: how long lines may be.
        tokenizer: how lines are cut into tokens.
        batches: how lines are put into batches.
    """

    def __init__(
        self,
        packages: list[str] | None = None,
        lines: int | None = 4000,
        limits: TextLimits = TextLimits(max_length=64),  # noqa: B008 - frozen, as those below
        tokenizer: TokenizerSettings = TokenizerSettings(vocab_size=2000),  # noqa: B008
        batches: BatchSettings = BatchSettings(),  # noqa: B008
    ) -> None:
        super().__init__(limits=limits, tokenizer=tokenizer, batches=batches)
        if lines is not None and lines < 10:
            raise ValueError(f"`data.lines` must be at least 10, but is {lines}")
        self.packages, self.lines = packages, lines

    @cached_property
    def files(self) -> dict[str, list[Path]]:
        """The files of each package.

        Raises ValueError for a package that is not here.
        """
        folder, found = Path(sysconfig.get_path("stdlib")), dict[str, list[Path]]()
        for path in library_files():
            package = path.relative_to(folder).parts[0]
            found.setdefault(package, []).append(path)
        for name in self.packages or ():
            if name not in found:
                near = difflib.get_close_matches(name, found, n=1, cutoff=0.5)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise ValueError(f"`data.packages` has {name}, which is no package in {folder}{hint}")
        return {name: found[name] for name in self.packages or PACKAGES if name in found}

    @cached_property
    def labelled_lines(self) -> list[tuple[str, str]]:
        """(line, package) in an order that follows from the lines alone, so that packages are mixed."""
        owners: dict[str, set[str]] = {}
        for package, paths in self.files.items():
            for line in (line.strip() for path in paths for line in read_lines(path)):
                if len(line) >= SHORTEST:
                    owners.setdefault(line, set()).add(package)
        kept: dict[str, list[str]] = {package: [] for package in self.files}
        for line in sorted((line for line in owners if len(owners[line]) == 1), key=lambda line: chance("order", line)):
            (package,) = owners[line]
            if self.lines is None or len(kept[package]) < self.lines:
                kept[package].append(line)
        pairs = [(line, package) for package, lines in kept.items() for line in lines]
        return sorted(pairs, key=lambda pair: chance("order", pair[0]))

    def read(self, split: str) -> Iterator[dict[str, str]]:
        """The lines of a split."""
        bounds = {"validation": (0.0, SHARE), "test": (SHARE, 2 * SHARE), "train": (2 * SHARE, 1.0)}[split]
        for number, (line, package) in enumerate(self.labelled_lines, 1):
            if bounds[0] <= chance(line) < bounds[1]:
                yield {"text": line, "label": package, "where": f"line {number} of the library"}

    def contents(self, split: str) -> list[str]:
        """A digest of the files; they do not change while Python runs."""
        return [f"{split} lines, at most {self.lines} of each package", self._digest]

    @cached_property
    def _digest(self) -> str:
        return key_digest({name: [file_digest(path) for path in paths] for name, paths in self.files.items()})
