"""Attention whose weights are products of features, so that sums over keys serve every query.

Letters: B batch, L tokens, H heads, D model, K width per head, F features, C chunks, T tokens of a chunk.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polyformer.nn.attention import merge_heads, split_heads
from polyformer.nn.mask import Mask
from polyformer.nn.mixer import Context, Mixer
from polyformer.nn.shape import Shape
from polyformer.nn.state import State

__all__ = ["LinearAttention", "Sums"]

CHUNK = 64  # tokens that meet each other in pairs; those of earlier chunks are met as sums


class Sums(State):
    """The sum over the tokens so far of features times values: (B, H, F, K + 1), however many they were.

    The last column is the sum of the features alone. What has been added cannot be told apart, so no token is taken back.
    """

    def __init__(self) -> None:
        self.totals: Tensor | None = None

    def reorder(self, rows: Tensor) -> None:
        if self.totals is not None:
            self.totals = self.totals[rows]


class LinearAttention(Mixer):
    """Weights f(q) . f(k) with f = elu + 1 in place of exp(q . k / sqrt(K)) (Katharopoulos et al. 2020, section 3).

    O(L K^2) time, no limit on the length; a step of decoding costs the same wherever it is. Where it is causal, the tokens of a
    chunk meet in pairs and those before it through their sums, so that nothing of L * K * K numbers is made. Features and sums
    are float32 in every precision. Positions that rotate turn queries and keys before f: weights stay positive, but are no
    function of the distance alone. There are no logits for a bias to be added to, and no dropout on weights.

    Limits: weights are blunt; one exact match among many tokens cannot be picked out. Packed documents are kept apart where
    it is causal and refused where it is not.

    Args:
        shape: What the stack has decided.
        bias: Whether the projections add a bias.
    """

    doors: ClassVar[frozenset[str]] = frozenset({"rotate"})

    def __init__(self, shape: Shape, bias: bool = True) -> None:
        super().__init__()
        self.shape = shape
        self.project = nn.Linear(shape.d_model, 3 * shape.d_model, bias)
        self.output = nn.Linear(shape.d_model, shape.d_model, bias)

    def features(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """(B, H, L, K) queries and keys -> (B, H, L, F) features, none negative; those of a query up to a factor."""
        return positive(q), positive(k)

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        assert state is None or isinstance(state, Sums)
        heads = self.shape.num_heads
        queries_and_keys, v = split_heads(self.project(x), 3 * heads).split((2 * heads, heads), dim=1)
        q, k = context.position.rotate(queries_and_keys, context.at).chunk(2, dim=1)  # (B, H, L, K)
        with torch.autocast(x.device.type, enabled=False):
            wide = torch.promote_types(v.dtype, torch.float32)
            mixed = self._mix(*self.features(q.to(wide), k.to(wide)), v.to(wide), context.mask, state)
        return self.output(merge_heads(mixed.to(v.dtype)))

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, state: Sums | None) -> Tensor:  # (B, H, L, K)
        if mask.keep is not None:
            k = k.masked_fill(~mask.keep[:, None, -k.shape[2] :, None], 0.0)
        v = F.pad(v, (0, 1), value=1.0)  # (B, H, L, K + 1), so that weights are added up as the values are
        if mask.causal:
            mixed, totals = running_sums(q, k, v, mask.document, None if state is None else state.totals)
            if state is not None:
                state.totals = totals
        else:
            assert state is None
            if mask.document is not None:
                raise ValueError(
                    f"`{type(self).__name__}` keeps packed documents apart only where it is causal; "
                    "give each text a row of its own, or use FullAttention"
                )
            mixed = q @ (k.transpose(-1, -2) @ v)
        values, weight = mixed[..., :-1], mixed[..., -1:]
        return values / weight.masked_fill(weight == 0.0, 1.0)

    def start(self) -> Sums:
        return Sums()


def positive(x: Tensor) -> Tensor:
    """elu(x) + 1, exact also where it is far below 1."""
    return F.relu(x) + x.clamp(max=0.0).exp()


def running_sums(
    q: Tensor, k: Tensor, v: Tensor, document: Tensor | None = None, start: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Values weighted by q . k, summed for each query over its own token and earlier ones of its document.

    Args:
        q: (B, H, L, F) features of queries.
        k: (B, H, L, F) features of keys.
        v: (B, H, L, V) values.
        document: (B, L) numbers of the documents, each in one piece; None where a row is one document.
        start: (B, H, F, V) sum over tokens before these; None: there are none.

    Returns:
        (B, H, L, V), and the sum (B, H, F, V) over all tokens, to go on from where a row is one document.
    """
    length, size = q.shape[2], min(CHUNK, q.shape[2])
    q, k, v = (_chunks(part, size) for part in (q, k, v))  # (B, H, C, T, F|V)
    seen = torch.ones(size, size, dtype=torch.bool, device=q.device).tril()  # (T, T)
    before, added, goes_on = q, k, None
    if document is not None:
        number = _chunks(document[:, None, :, None], size)  # (B, 1, C, T, 1)
        seen = seen & (number == number.transpose(-1, -2))  # (B, 1, C, T, T)
        last = number[..., -1:, :]  # (B, 1, C, 1, 1), the document that a chunk leaves open
        opened = torch.cat((last[:, :, :1], last[:, :, :-1]), dim=2)  # and the one that it finds open
        before, added, goes_on = q * (number == opened), k * (number == last), last == opened
    inside = (q @ k.transpose(-1, -2)).masked_fill(~seen, 0.0) @ v
    sums, last_sum = _exclusive(added.transpose(-1, -2) @ v, goes_on, start)  # (B, H, C, F, V)
    return (inside + before @ sums).flatten(2, 3)[:, :, :length], last_sum


def _chunks(x: Tensor, size: int) -> Tensor:
    """(B, H, L, W) -> (B, H, C, T, W), zeros after the end."""
    return F.pad(x, (0, 0, 0, -x.shape[2] % size)).unflatten(2, (-1, size))


def _exclusive(chunks: Tensor, goes_on: Tensor | None, start: Tensor | None) -> tuple[Tensor, Tensor]:
    """The sums of the chunks before each chunk (B, H, C, F, V), and that of all (B, H, F, V); anew where nothing goes on."""
    total = torch.zeros_like(chunks[:, :, 0]) if start is None else start
    sums = []
    for number, chunk in enumerate(chunks.unbind(2)):
        sums.append(total)
        total = (total if goes_on is None else total * goes_on[:, :, number]) + chunk
    return torch.stack(sums, dim=2), total
