"""Which examples go into which batch."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["BatchSettings", "Indices", "TokenBatches"]

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class BatchSettings:
    """How examples are put into batches.

    Args:
        tokens: about how many target tokens are in a training batch, over all devices.
        evaluation_tokens: the same for validation, test and prediction.
        max_examples: the most examples in a training batch; no limit if None.
        workers: processes that prepare batches; 0 does it in the training process. Changes no result.

    >>> BatchSettings(tokens=2048).workers
    0
    """

    tokens: int = 4096
    evaluation_tokens: int = 8192
    max_examples: int | None = None
    workers: int = 0

    def __post_init__(self) -> None:
        for name in ("tokens", "evaluation_tokens", "max_examples"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"`data.batches.{name}` must be at least 1, but is {value}")
        if self.workers < 0:
            raise ValueError(f"`data.batches.workers` must be at least 0, but is {self.workers}")


class TokenBatches:
    """Batches of about `tokens` target tokens, of examples of like length, planned from (seed, epoch) alone.

    Examples are sorted by target length, in bands of 8 %, and inside a band by the other lengths, in random order where
    those are equal. The sorted list is cut into equal shares of target tokens, and these are shuffled. How many there
    are depends on the lengths alone, so every epoch has the same number of batches; every example is in exactly one.

    Args:
        lengths: (N,) or (N, C) tokens per example; column 0, the target's, is what is counted.
        tokens: target tokens per batch, about: at most one example more.
        seed: decides the order, together with the epoch.
        shuffle: if False, every epoch is the same: longest first, for evaluation.
        max_examples: the most examples in a batch.
        at_least: the fewest examples in a batch: in training the number of ranks, so that none is idle.

    Raises ValueError when there are fewer than `at_least` examples.

    >>> batches = TokenBatches(np.array([5, 3, 5, 4, 3]), tokens=10)
    >>> len(batches), sorted(int(index) for batch in batches.plan(epoch=0) for index in batch)
    (2, [0, 1, 2, 3, 4])
    """

    def __init__(
        self,
        lengths: NDArray[np.integer],
        *,
        tokens: int,
        seed: int = 0,
        shuffle: bool = True,
        max_examples: int | None = None,
        at_least: int = 1,
    ) -> None:
        count = len(lengths)
        if 0 < count < at_least:
            raise ValueError(f"{count} examples cannot be shared among {at_least} devices")
        self.lengths = np.asarray(lengths, dtype=np.int64).reshape(count, -1 if count else 1)
        self.tokens, self.seed, self.shuffle, self.at_least = tokens, seed, shuffle, at_least
        self._cost = np.minimum(self.lengths[:, 0] / tokens, 1.0)
        if max_examples is not None:
            self._cost = np.maximum(self._cost, 1.0 / max_examples)
        self._made: tuple[int, list[Indices]] | None = None  # the last plan, since it is asked for more than once
        self._count = min(max(math.ceil(float(self._cost.sum()) - 1e-6), 1), count // at_least)

    def __len__(self) -> int:
        """Batches per epoch."""
        return self._count

    def plan(self, epoch: int) -> list[Indices]:
        """All batches of an epoch, over all ranks; each has its longest targets first."""
        if self._made is None or self._made[0] != epoch:
            self._made = epoch, self._planned(epoch)
        return self._made[1]

    def _planned(self, epoch: int) -> list[Indices]:
        if not self._count:
            return []
        generator = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        chance = generator.permutation(len(self.lengths)) if self.shuffle else np.arange(len(self.lengths))
        order = self._order(chance)
        batches = [self._longest_first(batch) for batch in np.split(order, self._cuts(order))]
        if self.shuffle:
            return [batches[at] for at in generator.permutation(len(batches))]
        return sorted(batches, key=lambda batch: -int(self.lengths[batch[0], 0]))

    def split(self, batch: Indices, rank: int, world: int) -> Indices:
        """Rank's part of a global batch; the parts have nearly the same number of tokens, and make up the batch."""
        places = np.arange(len(batch))
        turn, place = places // world, places % world
        part: Indices = batch[np.where(turn % 2 == 0, place, world - 1 - place) == rank]
        return part

    def places(self, batch: Indices) -> int:
        """How many places a batch has, padding included."""
        return int(self.lengths[batch].max(axis=0).sum()) * len(batch)

    def describe(self) -> str:
        """How many batches of how many tokens, for the log."""
        batches = "1 batch" if len(self) == 1 else f"{len(self):,} batches"
        return f"{batches} of about {self.tokens:,} tokens, {self.padding(0):.1%} of their places padding"

    def padding(self, epoch: int, column: int | None = None) -> float:
        """The share of the batches' places that hold padding, over all columns or in one."""
        lengths = self.lengths if column is None else self.lengths[:, [column]]
        places = sum(int(lengths[batch].max(axis=0).sum()) * len(batch) for batch in self.plan(epoch))
        return 1.0 - int(lengths.sum()) / places if places else 0.0

    def _order(self, chance: Indices) -> Indices:
        """The examples by falling band; within a band the other columns fall and rise in turn.

        In turn, because a batch may reach over the border of two bands, where its other columns should be alike too.
        """
        band = np.floor(np.log(np.maximum(self.lengths[:, 0], 1)) / math.log(BAND)).astype(np.int64)
        _, rank = np.unique(band, return_inverse=True)
        other = self.lengths[:, 1:].sum(axis=1)
        return np.lexsort((chance, np.where(rank % 2 == 0, -other, other), -band))

    def _cuts(self, order: Indices) -> list[int]:
        """Where to cut so that each batch costs the same, and has `at_least` examples."""
        before = np.concatenate([[0.0], np.cumsum(self._cost[order])])
        cuts = [0]
        for at in range(1, self._count):
            wanted = int(np.searchsorted(before, before[-1] * at / self._count - 1e-9))
            highest = len(order) - self.at_least * (self._count - at)
            cuts.append(min(max(wanted, cuts[-1] + self.at_least), highest))
        return cuts[1:]

    def _longest_first(self, batch: Indices) -> Indices:
        return batch[np.argsort(-self.lengths[batch, 0], kind="stable")]


BAND = 1.08  # ratio of target lengths that are taken for equal; measured on Multi30k, where it pads least in all
