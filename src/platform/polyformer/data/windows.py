"""Which windows of a long text are in which batch: shuffled for training, each token exactly once for evaluation.

Letters: N windows, W tokens in a window.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyformer.data.batches import Indices
from polyformer.data.text_array import TextArray
from polyformer.text import PAD

__all__ = ["EvaluationPlan", "EvaluationWindows", "TrainingWindows", "WindowBatches", "WindowPlan", "windows_in_batch"]


def windows_in_batch(tokens: int, window: int, max_examples: int | None, world: int) -> int:
    """How many windows a training batch has over all ranks. Raises ValueError where a rank would have none.

    >>> windows_in_batch(4096, window=256, max_examples=None, world=2)
    16
    """
    count = max(1, tokens // window)
    count = count if max_examples is None else min(count, max_examples)
    if count < world:
        raise ValueError(
            f"a batch of {count} windows cannot be shared among {world} devices; "
            f"`data.batches.tokens` ({tokens}) must be at least `data.window` ({window}) for each of them"
        )
    return count


class WindowBatches:
    """Batches of windows of one length: what a rank has of one, and how many places it has."""

    window: int

    def split(self, batch: Indices, rank: int, world: int) -> Indices:
        """Rank's part of a global batch; the parts differ by at most one window, and make up the batch."""
        part: Indices = batch[rank::world]
        return part

    def places(self, batch: Indices) -> int:
        """How many places a batch has."""
        return len(batch) * self.window


class WindowPlan(WindowBatches):
    """Batches of windows, shuffled; a window is W tokens to predict, and is known by the place of its first input.

    The text is taken as a circle, since it begins and ends with the same `EOS`; each epoch cuts it from another place on,
    which is drawn from (seed, epoch), so that no token always stands at the beginning of a window.

    Args:
        total: how many tokens there are to predict: the ids of the array but one.
        window: tokens in a window.
        tokens: about how many tokens are in a batch over all ranks: `tokens // window` windows, and at least one.
        seed: decides places and order, together with the epoch.
        max_examples: the most windows in a batch.
        world: ranks that share each batch.

    Raises ValueError for a text shorter than a window, or fewer windows in a batch than ranks.

    >>> plan = WindowPlan(total=100, window=10, tokens=30)
    >>> len(plan), sorted(len(batch) for batch in plan.plan(epoch=0))
    (3, [3, 3, 3])
    """

    def __init__(
        self, total: int, window: int, *, tokens: int, seed: int = 0, max_examples: int | None = None, world: int = 1
    ) -> None:
        if total < window:
            raise ValueError(
                f"the training text has {total:,} tokens, which is less than one window; `data.window` ({window}) must be less"
            )
        self.total, self.window, self.seed = total, window, seed
        self.count = min(windows_in_batch(tokens, window, max_examples, world), total // window)
        if self.count < world:
            raise ValueError(
                f"the training text has {total:,} tokens, {self.count} windows of {window} (`data.window`), "
                f"which cannot be shared among {world} devices"
            )
        self.at_least = self.count

    def __len__(self) -> int:
        """Batches per epoch."""
        return self.total // self.window // self.count

    def plan(self, epoch: int) -> Indices:
        """(len, N) the places of the first inputs of the windows of each batch, over all ranks, below `total`."""
        generator = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        offset = int(generator.integers(self.total))
        starts = generator.permutation(self.total // self.window)[: len(self) * self.count]
        starts *= self.window  # in place, since a large text has many
        starts += offset
        starts %= self.total
        return starts.reshape(-1, self.count)

    def describe(self) -> str:
        """How many batches of how many windows, and what is left out."""
        left = self.total - len(self) * self.count * self.window
        out = f"; {left:,} tokens ({left / self.total:.1%}), others in each epoch, are left out" if left else ""
        return f"{len(self):,} batches of {self.count:,} windows of {self.window:,} tokens{out}"


class TrainingWindows:
    """Reads the windows of a `WindowPlan`: `windows[starts]["tokens"]` is (N, W + 1), the inputs and the last target.

    Args:
        array: the text.
        window: tokens in a window.
    """

    def __init__(self, array: TextArray, window: int) -> None:
        self.array, self.window, self.total = array, window, len(array) - 1

    def __getitem__(self, starts: Sequence[int]) -> dict[str, NDArray[np.int64]]:
        places = (np.asarray(starts, dtype=np.int64)[:, None] + np.arange(self.window + 1)) % self.total  # (N, W + 1)
        return {"tokens": self.array.ids[places].astype(np.int64)}


class EvaluationPlan:
    """Windows over a whole text, of which each scores the tokens that the one before it did not: each exactly once.

    Window k has the inputs from `k * stride` on and scores its last `stride` tokens, the first one all of them; so each
    token but the first ones has a context of at least `window - stride` tokens. The last window may be shorter.

    Args:
        total: how many tokens there are to predict.
        window: tokens in a window.
        stride: from one window to the next; a window if None, which is fastest.
        tokens: about how many tokens are in a batch: `tokens // window` windows, and at least one.

    Raises ValueError for a stride that is not between 1 and the window.

    >>> plan = EvaluationPlan(total=10, window=4, stride=2)
    >>> [plan.span(number) for number in range(plan.windows)]
    [(0, 4, 0), (2, 6, 2), (4, 8, 2), (6, 10, 2)]
    """

    def __init__(self, total: int, window: int, stride: int | None = None, tokens: int = 8192) -> None:
        stride = window if stride is None else stride
        if not 1 <= stride <= window:
            raise ValueError(f"`data.stride` must be between 1 and `data.window` ({window}), but is {stride}")
        self.total, self.window, self.stride = total, window, stride
        self.windows = 1 + max(0, math.ceil((total - window) / stride))
        self.count = max(1, tokens // window)
        self.at_least = 1  # the last batch may be small

    def __len__(self) -> int:
        """Batches over all ranks."""
        return math.ceil(self.windows / self.count)

    def plan(self, epoch: int) -> list[Indices]:
        """(N,) the numbers of the windows of each batch, in the order of the text."""
        numbers = np.arange(self.windows, dtype=np.int64)
        return np.split(numbers, range(self.count, self.windows, self.count))

    def split(self, batch: Indices, rank: int, world: int) -> Indices:
        """Rank's part of a batch; a small one leaves ranks without any."""
        part: Indices = batch[rank::world]
        return part

    def places(self, batch: Indices) -> int:
        """How many places a batch has."""
        return len(batch) * self.window

    def describe(self) -> str:
        """How many windows there are and what they score."""
        return f"{self.windows:,} windows of {self.window:,} tokens, {self.stride:,} apart"

    def span(self, number: int) -> tuple[int, int, int]:
        """A window's first input, the place after its last one, and how many of its first tokens are not scored."""
        start = number * self.stride
        return start, min(start + self.window, self.total), self.window - self.stride if number else 0


class EvaluationWindows:
    """Reads the windows of an `EvaluationPlan`: `windows[numbers]` gives two columns.

    "tokens" is (N, W + 1) with the inputs and the last target, and `PAD` after the end; "target" is (N, W) with `PAD` where
    nothing is scored. W is that of the longest of these windows.

    Args:
        array: the text.
        plan: where its windows are.
    """

    def __init__(self, array: TextArray, plan: EvaluationPlan) -> None:
        self.array, self.plan = array, plan

    def __getitem__(self, numbers: Sequence[int]) -> dict[str, Any]:
        ids = self.array.ids
        spans = [self.plan.span(number) for number in numbers]
        tokens = np.full((len(spans), max(end - start for start, end, _ in spans) + 1), PAD, dtype=np.int64)
        target = np.full((len(spans), tokens.shape[1] - 1), PAD, dtype=np.int64)
        for row, (start, end, unscored) in enumerate(spans):
            tokens[row, : end - start + 1] = ids[start : end + 1]
            target[row, unscored : end - start] = ids[start + 1 + unscored : end + 1]
        return {"tokens": tokens, "target": target}
