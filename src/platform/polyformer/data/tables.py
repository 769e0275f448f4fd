"""Rows of tables: .tsv, .csv, .jsonl, .json and .parquet, each plain or .gz."""

import io
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from polyformer.data.lines import check_file, numbered_lines, open_bytes, read_lines
from polyformer.data.reading import NoColumn, NoText, Reading

__all__ = ["LISTED", "READERS", "file_form", "pick", "read_table", "table_format"]

Columns = Mapping[str, str | int]
LISTED = "\0"  # before each value of a list
INSIDE = re.compile(r'[^"]*(?:""[^"]*)*')  # of a quoted field: up to a quote that stands alone


def table_format(path: str | Path) -> str | None:
    """ "tsv", "csv", "jsonl", "json" or "parquet" by the file's name; None for another file."""
    name = Path(path).name.removesuffix(".gz")
    suffix = name.rpartition(".")[2] if "." in name else ""
    return suffix if suffix in READERS else None


def file_form(path: str | Path) -> str:
    """What a file's name says about how it is read: as which table or as text, and whether it is unpacked first.

    >>> file_form("a.jsonl.gz"), file_form("a.txt"), file_form("de.conllu")
    ('jsonl.gz', 'text', 'conllu')
    """
    kind = table_format(path) or ("conllu" if ".conllu" in Path(path).name else "text")
    return kind + (".gz" if Path(path).suffix == ".gz" else "")


def read_table(path: str | Path, columns: Columns, reading: Reading | None = None) -> Iterator[dict[str, str]]:
    """The rows of a table file as strings, by our names. See `read_examples`."""
    kind = table_format(path)
    assert kind is not None
    return READERS[kind](check_file(path), columns, reading or Reading())


def _read_tsv(path: Path, columns: Columns, reading: Reading) -> Iterator[dict[str, str]]:
    """Fields lie between tabs; nothing is quoted, a '"' is a character like any other."""
    rows = ((number, line.split("\t")) for number, line in numbered_lines(path, reading=reading) if line is not None)
    return _by_position(path, rows, columns, reading)


def _read_csv(path: Path, columns: Columns, reading: Reading) -> Iterator[dict[str, str]]:
    """Fields as in RFC 4180: quoted ones may hold commas, line breaks (given back as "\\n") and doubled quotes."""
    return _by_position(path, _csv_rows(path, reading), columns, reading)


def _csv_rows(path: Path, reading: Reading) -> Iterator[tuple[int, list[str]]]:
    lines = ((number, line) for number, line in numbered_lines(path, reading=reading) if line is not None)
    for number, text in lines:
        fields: list[str] = []
        at = 0
        while at <= len(text):
            if text.startswith('"', at):
                quoted = _quoted(text, at + 1, lines)
                if quoted is None:
                    reading.file(path, f'{path}, line {number}: a quote (") opens here and is never closed before a comma')
                    return
                field, text, at = quoted
                fields.append(field)
            else:
                end = text.find(",", at)
                end = len(text) if end < 0 else end
                fields.append(text[at:end])
                at = end + 1
        yield number, fields


def _quoted(text: str, at: int, lines: Iterator[tuple[int, str]]) -> tuple[str, str, int] | None:
    """A field after the quote that opens it, the line it ends in, and where the next one begins; None if it never ends."""
    parts = []
    while True:
        match = INSIDE.match(text, at)
        assert match is not None  # since it may be empty
        parts.append(match.group())
        end = match.end()
        if end < len(text):
            return ("\n".join(parts).replace('""', '"'), text, end + 2) if text[end + 1 : end + 2] in ("", ",") else None
        following = next(lines, None)
        if following is None:
            return None
        text, at = following[1], 0


def _by_position(
    path: Path, rows: Iterator[tuple[int, list[str]]], columns: Columns, reading: Reading
) -> Iterator[dict[str, str]]:
    """Rows as dictionaries; the first one names the columns, unless all of ours are numbers."""
    numbered = all(str(column).isdigit() for column in columns.values())
    if numbered:
        places, width, exact = {name: int(column) for name, column in columns.items()}, 0, False
        width = max(places.values()) + 1
    else:
        header = _header(path, rows, columns, reading)
        if header is None:
            return
        places, width, exact = {name: header.index(str(column)) for name, column in columns.items()}, len(header), True
    for number, fields in rows:
        if width > 1 and _is_blank(fields):
            reading.blank(path, number)
        elif len(fields) < width or (exact and len(fields) > width):
            needed = f"{'' if exact else 'at least '}{width}"
            reading.line(path, number, f"{path}, line {number}: {needed} fields are needed, but there are {len(fields)}")
        else:
            yield {name: fields[place] for name, place in places.items()}


def _is_blank(fields: list[str]) -> bool:
    return len(fields) == 1 and not fields[0].strip()


def _header(path: Path, rows: Iterator[tuple[int, list[str]]], columns: Columns, reading: Reading) -> list[str] | None:
    """The names of the columns, ours among them once each; None for an empty file that is passed over."""
    number, header = next(((number, fields) for number, fields in rows if not _is_blank(fields)), (0, []))
    if not number:
        if not reading.is_broken(path):
            reading.file(path, f"{path}: is empty; its first line must name the columns")
        return None
    for wanted in map(str, columns.values()):
        if wanted not in header:
            hint = "; columns are counted from 0 where there is no header" if len(columns) > 1 else ""
            other = next((mark for mark in (";", "\t") if mark in header[0]), None) if len(header) == 1 else None
            hint = f"; they must lie between commas, but here it is {other!r}" if other else hint
            raise NoColumn(f"{path}, line {number}: no column {wanted!r}; the columns are {', '.join(header)}{hint}")
        if header.count(wanted) > 1:
            count = header.count(wanted)
            raise NoColumn(f"{path}, line {number}: {count} columns have the name {wanted!r}; rename all but one")
    return header


def _read_jsonl(path: Path, columns: Columns, reading: Reading) -> Iterator[dict[str, str]]:
    for number, line in numbered_lines(path, reading=reading):
        if line is not None and not line.strip():
            reading.blank(path, number)
        elif line is not None:
            yield from _picked(path, "line", number, line, columns, reading)


def _read_json(path: Path, columns: Columns, reading: Reading) -> Iterator[dict[str, str]]:
    """One value, so that what is damaged in it is damaged as a whole."""
    try:
        text = "\n".join(read_lines(path))
        rows = _parse(text, f"{path}: is empty" if not text.strip() else str(path))
    except ValueError as error:
        reading.file(path, str(error))
        return
    if not isinstance(rows, list):
        raise ValueError(f"{path}: a .json file must hold one list of objects (name it .jsonl if each line is an object)")
    for number, row in enumerate(rows, 1):
        yield from _picked(path, "object", number, row, columns, reading)


def _picked(path: Path, unit: str, number: int, row: Any, columns: Columns, reading: Reading) -> Iterator[dict[str, str]]:
    """The named columns of a row, which is JSON yet where it is a line; nothing for a damaged one that is passed over."""
    where = f"{path}, {unit} {number}"
    try:
        found = pick(_parse(row, where) if unit == "line" else row, columns, where, reading.lists)
    except NoColumn:
        raise
    except ValueError as error:
        if isinstance(error, NoText) and reading.damaged != "skip":
            raise
        reading.line(path, number, str(error))
    else:
        yield found


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f" (line {error.lineno})" if error.lineno > 1 else ""
        raise ValueError(f"{where}: broken JSON at column {error.colno}{place}: {error.msg}") from None


def _read_parquet(path: Path, columns: Columns, reading: Reading) -> Iterator[dict[str, str]]:
    """Only the columns that are needed are read."""
    from pyarrow import ArrowException, parquet

    number = 0
    try:
        with open_bytes(path) as handle:
            source = parquet.ParquetFile(io.BytesIO(handle.read()) if path.suffix == ".gz" else path)
    except (ArrowException, EOFError, OSError, zlib.error) as error:
        reading.file(path, f"{path}: not a parquet file: {_first_line(error)}")
        return
    known = set(source.schema_arrow.names)
    named = [str(column) for column in columns.values()]
    wanted = {column if column in known else column.partition(".")[0] for column in named}
    batches = source.iter_batches(batch_size=1000, columns=sorted(wanted) if wanted <= known else None)
    while True:
        try:
            rows = next(batches).to_pylist()
        except StopIteration:
            return
        except (ArrowException, OSError) as error:
            reading.file(path, f"{path}, after row {number}: broken parquet file: {_first_line(error)}")
            return
        for row in rows:
            number += 1
            yield from _picked(path, "row", number, row, columns, reading)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def pick(
    row: Any,
    columns: Columns,
    where: str,
    lists: Sequence[str] = (),
    labels: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, str]:
    """The named columns of a nested row as strings, by our names.

    "translation.de" is the key "de" inside "translation". Null becomes "". A list stands in a field with `LISTED` before each
    of its values.

    Args:
        row: the row.
        columns: our name of a field -> the column's name.
        where: the row's place, for messages.
        lists: our names of the fields that may be lists.
        labels: the names of classes stored as numbers, by column.

    Raises ValueError, naming the place.

    >>> pick({"text": "a", "kinds": ["x", "y"]}, {"text": "text", "label": "kinds"}, "a.jsonl, line 1", ["label"])
    {'text': 'a', 'label': '\\x00x\\x00y'}
    """
    found = {}
    for name, given in columns.items():
        column = str(given)
        value = row[column] if isinstance(row, dict) and column in row else _descend(row, column, where)
        names = labels[column] if labels and column in labels else ()
        if isinstance(value, list) and name in lists:
            found[name] = "".join(LISTED + _text(one, column, where, names) for one in value)
        else:
            found[name] = _text(value, column, where, names)
    return found


def _text(value: Any, column: str, where: str, names: Sequence[str]) -> str:
    """A value as a string; that of a class stored as a number is its name."""
    if isinstance(value, int) and 0 <= value < len(names):
        return names[value]
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if value != value:
        raise NoText(f"{where}: column {column!r} holds NaN, which is neither a text nor a number")
    if not isinstance(value, str | int | float):
        hint = " (a list may be labels: `data.target.kind: labels`)" if isinstance(value, list) else ""
        raise NoText(f"{where}: column {column!r} holds a {type(value).__name__}, not a text or a number{hint}")
    text = str(value)
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(f"{where}: column {column!r} has half a surrogate pair (\\uD800 to \\uDFFF), which is no text")
    return text


def _descend(row: Any, column: str, where: str) -> Any:
    value = row
    for key in column.split("."):
        if not isinstance(value, dict):
            raise ValueError(f"{where}: must be an object with the column {column!r}, but is a {type(value).__name__}")
        if key not in value:
            raise NoColumn(f"{where}: no column {column!r}; the columns are {', '.join(map(str, value))}")
        value = value[key]
    return value


READERS: dict[str, Callable[[Path, Columns, Reading], Iterator[dict[str, str]]]] = {
    "tsv": _read_tsv,
    "csv": _read_csv,
    "jsonl": _read_jsonl,
    "json": _read_json,
    "parquet": _read_parquet,
}
