"""Softmax attention in pieces that stay in a processor's cache, its weights made again in the backward pass.

On a CPU torch has no fused kernel that drops weights or that gives a bias its gradient: all weights of a layer would be
written to memory several times over, and kept. Here a piece of sentences, heads and queries is finished before the next is
begun, as in FlashAttention (Dao et al. 2022, algorithms 1 and 4, with whole rows of keys); what stays is which weights were
dropped, one byte each. Where a query sees no later key, such keys have no part in the products.

Letters: B sentences, H heads, L queries, S keys, K width per head; b, h, l and s are those of a piece.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from polyformer.nn.dropout import keep_mask

__all__ = ["Piece", "Pieces", "attention_in_pieces", "attention_over", "cut", "hide"]

PIECE_BYTES = 1 << 22
"""Of the weights of a piece: what fits into the caches of two cores."""

CAUSAL_QUERIES = 128
"""Queries in a piece where later keys are left out: fewer leave out more, more make larger products."""

Piece = tuple[slice, slice, slice, slice]
"""Which sentences, heads, queries and keys."""

Hidden = tuple[Tensor | None, Tensor | None]
"""What a mask adds to the logits of a piece, and which of its rows see anything, see :func:`hide`; None: nothing, and all."""


@dataclass(frozen=True)
class Pieces:
    """How attention is cut.

    Args:
        each: The pieces; what is in none of them is not seen.
        hidden: What a mask does to one of them.
    """

    each: Sequence[Piece]
    hidden: Callable[[Piece], Hidden]


def attention_in_pieces(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, visible: Tensor | None, is_causal: bool, probability: float
) -> Tensor:
    """dropout(softmax(q k / sqrt(K) + bias)) v, a row that may see nothing giving zeros.

    Args:
        q: (B, H, L, K) queries.
        k: (B, H, S, K) keys.
        v: (B, H, S, K) values.
        bias: (B or 1, H, L, S), added to the logits.
        visible: (B or 1, 1, L or 1, S) bool, True where a query may look; None: everywhere.
        is_causal: Whether a query sees no key of a later place, which ``visible`` says too.
        probability: Dropout on the weights.

    Returns:
        (B, H, L, K).
    """
    work = torch.promote_types(q.dtype, torch.float32)
    hidden, sighted = (None, None) if visible is None else hide(visible, work)
    each = cut(q, rows_of_keys(q.shape[2], k.shape[2], is_causal))
    return attention_over(
        Pieces(list(each), lambda piece: (part(hidden, piece), part(sighted, piece))), q, k, v, bias, probability
    )


def attention_over(
    pieces: Pieces, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None, probability: float = 0.0
) -> Tensor:
    """As :func:`attention_in_pieces`, with pieces of one's own."""
    mixed: Tensor = _Attention.apply(q, k, v, bias, pieces, probability)
    return mixed


def hide(visible: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """What a mask adds to logits, and which rows see anything; None where all do.

    What is added is far below every logit but finite, so that a row that sees nothing is free of NaN until it is set to zero.
    """
    hidden = torch.zeros_like(visible, dtype=dtype).masked_fill_(~visible, torch.finfo(dtype).min / 2)
    sighted = visible.any(dim=-1, keepdim=True)
    return hidden, None if bool(sighted.all()) else sighted.to(dtype)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, pieces: Pieces, probability: float
    ) -> Tensor:
        count, heads, length, _ = q.shape
        mixed = q.new_empty(count, length, heads, v.shape[-1]).transpose(1, 2)  # (B, H, L, K), heads side by side in memory
        ctx.pieces, ctx.scale, keeps = pieces, 1.0, []
        for piece in pieces.each:
            weights = weights_of(q, k, bias, pieces, piece)
            if probability:
                keep, ctx.scale = keep_mask(weights, probability)
                keeps.append(keep)
                weights.mul_(keep.to(weights.dtype))
            rows, some, queries, keys = piece
            mixed[rows, some, queries] = (weights.to(v.dtype) @ v[rows, some, keys]).mul_(ctx.scale)
        ctx.save_for_backward(q, k, v, bias, *keeps)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias, *keeps = ctx.saved_tensors
        to_q, to_k, to_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        to_bias = torch.zeros_like(bias) if bias is not None and ctx.needs_input_grad[3] else None
        root = q.shape[-1] ** -0.5
        for number, piece in enumerate(ctx.pieces.each):
            rows, some, queries, keys = piece
            weights = weights_of(q, k, bias, ctx.pieces, piece)  # (b, h, l, s)
            pull = gradient[rows, some, queries] * ctx.scale
            pulled = (pull @ v[rows, some, keys].transpose(-1, -2)).to(weights.dtype)  # (b, h, l, s)
            if keeps:
                keep = keeps[number].to(weights.dtype)
                to_v[rows, some, keys].add_((weights * keep).to(v.dtype).transpose(-1, -2) @ pull)
                pulled.mul_(keep)
            else:
                to_v[rows, some, keys].add_(weights.to(v.dtype).transpose(-1, -2) @ pull)
            to_logits = torch.ops.aten._softmax_backward_data(pulled, weights, -1, weights.dtype)
            if to_bias is not None:
                share = to_bias[within(to_bias, piece)]
                share.add_(to_logits.sum_to_size(share.shape))
            to_logits = to_logits.to(q.dtype)
            to_q[rows, some, queries] = (to_logits @ k[rows, some, keys]).mul_(root)
            to_k[rows, some, keys].add_(to_logits.transpose(-1, -2) @ q[rows, some, queries], alpha=root)
        return to_q, to_k, to_v, to_bias, None, None


def weights_of(q: Tensor, k: Tensor, bias: Tensor | None, pieces: Pieces, piece: Piece) -> Tensor:
    """The attention weights (b, h, l, s) of a piece before any is dropped, in float32 at least."""
    rows, some, queries, keys = piece
    logits = (q[rows, some, queries] * q.shape[-1] ** -0.5) @ k[rows, some, keys].transpose(-1, -2)
    logits = logits.to(torch.promote_types(q.dtype, torch.float32))
    hidden, sighted = pieces.hidden(piece)
    for added in (part(bias, piece), hidden):
        if added is not None:
            logits.add_(added)
    weights = logits.softmax(dim=-1)
    return weights if sighted is None else weights.mul_(sighted)


def part(tensor: Tensor | None, piece: Piece) -> Tensor | None:
    """What a piece needs of a tensor whose dimensions may be 1."""
    return None if tensor is None else tensor[within(tensor, piece)]


def within(tensor: Tensor, piece: Piece) -> tuple[slice, ...]:
    """Where a piece is in a tensor whose dimensions may be 1."""
    return tuple(place if size > 1 else slice(None) for place, size in zip(piece, tensor.shape, strict=True))


def rows_of_keys(queries: int, keys: int, is_causal: bool) -> Iterator[tuple[slice, slice]]:
    """So many queries at a time, that the weights of one matrix fit into the cache, and their keys."""
    together = min(queries, max(1, PIECE_BYTES // (4 * keys)), CAUSAL_QUERIES if is_causal else queries)
    for first in range(0, queries, together):
        last = min(first + together, queries)
        yield slice(first, last), slice(0, last if is_causal else keys)


def cut(q: Tensor, spans: Iterable[tuple[slice, slice]]) -> Iterator[Piece]:
    """Pieces of as many matrices as fit into the cache, for each span of queries and keys."""
    count, heads = q.shape[:2]
    for queries, keys in spans:
        room = max(1, PIECE_BYTES // (4 * (queries.stop - queries.start) * (keys.stop - keys.start)))  # matrices
        rows, some = (max(1, room // heads), heads) if room >= heads else (1, room)
        for row in range(0, count, rows):
            for head in range(0, heads, some):
                yield slice(row, min(row + rows, count)), slice(head, min(head + some, heads)), queries, keys
