"""Attention to a fixed number of mixtures of the tokens (Wang et al. 2020).

Letters: B batch, L tokens, H heads, K width per head, R rank.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polyformer.nn.attend import Where, attend
from polyformer.nn.attention import merge_heads, split_heads
from polyformer.nn.dropout import Dropout
from polyformer.nn.mask import Mask
from polyformer.nn.mixer import Context, Mixer
from polyformer.nn.shape import Shape
from polyformer.nn.state import State

__all__ = ["Linformer"]


class Linformer(Mixer):
    """Softmax attention to ``rank`` learned mixtures of keys and of values (Wang et al. 2020, equation 7), shared by the heads.

    O(L R) time. A token's part in the mixtures is learned for its index, so that left padding changes nothing, and padding
    has no part. Keys are rotated before they are mixed: a logit is then a mixture of logits that depend on distances. A bias
    has no meaning, since a mixture is at no distance.

    Limits: up to ``shape.max_length`` tokens. Every mixture holds all tokens, so it cannot be causal, cannot be decoded step by
    step, and refuses packed documents.

    Args:
        shape: What the stack has decided.
        rank: Number of mixtures.
        dropout: Dropout on the attention weights; None: the stack's.
        bias: Whether the projections add a bias.

    Raises:
        ValueError: For a rank below 1.
    """

    doors: ClassVar[frozenset[str]] = frozenset({"rotate"})
    directions: ClassVar[frozenset[str]] = frozenset({"both"})

    def __init__(self, shape: Shape, rank: int = 64, dropout: float | None = None, bias: bool = True) -> None:
        super().__init__()
        if rank < 1:
            raise ValueError(f"`rank` of Linformer must be at least 1, but is {rank}")
        self.shape = shape
        self.project = nn.Linear(shape.d_model, 3 * shape.d_model, bias)
        self.key_parts = nn.Parameter(torch.randn(shape.max_length, rank) * rank**-0.5)
        self.value_parts = nn.Parameter(torch.randn(shape.max_length, rank) * rank**-0.5)
        self.output = nn.Linear(shape.d_model, shape.d_model, bias)
        self.dropout = Dropout(shape.dropout if dropout is None else dropout)

    @property
    def limit(self) -> int:
        return self.shape.max_length

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        assert state is None and not context.mask.causal
        self.check_length(x.shape[1])
        if context.mask.document is not None:
            raise ValueError(
                "`Linformer` cannot keep packed documents apart; give each text a row of its own, or use FullAttention"
            )
        heads = self.shape.num_heads
        queries_and_keys, v = split_heads(self.project(x), 3 * heads).split((2 * heads, heads), dim=1)
        q, k = context.position.rotate(queries_and_keys, context.at).chunk(2, dim=1)  # (B, H, L, K)
        k, v = mixtures(k, self.key_parts, context), mixtures(v, self.value_parts, context)  # (B, H, R, K)
        where = Where(Mask(), context.at, torch.arange(k.shape[2], device=x.device))
        return self.output(merge_heads(attend(q, k, v, where, None, self.dropout.active)))


def mixtures(heads: Tensor, parts: Tensor, context: Context) -> Tensor:
    """(B, H, L, K) keys or values, the real ones mixed as their indices say -> (B, H, R, K)."""
    chosen = F.embedding(context.at, parts).to(heads.dtype)  # (L, R) or (B, L, R)
    if context.mask.keep is not None:
        chosen = chosen.masked_fill(~context.mask.keep.unsqueeze(-1), 0.0)  # (B, L, R)
    return chosen.transpose(-1, -2).unsqueeze(-3) @ heads
