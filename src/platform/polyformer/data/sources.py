"""Where examples come from: files side by side, one table, or a data set of the Hugging Face hub."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from polyformer.data.lines import read_lines
from polyformer.data.tables import READERS, pick, read_table, table_format

__all__ = ["Location", "files_of", "read_examples", "read_hub"]

Location = str | Sequence[str]
HUB = re.compile(r"hub:(?P<name>[^@:]+)(?:@(?P<config>[^:]+))?:(?P<split>.+)")


def read_examples(location: Location, columns: Mapping[str, str | int]) -> Iterator[dict[str, str]]:
    """The examples at a location, one dictionary each, with the keys of `columns`.

    Args:
        location: two or more text files with a line per example, one file for each of `columns`, in their order; or one
            table (.tsv, .csv, .jsonl, .json, .parquet); or one text file, when there is one column; each also .gz.
            Or `hub:NAME[@CONFIG]:SPLIT`, a data set of the Hugging Face hub.
        columns: our name of a field -> the column's name in the table; `translation.de` is `de` inside `translation`.
            For .tsv and .csv without a header, all are numbers, counted from 0. Not used for text files.

    Raises ValueError, naming file and line, for whatever cannot be read.

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "pairs.tsv")
    >>> _ = file.write_text("a dog\\tein Hund\\n")
    >>> list(read_examples(str(file), {"source": 0, "target": 1}))
    [{'source': 'a dog', 'target': 'ein Hund'}]
    """
    paths = [location] if isinstance(location, str) else list(location)
    if len(paths) > 1:
        if len(paths) != len(columns):
            raise ValueError(f"{len(paths)} files ({', '.join(paths)}) for {len(columns)} columns ({', '.join(columns)})")
        return _aligned(paths, list(columns))
    if not paths:
        raise ValueError("the list of files is empty")
    if paths[0].startswith("hub:"):
        return read_hub(paths[0], columns)
    if table_format(paths[0]) is not None:
        return read_table(paths[0], columns)
    if len(columns) != 1:
        kinds = ", ".join("." + kind for kind in READERS)
        fields = ", ".join(columns)
        raise ValueError(
            f"{paths[0]}: one text file cannot hold {fields}; give one file for each of them, or a table ({kinds})"
        )
    return _aligned(paths, list(columns))


def files_of(location: Location) -> list[Path]:
    """The files of a location; none for the hub."""
    paths = [location] if isinstance(location, str) else list(location)
    return [Path(path) for path in paths if not path.startswith("hub:")]


def _aligned(paths: list[str], names: list[str]) -> Iterator[dict[str, str]]:
    """Line i of every file is example i."""
    for number, lines in enumerate(zip_longest(*map(read_lines, paths))):
        if None in lines:
            counts = [number if line is None else _count(path) for path, line in zip(paths, lines, strict=True)]
            said = ", ".join(f"{path} has {count}" for path, count in zip(paths, counts, strict=True))
            raise ValueError(f"line i of each file must be example i, but the line counts differ: {said}")
        yield dict(zip(names, lines, strict=True))


def _count(path: str) -> int:
    return sum(1 for _ in read_lines(path))


def read_hub(
    location: str, columns: Mapping[str, str | int], *, streaming: bool = False, skip: int = 0
) -> Iterator[dict[str, str]]:
    """The rows of a data set of the Hugging Face hub, from one on; `streaming` reads them without loading all first."""
    match = HUB.fullmatch(location)
    if match is None:
        raise ValueError(f"{location}: must be hub:NAME:SPLIT or hub:NAME@CONFIG:SPLIT, such as hub:imdb:train")
    import datasets

    try:
        rows = _load_hub(match, streaming)
    except Exception as error:  # the hub client raises dozens of kinds
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ValueError(
            f"{location}: cannot be loaded: {reason}\nLocal files work too: --data.train FILE [and the other splits]"
        ) from None
    kinds = rows.features or {}
    labels = {name: kind.names for name, kind in kinds.items() if isinstance(kind, datasets.ClassLabel)}
    for number, row in enumerate(rows.skip(skip) if skip else rows, skip + 1):
        yield pick(row, columns, f"{location}, row {number}", labels)


def _load_hub(match: re.Match[str], streaming: bool) -> Any:
    import datasets

    load = partial(datasets.load_dataset, match["name"], match["config"], split=match["split"], streaming=streaming)
    try:
        return load()
    except RuntimeError as error:
        if "scripts are no longer supported" not in str(error):
            raise
        return load(revision="refs/convert/parquet")  # the hub's own conversion of data sets that are scripts
