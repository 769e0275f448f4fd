"""How often long work says where it is."""

import sys
from typing import Any

__all__ = ["pace"]

HALF_A_MINUTE = 30.0


def pace() -> dict[str, Any]:
    """Arguments of a progress bar: it moves in a terminal; elsewhere it is a line every half minute, of what takes so long."""
    if sys.stderr.isatty():
        return {"leave": False}
    return {"leave": False, "delay": HALF_A_MINUTE, "mininterval": HALF_A_MINUTE, "maxinterval": 2 * HALF_A_MINUTE}
