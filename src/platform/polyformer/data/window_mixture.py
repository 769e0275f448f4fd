"""Windows of several texts, mixed by weights.

Letters: N windows, W tokens in a window.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyformer.data.batches import Indices
from polyformer.data.sources import Source
from polyformer.data.text_array import TextArray
from polyformer.data.windows import TrainingWindows, WindowBatches, windows_in_batch

__all__ = ["MixedWindowPlan", "MixedWindows", "apportioned"]


def apportioned(total: int, weights: Sequence[float]) -> list[int]:
    """A number in parts by weights, which differ from the exact shares by less than one (largest remainders).

    >>> apportioned(10, [0.5, 0.33, 0.17])
    [5, 3, 2]
    """
    exact = np.array(weights) / sum(weights) * total
    parts = np.floor(exact).astype(np.int64)
    parts[np.argsort(parts - exact, kind="stable")[: total - int(parts.sum())]] += 1
    counts: list[int] = parts.tolist()
    return counts


class MixedWindowPlan(WindowBatches):
    """Batches of windows of several texts, as many of each in an epoch as its weight says, in random order.

    An epoch has as many windows as all texts together. A text that has fewer than its share is gone through more than once,
    cut from another place on each time; one that has more goes on in the next epoch where it stopped in this. A window is
    known by the place of its first input in all texts together. See `WindowPlan`, which is the same for one text.

    Args:
        totals: how many tokens there are to predict in each text.
        sources: what the texts are, and their weights.
        window: tokens in a window.
        tokens: about how many tokens are in a batch over all ranks.
        seed: decides places and order, together with the epoch.
        max_examples: the most windows in a batch.
        world: ranks that share each batch.

    Raises ValueError for a text shorter than a window, a weight that comes to no window, and fewer windows in a batch than
    ranks.

    >>> plan = MixedWindowPlan([100, 300], [Source("a", 3.0), Source("b", 1.0)], window=10, tokens=40)
    >>> plan.counts, len(plan), sum(int((batch < 100).sum()) for batch in plan.plan(0))
    ([30, 10], 10, 30)
    """

    def __init__(
        self,
        totals: Sequence[int],
        sources: Sequence[Source],
        window: int,
        *,
        tokens: int,
        seed: int = 0,
        max_examples: int | None = None,
        world: int = 1,
    ) -> None:
        for total, source in zip(totals, sources, strict=True):
            if total < window:
                raise ValueError(f"{source}: {total:,} tokens are less than one window; `data.window` ({window}) must be less")
        self.totals, self.sources, self.window, self.seed = totals, sources, window, seed
        self.windows = [total // window for total in totals]
        self.count = min(windows_in_batch(tokens, window, max_examples, world), sum(self.windows))
        self.at_least = self.count
        self.counts = apportioned(len(self) * self.count, [source.weight for source in sources])
        if 0 in self.counts:
            source = sources[self.counts.index(0)]
            raise ValueError(f"{source}: a `weight` of {source.weight:g} comes to no window in an epoch: leave it out")

    def __len__(self) -> int:
        """Batches per epoch."""
        return sum(self.windows) // self.count

    def plan(self, epoch: int) -> Indices:
        """(len, N) the first places of the windows of each batch, over all ranks."""
        starts = np.concatenate([self._starts(number, epoch) for number in range(len(self.totals))])
        np.random.Generator(np.random.PCG64([self.seed, epoch])).shuffle(starts)
        return starts.reshape(-1, self.count)

    def _starts(self, number: int, epoch: int) -> Indices:
        """Where the windows of a text begin in an epoch of all: its own epochs one after the other, each in another order."""
        windows, count, total = self.windows[number], self.counts[number], self.totals[number]
        first, last = epoch * count, (epoch + 1) * count
        parts = []
        for own in range(first // windows, -(-last // windows)):
            generator = np.random.Generator(np.random.PCG64([self.seed, own, number]))
            offset = int(generator.integers(total))
            order = generator.permutation(windows)[max(first - own * windows, 0) : last - own * windows]
            parts.append((order * self.window + offset) % total)
        return np.concatenate(parts) + sum(self.totals[:number])

    def describe(self) -> str:
        """How many batches of how many windows, and what share each text has in them."""
        rows = zip(self.sources, self.counts, self.windows, strict=True)
        shares = [f"{count / sum(self.counts):.2%} of {source} ({count / own:.3g} passes)" for source, count, own in rows]
        return f"{len(self):,} batches of {self.count:,} windows of {self.window:,} tokens an epoch: " + ", ".join(shares)


class MixedWindows:
    """Reads the windows of a `MixedWindowPlan`; see `TrainingWindows`.

    Args:
        arrays: the texts.
        window: tokens in a window.
    """

    def __init__(self, arrays: Sequence[TextArray], window: int) -> None:
        self.parts, self.window = [TrainingWindows(array, window) for array in arrays], window
        self.firsts = np.cumsum([0, *(part.total for part in self.parts)])

    def __getitem__(self, starts: Sequence[int]) -> dict[str, NDArray[np.int64]]:
        places = np.asarray(starts, dtype=np.int64)  # (N,)
        chosen = np.searchsorted(self.firsts, places, side="right") - 1  # (N,)
        tokens = np.empty((len(places), self.window + 1), dtype=np.int64)
        for number in np.unique(chosen).tolist():
            mine = chosen == number
            own: Any = places[mine] - self.firsts[number]
            tokens[mine] = self.parts[number][own]["tokens"]
        return {"tokens": tokens}
