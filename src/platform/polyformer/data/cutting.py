"""What is left of a text that is too long."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

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
        stride: read a longer text in several windows of `max_length` tokens, each so many tokens after the one before; what
            is decided is the mean over them. None: one window. Not for pairs of texts.
        windows: the most windows of a text; what does not fit into them is cut.

    >>> TextLimits(max_length=512).room(texts=2), TextLimits(max_length=512, stride=256).room(texts=1)
    (509, 2302)
    """

    max_length: int = 512
    cut: Cut = "head"
    stride: int | None = None
    windows: int = 8

    def __post_init__(self) -> None:
        if self.max_length < SHORTEST:
            raise ValueError(f"the data's `max_length` must be at least {SHORTEST}, but is {self.max_length}")
        if self.stride is not None and not 1 <= self.stride <= self.max_length - 2:
            raise ValueError(
                f"`data.limits.stride` must be from 1 to {self.max_length - 2} (`max_length` - 2), but is {self.stride}"
            )
        if self.windows < 1:
            raise ValueError(f"`data.limits.windows` must be at least 1, but is {self.windows}")

    def room(self, texts: int) -> int:
        """How many tokens so many texts may have together, the marks left out."""
        return self.max_length - texts - 1 + (0 if self.stride is None else (self.windows - 1) * self.stride)

    def cost(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places that texts of so many tokens take in a batch, marks included, the windows of long ones summed.

        >>> TextLimits(max_length=5, stride=2).cost(np.array([2, 3, 6])).tolist()
        [4, 5, 15]
        """
        size = self.max_length - 2
        if self.stride is None:
            return lengths + 2
        windows = -(-(lengths - size) // self.stride) + 1
        cost: NDArray[np.int64] = np.where(lengths > size, windows * self.max_length, lengths + 2)
        return cost

    def windowed(self, ids: Sequence[int]) -> list[Sequence[int]]:
        """The windows that the ids of a text are read in; the last one ends where the text does.

        >>> TextLimits(max_length=5, stride=2).windowed([1, 2, 3, 4, 5, 6])
        [[1, 2, 3], [3, 4, 5], [4, 5, 6]]
        """
        size = self.max_length - 2
        if self.stride is None or len(ids) <= size:
            return [ids]
        begins = [*range(0, len(ids) - size, self.stride), len(ids) - size]
        return [ids[begin : begin + size] for begin in begins]


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
