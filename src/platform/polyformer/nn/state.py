"""What a mixer remembers of earlier tokens, so that one more token costs one token's work.

A state is made by a mixer, owned by the decode, changed by ``forward`` and reordered by the search. It never lives on a
module and never enters a checkpoint.

Letters: B rows being decoded, M memories (sentences), G key/value heads, S tokens so far, K width per head.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["CrossState", "KeyValues", "Projected", "State"]


class State(ABC):
    """The memory of one mixer during one decode."""

    @abstractmethod
    def reorder(self, rows: Tensor) -> None:
        """Row i continues what row ``rows[i]`` was; (B',) indices, rows may be repeated or dropped."""

    def rewind(self, count: int) -> None:
        """Forgets the last ``count`` tokens."""
        raise NotImplementedError(f"{type(self).__name__} cannot take tokens back, which speculative decoding needs")


class KeyValues(State):
    """Keys and values of the tokens so far, in buffers that double when full.

    Rows lie together in memory, (B, capacity, G, K), so that reordering copies one block per row.
    """

    def __init__(self) -> None:
        self.length = 0
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Adds (B, L, G, K) keys and values; returns all so far as (B, G, S, K) views."""
        end = self.length + k.shape[1]
        self.keys, self.values = _room(self.keys, k, self.length, end), _room(self.values, v, self.length, end)
        self.keys[:, self.length : end] = k
        self.values[:, self.length : end] = v
        self.length = end
        return self.keys[:, :end].transpose(1, 2), self.values[:, :end].transpose(1, 2)

    def reorder(self, rows: Tensor) -> None:
        if self.keys is not None and self.values is not None:
            self.keys = _take(self.keys, rows, self.length)
            self.values = _take(self.values, rows, self.length)

    def rewind(self, count: int) -> None:
        self.length -= count


def _room(buffer: Tensor | None, like: Tensor, used: int, needed: int) -> Tensor:
    """A buffer with room for ``needed`` tokens that holds the ``used`` first ones of ``buffer``."""
    if buffer is not None and buffer.shape[1] >= needed:
        return buffer
    grown = like.new_empty(like.shape[0], max(16, 2 * needed), *like.shape[2:])
    if buffer is not None:
        grown[:, :used] = buffer[:, :used]
    return grown


def _take(buffer: Tensor, rows: Tensor, used: int) -> Tensor:
    taken = buffer.new_empty(rows.shape[0], *buffer.shape[1:])
    torch.index_select(buffer[:, :used], 0, rows, out=taken[:, :used])
    return taken


@dataclass(frozen=True)
class Projected:
    """Keys and values (M, G, S, K) of memories, the indices (S,) or (M, S) of their tokens, and which are real (M, S)."""

    keys: Tensor
    values: Tensor
    at: Tensor
    keep: Tensor | None

    def take(self, memories: Tensor) -> "Projected":
        """The chosen memories, in that order."""
        at = self.at if self.at.dim() == 1 else self.at[memories]
        return Projected(self.keys[memories], self.values[memories], at, None if self.keep is None else self.keep[memories])


class CrossState(State):
    """What cross-attention needs of the memories, computed once and shared by the rows that decode from each.

    The hypotheses of a beam look at one memory: it is stored once and never copied while rows stay with their
    sentence. ``rows_per_memory`` consecutive rows belong to each memory.
    """

    def __init__(self) -> None:
        self.projected: Projected | None = None
        self.rows_per_memory = 1

    def reorder(self, rows: Tensor) -> None:
        if self.projected is None:
            return
        memories = rows // self.rows_per_memory
        chosen, counts = torch.unique_consecutive(memories, return_counts=True)
        if not bool((counts == counts[0]).all()):
            chosen, counts = memories, torch.ones_like(memories)
        self.rows_per_memory = int(counts[0])
        if not torch.equal(chosen, torch.arange(self.projected.keys.shape[0], device=rows.device)):
            self.projected = self.projected.take(chosen)
