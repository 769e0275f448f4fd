"""The base of every data module: from a location to batches."""

import hashlib
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import datasets
import lightning
import numpy as np
import pyarrow.compute
from numpy.typing import NDArray

from polyformer.data.batches import BatchSettings, TokenBatches
from polyformer.data.cache import EncodedDataset, encoded_dataset, file_digest
from polyformer.data.limits import ColumnLimits, Report, Rows, apply_limits
from polyformer.data.loader import BatchLoader, WholeTraining
from polyformer.data.sources import Location, files_of, read_examples
from polyformer.text import Assets

__all__ = ["DataModule"]

log = logging.getLogger("polyformer")


class DataModule(lightning.LightningDataModule, ABC):
    """A subclass says where its examples come from, how they are encoded, and how rows become a batch.

    It gives `columns`, `counted`, `make_assets`, `encode` and `collate`; and `limits`, `settings`, `texts_served`,
    `examples` and `contents` where the default does not fit. The rest is here: caching, batches of about N tokens,
    ranks, workers, and resuming in the middle of an epoch.

    Args:
        train: where the training examples are, see `read_examples`; likewise the other two. None where there are none.
        batches: how examples are put into batches.
    """

    counted: tuple[str, ...] = ()
    """The columns of ids whose lengths decide the batches, the one whose tokens are counted first."""
    texts_served: tuple[str, ...] = ()
    """Encoded columns that evaluation batches need and training batches do not, such as the references."""

    def __init__(
        self,
        train: Location | None,
        validation: Location | None = None,
        test: Location | None = None,
        batches: BatchSettings = BatchSettings(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__()
        self.locations: dict[str, Location | None] = {"train": train, "validation": validation, "test": test}
        self.batches = batches
        self.seed = 0  # the order of the examples follows from this and the epoch alone
        self.total_batches: int | None = None
        self._assets: Assets | None = None
        self._encoded: dict[str, EncodedDataset] = {}
        self._loader: BatchLoader | None = None
        self._position: dict[str, int] | None = None
        self._served_from: dict[str, Any] = {}

    # What a subclass gives.

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, str | int]:
        """Our name of each field -> the column it is read from."""

    @abstractmethod
    def make_assets(self) -> Assets:
        """Trains or loads the tokenizers, and finds the labels; called only where no checkpoint gave them."""

    @abstractmethod
    def encode(self, rows: dict[str, list[str]]) -> Rows:
        """Columns of text to columns of ids, numbers and texts; those in `counted` are lists of ids without `EOS`."""

    @abstractmethod
    def collate(self, rows: Rows) -> Any:
        """Encoded columns, with "index" (the examples' numbers), to a batch; those in `texts_served` may be missing."""

    def examples(self, split: str) -> Iterator[dict[str, str]]:
        """The examples of "train", "validation" or "test". Raises ValueError where none are given."""
        location = self.locations[split]
        if location is None:
            raise ValueError(f"no {split} data is given; add --data.{split} FILE")
        return read_examples(location, self.columns)

    def contents(self, split: str) -> list[str] | None:
        """What the examples of a split depend on: digests of their files; None where the split is not given.

        For a data set of the hub it is its name alone: a change of it over there is not noticed.
        """
        location = self.locations[split]
        if location is None:
            return None
        return [file_digest(path) for path in files_of(location)] or [str(location)]

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

    @property
    def assets(self) -> Assets:
        """Tokenizers and labels: those of `use_assets`, otherwise made on first use."""
        if self._assets is None:
            self._assets = self.make_assets()
        return self._assets

    def use_assets(self, assets: Assets) -> None:
        """Takes the tokenizers and labels of a checkpoint; none are trained then."""
        self._assets = assets
        self._encoded.clear()

    @property
    def reports(self) -> dict[str, Report]:
        """How many examples were kept, dropped and cut in each split that has been loaded."""
        return {split: encoded.report for split, encoded in self._encoded.items()}

    def dataset(self, split: str) -> datasets.Dataset:
        """The encoded examples of a split, memory-mapped; made on first use and cached on disk."""
        if split not in self._encoded:
            self._encoded[split] = encoded_dataset(
                lambda: self.examples(split), self.encode, self.limits(split), self._key(split), f"{split} data"
            )
        return self._encoded[split].rows

    def texts(self, split: str, column: str) -> Any:
        """One encoded column of a split, such as the untouched references, in the order of the examples' numbers."""
        return self.dataset(split)[column]

    def prepare_data(self) -> None:
        """Makes what is not in the cache yet, on one process per machine; the others then find it there."""
        for split in self.locations:
            if self.contents(split) is not None:
                self.dataset(split)

    def setup(self, stage: str) -> None:
        """Loads the splits of a stage, and says what became of their examples."""
        if stage == "fit":
            self._loader = None  # a new run begins at the first epoch
        wanted = {"fit": ["train", "validation"], "validate": ["validation"], "test": ["test"]}.get(stage, [])
        for split in wanted:
            if self.contents(split) is not None:
                self.dataset(split)
                if self._ranks()[0] == 0:
                    log.info("%s data: %s", split, self.reports[split])

    def batches_per_epoch(self, world: int = 1) -> int:
        """How many training batches an epoch has; the same in every epoch."""
        return len(self._training_plan(world))

    def train_dataloader(self) -> BatchLoader | WholeTraining:
        """Batches over all ranks of about `batches.tokens`, shuffled, from the restored position on.

        With `total_batches` set, those of the whole training; otherwise of one epoch.
        """
        rank, world = self._ranks()
        plan = self._training_plan(world)
        if rank == 0:
            said = (
                f"{len(plan):,} batches of about {self.batches.tokens:,} tokens, {plan.padding(0):.1%} of their places padding"
            )
            log.info("train data: %s", said)
        rows = self.dataset("train").select_columns(self.training_columns())
        limit = self._limit(len(plan)) if self.total_batches is None else None
        position = self._loader.state_dict() if self._loader is not None else self._position
        self._position = None
        self._loader = BatchLoader(
            rows, plan, self._prepare_training, rank=rank, world=world, workers=self.batches.workers, limit=limit
        )
        if position is not None:
            self._loader.load_state_dict(position)
        self._served_from = self.data_settings()  # now, since a file may be changed or deleted while training goes on
        return self._loader if self.total_batches is None else WholeTraining(self._loader, self.total_batches)

    def _training_plan(self, world: int) -> TokenBatches:
        return TokenBatches(
            self.lengths("train"),
            tokens=self.batches.tokens,
            seed=self.seed,
            max_examples=self.batches.max_examples,
            at_least=world,
        )

    def val_dataloader(self) -> Any:
        """Validation batches, longest first; an empty list where there is no validation data."""
        return [] if self.contents("validation") is None else self.evaluation_loader("validation")

    def test_dataloader(self) -> BatchLoader:
        """Test batches, longest first. Raises ValueError where there is no test data."""
        return self.evaluation_loader("test")

    def evaluation_loader(self, split: str) -> BatchLoader:
        """Every example of a split exactly once over all ranks; a rank may have fewer batches than another."""
        rank, world = self._ranks()
        plan = TokenBatches(self.lengths(split), tokens=self.batches.evaluation_tokens, shuffle=False)
        prepare = self._prepare_evaluation
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

    # Resuming.

    def data_settings(self) -> dict[str, Any]:
        """All that decides which training batches come when, flat and in plain values."""
        batches = {f"batches.{name}": getattr(self.batches, name) for name in ("tokens", "max_examples")}
        columns = {f"columns.{name}": column for name, column in self.columns.items()}
        known = {"content of train": self.contents("train"), "tokenizers and labels": self.assets.fingerprint}
        return {**columns, **batches, "seed": self.seed, **self.settings(), **known}

    def state_dict(self) -> dict[str, Any]:
        """The position in the training data and the settings it is meant for; part of the checkpoint."""
        if self._loader is None:
            return {}
        return {"position": self._loader.state_dict(), "settings": self._served_from}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on at a checkpoint's position. Raises ValueError, with a diff, if the training data has changed."""
        fitting = self.trainer is None or self.trainer.state.fn == "fit"
        if not fitting or not state_dict:
            return
        before, now = state_dict["settings"], self.data_settings()
        changed = [key for key in sorted({*before, *now}) if before.get(key) != now.get(key)]
        if changed:
            lines = [f"  data.{key}: {before.get(key)!r} then, {now.get(key)!r} now" for key in changed]
            raise ValueError("this run cannot be resumed, its training data is another now:\n" + "\n".join(lines))
        self._loader, self._position = None, dict(state_dict["position"])

    def _prepare_training(self, rows: Rows, epoch: int) -> Any:
        return self.collate(self.training_rows(rows, epoch))

    def _prepare_evaluation(self, rows: Rows, epoch: int) -> Any:
        return self.collate(rows)

    def _ranks(self) -> tuple[int, int]:
        return (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)

    def _limit(self, batches: int) -> int | None:
        """`limit_train_batches` as a number, so that the position agrees with what Lightning calls an epoch."""
        limit = None if self.trainer is None else self.trainer.limit_train_batches
        return int(limit * batches) if isinstance(limit, float) else limit

    def _key(self, split: str) -> dict[str, Any]:
        """All that a split's encoded examples depend on, the code that encodes them included."""
        code = [_source(kind) for kind in type(self).__mro__ if issubclass(kind, DataModule)]
        return {
            "class": type(self).__qualname__,
            "code": hashlib.sha256("".join(code).encode()).hexdigest(),
            "columns": dict(self.columns),
            "contents": self.contents(split),
            "settings": self.settings(),
            "assets": self.assets.fingerprint,
        }


def _source(kind: type) -> str:
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):  # typed into an interactive session
        return ""
