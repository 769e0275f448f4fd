"""Where examples come from: tables, files side by side, or data sets of the Hugging Face hub, each in any number of parts."""

import glob
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from polyformer.data.lines import numbered_lines
from polyformer.data.reading import Reading
from polyformer.data.tables import READERS, pick, read_table, table_format

__all__ = [
    "Location",
    "Source",
    "Train",
    "expand",
    "hub_parts",
    "parted",
    "read_examples",
    "read_hub",
    "read_shard",
    "shards",
    "whence",
]

Location = str | Sequence[str]
Train = str | list[str] | list[dict[str, Any]] | None
"""Where training data is: files, or sources that are mixed. No class stands in it, since a file's name would then be opened
in search of one by the parser of settings."""
Shard = tuple[str, ...]
HUB = re.compile(r"hub:(?P<name>[^@:]+)(?:@(?P<config>[^:]+))?:(?P<split>[^#]+)(?:#(?P<part>\d+)/(?P<parts>\d+))?")


@dataclass(frozen=True)
class Source:
    """A part of the training data that is drawn from as often as its weight says.

    Args:
        files: where it is.
        weight: its share, relative to the weights of the others.

    >>> Source("books/*.jsonl.gz", weight=0.3).weight
    0.3
    """

    files: Location
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.weight > 0.0:
            raise ValueError(f"the `weight` of {self} in `data.train` must be above 0, but is {self.weight}")

    def __str__(self) -> str:
        return self.files if isinstance(self.files, str) else ", ".join(self.files)


def expand(location: Location) -> list[str]:
    """The files of a location, in an order that follows from their names alone.

    A pattern such as `shards/*.jsonl.gz` stands for its files in sorted order. A folder stands for the tables or the .txt
    files in it and the folders below, in sorted order, those left out whose names begin with "." or "_". `hub:...` stays as
    it is.

    Raises ValueError for a pattern without files, and a folder with none or several kinds of them.
    """
    paths = [location] if isinstance(location, str) else list(location)
    if not paths:
        raise ValueError("the list of files is empty")
    return [found for path in paths for found in _expand(path)]


def _expand(path: str) -> list[str]:
    if path.startswith("hub:") or Path(path).is_file():
        return [path]
    if Path(path).is_dir():
        return _in_folder(Path(path))
    if not any(character in path for character in "*?["):
        return [path]  # missing; whoever reads it says so
    found = sorted(name for name in glob.glob(path, recursive=True) if Path(name).is_file())
    if not found:
        raise ValueError(f"{path}: no file matches this pattern")
    return found


def _in_folder(folder: Path) -> list[str]:
    found: dict[str, list[str]] = {}
    for name, path in sorted((path.relative_to(folder).as_posix(), path) for path in folder.rglob("*")):
        kind = table_format(path) or ("txt" if name.removesuffix(".gz").endswith(".txt") else None)
        if kind is not None and path.is_file() and not any(part.startswith((".", "_")) for part in name.split("/")):
            found.setdefault(kind, []).append(str(path))
    known = ", ".join(f".{kind}" for kind in (*READERS, "txt"))
    if not found:
        raise ValueError(f"{folder}: a folder without files of a known kind ({known}, each also .gz); name them by a pattern")
    if len(found) > 1:
        kinds = " and ".join(f".{kind}" for kind in found)
        raise ValueError(f"{folder}: a folder with files of several kinds, {kinds}; name those that are meant by a pattern")
    return next(iter(found.values()))


def parted(train: Train, validation_share: float | None) -> tuple[Location | None, tuple[Source, ...]]:
    """All files of the training data, and the sources where there are several that are mixed.

    Raises ValueError for a source with other keys than `files` and `weight`, and where a share of sources is to be held out.

    >>> parted(["a.txt", "b.txt"], None), parted([{"files": "a.txt", "weight": 2}], None)[1]
    ((['a.txt', 'b.txt'], ()), (Source(files='a.txt', weight=2.0),))
    """
    if train is None or isinstance(train, str) or all(isinstance(one, str) for one in train):
        return train, ()  # type: ignore[return-value]
    sources = tuple(map(_source, train))
    if validation_share is not None:
        raise ValueError("`data.validation_share` is not for sources with weights: give `data.validation`")
    return [file for one in sources for file in expand(one.files)], sources


def _source(given: Any) -> Source:
    keys = set(given) if isinstance(given, dict) else set()
    if "files" not in keys or keys - {"files", "weight"}:
        raise ValueError(f"`data.train` must be files, or a list of sources with `files` and `weight`, but has {given}")
    try:
        return Source(given["files"], float(given.get("weight", 1.0)))
    except TypeError:
        raise ValueError(f"the `weight` of {given['files']} in `data.train` must be a number above 0") from None


def read_examples(
    location: Location, columns: Mapping[str, str | int], reading: Reading | None = None
) -> Iterator[dict[str, str]]:
    """The examples at a location, one dictionary each, with the keys of `columns`.

    Args:
        location: tables (.tsv, .csv, .jsonl, .json, .parquet), one after the other; or for several columns as many text files
            with a line per example, in the order of `columns`; or for one column text files, one after the other; each also
            .gz. Each may be a pattern or a folder, see `expand`; where text files stand side by side, the first of one
            belongs to the first of another, and so on. Or `hub:NAME[@CONFIG]:SPLIT`, a data set of the Hugging Face hub.
        columns: our name of a field -> the column's name in the table; `translation.de` is `de` inside `translation`.
            For .tsv and .csv without a header, all are numbers, counted from 0. Not used for text files.
        reading: what happens at lines and files that cannot be read.

    Raises ValueError, naming file and line, for whatever cannot be read.

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "pairs.tsv")
    >>> _ = file.write_text("a dog\\tein Hund\\n")
    >>> list(read_examples(str(file), {"source": 0, "target": 1}))
    [{'source': 'a dog', 'target': 'ein Hund'}]
    """
    found = shards(location, list(columns))
    return (example for shard in found for example in read_shard(shard, columns, reading))


def shards(location: Location, names: Sequence[str]) -> list[Shard]:
    """The parts of a location, each a table, a data set of the hub, or the text files that stand side by side.

    Raises ValueError where the files do not fit the names of the columns.
    """
    found = expand(location)
    if len(names) == 1 or all(_is_whole(path) for path in found):
        return [(path,) for path in found]
    paths = [location] if isinstance(location, str) else list(location)
    fields = ", ".join(names)
    if len(paths) == 1:
        kinds = ", ".join("." + kind for kind in READERS)
        raise ValueError(
            f"{paths[0]}: one text file cannot hold {fields}; give one file for each of them, or a table ({kinds})"
        )
    if len(paths) != len(names):
        raise ValueError(f"{len(paths)} files ({', '.join(paths)}) for {len(names)} columns ({fields})")
    beside = [_expand(path) for path in paths]
    if len(set(map(len, beside))) > 1:
        counts = ", ".join(f"{path} stands for {len(files)}" for path, files in zip(paths, beside, strict=True))
        raise ValueError(f"file i of each must belong together, but their numbers differ: {counts}")
    return list(zip(*beside, strict=True))


def read_shard(shard: Shard, columns: Mapping[str, str | int], reading: Reading | None = None) -> Iterator[dict[str, str]]:
    """The examples of one of `shards`. See `read_examples`."""
    if len(shard) == 1 and shard[0].startswith("hub:"):
        return read_hub(shard[0], columns, lists=reading.lists if reading else ())
    if len(shard) == 1 and table_format(shard[0]) is not None:
        return read_table(shard[0], columns, reading)
    return _aligned(shard, list(columns), reading or Reading())


def _is_whole(path: str) -> bool:
    return path.startswith("hub:") or table_format(path) is not None


def _aligned(paths: Shard, names: list[str], reading: Reading) -> Iterator[dict[str, str]]:
    """Line i of every file is example i; where one is passed over, so are the others beside it."""
    for row in zip_longest(*(numbered_lines(path, reading=reading) for path in paths)):
        if None in row:
            if any(reading.is_broken(path) for path in paths):
                return
            counts = ", ".join(f"{path} has {_count(path)}" for path in paths)
            raise ValueError(f"line i of each file must be example i, but the line counts differ: {counts}")
        lines = [line for _, line in row if line is not None]
        if len(lines) == len(row):
            yield dict(zip(names, lines, strict=True))


def _count(path: str) -> int:
    return sum(1 for _ in numbered_lines(path, reading=Reading("skip")))


def read_hub(
    location: str, columns: Mapping[str, str | int], *, streaming: bool = False, skip: int = 0, lists: Sequence[str] = ()
) -> Iterator[dict[str, str]]:
    """The rows of a data set of the Hugging Face hub, or of one of its `hub_parts`, from one on.

    Args:
        location: `hub:NAME[@CONFIG]:SPLIT`.
        columns: our name of a field -> the column's name.
        streaming: reads rows as they come, without loading all first.
        skip: how many rows are left out.
        lists: our names of the fields that may be lists.

    Raises ValueError for a data set that cannot be loaded, and where the connection is lost.
    """
    import datasets

    match, rows = _open_hub(location, streaming)
    rows = rows.shard(int(match["parts"]), int(match["part"])) if match["part"] else rows
    kinds = {
        name: getattr(kind, "feature", kind) for name, kind in (rows.features or {}).items()
    }  # of lists that of each value
    labels = {name: kind.names for name, kind in kinds.items() if isinstance(kind, datasets.ClassLabel)}
    number = skip
    found = iter(rows.skip(skip) if skip else rows)
    while True:
        try:
            row = next(found)
        except StopIteration:
            return
        except Exception as error:  # as below
            raise ValueError(f"{location}, after row {number}: cannot be read on: {_reason(error)}") from None
        number += 1
        yield pick(row, columns, f"{location}, row {number}", lists, labels)


def hub_parts(location: str) -> list[str]:
    """The files that a data set of the hub is made of, as locations of their own; they can be streamed separately."""
    count = getattr(_open_hub(location, streaming=True)[1], "num_shards", 1)
    return [f"{location}#{part}/{count}" for part in range(count)] if count > 1 else [location]


def whence(split: str, locations: Mapping[str, Any], share: float | None) -> str:
    """What a user may not have asked for: that a split is held out, or is the hub's beside training data that is not.

    Args:
        split: Its name.
        locations: Of every split.
        share: How much of the training data is held out for validation.

    >>> whence("test", {"train": ["mine.tsv"], "test": "hub:imdb:test"}, None)
    '; from hub:imdb:test: yours by --data.test FILE, none by --data.test null'
    """
    if split == "validation" and share is not None:
        return f"; held out of the training data (data.validation_share {share})"
    own, place = str(locations.get("train") or "hub:"), str(locations.get(split))
    is_strange = "hub:" in place and "hub:" not in own
    return f"; from {place}: yours by --data.{split} FILE, none by --data.{split} null" if is_strange else ""


def _open_hub(location: str, streaming: bool) -> tuple[re.Match[str], Any]:
    match = HUB.fullmatch(location)
    if match is None:
        raise ValueError(f"{location}: must be hub:NAME:SPLIT or hub:NAME@CONFIG:SPLIT, such as hub:imdb:train")
    try:
        return match, _load_hub(match, streaming)
    except Exception as error:  # the hub client raises dozens of kinds
        files = "--data.train FILE, --data.validation FILE, --data.test FILE (or null)"
        raise ValueError(f"{location}: cannot be loaded: {_reason(error)}\nLocal files work too: {files}") from None


def _reason(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _load_hub(match: re.Match[str], streaming: bool) -> Any:
    import datasets

    load = partial(datasets.load_dataset, match["name"], match["config"], split=match["split"], streaming=streaming)
    try:
        return load()
    except RuntimeError as error:
        if "scripts are no longer supported" not in str(error):
            raise
        return load(revision="refs/convert/parquet")  # the hub's own conversion of data sets that are scripts
