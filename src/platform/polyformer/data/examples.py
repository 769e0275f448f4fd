"""The base of data modules whose examples are separate: from rows of text to batches of examples of like length."""

import hashlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import datasets
import numpy as np
import pyarrow.compute
from numpy.typing import NDArray

from polyformer.data.batches import TokenBatches
from polyformer.data.cache import EncodedDataset, encoded_dataset
from polyformer.data.limits import ColumnLimits, Rows, apply_limits
from polyformer.data.loader import BatchLoader, BatchPlan
from polyformer.data.module import DataModule, class_source
from polyformer.data.sources import read_examples

__all__ = ["ExampleData"]


class ExampleData(DataModule):
    """A subclass says where its examples come from, how they are encoded, and how rows become a batch.

    It gives `columns`, `counted`, `make_assets`, `encode` and `collate`; and `limits`, `settings`, `texts_served`,
    `examples` and `contents` where the default does not fit. Its arguments are those of `DataModule`.
    """

    counted: tuple[str, ...] = ()
    """The columns of ids whose lengths decide the batches, the one whose tokens are counted first."""
    texts_served: tuple[str, ...] = ()
    """Encoded columns that evaluation batches need and training batches do not, such as the references."""

    # What a subclass gives.

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, str | int]:
        """Our name of each field -> the column it is read from."""

    @abstractmethod
    def encode(self, rows: dict[str, list[str]]) -> Rows:
        """Columns of text to columns of ids, numbers and texts; those in `counted` are lists of ids without `EOS`."""

    @abstractmethod
    def collate(self, rows: Rows) -> Any:
        """Encoded columns, with "index" (the examples' numbers), to a batch; those in `texts_served` may be missing."""

    def examples(self, split: str) -> Iterator[dict[str, str]]:
        """The examples of "train", "validation" or "test". Raises ValueError where none are given."""
        return read_examples(self._location(split), self.columns, self.readings[split])

    def limits(self, split: str) -> ColumnLimits:
        """What is dropped or cut in a split. In evaluation nothing should be dropped: scores could not be compared."""
        return ColumnLimits()

    def settings(self) -> dict[str, Any]:
        """What else `encode` or the training batches depend on, in plain values; a resumed run must have the same."""
        return {}

    def training_rows(self, rows: Rows, epoch: int) -> Rows:
        """What is done anew in each epoch to rows that are about to be collated for training."""
        return rows

    def training_columns(self) -> list[str]:
        """The encoded columns that training batches are made from."""
        return [name for name in self.dataset("train").column_names if name not in self.texts_served]

    # What it gets.

    def load(self, split: str) -> EncodedDataset:
        """The encoded examples of a split, from the cache if the same were encoded before."""
        reading = self.readings[self.origin(split)]
        key, name = self._key(split), f"{split} data"
        return encoded_dataset(lambda: self.examples(split), self.encode, self.limits(split), key, name, reading)

    def dataset(self, split: str) -> datasets.Dataset:
        """The encoded examples of a split, memory-mapped; made on first use and cached on disk."""
        return self.loaded(split).rows

    def texts(self, split: str, column: str) -> Any:
        """One encoded column of a split, such as the untouched references, in the order of the examples' numbers."""
        return self.dataset(split)[column]

    def training_plan(self, world: int) -> BatchPlan:
        """Batches of about `batches.tokens` tokens of the first of `counted`, shuffled."""
        return TokenBatches(
            self.lengths("train"),
            tokens=self.batches.tokens,
            seed=self.seed,
            max_examples=self.batches.max_examples,
            at_least=world,
        )

    def training_source(self) -> datasets.Dataset:
        """The columns that training batches are made from."""
        return self.dataset("train").select_columns(self.training_columns())

    def prepare_training(self, rows: Rows, epoch: int) -> Any:
        """Encoded columns to a training batch."""
        return self.collate(self.training_rows(rows, epoch))

    def prepare_evaluation(self, rows: Rows, epoch: int) -> Any:
        """Encoded columns to an evaluation batch."""
        return self.collate(rows)

    def evaluation_loader(self, split: str) -> BatchLoader:
        """Every example of a split exactly once over all ranks, longest first; a rank may have fewer batches."""
        rank, world = self._ranks()
        plan = TokenBatches(self.lengths(split), tokens=self.batches.evaluation_tokens, shuffle=False)
        prepare = self.prepare_evaluation
        return BatchLoader(self.dataset(split), plan, prepare, rank=rank, world=world, workers=self.batches.workers)

    def batches_of(self, rows: dict[str, list[str]]) -> Iterator[Any]:
        """Batches of examples given as columns of text, longest first; nothing is dropped, "index" tells the order."""
        encoded, _ = apply_limits(self.encode(rows), self.limits("test"))
        lengths = np.array([[len(ids) + 1 for ids in encoded[name]] for name in self.counted]).T
        plan = TokenBatches(lengths, tokens=self.batches.evaluation_tokens, shuffle=False)
        for batch in plan.plan(0):
            chosen = {name: [values[at] for at in batch] for name, values in encoded.items()}
            yield self.collate({**chosen, "index": batch.tolist()})

    def lengths(self, split: str) -> NDArray[np.int64]:
        """(N, C) tokens of each example in each of `counted`, the end mark included."""
        table = self.dataset(split).data.table
        columns = [pyarrow.compute.list_value_length(table.column(name)).to_numpy() for name in self.counted]
        return np.stack(columns, axis=1).astype(np.int64) + 1

    def data_settings(self) -> dict[str, Any]:
        """All that decides which training batches come when, flat and in plain values."""
        return {**{f"columns.{name}": column for name, column in self.columns.items()}, **super().data_settings()}

    def _key(self, split: str) -> dict[str, Any]:
        """All that a split's encoded examples depend on, the code that encodes them included."""
        return {**self._origin_key(split), "settings": self.settings(), "assets": self.assets.fingerprint}

    def _origin_key(self, split: str) -> dict[str, Any]:
        """All that a split's examples depend on before they are encoded."""
        code = [class_source(kind) for kind in type(self).__mro__ if issubclass(kind, DataModule)]
        return {
            "class": type(self).__qualname__,
            "code": hashlib.sha256("".join(code).encode()).hexdigest(),
            "columns": dict(self.columns),
            **self.content_key(split),
            "damaged": self.readings[split].damaged,
        }
