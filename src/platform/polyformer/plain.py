"""Plain values as JSON that every reader takes."""

import json
import math
from typing import Any

__all__ = ["to_json"]


def to_json(content: Any, indent: int | None = None) -> str:
    """JSON of dictionaries, lists and scalars; numbers that are not finite, which JSON does not know, become null.

    >>> to_json({"loss": float("inf"), "text": "你好"})
    '{"loss": null, "text": "你好"}'
    """
    return json.dumps(_finite(content), indent=indent, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
