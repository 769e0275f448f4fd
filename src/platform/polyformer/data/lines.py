"""Lines of text files: what a line is, and what is said about a file that cannot be read."""

import difflib
import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from polyformer.data.reading import Reading

__all__ = ["check_file", "columns_of", "numbered_lines", "open_bytes", "read_lines"]

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def check_file(path: str | Path) -> Path:
    """The path, if a file is there; otherwise ValueError with the nearest name in its folder."""
    path = Path(path)
    if path.is_file():
        return path
    if path.is_dir():
        raise ValueError(f"{path}: is a folder, not a file")
    folder = path.parent
    if not folder.is_dir():
        raise ValueError(f"{path}: no such file; there is no folder {folder}")
    nearest = difflib.get_close_matches(path.name, [entry.name for entry in folder.iterdir()], n=1, cutoff=0.5)
    raise ValueError(f"{path}: no such file" + (f"; did you mean {folder / nearest[0]}?" if nearest else ""))


def columns_of(line: str) -> list[str]:
    """The columns of a line, between tabs where there are any and otherwise between spaces, without white space around them.

    >>> columns_of("New York\\tB-LOC "), columns_of("York  I-LOC"), columns_of("\u3000 O")
    (['New York', 'B-LOC'], ['York', 'I-LOC'], ['\\u3000', 'O'])
    """
    return [part.strip() for part in line.split("\t")] if "\t" in line else re.split(" +", line.strip(" "))


def open_bytes(path: Path) -> IO[bytes]:
    """The file for reading, unpacked if its name ends in ".gz"."""
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def read_lines(path: str | Path, keep_ends: bool = False, reading: Reading | None = None) -> Iterator[str]:
    """The lines of a UTF-8 file, plain or .gz, without their ends, or with them as they are in the file.

    A line ends at "\\n" or "\\r\\n" only, so that characters such as U+2028 stay inside, as they do for `wc -l`.
    Raises ValueError for a missing file, and, unless `reading` passes them over, for a broken .gz, a file that the system
    does not give, and what is not UTF-8 (with line and byte).
    """
    return (line for _, line in numbered_lines(path, keep_ends, reading) if line is not None)


def numbered_lines(
    path: str | Path, keep_ends: bool = False, reading: Reading | None = None
) -> Iterator[tuple[int, str | None]]:
    """As `read_lines`, each line with its number; None in place of a line that was passed over."""
    path, reading, number = check_file(path), reading or Reading(), 0
    try:
        with open_bytes(path) as handle:
            for number, raw in enumerate(handle, 1):
                raw = raw.removeprefix(BYTE_ORDER_MARK) if number == 1 else raw
                if not keep_ends and raw.endswith(b"\n"):
                    raw = raw.removesuffix(b"\n").removesuffix(b"\r")
                yield number, _decoded(raw, path, number, reading)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        reading.file(path, f"{path}, after line {number}: broken .gz file: {error}")
    except OSError as error:
        reading.file(path, f"{path}, after line {number}: cannot be read: {error.strerror or error}")


def _decoded(raw: bytes, path: Path, number: int, reading: Reading) -> str | None:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        what = f"byte {error.start + 1} of the line, 0x{raw[error.start]:02x}"
        reading.line(path, number, f"{path}, line {number}: not UTF-8 text ({what}); convert the file first")
        return None
