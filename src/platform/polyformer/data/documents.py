"""Documents of plain text: which files they are in, and reading them without ever holding one that is long.

A document is a sequence of blocks, read one after the other, which are its text when joined. For tokenizers it is cut into
pieces whose tokens, joined, are those of the whole.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from polyformer.data.lines import check_file, read_lines
from polyformer.data.reading import Reading
from polyformer.data.sources import Location, expand, read_shard
from polyformer.data.tables import table_format

__all__ = [
    "Document",
    "DocumentKind",
    "Piece",
    "byte_count",
    "cut",
    "evenly",
    "hold_out",
    "plain_size",
    "read_all",
    "read_blocks",
    "read_documents",
]

Document = Iterable[str]
DocumentKind = Literal["line", "file"]

BLOCK = 2**18  # characters read at a time of a file that is one document
PIECE = 2**18  # characters after which a document is cut
# Tokenizers begin a new word at a single space before a character of a script with spaces, and at the first Chinese or
# Japanese character of a line: no token ever lies across such a place.
PLACE = re.compile("(?<=\\S) (?=[^\\s\u2e80-\U0010ffff])|(?<=\n)(?=[\u3041-\u3096\u4e00-\u9fff])")


class Piece(NamedTuple):
    """A part of a document's text.

    Args:
        text: the characters, a space in front included.
        begins: whether the document begins here.
        ends: whether the document ends here.
    """

    text: str
    begins: bool = True
    ends: bool = True


def read_all(location: Location, text: str | int, kind: DocumentKind, reading: Reading | None = None) -> Iterator[Document]:
    """The documents of all files of a location, which may be patterns and folders; see `read_documents`."""
    for place in expand(location):
        yield from read_documents(place, text, kind, reading)


def read_documents(place: str, text: str | int, kind: DocumentKind, reading: Reading | None = None) -> Iterator[Document]:
    """The documents of one file or hub data set; each must be used up before the next is asked for.

    Args:
        place: a table (.tsv, .csv, .jsonl, .json, .parquet) or a text file, each also .gz, or `hub:NAME[@CONFIG]:SPLIT`.
        text: the column of the text in tables, where each row is a document.
        kind: whether each line of a text file is a document, without its line end, or the file is one, as it is.
        reading: what happens at lines and files that cannot be read.

    Raises ValueError, naming file and line, for whatever cannot be read.
    """
    if place.startswith("hub:") or table_format(place) is not None:
        for row in read_shard((place,), {"text": text}, reading):
            yield (row["text"],)
    elif kind == "line":
        for line in read_lines(place, reading=reading):
            yield (line,)
    else:
        yield read_blocks(place, reading)


def read_blocks(path: str | Path, reading: Reading | None = None) -> Iterator[str]:
    """The text of a file in parts of many lines."""
    lines: list[str] = []
    size = 0
    for line in read_lines(path, keep_ends=True, reading=reading):
        lines.append(line)
        size += len(line)
        if size >= BLOCK:
            yield "".join(lines)
            lines, size = [], 0
    yield "".join(lines)


def cut(document: Document, longest: int | None = None) -> Iterator[Piece]:
    """A document in pieces of about `longest` characters, cut only where neither a token nor a word is.

    >>> [piece.text for piece in cut(["one two", " three"], longest=4)]
    ['one two', ' three']
    """
    longest = PIECE if longest is None else longest
    if isinstance(document, tuple) and len(document) == 1 and len(document[0]) <= longest:
        return iter((Piece(document[0]),))  # a line, of which there may be millions
    return _cut(document, longest)


def _cut(document: Document, longest: int) -> Iterator[Piece]:
    text, begins, searched = "", True, 0  # up to where no place to cut was found
    for block in document:
        text += block
        at = 0
        while len(text) - at > longest and (place := PLACE.search(text, max(at + longest, searched))):
            yield Piece(text[at : place.start()], begins, ends=False)
            at, begins = place.start(), False
        text = text[at:]
        searched = max(len(text) - 2, 0) if len(text) > longest else 0
    yield Piece(text, begins, ends=True)


def evenly(texts: Iterable[str], most: int) -> tuple[list[str], int]:
    """At most `most` bytes of texts, taken evenly from all of them, and how many there are in all.

    Whenever there are too many, every other text is dropped again: the texts kept are every second, fourth, eighth, ...
    The first is kept whatever its size.

    >>> evenly(["ab", "cd", "ef", "gh", "ij"], most=6)
    (['ab', 'ef', 'ij'], 10)
    """
    kept: list[str] = []
    sizes: list[int] = []
    total = held = 0
    every = 1
    for number, text in enumerate(texts):
        size = byte_count(text)
        total += size
        if number % every:
            continue
        kept.append(text)
        sizes.append(size)
        held += size
        while held > most and len(kept) > 1:
            kept, sizes, every = kept[::2], sizes[::2], every * 2
            held = sum(sizes)
    return kept, total


def byte_count(text: str) -> int:
    """The bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def plain_size(places: Sequence[str]) -> int | None:
    """The bytes of text in files, where all are text files; None where only reading them would tell."""
    plain = all(not (place.startswith("hub:") or place.endswith(".gz") or table_format(place)) for place in places)
    return sum(check_file(place).stat().st_size for place in places) if plain else None


def hold_out(documents: Callable[[], Iterator[Document]], share: float, last: bool) -> Iterator[Document]:
    """The documents without the last `share` of them, or only those; where there is a single one, of its characters.

    Raises ValueError where one of the two parts would be empty.

    >>> def documents():
    ...     yield ["abcdefghij"]
    >>> ["".join(text) for last in (False, True) for text in hold_out(documents, 0.2, last)]
    ['abcdefgh', 'ij']
    """
    count, characters = 0, 0
    for document in documents():
        count += 1
        characters = sum(map(len, document))
    total, unit = (characters, "characters") if count == 1 else (count, "documents")
    first = int(total * (1 - share) + 1e-9)
    if not 0 < first < total:
        raise ValueError(f"`data.validation_share` ({share}) of {total:,} {unit} leaves none for training or for validation")
    if count == 1:
        yield _part(next(documents()), first, last)
        return
    for number, document in enumerate(documents()):
        if (number >= first) == last:
            yield document
        else:
            for _ in document:
                pass


def _part(blocks: Document, first: int, last: bool) -> Iterator[str]:
    """The blocks up to a character, or from it on."""
    at = 0
    for block in blocks:
        split = min(max(first - at, 0), len(block))
        part = block[split:] if last else block[:split]
        at += len(block)
        if part:
            yield part
