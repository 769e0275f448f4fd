"""Serving the batches of a plan, from any position on."""

import signal
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, Dataset

from polyformer.data.batches import Indices

__all__ = ["BatchLoader", "BatchPlan", "TrainingLoader", "WholeTraining"]

Prepare = Callable[[dict[str, Any], int], Any]


class BatchPlan(Protocol):
    """What a loader must know of a plan; `TokenBatches` is one."""

    at_least: int
    """No batch has fewer examples."""

    def __len__(self) -> int:
        """Batches per epoch, the same in every epoch."""
        ...

    def plan(self, epoch: int) -> Any:
        """The examples of each batch, over all ranks: a list of arrays, or an array with a row for each."""
        ...

    def split(self, batch: Indices, rank: int, world: int) -> Indices:
        """A rank's part of a batch."""
        ...

    def places(self, batch: Indices) -> int:
        """How many places a batch has, padding included."""
        ...

    def describe(self) -> str:
        """How many batches of what, and what is left out, for the log."""
        ...


class TrainingLoader(Protocol):
    """What serves a training: each `iter()` is one epoch; it knows its position, and goes on from there when restored."""

    def __iter__(self) -> Iterator[Any]: ...

    def state_dict(self) -> dict[str, Any]:
        """The position, in plain values."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next `iter()` begin at a position."""
        ...


class BatchLoader:
    """The batches of one epoch after another; knows its position, and goes on from there after `load_state_dict`.

    Each `iter()` serves one epoch: the one after the last, or, once after `load_state_dict`, the rest of the restored
    one. A batch counts as served when it is handed out, whatever workers have prepared beyond it. After the last one
    the position is the beginning of the next epoch. No random state but its own is used.

    Args:
        rows: `rows[list of indices]` gives a dictionary of columns, as `datasets.Dataset` does.
        batches: which rows make up each batch.
        prepare: columns (with "index", the numbers of the examples) and the epoch -> what is served.
        rank: which part of each batch is ours.
        world: the number of parts. Where a part is empty it is left out; where all of ours are, which happens in evaluation
            only, a single None is served, since Lightning refuses a rank without batches.
        workers: processes that prepare batches.
        limit: batches after which Lightning ends an epoch (`limit_train_batches`), if not all.

    >>> import numpy as np
    >>> from polyformer.data.batches import TokenBatches
    >>> class Rows:
    ...     def __getitem__(self, indices): return {"text": ["abcd"[at] for at in indices]}
    >>> plan = TokenBatches(np.array([4, 4, 2, 2]), tokens=8, shuffle=False)
    >>> [rows["text"] for rows in BatchLoader(Rows(), plan, lambda rows, epoch: rows)]
    [['a', 'b'], ['c', 'd']]
    """

    def __init__(
        self,
        rows: Any,
        batches: BatchPlan,
        prepare: Prepare,
        *,
        rank: int = 0,
        world: int = 1,
        workers: int = 0,
        limit: int | None = None,
    ) -> None:
        self.batches = batches
        self.rows, self.prepare = rows, prepare
        self.rank, self.world, self.workers = rank, world, workers
        self._length = len(self._parts(0)) if batches.at_least < world else len(batches)  # the same in every epoch
        self._end = self._length if limit is None else min(limit, self._length)
        self._epoch, self._served, self._restored = 0, 0, False

    def __len__(self) -> int:
        """Batches per epoch on this rank."""
        return self._length if self._length or self.world == 1 else 1

    def state_dict(self) -> dict[str, int]:
        """The position: batches of the epoch that have been handed out."""
        return {"epoch": self._epoch, "batch": self._served}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Makes the next `iter()` begin at a position."""
        self._epoch, self._served, self._restored = state["epoch"], state["batch"], True

    def __iter__(self) -> Iterator[Any]:
        if not self._length and self.world > 1:
            yield None
            return
        left_early = self._served and not self._restored
        if left_early or self._served >= self._end:
            self._epoch, self._served = self._epoch + 1, 0
        self._restored = False
        epoch = self._epoch
        for batch in self._prepared(epoch):
            self._served += 1
            if self._served >= self._end:
                self._epoch, self._served = epoch + 1, 0
            yield batch

    def _parts(self, epoch: int) -> Any:
        """The batches of an epoch of which a part is ours."""
        batches = self.batches.plan(epoch)
        if self.batches.at_least >= self.world:
            return batches
        return [batch for batch in batches if len(self.batches.split(batch, self.rank, self.world))]

    def _prepared(self, epoch: int) -> Iterator[Any]:
        parts = self._parts(epoch)[self._served : self._end]
        split = partial(self.batches.split, rank=self.rank, world=self.world)
        source = _Prepared(self.rows, parts, split, self.prepare, epoch)
        if not self.workers:
            return (source[at] for at in range(len(source)))
        # Its own generator, since workers' seeds would otherwise be drawn from the one that dropout uses.
        return iter(
            DataLoader(
                source,
                batch_size=None,
                collate_fn=_unchanged,
                num_workers=self.workers,
                worker_init_fn=_leave_signals,
                generator=torch.Generator().manual_seed(epoch),
                pin_memory=torch.cuda.is_available(),
            )
        )


class WholeTraining:
    """A training's batches, epoch after epoch, as one sequence: Lightning then sees a single epoch.

    So where an epoch ends has no part in validating, saving and resuming.

    Args:
        loader: serves one epoch after another.
        total: batches in the whole training.
    """

    def __init__(self, loader: TrainingLoader, total: int) -> None:
        self.loader, self.total = loader, total

    def __len__(self) -> int:
        """Batches in the whole training, those served before it was resumed included."""
        return self.total

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from self.loader


def _leave_signals(worker: int) -> None:
    """What ends a training by a signal still needs the batches of a step; workers end when they are told to."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _unchanged(batch: Any) -> Any:
    """In place of PyTorch's default, which turns tuples into lists and arrays into tensors."""
    return batch


class _Prepared(Dataset[Any]):
    """Batch number -> batch, which is what worker processes are asked for."""

    def __init__(self, rows: Any, batches: Any, split: Callable[[Indices], Indices], prepare: Prepare, epoch: int) -> None:
        self.rows, self.batches, self.split, self.prepare, self.epoch = rows, batches, split, prepare, epoch

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, at: int) -> Any:
        indices = self.split(self.batches[at]).tolist()
        columns = dict(self.rows[indices])
        columns["index"] = indices
        return self.prepare(columns, self.epoch)
