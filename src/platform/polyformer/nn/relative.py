"""Position encodings that act on the logits of attention, where only distances count.

Letters: B batch, L queries, S keys, H query heads, G key/value heads, D model, K width per head, N different distances.
"""

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polyformer.nn.position import Position, sinusoids
from polyformer.nn.shape import Shape

__all__ = ["ALiBi", "Relative", "T5Bias", "TransformerXL"]


class Relative(Position):
    """A trained vector for each clipped distance, met by the query (Shaw et al. 2018, equation 4: the keys' term).

    The logit of a query and a key gains q . a[clip(k_at - q_at)] / sqrt(K). Queries meet the small table first and the
    distances are looked up after: L * (2 clip + 1) numbers, not L * S * K. With ``values`` what a query gathers gains the
    mean of other vectors of the distances (equation 3: the values' term); this needs the attention weights, which the fast
    kernels do not show, and the paper (table 4) finds that it makes no difference.

    Args:
        shape: What the stack has decided.
        clip: Distances beyond this many tokens count as this many.
        values: Whether there is a values' term.

    Raises:
        ValueError: For a clip below 1.
    """

    shared: ClassVar[bool] = False

    def __init__(self, shape: Shape, clip: int = 16, values: bool = False) -> None:
        super().__init__(shape)
        if clip < 1:
            raise ValueError(f"`clip` of Relative must be at least 1, but is {clip}")
        self.clip, self.adds_values = clip, values
        self.table = nn.Parameter(nn.init.xavier_uniform_(torch.empty(2 * clip + 1, shape.d_head)))
        if values:
            self.value_table = nn.Parameter(nn.init.xavier_uniform_(torch.empty(2 * clip + 1, shape.d_head)))

    def bias(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        scores = q @ self.table.t() * q.shape[-1] ** -0.5  # (B, H, L, N)
        return look_up(scores, self._places(q_at, k_at))

    def values(self, weights: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        wide = weights.to(torch.promote_types(weights.dtype, torch.float32))  # many are summed
        places = self._places(q_at, k_at).unsqueeze(-3).expand_as(wide)  # (B, H, L, S)
        sums = wide.new_zeros(*wide.shape[:-1], len(self.value_table)).scatter_add(-1, places, wide)  # (B, H, L, N)
        return sums.to(self.value_table.dtype) @ self.value_table  # (B, H, L, K)

    def _places(self, q_at: Tensor, k_at: Tensor) -> Tensor:
        return distances(q_at, k_at).clamp(-self.clip, self.clip) + self.clip


class T5Bias(Position):
    """A trained number for each head and each bucket of distances (Raffel et al. 2020, section 2.1).

    Half of the buckets hold one distance each; the others hold more and more, growing as the logarithm up to
    ``max_distance``, and the last one all beyond. A causal stack only counts back; others have half of the buckets for each
    direction. One table serves all layers. (T5 does not divide logits by sqrt(K): its queries are larger by that.)

    Args:
        shape: What the stack has decided.
        buckets: Number of buckets, both directions together.
        max_distance: Distances from here on share a bucket.

    Raises:
        ValueError: For buckets that cannot be shared out.
    """

    bucket: Tensor

    def __init__(self, shape: Shape, buckets: int = 32, max_distance: int = 128) -> None:
        super().__init__(shape)
        sides = 1 if shape.causal else 2
        if buckets < 2 * sides or buckets % sides:
            rule = "at least 2" if shape.causal else "even and at least 4, as it serves both directions"
            raise ValueError(f"`buckets` of T5Bias must be {rule}, but is {buckets}")
        if max_distance <= buckets // sides // 2:
            raise ValueError(
                f"`max_distance` of T5Bias must be above the {buckets // sides // 2} distances that have a bucket of their "
                f"own, but is {max_distance}; raise it or lower `buckets` ({buckets})"
            )
        self.first, self.last = -max_distance, 0 if shape.causal else max_distance
        self.table = nn.Parameter(nn.init.normal_(torch.empty(buckets, shape.num_heads), std=shape.d_model**-0.5))
        every = torch.arange(self.first, self.last + 1)
        self.register_buffer("bucket", t5_buckets(every, buckets, max_distance, shape.causal), persistent=False)

    def bias(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        by_distance = F.embedding(self.bucket, self.table).t()  # (H, N)
        places = distances(q_at, k_at).clamp(self.first, self.last) - self.first
        return look_up(by_distance[None, :, None], places)


def t5_buckets(distance: Tensor, buckets: int, max_distance: int, causal: bool) -> Tensor:
    """The buckets of the given distances: (N,) -> (N,), from 0 up."""
    if not causal:
        buckets //= 2
    far = (-distance).clamp(min=0) if causal else distance.abs()
    exact = buckets // 2
    growth = torch.log(far.clamp(min=1).float() / exact) / math.log(max_distance / exact)  # 0 at exact, 1 at max_distance
    grown = exact + (growth * (buckets - exact)).long()
    bucket = torch.where(far < exact, far, grown.clamp(max=buckets - 1))
    return bucket if causal else bucket + buckets * (distance > 0)


class ALiBi(Position):
    """Logits fall with the distance, in each head by its own slope (Press et al. 2022, section 3).

    Nothing is trained and no length is too long. The distance is absolute, so that an encoder's heads look both ways alike.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.slopes = slopes(shape.num_heads)

    def bias(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        steepness = torch.tensor(self.slopes, dtype=torch.float32, device=q.device).view(1, -1, 1, 1)  # (1, H, 1, 1)
        return -steepness * distances(q_at, k_at).abs().unsqueeze(-3)  # (B|1, H, L, S)


def slopes(num_heads: int) -> list[float]:
    """2^(-8/H), 2^(-16/H), ..., 2^-8; for other numbers than powers of two, those of the power of two below, then every
    second one of the power above.

    >>> slopes(4), slopes(3)
    ([0.25, 0.0625, 0.015625, 0.00390625], [0.0625, 0.00390625, 0.25])
    """
    below = 2 ** (num_heads.bit_length() - 1)
    steps = [8 * head / below for head in range(1, below + 1)]
    between = [4 * head / below for head in range(1, 2 * (num_heads - below), 2)]
    return [2**-step for step in steps + between]


class TransformerXL(Position):
    """Sinusoids of distances, projected and met by the query, and two vectors per head (Dai et al. 2019, section 3.3).

    The logit is (q k + q r + u k + v r) / sqrt(K), where r is W_kR times the sinusoid of q_at - k_at, and u and v say how much
    a head cares for a content and for a distance, whatever the query. Each layer has its own W_kR, u and v. Every different
    distance is met once and looked up after: L * N numbers per head, not L * S * K. This costs one more product of the size
    of q k, and where a token is decoded a sinusoid for each earlier one. A causal stack only counts back.
    """

    shared: ClassVar[bool] = False

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.distance = nn.Linear(shape.d_model, shape.d_model, bias=False)  # W_kR
        self.content_bias = nn.Parameter(torch.zeros(shape.num_heads, shape.d_head))  # u
        self.distance_bias = nn.Parameter(torch.zeros(shape.num_heads, shape.d_head))  # v

    def bias(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        first, last = (q_at.amin(-1) - k_at.amax(-1)).min(), (q_at.amax(-1) - k_at.amin(-1)).max()
        least = 0 if self.shape.causal else int(first)
        back = torch.arange(least, max(int(last), least) + 1, device=q.device)  # (N,)
        scores = self._scores(q + self.distance_bias.unsqueeze(1), back)
        met = look_up(scores, (-distances(q_at, k_at) - least).clamp(min=0))  # (B, H, L, S)
        content = self.content_bias.unflatten(0, (k.shape[1], -1)) @ k.transpose(-1, -2)  # (B, G, H/G, S)
        return (met + content.flatten(1, 2).unsqueeze(2)) * q.shape[-1] ** -0.5

    def _scores(self, q: Tensor, back: Tensor) -> Tensor:
        """(B, H, L, K) queries and (N,) distances -> (B, H, L, N), multiplied in the order that is cheaper."""
        projection = self.distance.weight.unflatten(0, (self.shape.num_heads, -1))  # (H, K, D)
        waves = sinusoids(back, self.shape.d_model).to(projection.dtype).t()  # (D, N)
        few = q.shape[0] * q.shape[2] < q.shape[3]
        return (q @ projection) @ waves if few else q @ (projection @ waves)


def distances(q_at: Tensor, k_at: Tensor) -> Tensor:
    """How many tokens each key stands after each query: (L, S), or (B, L, S) where rows differ."""
    return k_at.unsqueeze(-2) - q_at.unsqueeze(-1)


def look_up(scores: Tensor, places: Tensor) -> Tensor:
    """For each query and key the score of its distance.

    Args:
        scores: (B or 1, H, L or 1, N), one for each distance.
        places: (L, S) or (B, L, S), which of the N.

    Returns:
        (B or 1, H, L, S).
    """
    rows = max(len(scores), 1 if places.dim() == 2 else len(places))
    each = (rows, scores.shape[1], places.shape[-2], -1)  # (B|1, H, L, ...)
    return scores.expand(each).gather(-1, places.unsqueeze(-3).expand(each))
