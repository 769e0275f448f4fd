"""Attention to the neighbours (Beltagy et al. 2020).

Letters: B batch, L tokens, H query heads, G key/value heads, K width per head, S keys, N blocks.
"""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from polyformer.nn.attend import Where, attend, is_recording
from polyformer.nn.attention import FullAttention, merge_heads
from polyformer.nn.mask import Mask
from polyformer.nn.mixer import Context
from polyformer.nn.mixers.blocks import (
    Blocks,
    Places,
    attend_in_blocks,
    global_columns,
    side_by_side,
    touches_first,
)
from polyformer.nn.mixers.kernel import attend_by_kernel, has_kernel
from polyformer.nn.mixers.near import attend_near, has_cache
from polyformer.nn.shape import Shape
from polyformer.nn.state import KeyValues, State

__all__ = ["LatestKeyValues", "SlidingWindow"]

SLACK = 64  # tokens that can be taken back from a state
WORTH = 2  # blocks are used for texts of at least so many times the keys that a query is shown


class LatestKeyValues(KeyValues):
    """Keys and values of global tokens and of the latest ones; those that no later token can see are forgotten.

    Args:
        window: How many tokens a token sees to a side, itself included.
        first: How many tokens at the beginning of a text are global.
    """

    def __init__(self, window: int, first: int) -> None:
        super().__init__()
        self.latest, self.first = window - 1 + SLACK, first
        self.kept = torch.empty(0, dtype=torch.long)  # the columns of what was left when tokens were last forgotten
        self.forgotten, self.complete = 0, 0  # how many tokens were forgotten, and how many there were then
        self.enough = 2 * self.latest

    def columns(self, device: torch.device) -> Tensor:
        """Which of the tokens so far are here, (S,)."""
        later = torch.arange(len(self.kept) + self.forgotten, self.length + self.forgotten, device=device)
        return torch.cat((self.kept.to(device), later))

    def remembered(self, context: Context) -> Context:
        """A context of all tokens so far, cut down to those that are here."""
        if not self.forgotten:
            return context
        columns, keep = self.columns(context.k_at.device), context.mask.keep
        mask = replace(context.mask, keep=None if keep is None else keep[:, columns])
        return replace(context, mask=mask, k_at=context.k_at[..., columns])

    def forget(self, context: Context) -> None:
        """Forgets what is out of sight for all tokens to come, given the indices of what is here; done now and then."""
        if self.length <= self.enough:
            return
        assert self.keys is not None and self.values is not None
        at, keep = context.k_at, context.mask.keep
        real = at if keep is None else at.masked_fill(~keep, -1)  # (S,) or (B, S)
        needed = (real.amax(dim=-1, keepdim=True) - at < self.latest) | (at < self.first)
        needed = needed if keep is None else needed & keep
        needed = needed.reshape(-1, self.length).any(dim=0)  # (S,)
        needed[-SLACK:] = True
        chosen = needed.nonzero().squeeze(-1)
        self.keys, self.values = self.keys[:, chosen], self.values[:, chosen]
        self.kept, self.complete = self.columns(at.device)[chosen], self.length + self.forgotten
        self.forgotten, self.length = self.complete - len(chosen), len(chosen)
        self.enough = 2 * max(self.latest, self.length)

    def rewind(self, count: int) -> None:
        """Forgets the last ``count`` tokens.

        Raises:
            ValueError: If tokens before them, which are then needed again, are forgotten already.
        """
        back = self.complete - (self.length + self.forgotten - count)
        if self.forgotten and back > SLACK:
            raise ValueError(
                f"SlidingWindow can take back its last {SLACK} tokens, but {back} are to be taken back; "
                f"set `task.proposals` to at most {SLACK}"
            )
        super().rewind(count)
        self.kept = self.kept[: self.length]


class SlidingWindow(FullAttention):
    """A token looks at those less than ``window`` away, and at some global ones (Longformer, Beltagy et al. 2020, section 3.1).

    It looks to both sides, or only back where it is causal; :class:`~polyformer.nn.mask.Mask` defines the window. The first
    ``global_tokens`` tokens of a text (of each document, where they are packed) see every token and are seen by every token,
    where it is causal by later ones. They have the same projections as all others; in the paper they have their own.

    O(L window) time and memory, no limit on the length, which need not be a multiple of anything. On a GPU this is done by
    FlexAttention, where neither dropout nor a bias is in its way. On a CPU a few queries after the other meet the keys around
    them. Elsewhere, and for global tokens and biases, blocks of ``window`` queries meet the keys of their own block and of its
    neighbours. A mask over all pairs, O(L^2), takes the place of these for texts of a few windows, where it is faster, for
    many tokens at once that go on from a state, while weights are recorded, and, but for FlexAttention, for indices that do
    not count one by one (padding inside a text). A step of decoding is O(window): the state forgets what is out of sight, but
    keeps enough to take 64 tokens back.

    Args:
        shape: What the stack has decided.
        window: How many tokens a token sees to a side, itself included.
        global_tokens: How many tokens at the beginning of a text are global.
        num_kv_heads: As for :class:`~polyformer.nn.attention.FullAttention`.
        dropout: Dropout on the attention weights; None: the stack's.
        bias: Whether the projections add a bias.

    Raises:
        ValueError: For a window below 1 or a number of global tokens below 0.
    """

    takes_back = SLACK

    def __init__(
        self,
        shape: Shape,
        window: int = 128,
        global_tokens: int = 0,
        num_kv_heads: int | None = None,
        dropout: float | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__(shape, num_kv_heads, dropout, bias)
        if window < 1:
            raise ValueError(f"`window` of SlidingWindow must be at least 1, but is {window}")
        if global_tokens < 0:
            raise ValueError(f"`global_tokens` of SlidingWindow must be at least 0, but is {global_tokens}")
        self.window, self.global_tokens = window, global_tokens

    @property
    def long(self) -> int:
        return max(self._worth(self.shape.causal), 2 * self.start().enough + SLACK)

    def narrowed(self, mask: Mask) -> Mask:
        pattern = partial(touches_first, self.global_tokens) if self.global_tokens else None
        return replace(mask, window=self.window, pattern=pattern)

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        assert state is None or isinstance(state, LatestKeyValues)
        q, k, v = self.heads(x, context)
        context = replace(context, mask=self.narrowed(context.mask))
        if state is not None:
            k, v = state.append(k.transpose(1, 2), v.transpose(1, 2))  # (B, G, S, K)
            context = state.remembered(context)
        mixed = self._mixed(q, k, v, context)  # (B, H, L, K)
        if state is not None:
            state.forget(context)
        return self.output(merge_heads(mixed))

    def _mixed(self, q: Tensor, k: Tensor, v: Tensor, context: Context) -> Tensor:
        """Attention in the way that costs least."""
        where, probability = Where(context.mask, context.at, context.k_at), self.dropout.active
        is_long = self._is_long(context)
        if is_long and has_kernel(q, context.position, probability):
            return attend_by_kernel(q, k, v, where)
        if not is_long or not side_by_side(context.mask, context.at):
            return attend(q, k, v, where, context.position, probability)
        if not self.global_tokens and has_cache(q, context.position):
            return attend_near(q, k, v, where, probability)
        return attend_in_blocks(q, k, v, context, self._blocks(context), probability)

    def _is_long(self, context: Context) -> bool:
        """Whether blocks are worth their while."""
        return context.at.shape[-1] >= max(self._worth(context.mask.causal), context.k_at.shape[-1]) and not is_recording()

    def _worth(self, causal: bool) -> int:
        """From how many tokens on they are."""
        return WORTH * ((2 if causal else 3) * self.window + self.global_tokens)

    def _blocks(self, context: Context) -> Blocks:
        """Each block of queries is shown its own block and the one on either side, or only the one before."""
        blocks = Blocks(self.window, 1, 0 if context.mask.causal else 1)
        if not self.global_tokens:
            return blocks
        columns = global_columns(Places.of(context.mask, context.at), self.global_tokens)
        return replace(blocks, first=self.global_tokens, columns=columns)

    def start(self) -> LatestKeyValues:
        return LatestKeyValues(self.window, self.global_tokens)
