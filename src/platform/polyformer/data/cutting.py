"""What is left of a text that is too long."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Cut", "TextLimits", "cut_ids", "cut_together"]

Cut = Literal["head", "tail", "both"]

SHORTEST = 5  # two texts of one token, and the three marks around them


@dataclass(frozen=True)
class TextLimits:
    """How long a text may be, and what is left of a longer one; how many were cut is said with the data.

    Args:
        max_length: the most tokens, the marks at the beginning, between and at the end included. Of two texts the longer
            one is cut first.
        cut: what is kept of a text that is cut: its beginning (head), its end (tail), or half of each (both).

    >>> TextLimits(max_length=512).room(texts=2)
    509
    """

    max_length: int = 512
    cut: Cut = "head"

    def __post_init__(self) -> None:
        if self.max_length < SHORTEST:
            raise ValueError(f"`data.limits.max_length` must be at least {SHORTEST}, but is {self.max_length}")

    def room(self, texts: int) -> int:
        """How many tokens so many texts may have together, the marks left out."""
        return self.max_length - texts - 1


def cut_ids(ids: Sequence[int], most: int, cut: Cut) -> list[int]:
    """At most `most` of the ids.

    >>> [cut_ids([1, 2, 3, 4, 5], 3, cut) for cut in ("head", "tail", "both")]
    [[1, 2, 3], [3, 4, 5], [1, 2, 5]]
    """
    if len(ids) <= most:
        return list(ids)
    tail = {"head": 0, "tail": most, "both": most // 2}[cut]
    return [*ids[: most - tail], *ids[len(ids) - tail :]]


def cut_together(texts: Sequence[Sequence[int]], most: int, cut: Cut) -> list[list[int]]:
    """Texts that have at most `most` ids together: the longest are cut, to one length.

    >>> cut_together([[1, 2, 3, 4, 5, 6], [7, 8]], 6, "head"), cut_together([[1, 2, 3], [4, 5, 6]], 3, "tail")
    ([[1, 2, 3, 4], [7, 8]], [[3], [5, 6]])
    """
    kept: list[list[int]] = [[] for _ in texts]
    left = most
    for done, place in enumerate(sorted(range(len(texts)), key=lambda place: len(texts[place]))):
        kept[place] = cut_ids(texts[place], left // (len(texts) - done), cut)
        left -= len(kept[place])
    return kept
