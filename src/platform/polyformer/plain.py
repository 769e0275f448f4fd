"""Plain values as JSON that every reader takes, and files that are never half written."""

import gzip
import json
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

__all__ = ["appended", "to_json", "whole_file", "whole_lines", "write_json_lines"]


def to_json(content: Any, indent: int | None = None) -> str:
    """JSON of dictionaries, lists and scalars; numbers that are not finite, which JSON does not know, become null.

    >>> to_json({"loss": float("inf"), "text": "你好"})
    '{"loss": null, "text": "你好"}'
    """
    return json.dumps(_finite(content), indent=indent, ensure_ascii=False, allow_nan=False)


def write_json_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Writes a line of JSON for each row, in one piece; compressed where the name ends in `.gz`, and the same each time."""
    content = "".join(f"{to_json(row)}\n" for row in rows).encode()
    with whole_file(path, "wb") as file:
        file.write(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


@contextmanager
def appended(path: Path) -> Iterator[IO[str]]:
    """A text file to be written on at its end.

    Raises:
        OSError: If the disk is full or cannot be written to, naming the path.
    """
    try:
        with path.open("a", newline="", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), str(path)) from error


@contextmanager
def whole_file(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """A file that is written under another name and takes its own at the end, so that nobody ever reads half of it.

    Args:
        path: Where it is found then. What was there stays until then, and for good if anything fails.
        mode: "w" for text, "wb" for bytes.

    Raises:
        OSError: If the disk is full or cannot be written to, naming the path.
    """
    temporary = path.with_name(f".{path.name}.part")
    try:
        is_text = "b" not in mode
        with temporary.open(mode, encoding="utf-8" if is_text else None, newline="" if is_text else None) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except Exception as error:
        cause = error if isinstance(error, OSError) else error.__context__  # torch raises its own error over the disk's
        if isinstance(cause, OSError) and cause.errno is not None:
            raise OSError(cause.errno, os.strerror(cause.errno), str(path)) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def whole_lines(path: Path) -> str:
    """A file's lines without the last one where that has no end, because the disk was full or the power failed."""
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        text = file.read()
    return text[: text.rfind("\n") + 1]


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
