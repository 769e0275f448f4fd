"""The base of every data module: tokenizers, splits that are loaded once, training that can be resumed."""

import inspect
import logging
import sys
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, Protocol

import lightning

from polyformer.data.adopting import adopted
from polyformer.data.batches import BatchSettings
from polyformer.data.cache import file_digest
from polyformer.data.limited import FewBatches, LimitedPlan
from polyformer.data.loader import BatchLoader, BatchPlan, TrainingLoader, WholeTraining
from polyformer.data.reading import Damaged, Reading
from polyformer.data.sources import Location, expand, whence
from polyformer.data.tables import file_form
from polyformer.text import Assets, Tokenizer, TokenizerSettings

__all__ = ["DataModule", "LoadedSplit", "class_source"]

log = logging.getLogger("polyformer")


class LoadedSplit(Protocol):
    """A split that is ready for use."""

    @property
    def report(self) -> Any:
        """What became of its examples; written to the log."""
        ...


class DataModule(lightning.LightningDataModule, ABC):
    """Where data comes from, and its batches. `ExampleData` is the base for separate examples, `TextData` for running text.

    Those give `make_assets`, `load`, `training_plan`, `training_source`, `prepare_training` and `evaluation_loader`; and
    `settings` and `contents` where the default does not fit. The rest is here: ranks, workers, and resuming in the
    middle of an epoch.

    Args:
        train: where the training examples are, see `read_examples`; likewise the other two. None where there are none.
        batches: how examples are put into batches.
        damaged: whether a run stops at a line or file that cannot be read, or leaves it out and counts it.
        validation_share: where no validation data is given, the share of the training data that is held out for it.
    """

    def __init__(
        self,
        train: Location | None,
        validation: Location | None = None,
        test: Location | None = None,
        batches: BatchSettings = BatchSettings(),  # noqa: B008 - frozen
        damaged: Damaged = "stop",
        validation_share: float | None = None,
    ) -> None:
        super().__init__()
        if validation_share is not None and not 0.0 < validation_share < 1.0:
            raise ValueError(f"`data.validation_share` must be above 0 and below 1, but is {validation_share}")
        self.locations: dict[str, Location | None] = {"train": train, "validation": validation, "test": test}
        self.batches = batches
        self.readings = {split: Reading(damaged) for split in self.locations}
        self.validation_share = None if validation is not None else validation_share
        self.key = "data"  # what the user's keys of it begin with, for messages
        self.seed = 0  # the order of the examples follows from this and the epoch alone
        self.total_batches: int | None = None
        self.few: FewBatches | None = None  # of an epoch, where not all training batches are used
        self._assets: Assets | None = None
        self._splits: dict[str, Any] = {}
        self._loader: TrainingLoader | None = None
        self._position: dict[str, Any] | None = None
        self._served_from: dict[str, Any] = {}

    # What a subclass gives.

    @abstractmethod
    def make_assets(self) -> Assets:
        """Trains or loads the tokenizers, and finds the labels; called only where no checkpoint gave them."""

    @abstractmethod
    def load(self, split: str) -> LoadedSplit:
        """Encodes "train", "validation" or "test", or finds it in the cache. Raises ValueError where it is not given."""

    @abstractmethod
    def training_plan(self, world: int) -> BatchPlan:
        """Which training examples make up each batch, for a number of ranks."""

    @abstractmethod
    def training_source(self) -> Any:
        """What training batches are made from: `source[list of indices]` gives a dictionary of columns."""

    @abstractmethod
    def prepare_training(self, rows: dict[str, Any], epoch: int) -> Any:
        """Columns of `training_source`, with "index", to a batch."""

    @abstractmethod
    def evaluation_loader(self, split: str) -> BatchLoader:
        """Everything in a split exactly once over all ranks; a rank may have fewer batches than another."""

    def contents(self, split: str) -> list[str] | None:
        """What a split depends on: digests of its files; None where the split is not given.

        For a data set of the hub it is its name alone: a change of it over there is not noticed.
        """
        location = self.locations[self.origin(split)]
        if location is None:
            return None
        found = self.digests_of(location)
        share = self._share(split)
        return found if share is None else [*found, f"{split}, of which {share} is held out"]

    def digests_of(self, location: Location) -> list[str]:
        """A digest of each file of a location; of the hub, the name."""
        return [place if place.startswith("hub:") else file_digest(place) for place in expand(location)]

    def forms_of(self, location: Location) -> list[str]:
        """How each file of a location is read, as far as its name decides that."""
        return [place if place.startswith("hub:") else file_form(place) for place in expand(location)]

    def content_key(self, split: str) -> dict[str, Any]:
        """What a split's files hold and how they are read: the same bytes are other examples in a file of another form."""
        location = self.locations[self.origin(split)]
        return {"contents": self.contents(split), "forms": [] if location is None else self.forms_of(location)}

    def origin(self, split: str) -> str:
        """The split whose files a split is read from: "train" for a validation split that is held out of it."""
        return split if self._share(split) is None else "train"

    def _share(self, split: str) -> float | None:
        """How much of the training data is held out, where that matters to a split."""
        return None if split == "test" else self.validation_share

    def settings(self) -> dict[str, Any]:
        """What else the training batches depend on, flat and in plain values; a resumed run must have the same."""
        return {}

    def training_loader(self, rank: int, world: int) -> TrainingLoader:
        """Serves a rank's training batches, one epoch after another."""
        plan = self.used_plan(world)
        if rank == 0:
            log.info("train data: %s", plan.describe())
        limit = self._limit(len(plan)) if self.total_batches is None else None
        return BatchLoader(
            self.training_source(),
            plan,
            self.prepare_training,
            rank=rank,
            world=world,
            workers=self.batches.workers,
            limit=limit,
        )

    def batches_per_epoch(self, world: int = 1) -> int | None:
        """How many training batches an epoch has, the same in every epoch; None where nobody knows before its end."""
        return len(self.used_plan(world))

    # What it gets.

    def used_plan(self, world: int) -> BatchPlan:
        """The training plan, or the few batches of it that are used."""
        plan = self.training_plan(world)
        return plan if self.few is None else LimitedPlan(plan, self.few)

    @property
    def assets(self) -> Assets:
        """Tokenizers and labels: those of `use_assets`, otherwise made on first use."""
        if self._assets is None:
            self._assets = self.make_assets()
        return self._assets

    def use_assets(self, assets: Assets) -> None:
        """Takes the tokenizers and labels of a checkpoint; none are trained then."""
        self._assets = assets
        self._splits.clear()

    def adopt(self, tokenizer: Tokenizer, target: Tokenizer | None = None) -> None:
        """Reads text by a given tokenizer instead of making one, while labels are still found in the data.

        Args:
            tokenizer: of what is read.
            target: of what is written, where that is another text.

        Raises:
            ValueError: If the user has named or described another one.
        """
        settings = getattr(self, "tokenizer", None)
        if isinstance(settings, TokenizerSettings):
            setattr(self, "tokenizer", replace(settings, path=self.adopted(tokenizer, settings)))  # noqa: B010

    def adopted(self, tokenizer: Tokenizer, settings: TokenizerSettings) -> str:
        """The file of a tokenizer that is used instead of what the user's settings describe. Raises ValueError as `adopt`."""
        parameter = inspect.signature(type(self).__init__).parameters.get("tokenizer")
        usual = settings if parameter is None else parameter.default
        return adopted(tokenizer, settings, usual, f"{self.key}.tokenizer")

    def loaded(self, split: str) -> Any:
        """What `load` gives, loaded on first use."""
        if split not in self._splits:
            self._splits[split] = self.load(split)
        return self._splits[split]

    @property
    def reports(self) -> dict[str, Any]:
        """What became of the examples in each split that has been loaded."""
        return {split: loaded.report for split, loaded in self._splits.items()}

    def prepare_data(self) -> None:
        """Makes what is not in the cache yet, of the splits that are wanted; other processes then find it there."""
        stage = None if self.trainer is None else self.trainer.state.fn
        for split in {"validate": ["validation"], "test": ["test"]}.get(str(stage and stage.value), list(self.locations)):
            if self.contents(split) is not None:
                self.loaded(split)

    def setup(self, stage: str) -> None:
        """Loads the splits of a stage, and says what became of their examples."""
        if stage == "fit":
            self._loader = None  # a new run begins at the first epoch
        wanted = {"fit": ["train", "validation"], "validate": ["validation"], "test": ["test"]}.get(stage, [])
        for split in wanted:
            if self.contents(split) is not None:
                self.loaded(split)
                if self._ranks()[0] == 0:
                    log.info("%s data: %s%s", split, self.reports[split], whence(split, self.locations, self.validation_share))

    def train_dataloader(self) -> TrainingLoader | WholeTraining:
        """Batches over all ranks of about `batches.tokens`, shuffled, from the restored position on.

        With `total_batches` set, those of the whole training; otherwise of one epoch.
        """
        position = self._loader.state_dict() if self._loader is not None else self._position
        self._position = None
        self._loader = self.training_loader(*self._ranks())
        if position is not None:
            self._loader.load_state_dict(position)
        self._served_from = self.data_settings()  # now, since a file may be changed or deleted while training goes on
        return self._loader if self.total_batches is None else WholeTraining(self._loader, self.total_batches)

    def val_dataloader(self) -> Any:
        """Validation batches; an empty list where there is no validation data."""
        return [] if self.contents("validation") is None else self.evaluation_loader("validation")

    def test_dataloader(self) -> BatchLoader:
        """Test batches. Raises ValueError where there is no test data."""
        return self.evaluation_loader("test")

    # Resuming.

    def data_settings(self) -> dict[str, Any]:
        """All that decides which training batches come when, flat and in plain values."""
        batches = {f"batches.{name}": getattr(self.batches, name) for name in ("tokens", "max_examples")}
        skips = {"damaged": "skip"} if self.readings["train"].damaged == "skip" else {}
        known = {"content of train": self.contents("train"), "tokenizers and labels": self.assets.fingerprint}
        few = {} if self.few is None else {"few batches": f"{self.few.key} {self.few.limit}"}
        return {**batches, **skips, **few, "seed": self.seed, **self.settings(), **known}

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

    def _ranks(self) -> tuple[int, int]:
        return (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)

    def _limit(self, batches: int) -> int | None:
        """`limit_train_batches` as a number, so that the position agrees with what Lightning calls an epoch."""
        limit = None if self.trainer is None else self.trainer.limit_train_batches
        return int(limit * batches) if isinstance(limit, float) else limit

    def _location(self, split: str) -> Location:
        location = self.locations[split]
        if location is None:
            raise ValueError(f"no {split} data is given; add --{self.key}.{split} FILE")
        return location


def class_source(kind: type) -> str:
    """The code of a class and of the module it is in, so that what it made is made anew when they change."""
    try:
        return inspect.getsource(kind) + inspect.getsource(sys.modules[kind.__module__])
    except (KeyError, OSError, TypeError):  # typed into an interactive session
        return ""
