"""Helping with misspelt names."""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["nearest"]


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message: which known name was probably meant, or all of them when there are few.

    >>> nearest("Rotry", ["Rotary", "Learned"])
    '; did you mean Rotary?'
    """
    names = sorted(known)
    close = get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; known are {', '.join(names)}" if 0 < len(names) <= 20 else ""
