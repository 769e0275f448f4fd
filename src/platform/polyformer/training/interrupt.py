"""Ending a training by a signal: at the end of a step, on all ranks at the same one, with all that resuming needs saved."""

import os
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from polyformer.errors import Stopped
from polyformer.training.checkpoints import Checkpoints
from polyformer.training.progress import log

__all__ = ["Interruption", "Signals"]

ENDING = (signal.SIGINT, signal.SIGTERM)
SAME = 1.0  # seconds within which a signal is the first one again: some programs send it to a process and to its group


class Signals:
    """What Ctrl-C and SIGTERM do to a run: they raise Stopped, or are only noted while it ``waits`` for a good moment.

    A second one then ends the process wherever it is. As a context it restores what they did before.
    """

    def __init__(self) -> None:
        self.waits = False
        self.received: int | None = None
        self._process, self._since = os.getpid(), 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            self._before = {number: signal.signal(number, self._handle) for number in ENDING}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)  # one that was not set by Python is not known

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            return  # a process forked from this one, which ends it in its own way
        if not self.waits:
            raise Stopped(number)
        if self.received is None:
            self.received, self._since = number, time.monotonic()
        elif time.monotonic() - self._since > SAME:
            os._exit(Stopped(number).exit_code)


class Interruption(Callback):
    """Ends a training once a signal has come to any of its ranks, when the step at work is complete and saved.

    A validation is left at once, and the resumed run begins with it; the last one is finished, since nothing but the tests
    comes after it. Must be the last callback, so that all others have done their part of a step.

    Args:
        signals: Say whether one has come.
        checkpoints: Save.
    """

    def __init__(self, signals: Signals, checkpoints: Checkpoints) -> None:
        self.signals, self.checkpoints = signals, checkpoints
        self._step = 0
        self._told = self._leaving = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Keeps lightning's own handlers away, which would end ranks in the middle of a step, and requeue SLURM jobs."""
        trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Makes up for the validation that was left, or never begun, when the run ended."""
        self._step, self.signals.waits = trainer.global_step, True
        if self.checkpoints.lacks_validation(trainer):
            loop = trainer.fit_loop.epoch_loop.val_loop
            loop.restarting, trainer.validating = False, True
            loop.run()
            trainer.training = True

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if trainer.global_step == self._step:
            self._tell(trainer, "this step")
            return
        self._step = trainer.global_step
        if not trainer.should_stop:
            self._leave_if_asked(trainer)

    def on_validation_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Ranks have different numbers of batches: one that leaves early asks the others, which answer at their end."""
        if self.signals.received is not None and trainer.should_stop:
            self._tell(trainer, "this validation")
        elif self.signals.received is not None:
            self._leave_if_asked(trainer)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit" and not trainer.should_stop:
            self._leave_if_asked(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit":
            self._leave_if_asked(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.signals.waits = False
        self._leave_if_asked(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Saves here, when averages have given the weights their place back."""
        if self._leaving:
            self.checkpoints.save(trainer)
        self.signals.waits = False

    def _leave_if_asked(self, trainer: Trainer) -> None:
        received = self.signals.received
        if trainer.strategy.reduce_boolean_decision(received is not None, all=False):
            self._leaving = True
            raise Stopped(received or signal.SIGTERM)

    def _tell(self, trainer: Trainer, what: str) -> None:
        """Says once what is being waited for."""
        if self.signals.received is not None and trainer.is_global_zero and not self._told:
            self._told = True
            log.info("ending after %s; the same again ends at once", what)
