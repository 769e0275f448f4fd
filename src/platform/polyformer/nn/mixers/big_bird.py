"""Attention to neighbours, to the beginning and to a few places at random (Zaheer et al. 2020).

Letters: B batch, L tokens, H query heads, G key/value heads, K width per head, N blocks, R random blocks for each.
"""

from dataclasses import replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from polyformer.nn.attend import Where, attend, is_recording
from polyformer.nn.attention import FullAttention, merge_heads
from polyformer.nn.mask import Mask
from polyformer.nn.mixer import Context
from polyformer.nn.mixers.blocks import Blocks, attend_in_blocks, touches_first
from polyformer.nn.mixers.kernel import attend_by_kernel, has_kernel
from polyformer.nn.shape import Shape
from polyformer.nn.state import State

__all__ = ["BigBird"]

WORTH = 2  # blocks are used for texts of at least so many times the keys that a query is shown


class BigBird(FullAttention):
    """Tokens look at their block and the two beside it, at global blocks and at random ones (Zaheer et al. 2020, section 2).

    The first ``global_blocks`` blocks of a text see everything and are seen by everything (the paper's ITC; those of ETC are
    extra tokens). Which random blocks a block sees is drawn once, from all blocks that ``shape.max_length`` has room for,
    by torch's generator, so that the run's seed decides it, differs between layers, and is a buffer, part of every
    checkpoint. A shorter text goes without those beyond its end: neither padding nor batch mates change what is seen.

    O(L (3 + global_blocks + random_blocks) block) time and memory, by FlexAttention on a GPU where neither dropout nor a bias
    is in its way, by gathered blocks elsewhere. A mask over all pairs, O(L^2), takes the place of these for padding on the left
    and for packed documents, whose blocks begin anywhere, and of both for texts of few blocks, where it is faster, and while
    weights are recorded. Under TransformerXL, whose terms meet every distance between what is shown, blocks save no memory.

    Limits: up to ``shape.max_length`` tokens. Both directions only: a block sees all of itself.

    Args:
        shape: What the stack has decided.
        block: Tokens per block.
        global_blocks: How many blocks at the beginning of a text are global.
        random_blocks: How many random blocks each block sees.
        num_kv_heads: As for :class:`~polyformer.nn.attention.FullAttention`.
        dropout: Dropout on the attention weights; None: the stack's.
        bias: Whether the projections add a bias.

    Raises:
        ValueError: For a block below 1, or numbers of blocks below 0.
    """

    directions: ClassVar[frozenset[str]] = frozenset({"both"})
    random: Tensor

    def __init__(
        self,
        shape: Shape,
        block: int = 64,
        global_blocks: int = 2,
        random_blocks: int = 3,
        num_kv_heads: int | None = None,
        dropout: float | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__(shape, num_kv_heads, dropout, bias)
        if block < 1:
            raise ValueError(f"`block` of BigBird must be at least 1, but is {block}")
        if min(global_blocks, random_blocks) < 0:
            numbers = f"{global_blocks} and {random_blocks}"
            raise ValueError(f"`global_blocks` and `random_blocks` of BigBird must be at least 0, but are {numbers}")
        self.block, self.global_blocks = block, global_blocks
        near = self._near(torch.device("cpu"))
        found, random = torch.rand(near.shape).masked_fill(near, -1.0).topk(min(random_blocks, len(near)))
        self.register_buffer("random", random.masked_fill(found < 0.0, -1))  # (N, R), -1 where no block is left

    def _near(self, device: torch.device) -> Tensor:
        """(N, N) bool, True where a block sees another whatever is drawn."""
        number = torch.arange(-(-self.shape.max_length // self.block), device=device)
        beside = (number.unsqueeze(-1) - number).abs() <= 1
        return beside | touches_first(self.global_blocks, number.unsqueeze(-1), number)

    @property
    def limit(self) -> int:
        return self.shape.max_length

    @property
    def long(self) -> int:
        return WORTH * (3 + self.global_blocks + self.random.shape[1]) * self.block

    def narrowed(self, mask: Mask) -> Mask:
        near = self._near(self.random.device)
        drawn = torch.zeros(len(near), len(near) + 1, dtype=torch.bool, device=near.device)  # the last column is thrown away
        drawn.scatter_(1, self.random.masked_fill(self.random < 0, len(near)), True)
        return replace(mask, pattern=partial(blocks_meet, self.block, near | drawn[:, :-1]))

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        assert state is None and not context.mask.causal
        self.check_length(x.shape[1])
        q, k, v = self.heads(x, context)
        is_long = self._is_long(context.at)
        if is_long and has_kernel(q, context.position, self.dropout.active):
            mixed = attend_by_kernel(q, k, v, self._where(context))
        elif is_long and self._is_in_place(context):
            mixed = attend_in_blocks(q, k, v, context, self._blocks(context.at), self.dropout.active)
        else:
            mixed = attend(q, k, v, self._where(context), context.position, self.dropout.active)  # (B, H, L, K)
        return self.output(merge_heads(mixed))

    def _where(self, context: Context) -> Where:
        return Where(self.narrowed(context.mask), context.at, context.k_at)

    def _is_long(self, at: Tensor) -> bool:
        """Whether blocks are worth their while."""
        return at.shape[-1] >= self.long and not is_recording()

    def _is_in_place(self, context: Context) -> bool:
        """Whether blocks of columns are the text's blocks."""
        at = context.at
        if at.dim() == 2 or context.mask.document is not None:
            return False
        return torch.equal(at, torch.arange(len(at), device=at.device))

    def _blocks(self, at: Tensor) -> Blocks:
        first, count = self.global_blocks * self.block, -(-len(at) // self.block)
        table = self.random[:count] if self.random.shape[1] else None
        return Blocks(self.block, 1, 1, table, first, at[:first].unsqueeze(0) if first else None)


def blocks_meet(block: int, links: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
    """The pattern: whether the block of a query sees the block of a key, by (N, N) bool."""
    return links[q_at // block, k_at // block]
