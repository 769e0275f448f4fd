"""Position encodings: how a model is told where its tokens are. The contract, and the kinds that act on embeddings.

Letters: B batch, L queries, S keys, H query heads, G key/value heads, D model, K width per head.
"""

import math
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polyformer.nn.shape import Limited, Shape

__all__ = ["Learned", "NoPosition", "Position", "PositionFactory", "Sinusoidal", "sinusoids"]


class Position(Limited, nn.Module):
    """Tells a model where its tokens are, through exactly one of three doors, each the identity until overridden.

    ``embed`` is called once per stack, on token embeddings (sinusoidal, learned). ``rotate`` is called by mixers on
    projected queries and keys, before keys enter a cache (rotary). ``bias`` is called once per attention, by
    :func:`polyformer.nn.attend.attend`, on rotated queries and keys (relative kinds). Indices are absolute and come as
    vectors: (L,) when all rows agree, (B, L) when they do not.

    Args:
        shape: What the stack has decided.
    """

    without_limit = "Sinusoidal"

    shared: ClassVar[bool] = True
    """Whether one instance serves all layers of a stack; otherwise each layer has its own."""

    adds_values: bool = False
    """Whether the door ``bias`` has a second half, :meth:`values`, which needs the attention weights."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape

    @classmethod
    def doors(cls) -> frozenset[str]:
        """The doors this kind uses, read off the methods it overrides."""
        return frozenset(door for door in ("embed", "rotate", "bias") if getattr(cls, door) is not getattr(Position, door))

    def embed(self, x: Tensor, at: Tensor) -> Tensor:
        """(B, L, D) token embeddings at indices ``at`` -> (B, L, D)."""
        return x

    def rotate(self, heads: Tensor, at: Tensor) -> Tensor:
        """(B, heads, L, K) queries, keys, or both side by side, at indices ``at`` -> (B, heads, L, K)."""
        return heads

    def bias(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor | None:
        """What is added to the scaled logits.

        Args:
            q: (B, H, L, K) queries.
            k: (B, G, S, K) keys.
            q_at: Indices of the queries, (L,) or (B, L).
            k_at: Indices of the keys, (S,) or (B, S).

        Returns:
            (B or 1, H, L, S); None where there is nothing to add.
        """
        return None

    def values(self, weights: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        """(B, H, L, S) attention weights -> (B, H, L, K), added to what they gather; asked where ``adds_values``."""
        raise NotImplementedError(f"{type(self).__name__} adds nothing to values")


PositionFactory = Callable[[Shape], Position]


class NoPosition(Position):
    """No position at all: a causal model can still count; an encoder sees a bag of tokens."""


class Sinusoidal(Position):
    """Sines and cosines of geometrically spaced wavelengths (Vaswani et al. 2017, section 3.5).

    Feature 2i is sin(at / 10000^(2i/D)), feature 2i+1 the cosine; they are computed from the indices, so there is no
    longest sequence. An odd D ends with a sine.

    >>> Sinusoidal(Shape(d_model=4, num_heads=1)).embed(torch.zeros(1, 1, 4), torch.tensor([1]))
    tensor([[[0.8415, 0.5403, 0.0100, 0.9999]]])
    """

    def embed(self, x: Tensor, at: Tensor) -> Tensor:
        return x + sinusoids(at, self.shape.d_model).to(x.dtype)


def sinusoids(at: Tensor, width: int) -> Tensor:
    """The table of :class:`Sinusoidal` at the given indices: (...,) -> (..., width) float32."""
    evens = torch.arange(0, width, 2, dtype=torch.float32, device=at.device)
    angles = at.float().unsqueeze(-1) * torch.exp(evens * (-math.log(10000.0) / width))  # (..., width / 2)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[..., :width]


class Learned(Position):
    """A trained vector for each index (Gehring et al. 2017; Vaswani et al. 2017, table 3, row E).

    There are ``shape.max_length`` of them: a longer text is refused, never clipped.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.table = nn.Parameter(nn.init.normal_(torch.empty(shape.max_length, shape.d_model), std=shape.d_model**-0.5))

    @property
    def limit(self) -> int:
        return self.shape.max_length

    def embed(self, x: Tensor, at: Tensor) -> Tensor:
        return x + F.embedding(at, self.table)
