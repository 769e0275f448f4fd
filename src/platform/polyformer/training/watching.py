"""Watching a training: losses and gradients that are no numbers, and a loss that explodes."""

import logging
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer

from polyformer.training.gather import gather_objects
from polyformer.training.run import SamplesFile
from polyformer.training.task import Task

__all__ = ["Course", "Watch"]

log = logging.getLogger("polyformer")

BLOCK, HIGH_BLOCKS = 50, 3
"""Steps whose losses are averaged, and how many such blocks in a row must be high before the loss has exploded."""
OVER_FIRST, OVER_LOWEST = 3.0, 10.0
"""High is more than so many times the mean of the first block, and of the lowest one too."""
SKIPPED_IN_A_ROW = 10
WITHOUT_WAITING = ("cpu",)
"""Devices whose results are there at once."""
LEAST_SCALE = 2.0**-13
"""Of 16-mixed; gradients that overflow with even less overflow without any scale."""
SHOWN_TOKENS = 24


@dataclass
class Course:
    """The loss of a training so far, in blocks of steps.

    A training that works has neither a loss of a multiple of what it began with nor one of ten times its best, not for 150
    steps on end; noise of single batches, another part of a mixture, or a rise at the end of a warm-up come to less.
    """

    steps: int = 0
    loss: float = 0.0
    count: float = 0.0
    first: float = math.inf
    lowest: float = math.inf
    latest: float = 0.0
    high: int = 0

    def add(self, loss: float, count: float) -> bool:
        """Takes the summed loss of a step, and what it is summed over; whether the loss has exploded.

        >>> course = Course()
        >>> [step for step, loss in enumerate([7.0] * 50 + [0.5] * 50 + [30.0] * 150) if course.add(loss, 1.0)]
        [249]
        """
        self.steps, self.loss, self.count = self.steps + 1, self.loss + loss, self.count + count
        if self.steps < BLOCK:
            return False
        self.latest = self.loss / self.count
        self.steps, self.loss, self.count = 0, 0.0, 0.0
        self.first = self.latest if math.isinf(self.first) else self.first
        self.lowest = min(self.lowest, self.latest)
        is_high = self.latest > OVER_FIRST * self.first and self.latest > OVER_LOWEST * self.lowest
        self.high = self.high + 1 if is_high else 0
        return self.high >= HIGH_BLOCKS


@dataclass(frozen=True)
class Sketch:
    """As much of a batch as lets a user find its examples.

    Args:
        loss: Of the batch.
        index: (B,) numbers of the examples; None where the batch does not tell.
        tokens: (B, SHOWN_TOKENS) the beginning of each.
        part: The part of a mixture that it is of.
    """

    loss: Tensor
    index: Tensor | None
    tokens: Tensor | None
    part: str | None

    @classmethod
    def of(cls, batch: Any, loss: Tensor) -> "Sketch":
        """Copied, so that no batch is held for it."""
        inner = getattr(batch, "batch", batch)
        index = getattr(inner, "index", None)
        tokens = getattr(inner, "source", getattr(inner, "tokens", None))
        if isinstance(tokens, Tensor) and getattr(inner, "windows", None) is not None:
            tokens = tokens[inner.windows.cumsum(0) - inner.windows]  # the first window of each example
        kept = tokens[:, :SHOWN_TOKENS].clone() if isinstance(tokens, Tensor) else None
        return cls(loss, index.clone() if isinstance(index, Tensor) else None, kept, getattr(batch, "part", None))

    def rows(self, task: Task) -> list[dict[str, Any]]:
        """A row for each example."""
        numbers = [] if self.index is None else self.index.tolist()
        beginnings = [[] for _ in numbers] if self.tokens is None else self.tokens.tolist()
        part = {} if self.part is None else {"part": self.part}
        tokenizer = next(iter(task.assets.tokenizers.values()), None)
        texts = ["" if tokenizer is None else tokenizer.decode(ids) for ids in beginnings]
        return [{**part, "example": number, "text": text} for number, text in zip(numbers, texts, strict=True)]


@dataclass(frozen=True)
class Made:
    """A step that has not been looked at yet.

    Args:
        step: Its number, from 1.
        values: (3,) summed loss, norm of the gradients, and what the loss is summed over, of all ranks.
        batches: This rank's.
    """

    step: int
    values: Tensor
    batches: list[Sketch]


class Watch(Callback):
    """Stops a training, or skips a step of it, whose loss or gradients are no numbers; stops one whose loss has exploded.

    On a CPU each step is looked at before it is made. An accelerator is not made to wait: it is asked when the training is
    logged, and before every validation and whatever is saved, so that no checkpoint holds what is no number; only where steps
    are to be skipped is it asked at each. All ranks see the same, and do the same.

    Gradients of 16-mixed may overflow: torch's scaler leaves such steps out and lowers its scale. That is no fault until
    there is no scale left.

    Args:
        action: "stop", or "skip": the step is counted, but its gradients are dropped and its sums forgotten.
        file: Gets a line of JSON for each example of the batches at fault.
        every: Steps between two looks on an accelerator.
    """

    def __init__(self, action: Literal["stop", "skip"], file: Path, every: int) -> None:
        self.action, self.every, self.file = action, every, SamplesFile(file)
        self.skipped, self.streak = 0, 0
        self.course = Course()
        self.waiting: list[Made] = []

    def state_dict(self) -> dict[str, Any]:
        return {"skipped": self.skipped, "streak": self.streak, "course": asdict(self.course)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.skipped, self.streak = state_dict["skipped"], state_dict["streak"]
        self.course = Course(**state_dict["course"])

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero:
            self.file.resume(trainer.global_step)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Takes down what the step's batches have come to."""
        task, step = cast(Task, pl_module), trainer.global_step + 1
        values = step_values(task, trainer.world_size)
        self.waiting.append(Made(step, values, [Sketch.of(batch, sums["loss"]) for batch, sums in task.served]))
        if self.action == "skip" or values.device.type in WITHOUT_WAITING or step % self.every == 0:
            self.look(trainer, task)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.look(trainer, cast(Task, pl_module))

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.look(trainer, cast(Task, pl_module))

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Keeps weights that are no numbers from being saved.

        Raises:
            ValueError: For those.
        """
        self.look(trainer, cast(Task, pl_module))
        checkpoint["callbacks"][self.state_key] = self.state_dict()  # lightning's was made before this look
        if not math.isfinite(float(total_norm(pl_module.parameters()))):
            raise ValueError(
                f"step {trainer.global_step}: weights are no numbers any more, or beyond all bounds; nothing of them was "
                f"saved; {remedies(trainer)}"
            )

    def look(self, trainer: Trainer, task: Task) -> None:
        """Judges the steps made since the last look.

        Raises:
            ValueError: If a step was at fault and is not to be skipped, and if the loss has exploded.
        """
        waiting, self.waiting = self.waiting, []
        if not waiting:
            return
        overflow_is_a_fault = scale_of(trainer) < LEAST_SCALE
        for made, (loss, norm, count) in zip(waiting, torch.stack([one.values for one in waiting]).tolist(), strict=True):
            fault = fault_of(loss, norm, count, overflow_is_a_fault)
            if fault is not None:
                self._act(trainer, task, made, fault)
                continue
            self.streak = 0
            if self.course.add(loss, count):
                was = f"was {self.course.first:.3g} in the beginning, {self.course.lowest:.3g} at its best"
                fault = f"the loss has exploded: it {was}, and is {self.course.latest:.3g} now"
                said = self._said(trainer, task, made, fault, made.batches)
                raise ValueError(f"{said}; {remedies(trainer)}; or `training.watch` off")

    def _said(self, trainer: Trainer, task: Task, made: Made, fault: str, sketches: list[Sketch]) -> str:
        """What is wrong in which examples; all of them go into the file."""
        own = [row for one in sketches for row in one.rows(task)]
        rows = [{"step": made.step, "fault": fault, **row} for row in gather_objects(own)]
        if trainer.is_global_zero:
            self.file.add(rows)
        return f"step {made.step}: {fault}, in {told(rows)}; {self.file.path} lists them all"

    def _act(self, trainer: Trainer, task: Task, made: Made, fault: str) -> None:
        """Skips the step, or stops."""
        sketches = [one for one in made.batches if not math.isfinite(float(one.loss))]
        said = self._said(trainer, task, made, fault, sketches or made.batches)
        if self.action == "skip":
            self.skipped, self.streak = self.skipped + 1, self.streak + 1
            task.served = []
            for parameter in task.parameters():
                parameter.grad = None
            if trainer.is_global_zero:
                log.warning("%s; skipped, %d so far", said, self.skipped)
            if self.streak < SKIPPED_IN_A_ROW:
                return
            said = f"{said}; so do the {self.streak - 1} steps before it: no single batch is at fault"
        else:
            said = f"{said}; or leave such steps out by `training.watch` skip"
        log.debug("%s", said)  # for the file: what is raised is shown
        raise ValueError(f"{said}; {remedies(trainer)}")


def step_values(task: Task, world: int) -> Tensor:
    """(3,) summed loss, norm of the gradients, and what the loss is summed over, of all ranks; none is waited for."""
    sums = [sums for _, sums in task.served]
    loss = torch.stack([one["loss"] for one in sums]).sum()
    count = torch.stack([one["count"] for one in sums]).sum()
    norm = total_norm(parameter.grad for parameter in task.parameters() if parameter.grad is not None)
    wide = torch.float32 if loss.device.type == "mps" else torch.float64
    values = torch.stack([value.to(loss.device, wide) for value in (loss, norm, count)])
    if world > 1:
        torch.distributed.all_reduce(values)
    return values


def total_norm(tensors: Iterable[Tensor]) -> Tensor:
    """The norm of all tensors as one vector; of shards, that of all ranks' shards.

    >>> float(total_norm([torch.tensor([3.0]), torch.tensor([4.0])]))
    5.0
    """
    given = [tensor.detach() for tensor in tensors]
    local = [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in given]
    norm = get_total_norm(local)
    if any(isinstance(tensor, DTensor) for tensor in given):
        squared = norm.double() ** 2
        torch.distributed.all_reduce(squared)
        return squared.sqrt()
    return norm


def fault_of(loss: float, norm: float, count: float, overflow_is_a_fault: bool = True) -> str | None:
    """What is wrong with a step; None where nothing is.

    >>> fault_of(1.5, 0.1, 3), fault_of(float("nan"), 0.1, 3), fault_of(0.0, 0.0, 0)
    (None, 'the loss is nan', 'there is nothing to predict')
    """
    if not count:
        return "there is nothing to predict"
    if not math.isfinite(loss):
        return f"the loss is {loss}"
    return f"the norm of the gradients is {norm}" if not math.isfinite(norm) and overflow_is_a_fault else None


def scale_of(trainer: Trainer) -> float:
    """What losses are multiplied with in 16-mixed; 0 elsewhere."""
    scaler = getattr(trainer.precision_plugin, "scaler", None)
    return 0.0 if scaler is None else float(scaler.get_scale())


def remedies(trainer: Trainer) -> str:
    """What usually helps."""
    half = ", `trainer.precision` bf16-mixed or 32-true" if scale_of(trainer) else ""
    return (
        f"try a lower `training.optimizer.lr`, a longer warm-up, `trainer.gradient_clip_val` 1.0{half}, and look for examples "
        "without a target or of which everything is masked"
    )


def told(rows: list[dict[str, Any]]) -> str:
    """Examples in a few words.

    >>> told([{"example": 7, "text": "forty-two"}, {"example": 9, "text": "six"}])
    "a batch of 2 training examples, such as number 7 ('forty-two')"
    """
    if not rows:
        return "a batch whose examples have no numbers"
    return f"a batch of {len(rows)} training examples, such as number {rows[0]['example']} ({rows[0]['text']!r})"
