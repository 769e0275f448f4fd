"""Separate examples from several sources that are mixed by weights."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any

import datasets
import numpy as np

from polyformer.data.batches import BatchSettings, TokenBatches
from polyformer.data.cache import EncodedDataset, encoded_dataset
from polyformer.data.examples import ExampleData
from polyformer.data.limits import Report, Rows
from polyformer.data.loader import BatchPlan
from polyformer.data.mixed_plan import MixedPlan, MixedRows, decoded
from polyformer.data.reading import Damaged, Reading
from polyformer.data.sources import Location, Source, Train, expand, parted, read_examples

__all__ = ["SourcedData", "SourcedDataset"]


@dataclass(frozen=True)
class SourcedDataset(EncodedDataset):
    """A memory-mapped data set and what became of its examples.

    Args:
        borders: where the rows of each source begin, and where the last one's end.
    """

    borders: list[int]


class SourcedData(ExampleData):
    """Examples that may come from several sources: each training batch is then of one, as often as it weighs.

    An epoch has as many batches as all sources together. What a subclass gives is what it gives to `ExampleData`; and
    `examples_at` where the default does not fit. Its arguments are those of `DataModule`.
    """

    def __init__(
        self,
        train: Train,
        validation: Location | None,
        test: Location | None,
        batches: BatchSettings,
        damaged: Damaged,
        validation_share: float | None = None,
    ) -> None:
        location, self.sources = parted(train, validation_share)
        super().__init__(location, validation, test, batches, damaged, validation_share)

    # What a subclass gives.

    def examples_at(self, location: Location, reading: Reading) -> Iterator[dict[str, str]]:
        """The training examples at a source's location."""
        return read_examples(location, self.columns, reading)

    # What it gets.

    def examples(self, split: str) -> Iterator[dict[str, str]]:
        """The examples of a split, one source after the other."""
        if split != "train" or not self.sources:
            return super().examples(split)
        return chain.from_iterable(self.examples_at(source.files, self.readings[split]) for source in self.sources)

    def load(self, split: str) -> SourcedDataset:
        """The encoded examples of a split, from the cache if the same were encoded before; each source has its own there."""
        if split != "train" or not self.sources:
            whole = super().load(split)
            return SourcedDataset(whole.rows, whole.report, [0, len(whole.rows)])
        found = [self._load_source(source) for source in self.sources]
        rows = datasets.concatenate_datasets([one.rows for one in found])
        report = sum((one.report for one in found), Report())
        return SourcedDataset(rows, report, [0, *accumulate(len(one.rows) for one in found)])

    def _load_source(self, source: Source) -> EncodedDataset:
        reading = Reading(self.readings["train"].damaged)
        origin = {"contents": self.digests_of(source.files), "forms": self.forms_of(source.files)}
        key, name = {**self._key("train"), **origin}, f"train data, {source}"
        return encoded_dataset(
            lambda: self.examples_at(source.files, reading), self.encode, self.limits("train"), key, name, reading
        )

    def data_settings(self) -> dict[str, Any]:
        """All that decides which training batches come when; weights, unlike files, change no encoded row."""
        if not self.sources:
            return super().data_settings()
        counts, weights = zip(*((len(expand(source.files)), source.weight) for source in self.sources), strict=True)
        return {**super().data_settings(), "train sources": list(counts), "train weights": list(weights)}

    def training_plan(self, world: int) -> BatchPlan:
        """Batches of about `batches.tokens` tokens; of sources that are mixed, each batch of one."""
        if not self.sources:
            return super().training_plan(world)
        settings: dict[str, Any] = {"tokens": self.batches.tokens, "seed": self.seed, "at_least": world}
        lengths = np.split(self.lengths("train"), self.loaded("train").borders[1:-1])
        plans = [TokenBatches(part, **settings, max_examples=self.batches.max_examples) for part in lengths]
        return MixedPlan(plans, [source.weight for source in self.sources], self.seed, 1, list(map(str, self.sources)))

    def training_source(self) -> Any:
        """The columns that training batches are made from; of sources that are mixed, by the numbers of the mixed plan."""
        rows = super().training_source()
        if not self.sources:
            return rows
        return MixedRows([rows.select(range(first, last)) for first, last in pairwise(self.loaded("train").borders)])

    def prepare_training(self, rows: Rows, epoch: int) -> Any:
        """Encoded columns to a training batch; a source has epochs of its own."""
        if self.sources:
            number, epoch, own = decoded(rows["index"], len(self.sources))
            rows = {**rows, "index": [self.loaded("train").borders[number] + at for at in own]}
        return super().prepare_training(rows, epoch)
