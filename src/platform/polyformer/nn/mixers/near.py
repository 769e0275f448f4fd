"""Attention to a window on a processor: a few queries after the other meet the keys around them, which stay in its cache.

Letters: B batch, R rows that differ (B, or 1 where all agree), H query heads, G key/value heads, L tokens, K width per head.
"""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from polyformer.nn.attend import Where, spread
from polyformer.nn.mask import Mask
from polyformer.nn.mixers.blocks import Places
from polyformer.nn.pieces import Hidden, Piece, Pieces, attention_over, cut, hide
from polyformer.nn.position import Position

__all__ = ["attend_near", "has_cache"]

QUERIES = 128  # at a time: fewer are shown fewer keys in vain, more make larger products


def has_cache(q: Tensor, position: Position) -> bool:
    """Whether :func:`attend_near` can be used: on a CPU, without a bias."""
    return q.device.type == "cpu" and not torch.compiler.is_compiling() and "bias" not in position.doors()


def attend_near(q: Tensor, k: Tensor, v: Tensor, where: Where, probability: float = 0.0) -> Tensor:
    """What :func:`~polyformer.nn.attend.attend` gives by a mask with a window, for tokens that stand as their indices say.

    Args:
        q: (B, H, L, K) queries.
        k: (B, G, L, K) keys.
        v: (B, G, L, K) values.
        where: A mask with a window, and the indices of the tokens.
        probability: Dropout on the weights.

    Returns:
        (B, H, L, K).
    """
    pieces = Pieces(list(cut(q, _spans(q.shape[2], where.mask))), _Sight(where))
    return attention_over(pieces, q, spread(k, q), spread(v, q), None, probability)


def _spans(length: int, mask: Mask) -> Iterator[tuple[slice, slice]]:
    """A few queries at a time, and the keys that the window shows any of them."""
    assert mask.window is not None
    back = mask.window - 1
    for first in range(0, length, QUERIES):
        last = min(first + QUERIES, length)
        yield slice(first, last), slice(max(0, first - back), min(length, last + (0 if mask.causal else back)))


class _Sight:
    """What the mask hides in a piece; drawn once for all pieces that lie alike, where nothing is padded or packed.

    Args:
        where: Mask and indices.
    """

    def __init__(self, where: Where) -> None:
        self.mask, self.places = where.mask, Places.of(where.mask, where.q_at)
        self.is_plain = self.mask.keep is None and self.mask.document is None
        self.drawn: dict[tuple[int, int, int], Hidden] = {}

    def __call__(self, piece: Piece) -> Hidden:
        rows, _, queries, keys = piece
        if not self.is_plain:
            return self._draw(rows, queries, keys)
        lies = (queries.start - keys.start, queries.stop - queries.start, keys.stop - keys.start)
        if lies not in self.drawn:
            self.drawn[lies] = self._draw(slice(0, 1), queries, keys)
        return self.drawn[lies]

    def _draw(self, rows: slice, queries: slice, keys: slice) -> Hidden:
        looking, seen = (self.places.each(partial(_cut, rows, columns)) for columns in (queries, keys))
        visible = self.mask.pairs(looking.at, seen.at) & looking.may_meet(seen)  # (R, L, S)
        return hide(visible.unsqueeze(1), torch.float32)


def _cut(rows: slice, columns: slice, x: Tensor) -> Tensor:
    return (x if len(x) == 1 else x[rows])[:, columns]
