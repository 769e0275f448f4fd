"""What a person sees while a model trains, and what is logged."""

import logging
import math
import sys
import time
from typing import Any

from lightning.pytorch import Callback, Trainer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from polyformer.training.task import Task

__all__ = ["Meter", "log"]

log = logging.getLogger("polyformer")

SIGN_OF_LIFE = 30.0
"""Seconds after which an evaluation says where it is."""


class Meter(Callback):
    """Measures the training, logs it every so many steps, and shows it: a bar in a terminal, lines elsewhere.

    Time and tokens of training alone, without validations, go on over resumed sessions.

    Args:
        every: Optimizer steps between two records.
    """

    def __init__(self, every: int = 50) -> None:
        if every < 1:
            raise ValueError(f"`trainer.log_every_n_steps` must be at least 1, but is {every}")
        self.every = every
        self.seconds = 0.0
        self._since: float | None = None
        self._mark = (0.0, 0)
        self._logged_step = 0
        self._bar: Progress | None = None
        self._bar_task = TaskID(0)
        self._sign = 0.0

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.elapsed(), "mark": list(self._mark), "logged_step": self._logged_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seconds, self._logged_step = state_dict["seconds"], state_dict["logged_step"]
        self._mark = (state_dict["mark"][0], state_dict["mark"][1])

    def elapsed(self) -> float:
        """Seconds of training so far."""
        return self.seconds + (time.perf_counter() - self._since if self._since is not None else 0.0)

    def _pause(self) -> None:
        self.seconds, self._since = self.elapsed(), None

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        self._since = time.perf_counter()
        if trainer.is_global_zero and sys.stderr.isatty():
            self._start_bar(trainer.max_steps, trainer.global_step)

    def _start_bar(self, total: int, done: int) -> None:
        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._bar.start()
        self._bar_task = self._bar.add_task("", total=total, completed=done)

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        step = trainer.global_step
        if step != self._logged_step and step % self.every == 0:
            self._record(trainer, pl_module)
        if self._bar is not None:
            self._bar.update(self._bar_task, completed=step)

    def _record(self, trainer: Trainer, task: Task) -> None:
        self._logged_step = trainer.global_step
        sums = task.take_train_sums()
        if not sums.get("count"):
            return
        if not math.isfinite(sums["loss"]) and trainer.is_global_zero:
            log.warning("the loss is %s: try a lower `training.optimizer.lr`, or `trainer.gradient_clip_val`", sums["loss"])
        seconds, tokens = self.elapsed(), task.tokens_seen
        rate = (tokens - self._mark[1]) / max(1e-9, seconds - self._mark[0])
        self._mark = (seconds, tokens)
        metrics = {
            **{f"train/{name}": value for name, value in task.trained(sums).items()},
            "train/learning_rate": task.learning_rate,
            "train/tokens_per_second": rate,
            "tokens": float(tokens),
            "seconds": seconds,
        }
        for logger in trainer.loggers:
            logger.log_metrics(metrics, trainer.global_step)
        if trainer.is_global_zero:
            shown = f"loss {metrics['train/loss']:.4f}  lr {metrics['train/learning_rate']:.2e}  {rate:,.0f} tokens/s"
            if self._bar is not None:
                self._bar.update(self._bar_task, description=shown)
            log.log(
                logging.DEBUG if self._bar is not None else logging.INFO,
                "step %d of %d  %s  %.0f s",
                trainer.global_step,
                trainer.max_steps,
                shown,
                seconds,
            )

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        self._pause()

    def on_validation_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int, *_: Any) -> None:
        self._show_evaluation("validating", batch_idx, trainer.num_val_batches)

    def on_test_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int, *_: Any) -> None:
        self._show_evaluation("testing", batch_idx, trainer.num_test_batches)

    def on_test_end(self, trainer: Trainer, pl_module: Any) -> None:
        self._stop_bar()

    def _show_evaluation(self, what: str, batch: int, batches: Any) -> None:
        """Which batch of an evaluation is at work: at once in a terminal, every half minute elsewhere."""
        said, now = f"{what}, batch {batch + 1:,} of {sum(batches):,}", time.perf_counter()
        self._sign = now if batch == 0 else self._sign
        if self._bar is None and sys.stderr.isatty():
            self._start_bar(sum(batches), batch)
        if self._bar is not None:
            self._bar.update(self._bar_task, description=said)
        elif now - self._sign >= SIGN_OF_LIFE:
            self._sign = now
            log.info("%s", said)

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        if trainer.sanity_checking:
            return
        metrics = pl_module.metrics
        record = {**metrics, "tokens": float(pl_module.tokens_so_far()), "seconds": self.elapsed()}
        for logger in trainer.loggers:
            logger.log_metrics(record, trainer.global_step)
        if trainer.is_global_zero:
            log.info("step %d  %s", trainer.global_step, describe(metrics))
            for line in pl_module.shown:
                log.info("    %s", line)
        if trainer.state.fn == "fit":
            self._since = time.perf_counter()
        else:
            self._stop_bar()

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        self._pause()
        if trainer.global_step != self._logged_step:
            self._record(trainer, pl_module)
        self._stop_bar()

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        self._stop_bar()

    def _stop_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def describe(metrics: dict[str, float]) -> str:
    """Metrics in one line.

    >>> describe({"val/loss": 1.23456, "val/bleu": 30.0})
    'val/loss 1.235  val/bleu 30'
    """
    return "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())
