"""Trackers: where a run can be watched beside its folder, and how a training is kept safe from them."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, cast

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import Logger

from polyformer.training.checkpoints import Checkpoints
from polyformer.training.facts import run_facts
from polyformer.training.run import RunFolder, SamplesFile

__all__ = ["Start", "Tracker", "Trackers", "Tracking"]

log = logging.getLogger("polyformer")


@dataclass(frozen=True)
class Start:
    """What a tracker is told first.

    Args:
        run: The run's folder.
        settings: The complete settings.
        facts: What else is known; see :func:`run_facts`.
        step: That training goes on from; 0 for a new run.
    """

    run: RunFolder
    settings: dict[str, Any]
    facts: dict[str, Any]
    step: int


class Tracker(ABC):
    """Where a run can be watched. Whatever a method raises ends the tracker, never the training."""

    title: ClassVar[str]
    """What a user calls it."""

    @abstractmethod
    def start(self, start: Start) -> None:
        """Begins, or goes on with the run that it began in this folder."""

    @abstractmethod
    def metrics(self, metrics: dict[str, float], step: int) -> None:
        """Takes metrics; "tokens" and "seconds" of training so far are among them."""

    @abstractmethod
    def samples(self, rows: Sequence[dict[str, Any]]) -> None:
        """Takes the samples of all validations so far; each has its "step"."""

    @abstractmethod
    def best(self, metrics: dict[str, float]) -> None:
        """Takes the metrics of the best checkpoint so far."""

    @abstractmethod
    def finish(self, results: dict[str, Any], pictures: dict[str, Path]) -> None:
        """Takes what `results.json` holds, and the files of pictures by their names."""

    @abstractmethod
    def end(self, failed: bool) -> None:
        """Closes what :meth:`start` opened."""

    def advice(self) -> str:
        """How to get at what it was told, once it has failed."""
        return ""


class Trackers(Logger):
    """Several trackers as one logger. What one of them raises is said once, and it is told nothing more.

    Until they are started, which only the first rank does, they are told nothing. As a context they are ended with it.

    Args:
        trackers: Any number of them.
        run: The run's folder.
    """

    def __init__(self, trackers: Sequence[Tracker], run: RunFolder) -> None:
        super().__init__()
        self.run = run
        self._waiting = list(trackers)
        self._running: list[Tracker] = []

    @property
    def name(self) -> str:
        return "trackers"

    @property
    def version(self) -> str:
        return ""

    @property
    def is_wanted(self) -> bool:
        """Whether there is any that has not failed."""
        return bool(self._running)

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: trackers are told the settings when they start."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        assert step is not None
        self.each(lambda tracker: tracker.metrics(metrics, step))

    def start(self, make_start: Callable[[], Start]) -> None:
        """Starts them all."""
        self._running, self._waiting = self._waiting, []
        self.each(lambda tracker: tracker.start(make_start()))

    def each(self, tell: Callable[[Tracker], None]) -> None:
        """Tells every tracker that has not failed."""
        for tracker in list(self._running):
            try:
                tell(tracker)
            except Exception as error:
                self._running.remove(tracker)
                reason = str(error).strip().partition("\n")[0]
                said = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
                log.warning("%s has failed, the training goes on without it: %s%s", tracker.title, said, tracker.advice())

    def __enter__(self) -> "Trackers":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.each(lambda tracker: tracker.end(kind is not None))
        self._running = []


class Tracking(Callback):
    """Starts trackers with the training, on the first rank alone, and keeps what the model answers at each validation.

    Args:
        trackers: They are told everything.
        checkpoints: They say which validation is the best.
        settings: The complete settings.
    """

    def __init__(self, trackers: Trackers, checkpoints: Checkpoints, settings: dict[str, Any]) -> None:
        self.trackers, self.checkpoints, self.settings = trackers, checkpoints, settings
        self.samples = SamplesFile(trackers.run.path / "samples.jsonl")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self._is_at_work(trainer):
            return
        task, data, step = cast(Any, pl_module), cast(Any, trainer).datamodule, trainer.global_step
        self.samples.resume(self.checkpoints.validated_step)
        self.trackers.start(lambda: Start(self.trackers.run, self.settings, run_facts(task, data), step))

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self._is_at_work(trainer):
            return
        step, best = trainer.global_step, self.checkpoints.best
        if best is not None and best[1] == step:
            self.trackers.each(lambda tracker: tracker.best(self.checkpoints.best_metrics))
        sampled: list[dict[str, Any]] = cast(Any, pl_module).sampled
        if sampled:
            self.samples.add([{"step": step, **row} for row in sampled])
            self.trackers.each(lambda tracker: tracker.samples(self.samples.rows))

    def _is_at_work(self, trainer: Trainer) -> bool:
        """Whether this rank keeps the records of a training."""
        return trainer.is_global_zero and trainer.state.fn == "fit" and not trainer.fast_dev_run  # type: ignore[attr-defined]
