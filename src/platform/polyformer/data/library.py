"""Python's own standard library as a text: a first corpus that needs no download."""

import sysconfig
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from polyformer.data.batches import BatchSettings
from polyformer.data.cache import file_digest, key_digest
from polyformer.data.documents import Document, read_blocks
from polyformer.data.text_batch import Layout
from polyformer.data.text_data import TextData, TextTokenizerSettings

__all__ = ["PythonLibrary", "library_files"]

OTHERS = {"__pycache__", "idlelib", "lib2to3", "pydoc_data", "site-packages", "dist-packages", "test", "tests", "turtledemo"}
SHARE = 20  # one of so many bytes is for validation, and one for test
FEWEST = 20


def library_files(limit_bytes: int | None = None) -> list[Path]:
    """The .py files of the standard library on this machine, by name, without its tests; the first ones up to a limit.

    Raises ValueError where there are none.

    >>> "json/decoder.py" in [path.as_posix()[-15:] for path in library_files()]
    True
    """
    folder = Path(sysconfig.get_path("stdlib"))
    found = [path for path in folder.rglob("*.py") if not OTHERS.intersection(path.relative_to(folder).parts[:-1])]
    files: list[Path] = []
    total = 0
    for path in sorted(found, key=lambda path: path.relative_to(folder).as_posix()):
        total += path.stat().st_size
        if limit_bytes is not None and total > limit_bytes and len(files) >= FEWEST:
            break
        files.append(path)
    if len(files) < FEWEST:
        raise ValueError(f"{folder}: Python's standard library is not here as .py files; give --data.train FILE instead")
    return files


class PythonLibrary(TextData):
    """The source code of Python's standard library on this machine, each file a document.

    Validation and test are nearly a twentieth each, of whole files.

    Args:
        limit_megabytes: about how much of it is used, the first files by name; all of it, some 10 megabytes, if None.
        layout: see `TextData`, as are the others.
        window: tokens in a window.
        stride: tokens from one window to the next in evaluation.
        tokenizer: how text is cut into tokens.
        processes: how many processes encode long text.
        batches: how windows are put into batches.
    """

    def __init__(
        self,
        limit_megabytes: float | None = None,
        layout: Layout = "packed",
        window: int = 256,
        stride: int | None = None,
        tokenizer: TextTokenizerSettings = TextTokenizerSettings(vocab_size=2000),  # noqa: B008 - frozen
        processes: int | None = None,
        batches: BatchSettings = BatchSettings(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(
            document="file",
            layout=layout,
            window=window,
            stride=stride,
            tokenizer=tokenizer,
            processes=processes,
            batches=batches,
        )
        if limit_megabytes is not None and limit_megabytes <= 0:
            raise ValueError(f"`data.limit_megabytes` must be above 0, but is {limit_megabytes}")
        self.limit_megabytes = limit_megabytes

    @cached_property
    def splits(self) -> dict[str, list[Path]]:
        """The files of "train", "validation" and "test"."""
        limit = None if self.limit_megabytes is None else round(self.limit_megabytes * 10**6)
        files: dict[str, list[Path]] = {"validation": [], "test": [], "train": []}
        sizes = dict.fromkeys(files, 0)
        for path in library_files(limit):
            size = path.stat().st_size
            room = (sum(sizes.values()) + size) // SHARE - size
            chosen = next((name for name in ("validation", "test") if sizes[name] <= room), "train")
            files[chosen].append(path)
            sizes[chosen] += size
        return files

    @cached_property
    def digests(self) -> dict[str, str]:
        """A digest of the names and contents of each split's files."""
        named = {split: [[path.name, file_digest(path)] for path in files] for split, files in self.splits.items()}
        return {split: key_digest({"files": files}) for split, files in named.items()}

    def read(self, split: str) -> Iterator[Document]:
        """The files of a split."""
        return map(read_blocks, self.splits[split])

    def contents(self, split: str) -> list[str]:
        """A digest of a split's files; they do not change while Python runs."""
        return [self.digests[split]]
