"""Multi-head attention over the sequence itself and over a memory (Vaswani et al. 2017, section 3.2).

Letters: B batch, L queries, S keys, H query heads, G key/value heads, D model, K width per head,
M memories, R rows per memory, or places that are wanted.
"""

from typing import ClassVar

from torch import Tensor, nn

from polyformer.nn.attend import Where, attend, is_recording
from polyformer.nn.dropout import Dropout
from polyformer.nn.mask import Mask
from polyformer.nn.mixer import Context, CrossContext, CrossMixer, Mixer, take
from polyformer.nn.shape import Shape
from polyformer.nn.state import CrossState, KeyValues, Projected, State

__all__ = ["CrossAttention", "FullAttention"]


class FullAttention(Mixer):
    """Every token looks at every token it may see. O(L^2) time; no limit on the length.

    Args:
        shape: What the stack has decided.
        num_kv_heads: Heads of keys and values, each shared by a group of query heads (Ainslie et al. 2023); it must
            divide ``num_heads``. None: as many as query heads.
        dropout: Dropout on the attention weights; None: the stack's.
        bias: Whether the projections add a bias.
    """

    doors: ClassVar[frozenset[str]] = frozenset({"rotate", "bias"})
    takes_back: ClassVar[int | None] = None

    def __init__(self, shape: Shape, num_kv_heads: int | None = None, dropout: float | None = None, bias: bool = True) -> None:
        super().__init__()
        self.shape, self.num_kv_heads = shape, kv_heads(shape, num_kv_heads)
        self.project = nn.Linear(shape.d_model, (shape.num_heads + 2 * self.num_kv_heads) * shape.d_head, bias)
        self.output = nn.Linear(shape.d_model, shape.d_model, bias)
        self.dropout = Dropout(shape.dropout if dropout is None else dropout)

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        q, k, v = self.heads(x, context)
        if state is not None:
            assert isinstance(state, KeyValues)
            k, v = state.append(k.transpose(1, 2), v.transpose(1, 2))  # (B, G, S, K)
        where = Where(context.mask, context.at, context.k_at)
        mixed = attend(q, k, v, where, context.position, self.dropout.active)
        return self.output(merge_heads(mixed))

    def read(self, x: Tensor, context: Context, places: Tensor) -> Tensor:
        is_other = type(self).forward is not FullAttention.forward  # a subclass, which may hide keys
        if is_other or context.mask.document is not None or is_recording():
            return super().read(x, context, places)
        q, k, v = self.heads(x, context)
        where = Where(context.mask, context.at.expand(x.shape[:2]).gather(1, places), context.k_at)  # (B, R) of (B, L)
        mixed = attend(take(q, places), k, v, where, context.position, self.dropout.active)  # (B, H, R, K)
        return self.output(merge_heads(mixed))

    def heads(self, x: Tensor, context: Context) -> tuple[Tensor, Tensor, Tensor]:
        """(B, L, D) -> queries (B, H, L, K), keys and values (B, G, L, K), rotated."""
        heads, groups = self.shape.num_heads, self.num_kv_heads
        projected = self.project(x).unflatten(-1, (-1, self.shape.d_head)).transpose(1, 2)  # (B, H + 2G, L, K)
        queries_and_keys, v = projected.split((heads + groups, groups), dim=1)
        q, k = context.position.rotate(queries_and_keys, context.at).split((heads, groups), dim=1)
        return q, k, v

    def start(self) -> KeyValues:
        return KeyValues()


class CrossAttention(CrossMixer):
    """Every token looks at every real token of a memory.

    While decoding, keys and values of the memory are projected once, and rows that share a memory (the hypotheses of a
    beam) share them too.

    Args:
        shape: What the stack has decided.
        kdim: Width of the vectors keys are made from; None: ``d_model``.
        vdim: Width of the vectors values are made from; None: ``kdim``.
        num_kv_heads: As for :class:`FullAttention`.
        dropout: Dropout on the attention weights; None: the stack's.
        bias: Whether the projections add a bias.
    """

    doors: ClassVar[frozenset[str]] = frozenset({"rotate", "bias"})

    def __init__(
        self,
        shape: Shape,
        kdim: int | None = None,
        vdim: int | None = None,
        num_kv_heads: int | None = None,
        dropout: float | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.shape, self.num_kv_heads = shape, kv_heads(shape, num_kv_heads)
        kdim = shape.d_model if kdim is None else kdim
        self.query = nn.Linear(shape.d_model, shape.d_model, bias)
        self.key = nn.Linear(kdim, self.num_kv_heads * shape.d_head, bias)
        self.value = nn.Linear(kdim if vdim is None else vdim, self.num_kv_heads * shape.d_head, bias)
        self.output = nn.Linear(shape.d_model, shape.d_model, bias)
        self.dropout = Dropout(shape.dropout if dropout is None else dropout)

    def forward(self, x: Tensor, context: CrossContext, state: State | None = None) -> Tensor:
        assert state is None or isinstance(state, CrossState)
        memory = self._project(context) if state is None or state.projected is None else state.projected
        rows, q_at = x.shape[0] // memory.keys.shape[0], context.at
        if state is not None:
            state.projected, state.rows_per_memory = memory, rows
        q = context.position.rotate(split_heads(self.query(x), self.shape.num_heads), q_at)  # (M R, H, L, K)
        if rows > 1:
            q_at = q_at.repeat(rows) if q_at.dim() == 1 else q_at.reshape(memory.keys.shape[0], -1)  # (R L,) or (M, R L)
            q = q.unflatten(0, (-1, rows)).transpose(1, 2).flatten(2, 3)  # (M, H, R L, K)
        where = Where(Mask(keep=memory.keep), q_at, memory.at)
        mixed = attend(q, memory.keys, memory.values, where, context.position, self.dropout.active)  # (M, H, R L, K)
        if rows > 1:
            mixed = mixed.unflatten(2, (rows, -1)).transpose(1, 2).flatten(0, 1)  # (M R, H, L, K)
        return self.output(merge_heads(mixed))

    def _project(self, context: CrossContext) -> Projected:
        memory = context.memory
        k = context.position.rotate(split_heads(self.key(memory.keys), self.num_kv_heads), memory.at)
        values = memory.keys if memory.values is None else memory.values
        return Projected(k, split_heads(self.value(values), self.num_kv_heads), memory.at, memory.keep)

    def start(self) -> CrossState:
        return CrossState()


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """(B, L, H K) -> (B, H, L, K)."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def merge_heads(heads: Tensor) -> Tensor:
    """(B, H, L, K) -> (B, L, H K)."""
    return heads.transpose(1, 2).flatten(2)


def kv_heads(shape: Shape, num_kv_heads: int | None) -> int:
    """The number of key/value heads.

    Raises:
        ValueError: If it does not divide the number of query heads.
    """
    chosen = shape.num_heads if num_kv_heads is None else num_kv_heads
    if chosen < 1 or shape.num_heads % chosen:
        raise ValueError(f"`num_kv_heads` must divide `num_heads` ({shape.num_heads}), but is {chosen}")
    return chosen
