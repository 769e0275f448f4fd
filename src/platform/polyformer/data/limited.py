"""Training on a few batches only: the first of each epoch, or the same few again and again."""

from dataclasses import dataclass
from typing import Any

from polyformer.data.batches import Indices
from polyformer.data.loader import BatchPlan

__all__ = ["FewBatches", "LimitedPlan"]


@dataclass(frozen=True)
class FewBatches:
    """How many batches of an epoch are used.

    Args:
        limit: a number of batches, or a share of them.
        key: the user's key that says so, for messages.
        same: whether all epochs are the first one.

    >>> FewBatches(0.1, "trainer.limit_train_batches").of(25), FewBatches(3, "trainer.overfit_batches").of(2)
    (2, 2)
    """

    limit: int | float
    key: str
    same: bool = False

    def of(self, batches: int) -> int:
        """The number of batches out of so many. Raises ValueError where none is left."""
        count = min(batches, self.limit if isinstance(self.limit, int) else int(self.limit * batches))
        if count < 1:
            raise ValueError(f"`{self.key}` ({self.limit}) leaves none of the {batches} training batches")
        return count


class LimitedPlan:
    """The first batches of each epoch of a plan.

    Args:
        whole: the plan.
        few: how many of them.

    >>> import numpy as np
    >>> from polyformer.data.batches import TokenBatches
    >>> plan = LimitedPlan(TokenBatches(np.full(8, 5), tokens=10), FewBatches(2, "trainer.overfit_batches", same=True))
    >>> len(plan), [batch.tolist() for batch in plan.plan(0)] == [batch.tolist() for batch in plan.plan(1)]
    (2, True)
    """

    def __init__(self, whole: BatchPlan, few: FewBatches) -> None:
        self.whole, self.few, self.at_least = whole, few, whole.at_least
        self._count = few.of(len(whole))

    def __len__(self) -> int:
        """Batches per epoch."""
        return self._count

    def plan(self, epoch: int) -> Any:
        """The batches of an epoch, over all ranks."""
        return self.whole.plan(0 if self.few.same else epoch)[: self._count]

    def split(self, batch: Indices, rank: int, world: int) -> Indices:
        """A rank's part of a global batch."""
        return self.whole.split(batch, rank, world)

    def places(self, batch: Indices) -> int:
        """How many places a batch has, padding included."""
        return self.whole.places(batch)

    def describe(self) -> str:
        """What the whole has, and what is used of it."""
        kind = "the same" if self.few.same else "the first"
        return f"{self.whole.describe()}; of these {kind} {self._count:,} in each epoch (`{self.few.key}`)"
