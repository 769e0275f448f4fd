"""Work done once: encoded data sets and trained tokenizers, kept under a key of everything they were made from.

A change of a file's content, of a setting or of the tokenizer gives another key, so nothing old is ever used. What is
written goes into a temporary folder that is renamed when complete: a killed process or two ranks at once leave nothing
half done.
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
from tqdm import tqdm

from polyformer.data.limits import ColumnLimits, Report, Rows, apply_limits
from polyformer.data.lines import check_file
from polyformer.data.pace import pace
from polyformer.data.reading import Reading
from polyformer.text import Assets, Tokenizer, TokenizerSettings, train_tokenizer

__all__ = [
    "EncodedDataset",
    "cache_folder",
    "cached_assets",
    "cached_tokenizer",
    "encoded_dataset",
    "file_digest",
    "key_digest",
    "new_folder",
    "write_text",
]

CHUNK = 1000  # examples encoded at a time


@dataclass(frozen=True)
class EncodedDataset:
    """A memory-mapped data set and what became of its examples."""

    rows: datasets.Dataset
    report: Report


def cache_folder() -> Path:
    """`$POLYFORMER_CACHE`, or `polyformer` in the user's cache folder."""
    given = os.environ.get("POLYFORMER_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "polyformer"


def key_digest(key: Mapping[str, Any]) -> str:
    """A short name for a key of plain values (JSON).

    >>> key_digest({"a": 1, "b": [2]}) == key_digest({"b": [2], "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24]


def file_digest(path: str | Path) -> str:
    """The sha256 of a file's content; remembered by path, size and time of change, so that big files are read once."""
    path = check_file(path).resolve()
    status = path.stat()
    stamp = [str(path), status.st_size, status.st_mtime_ns]
    memory = cache_folder() / "digests" / f"{key_digest({'path': str(path)})}.json"
    try:
        known = json.loads(memory.read_text(encoding="utf-8"))
        if known["stamp"] == stamp:
            return str(known["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # not seen before, or a damaged note: read the file
    with path.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    write_text(memory, json.dumps({"stamp": stamp, "digest": digest}))
    return digest


def encoded_dataset(
    examples: Callable[[], Iterator[dict[str, str]]],
    encode: Callable[[dict[str, list[str]]], Rows],
    limits: ColumnLimits,
    key: Mapping[str, Any],
    name: str,
    reading: Reading | None = None,
) -> EncodedDataset:
    """The encoded examples, from the cache if the same were encoded before.

    Args:
        examples: gives the examples from the beginning.
        encode: many examples, as columns, to columns of ids, texts or numbers.
        limits: what is dropped or cut after encoding; part of the key.
        key: everything else the result depends on, in plain values.
        name: what is being encoded, for the progress bar and messages.
        reading: counts what `examples` leaves out.

    Raises ValueError when there is no example, or none is left.
    """
    whole = {"key": key, "limits": asdict(limits), "format": 1}
    folder = cache_folder() / "datasets" / key_digest(whole)
    if not folder.is_dir():
        with new_folder(folder) as fresh:
            report = _write_rows(fresh / "rows.arrow", _chunks(examples(), encode, limits, name), name)
            report = report if reading is None else replace(report, **asdict(reading.unread))
            (fresh / "report.json").write_text(json.dumps(asdict(report)), encoding="utf-8")
            (fresh / "key.json").write_text(json.dumps(whole, indent=1), encoding="utf-8")
    report = Report(**json.loads((folder / "report.json").read_text(encoding="utf-8")))
    return EncodedDataset(datasets.Dataset.from_file(str(folder / "rows.arrow")), report)


def cached_tokenizer(texts: Callable[[], Iterable[str]], settings: TokenizerSettings, key: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer trained on texts, from the cache if it was trained before; `key` says what the texts are."""
    if settings.path is not None:
        return Tokenizer.load(settings.path)
    path = cache_folder() / "tokenizers" / f"{key_digest({'key': key, 'settings': asdict(settings), 'format': 1})}.json"
    if not path.is_file():
        write_text(path, train_tokenizer(texts(), settings, progress=sys.stderr.isatty()).to_json())
    return Tokenizer.load(path)


def cached_assets(learn: Callable[[], Assets], key: Mapping[str, Any]) -> Assets:
    """The labels and numbers that were learned from data, from the cache if they were before; `key` says what from."""
    path = cache_folder() / "labels" / f"{key_digest({'key': key, 'format': 1})}.json"
    if not path.is_file():
        learned = learn()
        write_text(path, json.dumps({"labels": learned.labels, "numbers": learned.numbers}))
    known = json.loads(path.read_text(encoding="utf-8"))
    return Assets(labels=known["labels"], numbers=known["numbers"])


def _chunks(
    examples: Iterator[dict[str, str]],
    encode: Callable[[dict[str, list[str]]], Rows],
    limits: ColumnLimits,
    name: str,
) -> Iterator[tuple[Rows, Report]]:
    with tqdm(desc=f"encoding {name}", unit=" examples", **pace()) as bar:
        while chunk := list(islice(examples, CHUNK)):
            columns = {field: [example[field] for example in chunk] for field in chunk[0]}
            yield apply_limits(encode(columns), limits)
            bar.update(len(chunk))


def _write_rows(path: Path, chunks: Iterator[tuple[Rows, Report]], name: str) -> Report:
    """Writes chunks as an Arrow stream; the first one that is not empty decides the types."""
    total, writer, schema = Report(), None, None
    try:
        for rows, report in chunks:
            total += report
            if report.kept and writer is None:
                schema = pa.schema([(column, _type(values)) for column, values in rows.items()])
                writer = pa.ipc.new_stream(str(path), schema)
            if report.kept and writer is not None:
                writer.write_batch(pa.RecordBatch.from_pydict(rows, schema=schema))
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        raise ValueError(f"{name}: no examples" + (f" are left ({total})" if total != Report() else " were found"))
    return total


def _type(values: list[Any]) -> pa.DataType:
    """The column's type; lists of whole numbers are ids and take four bytes each."""
    kind = pa.array(values).type
    if pa.types.is_list(kind) and (pa.types.is_integer(kind.value_type) or pa.types.is_null(kind.value_type)):
        return pa.list_(pa.int32())
    return kind


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into, which gets its name if all ends well; if another process was faster, its one stays."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield fresh
        try:
            fresh.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Writes a file in one step: no reader ever sees a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, fresh = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
        handle.write(text)
    os.replace(fresh, path)
