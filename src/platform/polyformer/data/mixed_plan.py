"""Batches of several plans in turn, by shares: which one a batch is of, and the rows it is made from."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from polyformer.data.batches import Indices
from polyformer.data.loader import BatchPlan

__all__ = ["MixedPlan", "MixedRows", "decoded", "encoded"]


class MixedPlan:
    """Batches of several plans in a random order; a number tells the part, the epoch it is in, and the example.

    Args:
        plans: of the parts.
        shares: how many batches of each, relative to the others.
        seed: decides the order, together with the epoch.
        together: how many consecutive batches are of one part.
        names: what the parts are called in the log.

    >>> from polyformer.data.batches import TokenBatches
    >>> plans = [TokenBatches(np.full(count, 5), tokens=10) for count in (8, 4)]
    >>> mixed = MixedPlan(plans, [1.0, 1.0], seed=0, together=1, names=["a", "b"])
    >>> len(mixed), sorted(decoded(batch, 2)[0] for batch in mixed.plan(0))
    (6, [0, 0, 0, 1, 1, 1])
    """

    def __init__(
        self, plans: Sequence[BatchPlan], shares: Sequence[float], seed: int, together: int, names: Sequence[str]
    ) -> None:
        self.plans, self.shares, self.seed, self.together, self.names = plans, shares, seed, together, names
        total, whole = sum(map(len, plans)), sum(shares)
        self.steps = [max(1, round(total * share / whole / together)) for share in shares]
        self.at_least = min(plan.at_least for plan in plans)

    def __len__(self) -> int:
        """Batches per epoch."""
        return sum(self.steps) * self.together

    def plan(self, epoch: int) -> list[Indices]:
        """All batches of an epoch, over all ranks."""
        generator = np.random.Generator(np.random.PCG64([self.seed, epoch, len(self.plans)]))
        order = generator.permutation(np.repeat(np.arange(len(self.plans)), self.steps))
        streams = [self._stream(number, epoch * steps * self.together) for number, steps in enumerate(self.steps)]
        return [next(streams[number]) for number in order for _ in range(self.together)]

    def _stream(self, number: int, served: int) -> Iterator[Indices]:
        """A part's batches, epoch after epoch, those already served left out."""
        plan = self.plans[number]
        epoch, skipped = divmod(served, len(plan))
        while True:
            for batch in plan.plan(epoch)[skipped:]:
                yield encoded(number, epoch, batch, len(self.plans))
            epoch, skipped = epoch + 1, 0

    def split(self, batch: Indices, rank: int, world: int) -> Indices:
        """A rank's part of a global batch."""
        number, _, _ = decoded(batch, len(self.plans))
        return self.plans[number].split(batch, rank, world)

    def places(self, batch: Indices) -> int:
        """How many places a batch has, padding included."""
        number, _, local = decoded(batch, len(self.plans))
        return self.plans[number].places(np.array(local))

    def describe(self) -> str:
        """How many batches of each part, and how often it is gone through in an epoch, for the log."""
        shown = zip(self.names, self.steps, self.plans, strict=True)
        told = ((name, steps * self.together, plan) for name, steps, plan in shown)
        shares = [
            f"{steps:,} ({steps / len(self):.2%}, {steps / len(plan):.3g} passes) of {name}, {plan.describe()}"
            for name, steps, plan in told
        ]
        return f"{len(self):,} batches an epoch: " + "; ".join(shares)


EXAMPLES = 2**36  # more than any part has; 2**27 is then left for parts times epochs


def encoded(number: int, epoch: int, batch: Indices, parts: int) -> Indices:
    """The examples of a batch by numbers that also tell the part, of so many, and its epoch."""
    numbers: Indices = batch + EXAMPLES * (epoch * parts + number)
    return numbers


def decoded(batch: Any, parts: int) -> tuple[int, int, list[int]]:
    """(number of the part, its epoch, its own numbers of the examples) for a batch that is of one part.

    >>> decoded(encoded(1, 7, np.array([3, 5]), 2), 2)
    (1, 7, [3, 5])
    """
    array = np.asarray(batch, dtype=np.int64)
    epoch, number = divmod(int(array[0] // EXAMPLES), parts)
    return number, epoch, (array % EXAMPLES).tolist()


class MixedRows:
    """The rows of all parts, by the numbers of a mixed plan."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = parts

    def __getitem__(self, batch: list[int]) -> dict[str, Any]:
        number, _, local = decoded(batch, len(self.parts))
        return dict(self.parts[number][local])
