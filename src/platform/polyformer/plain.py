"""Plain values as JSON that every reader takes."""

import gzip
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["to_json", "write_json_lines"]


def to_json(content: Any, indent: int | None = None) -> str:
    """JSON of dictionaries, lists and scalars; numbers that are not finite, which JSON does not know, become null.

    >>> to_json({"loss": float("inf"), "text": "你好"})
    '{"loss": null, "text": "你好"}'
    """
    return json.dumps(_finite(content), indent=indent, ensure_ascii=False, allow_nan=False)


def write_json_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Writes a line of JSON for each row, in one piece; compressed where the name ends in `.gz`, and the same each time."""
    content = "".join(f"{to_json(row)}\n" for row in rows).encode()
    temporary = path.with_name(f".{path.name}")
    temporary.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    temporary.replace(path)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
