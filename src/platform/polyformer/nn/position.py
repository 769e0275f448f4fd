"""Position encodings: how a model is told where its tokens are.

Letters: B batch, L queries, S keys, H heads, D model, K width per head.
"""

import math
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polyformer.nn.shape import Shape

__all__ = ["Learned", "NoPosition", "Position", "PositionFactory", "Relative", "Rotary", "Sinusoidal"]


class Position(nn.Module):
    """Tells a model where its tokens are, through exactly one of three doors, each the identity until overridden.

    ``embed`` is called once per stack, on token embeddings (sinusoidal, learned). ``rotate`` is called on projected
    queries and keys, before keys enter a cache (rotary). ``bias`` is called once per attention, on rotated queries
    (relative kinds). Indices are absolute and come as vectors: (L,) when all rows agree, (B, L) when they do not.

    Args:
        shape: What the stack has decided.
    """

    shared: ClassVar[bool] = True
    """Whether one instance serves all layers of a stack; otherwise each layer has its own."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape

    @classmethod
    def doors(cls) -> frozenset[str]:
        """The doors this kind uses, read off the methods it overrides."""
        return frozenset(door for door in ("embed", "rotate", "bias") if getattr(cls, door) is not getattr(Position, door))

    @property
    def limit(self) -> int | None:
        """Number of indices that have a position; None when there is no limit."""
        return None

    def check_length(self, length: int) -> None:
        """Refuses a sequence of ``length`` tokens if some would have no position.

        Raises:
            ValueError: Naming the key to change.
        """
        if self.limit is not None and length > self.limit:
            raise ValueError(
                f"`{type(self).__name__}` has positions for {self.limit} tokens (`model.max_length`), but {length} are "
                "needed; train with a larger `model.max_length`, or with a position that has no limit, as Sinusoidal"
            )

    def embed(self, x: Tensor, at: Tensor) -> Tensor:
        """(B, L, D) token embeddings at indices ``at`` -> (B, L, D)."""
        return x

    def rotate(self, heads: Tensor, at: Tensor) -> Tensor:
        """(B, H, L, K) queries or keys at indices ``at`` -> (B, H, L, K)."""
        return heads

    def bias(self, q: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor | None:
        """(B, H, L, K) queries -> (B or 1, H, L, S), added to the scaled logits; None where there is nothing to add."""
        return None


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


class Relative(Position):
    """A trained vector for each clipped distance, met by the query (Shaw et al. 2018, equation 4: the keys' term).

    The logit of a query and a key gains q . a[clip(k_at - q_at)] / sqrt(K). Queries meet the small table first and the
    distances are looked up after: L * (2 clip + 1) numbers, not L * S * K. The values' term is not included (the paper,
    table 4, finds it makes no difference).

    Args:
        shape: What the stack has decided.
        clip: Distances beyond this many tokens count as this many.
    """

    shared: ClassVar[bool] = False

    def __init__(self, shape: Shape, clip: int = 16) -> None:
        super().__init__(shape)
        if clip < 1:
            raise ValueError(f"`clip` of Relative must be at least 1, but is {clip}")
        self.clip = clip
        self.table = nn.Parameter(torch.empty(2 * clip + 1, shape.d_head))
        nn.init.xavier_uniform_(self.table)

    def bias(self, q: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        scores = q @ self.table.t() * q.shape[-1] ** -0.5  # (B, H, L, 2 clip + 1)
        distance = k_at.unsqueeze(-2) - q_at.unsqueeze(-1)  # (L, S) or (B, L, S)
        index = distance.clamp(-self.clip, self.clip) + self.clip
        index = index[None, None] if index.dim() == 2 else index.unsqueeze(1)  # (B|1, 1, L, S)
        return scores.gather(-1, index.expand(*scores.shape[:-1], index.shape[-1]))  # (B, H, L, S)


class Rotary(Position):
    """Queries and keys turned by angles that grow with the index, so that logits see distances (Su et al. 2021, equation 34).

    Feature i of the first half of a head is turned together with feature i of the second half, by at / base^(2i/K);
    angles are float32 in every precision. (Weights of models that turn neighbouring features must be permuted to fit.)

    Args:
        shape: What the stack has decided.
        base: Wavelengths grow from 2 pi to 2 pi times this.
        fraction: Share of each head's features that are turned; the others are left as they are.
    """

    def __init__(self, shape: Shape, base: float = 10000.0, fraction: float = 1.0) -> None:
        super().__init__(shape)
        if not 0.0 < fraction <= 1.0:
            raise ValueError(f"`fraction` of Rotary must be above 0 and at most 1, but is {fraction}")
        if base <= 1.0:
            raise ValueError(f"`base` of Rotary must be above 1, but is {base}")
        width = round(shape.d_head * fraction)
        if width < 2 or width % 2:
            raise ValueError(
                f"Rotary turns pairs of features, but `fraction` ({fraction}) of the {shape.d_head} per head are {width}, "
                f"which is not even; choose another `d_model` ({shape.d_model}), `num_heads` ({shape.num_heads}) or `fraction`"
            )
        self.base, self.pairs = base, width // 2

    def rotate(self, heads: Tensor, at: Tensor) -> Tensor:
        speeds = self.base ** (-torch.arange(self.pairs, dtype=torch.float32, device=at.device) / self.pairs)
        angles = at.float().unsqueeze(-1) * speeds  # (L, K/2) or (B, L, K/2)
        angles = angles if angles.dim() == 2 else angles.unsqueeze(1)  # (L, K/2) or (B, 1, L, K/2)
        cos, sin = angles.cos().to(heads.dtype), angles.sin().to(heads.dtype)
        first, second, rest = heads.split((self.pairs, self.pairs, heads.shape[-1] - 2 * self.pairs), dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)
