"""Attention by a kernel that passes over blocks of keys which no query of a block sees: FlexAttention (Dong et al. 2024).

Letters: B batch, H query heads, G key/value heads, L queries, S keys, K width per head.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from polyformer.nn.attend import Where
from polyformer.nn.position import Position

__all__ = ["attend_by_kernel", "has_kernel"]

NARROWEST = 16
"""Features of a head that the kernel wants at least."""


def has_kernel(q: Tensor, position: Position, probability: float) -> bool:
    """Whether :func:`attend_by_kernel` can be used: on a GPU, without a bias and without dropout, which it does not have."""
    fits = q.device.type == "cuda" and q.dtype != torch.float64 and q.shape[-1] >= NARROWEST
    return fits and not probability and "bias" not in position.doors()


def attend_by_kernel(q: Tensor, k: Tensor, v: Tensor, where: Where) -> Tensor:
    """What :func:`~polyformer.nn.attend.attend` gives without bias and dropout.

    Args:
        q: (B, H, L, K) queries.
        k: (B, G, S, K) keys.
        v: (B, G, S, K) values.
        where: Mask and indices.

    Returns:
        (B, H, L, K).
    """
    draw, attention = kernels()
    rows = None if where.mask.keep is None and where.mask.document is None and where.q_at.dim() == 1 else len(q)
    blocks = draw(_sees(where), rows, None, q.shape[2], k.shape[2], device=q.device)
    mixed: Tensor = attention(q, k, v, block_mask=blocks, enable_gqa=q.shape[1] != k.shape[1])
    return mixed


@cache
def kernels() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What draws the blocks and what attends, each compiled once."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # takes a second, and few need it

    return torch.compile(create_block_mask), torch.compile(flex_attention)


def _sees(where: Where) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """The mask in the kernel's form: the numbers of a row, a head, a query and a key -> whether it is seen."""
    mask, document, keep = where.mask, where.mask.document, where.mask.keep

    def sees(row: Tensor, _: Tensor, query: Tensor, key: Tensor) -> Tensor:
        seen = mask.sees(_of(where.q_at, row, query), _of(where.k_at, row, key))
        if document is not None:
            seen = seen & (document[row, query] == document[row, key])
        return seen if keep is None else seen & keep[row, key]

    return sees


def _of(at: Tensor, row: Tensor, column: Tensor) -> Tensor:
    return at[column] if at.dim() == 1 else at[row, column]
