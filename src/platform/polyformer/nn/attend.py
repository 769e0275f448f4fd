"""Softmax attention: the cheapest correct kernel, and the same by hand.

Letters: B batch, H query heads, G key/value heads (G divides H), L queries, S keys, K width per head.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from polyformer.nn.dropout import dropout
from polyformer.nn.mask import Mask
from polyformer.nn.pieces import attention_in_pieces, hide
from polyformer.nn.position import Position

__all__ = ["Where", "attend", "attend_by_hand", "is_recording", "recorded_weights", "spread"]

_recorder: ContextVar[list[Tensor] | None] = ContextVar("recorder", default=None)


@contextmanager
def recorded_weights() -> Iterator[list[Tensor]]:
    """Collects the attention weights (B, H, L, S) of every attention inside the block, in the order they run."""
    weights: list[Tensor] = []
    token = _recorder.set(weights)
    try:
        yield weights
    finally:
        _recorder.reset(token)


def is_recording() -> bool:
    """Whether attention weights are wanted, which only attention over all pairs has; never in a step that is compiled."""
    return not torch.compiler.is_compiling() and _recorder.get() is not None


@dataclass(frozen=True)
class Where:
    """The indices of queries and keys, and who may see whom: all that attention knows of places.

    Args:
        mask: Who may look at whom.
        q_at: Indices of the queries, (L,) or (B, L).
        k_at: Indices of the keys, (S,) or (B, S); the same object as ``q_at`` when they are the same tokens.
    """

    mask: Mask
    q_at: Tensor
    k_at: Tensor


def attend(
    q: Tensor, k: Tensor, v: Tensor, where: Where, position: Position | None = None, dropout_probability: float = 0.0
) -> Tensor:
    """softmax(q k / sqrt(K) + bias) v (Vaswani et al. 2017, equation 1), a row that may see nothing giving zeros.

    The one place where the door ``bias`` of a position is used, so that no mixer forgets a part of it. Four cases, the
    first two without any tensor for the mask, so that the fast kernel runs: everything visible; plain causal; a boolean
    mask; a bias, minus infinity where the mask says no.

    Args:
        q: (B, H, L, K) queries.
        k: (B, G, S, K) keys.
        v: (B, G, S, K) values.
        where: Mask and indices.
        position: What may have a bias to add to the logits; queries and keys are rotated already.
        dropout_probability: Dropout on the weights.

    Returns:
        (B, H, L, K).
    """
    if is_recording() or (position is not None and position.adds_values):
        return attend_by_hand(q, k, v, where, position, dropout_probability)
    bias = None if position is None else position.bias(q, k, where.q_at, where.k_at)
    if _has_no_kernel(q, bias, dropout_probability):
        return _attend_in_pieces(q, k, v, where, bias, dropout_probability)
    mask, plain_causal = None, False
    if bias is None and where.mask.is_plain_causal(where.q_at, where.k_at):
        plain_causal = True
    elif not where.mask.sees_all(where.q_at, where.k_at):
        mask = where.mask.dense(where.q_at, where.k_at)
    if bias is not None:
        bias = bias.to(q.dtype)
        mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout_probability, is_causal=plain_causal, enable_gqa=q.shape[1] != k.shape[1]
    )


def attend_by_hand(
    q: Tensor, k: Tensor, v: Tensor, where: Where, position: Position | None = None, dropout_probability: float = 0.0
) -> Tensor:
    """:func:`attend` spelled out: the reference it is tested against, and the path that can drop or record weights."""
    bias = None if position is None else position.bias(q, k, where.q_at, where.k_at)
    k, v = spread(k, q), spread(v, q)
    logits = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)  # (B, H, L, S)
    if bias is not None:
        logits = logits + bias
    if where.mask.sees_all(where.q_at, where.k_at):
        weights = logits.softmax(dim=-1)
    else:
        visible = where.mask.dense(where.q_at, where.k_at)
        weights = _masked_softmax(logits, visible)
    recorder = _recorder.get()
    if recorder is not None:
        recorder.append(weights.detach())
    weights = dropout(weights, dropout_probability)
    mixed = weights.to(v.dtype) @ v  # (B, H, L, K)
    if position is not None and position.adds_values:
        mixed = mixed + position.values(weights, where.q_at, where.k_at).to(v.dtype)
    return mixed


def _has_no_kernel(q: Tensor, bias: Tensor | None, dropout_probability: float) -> bool:
    """Whether torch would write out all weights, and keep them, for dropout or for the gradient of a bias."""
    if q.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    return dropout_probability > 0.0 or (bias is not None and bias.requires_grad)


def _attend_in_pieces(q: Tensor, k: Tensor, v: Tensor, where: Where, bias: Tensor | None, dropout_probability: float) -> Tensor:
    """:func:`attend` where a CPU has no fused kernel."""
    mask = where.mask
    visible = None if mask.sees_all(where.q_at, where.k_at) else mask.dense(where.q_at, where.k_at)
    is_causal = mask.causal and where.q_at is where.k_at and where.q_at.dim() == 1 and q.shape[2] == k.shape[2]
    return attention_in_pieces(q, spread(k, q), spread(v, q), bias, visible, is_causal, dropout_probability)


def spread(shared: Tensor, q: Tensor) -> Tensor:
    """Keys or values (B, G, S, K) for each query head, (B, H, S, K)."""
    groups = q.shape[1] // shared.shape[1]
    return shared if groups == 1 else shared.repeat_interleave(groups, dim=1)


def _masked_softmax(logits: Tensor, visible: Tensor) -> Tensor:
    """Softmax over visible keys; a row that sees none gives zeros. The mask is added: one pass forward and none backward."""
    hidden, sighted = hide(visible, logits.dtype)
    weights = (logits + hidden).softmax(dim=-1)
    return weights if sighted is None else weights * sighted
