"""A learning rate and a size of batches for a config, found by trying.

Lightning's own finders change an attribute of the LightningModule, and know neither batches of tokens nor groups of
parameters with rates of their own.
"""

import gc
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch
from jsonargparse import Namespace
from lightning.pytorch import Callback, LightningModule, Trainer
from torch.utils.data import DataLoader

from polyformer.data import DataModule, MixedData
from polyformer.training.extent import trainer_keys
from polyformer.training.fitting import Fitting, make_trainer
from polyformer.training.footprint import footprint_of, measured_activations, sample_batches, whole_batch
from polyformer.training.memory import device_memory, peak_memory
from polyformer.training.schedules import Horizon, Schedule
from polyformer.training.task import Task

__all__ = ["RateTest", "find_rate", "find_tokens", "largest"]

SMOOTHED, EXPLODED = 9, 4.0
"""Steps in the moving mean; and the multiple of the lowest mean at which a test ends."""
SHARE = 16
"""A size is found to one part in so many."""
MOST_TOKENS = 2**24
ESTIMATED = ("cpu",)
"""Devices on which a step that is too large stops more than itself."""


class Rising(Schedule):
    """A rate that grows by the same factor at each step.

    Args:
        horizon: What is known of the training.
        base: The optimizer's rate.
        low: The first rate.
        high: The last one.
    """

    def __init__(self, horizon: Horizon, base: float, low: float, high: float) -> None:
        super().__init__(horizon)
        self.base, self.low, self.high = base, low, high

    def after(self, step: int) -> float:
        return self.low * (self.high / self.low) ** self.share(step) / self.base


class RateTest(Callback):
    """Takes down rate and loss of every step, until the loss explodes (Smith 2017, section 3.3)."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.losses: list[float] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if trainer.global_step == len(self.rates):
            return  # in the middle of an accumulation
        task = cast(Task, pl_module)
        sums = task.take_train_sums()
        self.rates.append(task.learning_rate)
        self.losses.append(sums["loss"] / sums["count"] if sums.get("count") else math.nan)
        smooth = self.smooth()
        if not math.isfinite(self.losses[-1]) or smooth[-1] > EXPLODED * min(smooth):
            trainer.should_stop = True

    def smooth(self) -> list[float]:
        """The mean of the steps around each one, without what is no number."""
        half = SMOOTHED // 2
        losses = [loss for loss in self.losses if math.isfinite(loss)]
        windows = [losses[max(0, at - half) : at + half + 1] for at in range(len(losses))]
        return [sum(window) / len(window) for window in windows]

    def suggestion(self) -> float | None:
        """The rate at which the loss falls fastest for each factor of the rate; None where it never falls.

        >>> test = RateTest()
        >>> test.rates = [1e-5 * 1.2**step for step in range(60)]
        >>> test.losses = [9.0] * 20 + [9.0 - 0.4 * step for step in range(20)] + [1.4] * 20
        >>> f"{test.suggestion():.0e}"
        '2e-03'
        """
        smooth = self.smooth()
        bottom = min(range(len(smooth)), key=smooth.__getitem__, default=0)
        falls = [smooth[at + 1] - smooth[at - 1] for at in range(1, bottom)]  # equal factors lie between all rates
        if not falls or min(falls) >= 0.0:
            return None
        steep = [at for at, fall in enumerate(falls, 1) if fall <= 0.9 * min(falls)]
        return self.rates[steep[len(steep) // 2]]


def find_rate(fitting: Fitting, low: float, high: float, steps: int) -> RateTest:
    """Trains while the rate rises, on one device; nothing is kept.

    Args:
        fitting: The training as it was described.
        low: The first rate.
        high: The last one.
        steps: Optimizer steps.

    Raises:
        ValueError: For an optimizer that has no rate to multiply.
    """
    task, callbacks = fitting.fresh()
    base = float(fitting.built.settings["training"]["optimizer"].get("init_args", {}).get("lr", 0.0))
    if base <= 0.0:
        raise ValueError("`training.optimizer.lr` must be above 0 for a search, but is 0")
    task.recipe = replace(task.recipe, schedule=lambda horizon: Rising(horizon, base, low, high))
    fitting.data.total_batches = steps * int(fitting.keys.accumulate_grad_batches)
    test = RateTest()
    _trainer(fitting, steps, [test, *callbacks]).fit(task, datamodule=fitting.data)
    return test


def find_tokens(fitting: Fitting, memory: int | None) -> tuple[int, str]:
    """The largest `data.batches.tokens` with which a step fits, on one device.

    On an accelerator steps are made, until there is no room for one; on a processor, where a step too large would stop the
    machine, its memory is estimated.

    Args:
        fitting: The training as it was described.
        memory: Bytes that may be used; None: all that the device has.

    Returns:
        The number of tokens, 0 where none fits; and what was found out about the memory.

    Raises:
        ValueError: For data whose parts have batches of their own.
    """
    if isinstance(fitting.data, MixedData):
        raise ValueError("the batches of MixedData are those of its parts: find `data.batches.tokens` for each part alone")
    task, _ = fitting.fresh()
    data, per_epoch = fitting.data, fitting.data.batches_per_epoch()
    most = MOST_TOKENS if per_epoch is None else per_epoch * data.batches.tokens  # all of the data in one batch
    trainer = _trainer(fitting, 1, [])
    device = trainer.strategy.root_device
    there = device_memory(device) if memory is None else memory
    if device.type in ESTIMATED:
        fits, told = _by_estimate(task, data, trainer, there)
    else:
        if memory is not None and device.type == "cuda":
            torch.cuda.set_per_process_memory_fraction(min(1.0, memory / device_memory(device)), device)
        fits, told = _by_steps(fitting, task), lambda: f"at most {peak_memory() / 1e9:.2f} GB"
    found = largest(fits, min(data.batches.tokens, most), most)
    return found, f"{told()} of {there / 1e9:.2f} GB"


def largest(fits: Callable[[int], bool], start: int, most: int) -> int:
    """The largest size that fits, to one part in sixteen; 0 if none does.

    >>> largest(lambda size: size <= 1000, start=300, most=10**6)
    975
    """
    low, high, size = 0, most + 1, start
    while size > low:
        if fits(size):
            low = size
        else:
            high = size
        doubled = 2 * low if low and high > most else (low + high) // 2
        size = min(doubled, most)
        if high <= most and high - low <= max(1, high // SHARE):
            break
    return low


def _trainer(fitting: Fitting, steps: int, callbacks: list[Callback]) -> Trainer:
    """One that neither validates nor keeps anything."""
    keys = trainer_keys(fitting.keys, fitting.data, steps)
    alone = {"devices": 1, "num_nodes": 1, "strategy": "auto", "fast_dev_run": False, "limit_val_batches": 0}
    return make_trainer(Namespace(**{**vars(keys), **alone, "val_check_interval": None}), callbacks=callbacks)


def _by_estimate(task: Task, data: DataModule, trainer: Trainer, there: int) -> tuple[Callable[[int], bool], Callable[[], str]]:
    """Whether a size fits by what a few rows need; and in words what the last one that did takes, or one that did not."""
    trainer.precision_plugin.convert_module(task)
    activations = measured_activations(task, sample_batches(data, 1), trainer)
    base = footprint_of(task, trainer, 0)
    held = peak_memory() - base.parameters  # by the process itself, its libraries and its data
    needed: dict[bool, int] = {}

    def fits(tokens: int) -> bool:
        data.batches = replace(data.batches, tokens=tokens)
        total = held + base.total + activations.of(sample_batches(data, 1).places)
        needed[total <= there] = total
        return total <= there

    return fits, lambda: f"about {needed.get(True, needed.get(False, 0)) / 1e9:.2f} GB"


def _by_steps(fitting: Fitting, task: Task) -> Callable[[int], bool]:
    """Whether two steps on the largest batch can be made; two, since optimizers get their state in the first."""

    def fits(tokens: int) -> bool:
        fitting.data.batches = replace(fitting.data.batches, tokens=tokens)
        batches: Any = [whole_batch(fitting.data)] * 2 * int(fitting.keys.accumulate_grad_batches)
        try:
            _trainer(fitting, 2, []).fit(task, DataLoader(batches, batch_size=None, collate_fn=lambda batch: batch))
        except torch.OutOfMemoryError:
            return False
        finally:
            for parameter in task.parameters():
                parameter.grad = None
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        return True

    return fits
