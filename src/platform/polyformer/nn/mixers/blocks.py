"""Attention of blocks of queries to a few blocks of keys each, whose time and memory grow as the length.

Letters: B batch, R rows that differ (B, or 1 where all agree), L tokens, H query heads, G key/value heads, K width per head,
N blocks of queries, M tokens per block, C chosen blocks of keys for each, T tokens of the blocks of keys that it is shown,
F global tokens, S = T + F.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from polyformer.nn.attend import Where, attend
from polyformer.nn.mask import Mask
from polyformer.nn.mixer import Context

__all__ = [
    "Blocks",
    "Places",
    "attend_in_blocks",
    "global_columns",
    "side_by_side",
    "touches_first",
]


@dataclass(frozen=True)
class Places:
    """All that a mask asks of tokens, to be cut and gathered as the tokens are.

    Args:
        at: (R, L) indices.
        real: (R, L) bool, False at padding.
        document: (R, L) numbers of documents; None where a row is one document.
    """

    at: Tensor
    real: Tensor
    document: Tensor | None

    @classmethod
    def of(cls, mask: Mask, at: Tensor) -> "Places":
        """Those of the tokens at (L,) or (B, L) indices."""
        at = at if at.dim() == 2 else at.unsqueeze(0)
        return cls(at, torch.ones_like(at[:1], dtype=torch.bool) if mask.keep is None else mask.keep, mask.document)

    def each(self, change: Callable[[Tensor], Tensor]) -> "Places":
        """The same change made to all."""
        return Places(change(self.at), change(self.real), None if self.document is None else change(self.document))

    def may_meet(self, keys: "Places") -> Tensor:
        """(R, ..., M or 1, S) bool, True where the key is real and in the document of the query."""
        real = keys.real.unsqueeze(-2)
        if self.document is None or keys.document is None:
            return real
        return real & (self.document.unsqueeze(-1) == keys.document.unsqueeze(-2))


@dataclass(frozen=True)
class Blocks:
    """How a sequence is cut, and which keys each block of queries is shown: its neighbours, chosen blocks, global tokens.

    Args:
        size: Tokens per block (M); the last one is filled up with zeros.
        before: How many blocks before its own a block of queries is shown.
        after: How many blocks after it.
        table: (N, C) numbers of blocks that are shown besides; those that there are not are shown as zeros. None: none.
        first: Tokens with an index below this are global: they see all and all see them.
        columns: (R, F) columns of the global tokens, which are seen there and not in the blocks; None: there are none.
    """

    size: int
    before: int
    after: int
    table: Tensor | None = None
    first: int = 0
    columns: Tensor | None = None

    def queries(self, x: Tensor) -> Tensor:
        """(B, L, ...) -> (B, N, M, ...)."""
        return _padded(x, 0, -x.shape[1] % self.size).unflatten(1, (-1, self.size))

    def keys(self, x: Tensor) -> Tensor:
        """(B, L, ...) -> (B, N, S, ...), all that each block of queries is shown."""
        shown = [self._beside(x)]
        if self.table is not None:
            blocks = _padded(x, 0, -x.shape[1] % self.size + self.size).unflatten(1, (-1, self.size))  # the last one is empty
            empty = blocks.shape[1] - 1
            numbers = self.table.masked_fill((self.table < 0) | (self.table > empty), empty)
            chosen = blocks.index_select(1, numbers.flatten()).unflatten(1, numbers.shape)  # (B, N, C, M, ...)
            shown.append(chosen.flatten(2, 3))
        if self.columns is not None:
            shown.append(take(x, self.columns).unsqueeze(1))  # (B, 1, F, ...)
        return shown[0] if len(shown) == 1 else _joined(shown, 2)

    def _beside(self, x: Tensor) -> Tensor:
        """(B, L, ...) -> (B, N, blocks M, ...), its own block and those beside it: a view of x with zeros on either side."""
        long = _padded(x, self.before * self.size, -x.shape[1] % self.size + self.after * self.size)
        return long.unfold(1, (self.before + 1 + self.after) * self.size, self.size).movedim(-1, 2)

    def seen(self, mask: Mask, queries: Places, keys: Places) -> Tensor:
        """(R, N, M or 1, S) bool, what each query sees of what it is shown, given the places of both, cut as they are."""
        width = keys.at.shape[-1] - (0 if self.columns is None else self.columns.shape[-1])
        q_at, k_at = self.offsets(width, keys.at.device)
        blocks, beyond = keys.each(lambda x: x[..., :width]), keys.each(lambda x: x[..., width:])
        seen = replace(mask, pattern=None).pairs(q_at, k_at) & queries.may_meet(blocks)  # (R, N, M or 1, T)
        if self.columns is None:
            return seen
        seen = seen & (blocks.at >= self.first).unsqueeze(-2)
        all_see = replace(mask, pattern=None, window=None).pairs(queries.at, beyond.at) & queries.may_meet(beyond)
        return _joined([seen, all_see & (beyond.at < self.first).unsqueeze(-2)], 3)

    def offsets(self, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Indices of the queries and of ``width`` keys of any block, were these all neighbours: distances alone count."""
        k_at = torch.arange(width, device=device)
        return k_at[: self.size] + self.before * self.size, k_at


def attend_in_blocks(
    q: Tensor, k: Tensor, v: Tensor, context: Context, blocks: Blocks, dropout_probability: float = 0.0
) -> Tensor:
    """What :func:`~polyformer.nn.attend.attend` gives by the context's mask, if blocks show all that this lets see.

    Args:
        q: (B, H, L, K) queries.
        k: (B, G, L, K) keys.
        v: (B, G, L, K) values.
        context: Position, indices of the tokens, and a mask whose window is met by the neighbours; where blocks are chosen,
            all that is shown is seen.
        blocks: How they are cut.
        dropout_probability: Dropout on the weights.

    Returns:
        (B, H, L, K).
    """
    places = Places.of(context.mask, context.at)
    queries, keys = places.each(blocks.queries), places.each(blocks.keys)
    seen = blocks.seen(context.mask, queries, keys)
    seen = seen.expand(len(q), -1, -1, -1).flatten(0, 1)  # (B N, M or 1, S)
    if blocks.table is None and blocks.columns is None:
        q_at, k_at = blocks.offsets(seen.shape[-1], q.device)
    else:
        q_at, k_at = (part.at.expand(len(q), -1, -1).flatten(0, 1) for part in (queries, keys))  # (B N, M), (B N, S)
    heads = ((blocks.queries, q), (blocks.keys, k), (blocks.keys, v))
    cut = [change(part.transpose(1, 2)).flatten(0, 1).transpose(1, 2) for change, part in heads]  # (B N, H|G, M|S, K)
    where = Where(Mask(pattern=lambda *_: seen), q_at, k_at)
    mixed = attend(cut[0], cut[1], cut[2], where, context.position, dropout_probability)  # (B N, H, M, K)
    mixed = mixed.unflatten(0, (len(q), -1)).transpose(1, 2).flatten(2, 3)[:, :, : q.shape[2]]  # (B, H, L, K)
    if blocks.columns is None or context.mask.causal:  # what stands first sees no more than it has been shown
        return mixed
    columns = blocks.columns[:, None, :, None]  # (R, 1, F, 1)
    whole = _attend_first(torch.take_along_dim(q, columns, 2), k, v, context, blocks.columns, dropout_probability)
    return mixed.scatter(2, columns.expand_as(whole), whole)


def _attend_first(q: Tensor, k: Tensor, v: Tensor, context: Context, columns: Tensor, dropout_probability: float) -> Tensor:
    """(B, H, F, K) queries in (R, F) columns, which see keys of all blocks -> (B, H, F, K)."""
    places = Places.of(context.mask, context.at)
    first = places.each(lambda x: take(x, columns))  # (R, F)
    seen = context.mask.pairs(first.at, places.at) & first.may_meet(places)  # (R, F or 1, L)
    where = Where(Mask(pattern=lambda *_: seen), first.at, context.at)
    return attend(q, k, v, where, context.position, dropout_probability)


def global_columns(places: Places, first: int) -> Tensor:
    """(R, F) columns that hold all real tokens with an index below ``first``; in rows with fewer than others, more besides."""
    is_global = (places.at < first) & places.real  # (R, L)
    most = int(is_global.sum(dim=-1).max())
    return is_global.byte().argsort(dim=-1, descending=True, stable=True)[:, :most]


def touches_first(first: int, q_at: Tensor, k_at: Tensor) -> Tensor:
    """The pattern of global tokens: query or key has an index below ``first``."""
    return (q_at < first) | (k_at < first)


def side_by_side(mask: Mask, at: Tensor) -> bool:
    """Whether tokens that may see each other are as many columns apart as their indices say.

    Padding may stand before or behind the text of a row, and documents may follow each other; padding inside a text brings
    the indices of its tokens closer than they stand.

    Args:
        mask: What is padded and packed.
        at: Indices of the tokens, (L,) or (B, L).
    """
    follows = at.diff(dim=-1) == 1  # (L - 1,) or (B, L - 1)
    if mask.document is not None:
        follows = follows | (mask.document.diff(dim=-1) != 0)
    if mask.keep is not None and not bool(follows.all()):
        before, after = mask.keep[:, :-1], mask.keep[:, 1:]
        in_one_piece = mask.keep[:, :1].long() + (after & ~before).sum(dim=-1, keepdim=True) <= 1  # (B, 1)
        follows = (follows | ~(before & after)) & in_one_piece
    return bool(follows.all())


def take(x: Tensor, columns: Tensor) -> Tensor:
    """(B, L, ...) and (B, F) columns, either of one row where all agree -> (B, F, ...)."""
    return torch.take_along_dim(x, columns.reshape(*columns.shape, *(1 for _ in x.shape[2:])), dim=1)


def _padded(x: Tensor, before: int, after: int) -> Tensor:
    """(B, L, ...) -> (B, before + L + after, ...), with zeros."""
    return F.pad(x, (0, 0) * (x.dim() - 2) + (before, after)) if before or after else x


def _joined(parts: list[Tensor], dim: int) -> Tensor:
    """The parts side by side, those that serve several rows or blocks written out."""
    sizes = torch.broadcast_shapes(*((*part.shape[:dim], 1, *part.shape[dim + 1 :]) for part in parts))
    return torch.cat([part.expand(*sizes[:dim], part.shape[dim], *sizes[dim + 1 :]) for part in parts], dim=dim)
