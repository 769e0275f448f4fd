"""Attention among tokens that hash alike (Kitaev et al. 2020).

Letters: B batch, L tokens, S tokens with those of a state, H heads, K width per head, R rounds, N buckets, C chunks, T tokens
of a chunk, W tokens that a chunk looks at.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polyformer.nn.attention import merge_heads, split_heads
from polyformer.nn.dropout import Dropout, dropout
from polyformer.nn.mask import Mask
from polyformer.nn.mixer import Context, Mixer
from polyformer.nn.shape import Shape
from polyformer.nn.state import KeyValues, State

__all__ = ["HashedKeyValues", "Reformer"]

STRIDE = 1 << 32  # a token's code in a round is its bucket times this, plus its place in the bucket; nobody sees one below 0
ALONE, HIDDEN = -1e5, -1e9  # logits of oneself, which counts only for want of others, and of what may not be seen


class HashedKeyValues(KeyValues):
    """Keys and values, and the codes (B, H, R, S) that tell in which buckets their tokens are and where."""

    def __init__(self) -> None:
        super().__init__()
        self.codes: Tensor | None = None

    def add_codes(self, codes: Tensor) -> Tensor:
        """Adds (B, H, R, L) codes whose places are counted among the new tokens; returns those of all."""
        if self.codes is not None:
            new, old = (part.div(STRIDE, rounding_mode="floor") for part in (codes, self.codes))
            earlier = (new.unsqueeze(-1) == old.unsqueeze(-2)).sum(dim=-1)  # (B, H, R, L)
            codes = torch.cat((self.codes, codes + earlier), dim=-1)
        self.codes = codes
        return codes

    def reorder(self, rows: Tensor) -> None:
        super().reorder(rows)
        if self.codes is not None:
            self.codes = self.codes[rows]

    def rewind(self, count: int) -> None:
        super().rewind(count)
        if self.codes is not None:
            self.codes = self.codes[..., : self.length]


class Reformer(Mixer):
    """A token looks at those that hash as it does, in several rounds of hashing (Kitaev et al. 2020, section 2, appendix A).

    A key is the query at length 1. In each round a token's bucket is the largest of [x A, -x A] for a random matrix A, which
    is a buffer. Tokens are sorted by bucket and cut into chunks, which look at their neighbours too. Rounds are joined by their
    log-sum-exp, where a pair that meets in several of them counts once. A token looks at itself only where there is no other.

    In the paper all tokens, padding and later ones too, decide where chunks are cut and so what a token sees. Here a token
    sees those of its bucket that are fewer than ``bucket`` places before it, or after it where it is not causal; wherever the
    cuts are, a chunk and its neighbours hold them. So padding, batch mates, packed documents and the future change nothing, and
    decoding step by step is exact; a step compares hashes with all earlier tokens, O(S).

    O(L R K (bucket + N)) time; no limit on the length. There is about one of the N buckets for every ``bucket`` tokens of
    the text; of ``shape.max_length`` where it is causal, since the future is not known. So texts of up to ``bucket`` tokens
    are attended in full, and in a causal stack all of them if ``max_length`` is no more: N is then 1, and no matrix is drawn,
    so that weights never get into a stack with another N. Positions that rotate act before hashing. Limits: what is seen
    changes in leaps, so that where two buckets tie up to rounding, a batch of another size may decide otherwise.

    Args:
        shape: What the stack has decided.
        bucket: A token sees those fewer than so many places from it in its bucket.
        hashes: Number of rounds.
        dropout: Dropout on the attention weights; None: the stack's.
        bias: Whether the projections add a bias.

    Raises:
        ValueError: For numbers below 1.
    """

    doors: ClassVar[frozenset[str]] = frozenset({"rotate"})
    takes_back = None
    rotations: Tensor

    def __init__(
        self, shape: Shape, bucket: int = 64, hashes: int = 4, dropout: float | None = None, bias: bool = True
    ) -> None:
        super().__init__()
        for name, value in (("bucket", bucket), ("hashes", hashes)):
            if value < 1:
                raise ValueError(f"`{name}` of Reformer must be at least 1, but is {value}")
        self.shape, self.bucket = shape, bucket
        self.project = nn.Linear(shape.d_model, 2 * shape.d_model, bias)
        self.output = nn.Linear(shape.d_model, shape.d_model, bias)
        self.dropout = Dropout(shape.dropout if dropout is None else dropout)
        is_one = shape.causal and shape.max_length <= bucket
        half = 0 if is_one else -(-shape.max_length // (2 * bucket))
        self.register_buffer("rotations", torch.randn(hashes, shape.d_head, half))  # (R, K, N / 2)

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        assert state is None or isinstance(state, HashedKeyValues)
        mask, length = context.mask, x.shape[1]
        q, v = (split_heads(part, self.shape.num_heads) for part in self.project(x).chunk(2, dim=-1))  # (B, H, L, K)
        q = context.position.rotate(q, context.at)
        k = F.normalize(q.to(_wide(q)), dim=-1).to(q.dtype)
        codes = codes_of(self._buckets(q, mask))  # (B, H, R, L)
        goes_on = state is not None and state.length > 0
        if state is not None:
            codes = state.add_codes(codes)
            k, v = state.append(k.transpose(1, 2), v.transpose(1, 2))  # (B, H, S, K)
        mixed = self._in_pairs(q, k, v, codes) if goes_on else self._in_chunks(q, k, v, codes, mask.causal)
        if mask.keep is not None:
            mixed = mixed.masked_fill(~mask.keep[:, None, -length:, None], 0.0)
        return self.output(merge_heads(mixed))

    @torch.no_grad()
    def _buckets(self, q: Tensor, mask: Mask) -> Tensor:
        """(B, H, L, K) -> (B, H, R, L), the bucket of each token in each round: no two documents share one, padding has -1."""
        rounds, _, half = self.rotations.shape
        buckets = self._hashed(q, mask) if half else q.new_zeros(*q.shape[:2], rounds, q.shape[2], dtype=torch.long)
        if mask.document is not None:
            buckets = buckets + max(1, 2 * half) * mask.document[:, None, None]
        return buckets if mask.keep is None else buckets.masked_fill(~mask.keep[:, None, None, -q.shape[2] :], -1)

    def _hashed(self, q: Tensor, mask: Mask) -> Tensor:
        """(B, H, L, K) -> (B, H, R, L), the bucket of each token among those of its text."""
        half, rounds = self.rotations.shape[-1], []
        expected = torch.tensor([[2 * half * self.bucket]], device=q.device) if mask.causal else text_lengths(mask, q)
        is_one = (expected <= self.bucket)[:, None]  # (B|1, 1, L|1)
        unused = torch.arange(half, device=q.device) * (2 * self.bucket) >= expected.unsqueeze(-1)  # (B|1, L|1, N / 2)
        with torch.autocast(q.device.type, enabled=False):
            for rotation in self.rotations.float():
                turned = q.float() @ rotation  # (B, H, L, N / 2)
                largest = turned.abs().masked_fill(unused.unsqueeze(1), -1.0).argmax(dim=-1, keepdim=True)
                bucket = 2 * largest + (turned.gather(-1, largest) < 0)
                rounds.append(bucket.squeeze(-1).masked_fill(is_one, 0))
        return torch.stack(rounds, dim=2)

    def _in_chunks(self, q: Tensor, k: Tensor, v: Tensor, codes: Tensor, causal: bool) -> Tensor:  # (B, H, L, K)
        rounds = [self._round(number, (q, k, v), codes, causal) for number in range(codes.shape[2])]
        mixed, totals = (torch.stack(part, dim=-1) for part in zip(*rounds, strict=True))  # (B, H, L, K|1, R)
        return (mixed * totals.softmax(dim=-1)).sum(dim=-1).to(v.dtype)

    def _round(self, number: int, heads: tuple[Tensor, Tensor, Tensor], codes: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
        """What the tokens see for the first time: (B, H, L, K), and the logarithm of the sum of its weights (B, H, L, 1)."""
        length, order = codes.shape[-1], codes[:, :, number].argsort(dim=-1).unsqueeze(-1)  # (B, H, L, 1)
        size = min(self.bucket, length)
        q, k, v = (_chunks(part, order, size) for part in heads)  # (B, H, C, T, K)
        own = _chunks(codes[:, :, : number + 1].transpose(2, 3), order, size, -STRIDE)  # (B, H, C, T, rounds so far)
        k, v, other = _with_neighbours(k, causal), _with_neighbours(v, causal), _with_neighbours(own, causal, -STRIDE)
        *earlier, seen = (near(*pair, self.bucket, causal) for pair in zip(own.unbind(-1), other.unbind(-1), strict=True))
        for meeting in earlier:
            seen = seen & ~meeting  # (B, H, C, T, W)
        is_self = F.pad(torch.eye(size, dtype=torch.bool, device=q.device), (size, 0 if causal else size))  # (T, W)
        logits = (q @ k.transpose(-1, -2)).to(_wide(q)) * q.shape[-1] ** -0.5
        logits = logits.masked_fill(is_self, ALONE).masked_fill(~seen, HIDDEN)
        total = logits.logsumexp(dim=-1, keepdim=True)  # (B, H, C, T, 1)
        mixed = dropout((logits - total).exp(), self.dropout.active).to(v.dtype) @ v
        mixed, total = (part.flatten(2, 3)[:, :, :length] for part in (mixed, total))
        unsorted = torch.zeros_like(mixed).scatter(2, order.expand_as(mixed), mixed)
        return unsorted, torch.zeros_like(total).scatter(2, order, total)

    def _in_pairs(self, q: Tensor, k: Tensor, v: Tensor, codes: Tensor) -> Tensor:
        """As causal chunks, for the last of the tokens: (B, H, L, K) queries, S keys -> (B, H, L, K)."""
        own = codes[..., -q.shape[2] :]
        is_self = own[:, :, 0].unsqueeze(-1) == codes[:, :, 0].unsqueeze(-2)  # (B, H, L, S)
        others = near(own, codes, self.bucket, causal=True).any(dim=2) & ~is_self
        seen = others | (is_self & ~others.any(dim=-1, keepdim=True))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, dropout_p=self.dropout.active)

    def start(self) -> HashedKeyValues:
        return HashedKeyValues()


def text_lengths(mask: Mask, q: Tensor) -> Tensor:
    """(B or 1, L or 1) how many tokens there are in the text that each of (B, H, L, K) belongs to."""
    if mask.document is not None:
        number = mask.document if mask.keep is None else mask.document.masked_fill(~mask.keep, -1)  # (B, L)
        ordered, number = number.sort(dim=-1).values, number.contiguous()
        return torch.searchsorted(ordered, number, right=True) - torch.searchsorted(ordered, number)
    return torch.tensor([[q.shape[2]]], device=q.device) if mask.keep is None else mask.keep.sum(dim=-1, keepdim=True)


def codes_of(buckets: Tensor) -> Tensor:
    """(..., L) buckets -> (..., L) codes, which also count the earlier tokens of the bucket.

    >>> codes_of(torch.tensor([5, 3, 5, 5])) - STRIDE * torch.tensor([5, 3, 5, 5])
    tensor([0, 0, 1, 2])
    """
    ordered, order = buckets.sort(dim=-1, stable=True)
    places = torch.arange(buckets.shape[-1], device=buckets.device) - torch.searchsorted(ordered, ordered)
    return buckets * STRIDE + torch.empty_like(buckets).scatter_(-1, order, places)


def near(own: Tensor, other: Tensor, reach: int, causal: bool) -> Tensor:
    """Which tokens share a bucket and are fewer than ``reach`` places apart, by (..., T) and (..., W) codes: (..., T, W)."""
    distance = own.unsqueeze(-1) - other.masked_fill(other < 0, -2 * STRIDE).unsqueeze(-2)
    return (distance < reach) & (distance >= 0) if causal else distance.abs() < reach


def _chunks(x: Tensor, order: Tensor, size: int, filler: int = 0) -> Tensor:
    """(B, H, L, W) in the order (B, H, L, 1) -> (B, H, C, T, W)."""
    ordered = x.gather(2, order.expand(*x.shape))
    return F.pad(ordered, (0, 0, 0, -x.shape[2] % size), value=filler).unflatten(2, (-1, size))


def _with_neighbours(chunks: Tensor, causal: bool, filler: int = 0) -> Tensor:
    """(B, H, C, T, W) -> (B, H, C, 2 T or 3 T, W), each chunk after the one before it and before the one after it."""
    count, after = chunks.shape[2], 0 if causal else 1
    padded = F.pad(chunks, (0, 0, 0, 0, 1, after), value=filler)
    return torch.cat([padded[:, :, first : first + count] for first in range(2 + after)], dim=3)


def _wide(x: Tensor) -> torch.dtype:
    """The type to add up many numbers in."""
    return torch.promote_types(x.dtype, torch.float32)
