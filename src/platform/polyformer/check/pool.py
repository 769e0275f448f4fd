"""A few examples of a data module, of which batches are made at will.

Letters: N windows, W tokens in a window.
"""

import glob
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyformer.check.law import NotApplicable
from polyformer.data import DataModule, MixedData, PartBatch, TextData
from polyformer.text import PAD

__all__ = ["Pool", "evaluation_pools", "has_split", "is_here", "moved", "parts_of", "tensors_of", "training_pools"]

WINDOW = 64
"""Tokens that are left of a window of running text; a whole one may have thousands."""
BATCHES, EXAMPLES = 16, 64
"""How many batches of an epoch are looked into, and how many examples are in all."""
FEW, MEASURED = 4, 3
"""How many examples stand in a batch, in training and in evaluation."""


class Pool:
    """Examples of one data module, and how it makes batches of them.

    Args:
        source: `source[list of places]` gives a dictionary of columns.
        prepare: Columns, with "index", and the epoch -> a batch.
        places: Which examples there are.
        part: The part of a mixture that they are of; empty where there is none.
    """

    def __init__(self, source: Any, prepare: Callable[[dict[str, Any], int], Any], places: Sequence[int], part: str) -> None:
        self.source, self.prepare, self.places, self.part = source, prepare, places, part

    def batch(self, places: Sequence[int]) -> Any:
        """A batch of examples, in this order."""
        rows = {**narrowed(dict(self.source[list(places)])), "index": list(places)}
        batch = self.prepare(rows, 0)
        return PartBatch(self.part, batch) if self.part else batch

    @cached_property
    def shapes(self) -> dict[int, tuple[tuple[int, ...], ...]]:
        """The shapes of what stands in a batch of each example alone, the smaller half of them, the smallest first."""
        found = {place: tuple(tuple(part.shape) for part in tensors_of(self.batch([place]))) for place in self.places}
        by_size = sorted(found, key=lambda place: sum(int(np.prod(shape)) for shape in found[place]))
        return {place: found[place] for place in by_size[: max(FEW, len(by_size) // 2)]}

    @cached_property
    def few(self) -> list[int]:
        """A few examples of different sizes, the largest first."""
        larger = list(self.shapes)[len(self.shapes) // 3 :]
        return [larger[at] for at in reversed(_evenly(len(larger), FEW))]

    @cached_property
    def alike(self) -> list[int]:
        """A few examples that need no padding to stand side by side; one, where no two are alike."""
        groups: dict[Any, list[int]] = {}
        for place, shape in self.shapes.items():
            groups.setdefault(shape, []).append(place)
        return max(groups.values(), key=len)[:FEW]


def training_pools(data: DataModule) -> list[Pool]:
    """Examples from all over the first epoch, for each part of the data."""
    return [_training_pool(name, part) for name, part in parts_of(data).items()]


def _training_pool(name: str, data: DataModule) -> Pool:
    if data.batches_per_epoch() is None:  # the text is read as a stream
        rows = _first_rows(data)
        return Pool(_Kept(rows), data.prepare_training, range(min(FEW, len(rows["index"]))), name)
    batches = data.training_plan(1).plan(0)[: 1 if getattr(data, "sources", ()) else None]  # others may be of other sources
    chosen = [batches[at] for at in _evenly(len(batches), BATCHES)]
    places = [int(batch[at]) for batch in chosen for at in _evenly(len(batch), -(-EXAMPLES // len(chosen)))]
    return Pool(data.training_source(), data.prepare_training, places, name)


def _first_rows(data: DataModule) -> dict[str, Any]:
    """The columns that the first batch of a stream is made from."""
    loader: Any = data.training_loader(0, 1)
    loader.prepare = lambda rows, epoch: rows
    rows: dict[str, Any] = next(iter(loader))
    return rows


def evaluation_pools(data: DataModule, split: str) -> list[Pool]:
    """A few examples of a split, the shortest ones of separate examples, for each part that has it."""
    return [_evaluation_pool(name, part, split) for name, part in parts_of(data).items() if has_split(part, split)]


def _evaluation_pool(name: str, data: DataModule, split: str) -> Pool:
    loader: Any = data.evaluation_loader(split)
    numbers = np.concatenate(loader.batches.plan(0))  # of examples the longest first, of windows in the order of the text
    places = (numbers[:MEASURED] if isinstance(data, TextData) else numbers[-MEASURED:]).tolist()
    return Pool(loader.rows, loader.prepare, places, name)


def parts_of(data: DataModule) -> dict[str, DataModule]:
    """The parts of a mixture, by name; other data is its own only part, without a name."""
    return data.parts if isinstance(data, MixedData) else {"": data}


def has_split(data: DataModule, split: str) -> bool:
    """Whether data has a split; it is loaded then.

    Raises:
        NotApplicable: If it is not on this machine.
        ValueError: If it is, but cannot be read.
    """
    try:
        return data.contents(split) is not None and data.loaded(split) is not None
    except (OSError, ValueError) as error:
        if is_here(data, split):
            raise
        raise NotApplicable(str(error).partition("\n")[0]) from error


def is_here(data: DataModule, split: str = "train") -> bool:
    """Whether the files of a split are on this machine, so that what is wrong with them can be told."""
    location = data.locations[split] or data.locations["train"]  # of which a share may be held out
    if location is None:
        return False
    paths = [location] if isinstance(location, str) else location
    return all(not path.startswith("hub:") and bool(glob.glob(path)) for path in paths)


def tensors_of(batch: Any) -> Iterator[Tensor]:
    """The tensors of a batch, whatever they stand in."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, (list, tuple)):
        for value in batch:
            yield from tensors_of(value)
    elif isinstance(batch, dict) or hasattr(batch, "__dict__"):
        yield from tensors_of(list((batch if isinstance(batch, dict) else vars(batch)).values()))


def narrowed(rows: dict[str, Any]) -> dict[str, Any]:
    """Columns of windows, (N, W + 1) and (N, W) arrays, of long ones the ends alone; other columns stay as they are.

    It is their ends that are scored where windows overlap. Each row has its own: a shorter one is padded in a batch, and is
    to have the same tokens there as alone.

    >>> narrowed({"tokens": np.array([[5] * 64 + [6, 7], [8] * 65 + [0]])})["tokens"][:, [0, -2, -1]].tolist()
    [[5, 6, 7], [8, 8, 8]]
    """
    wide = {name: value for name, value in rows.items() if isinstance(value, np.ndarray) and value.ndim == 2}
    if not wide:
        return rows
    widest = max(wide.values(), key=lambda value: value.shape[1])
    excess = max(0, widest.shape[1] - WINDOW - 1)
    padding = (widest[:, ::-1] != PAD).argmax(axis=1)  # (N,)
    first = (excess - padding).clip(min=0)[:, None]  # (N, 1)
    places = {name: first + np.arange(value.shape[1] - excess) for name, value in wide.items()}
    return {**rows, **{name: np.take_along_axis(value, places[name], axis=1) for name, value in wide.items()}}


def _evenly(count: int, most: int) -> list[int]:
    """Numbers below a count, spread evenly.

    >>> _evenly(9, 3), _evenly(2, 3)
    ([0, 4, 8], [0, 1])
    """
    return sorted({round(at) for at in np.linspace(0, count - 1, min(count, most))})


class _Kept:
    """Columns held in memory, read by place."""

    def __init__(self, rows: dict[str, Any]) -> None:
        self.rows = rows

    def __getitem__(self, places: list[int]) -> dict[str, Any]:
        return {name: np.asarray(values)[places] for name, values in self.rows.items()}


def moved(batch: Any, device: torch.device) -> Any:
    """A batch on a device."""
    return batch if device.type == "cpu" else batch.to(device)
