"""Parts of a network that are not trained, from some step on or never."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn
from torch.optim import Optimizer

from polyformer.training.low_rank import Difference
from polyformer.training.parts import find_parts

__all__ = ["GradualUnfreezing", "freeze", "frozen_parts"]

KEY = "training.tuning.freeze"


def frozen_parts(task: nn.Module, names: list[str]) -> dict[str, nn.Module]:
    """The parts that names stand for, from the bottom of the network to its top."""
    found = {id(part) for name in names for part in find_parts(task, name, KEY).values()}
    return {full: module for full, module in task.named_modules() if id(module) in found}


def freeze(parts: dict[str, nn.Module]) -> None:
    """Keeps parts as they are: no gradients, so no optimizer state, and no dropout; differences of low rank in them train.

    >>> layer = nn.Linear(2, 2)
    >>> freeze({"layer": layer})
    >>> layer.training, any(parameter.requires_grad for parameter in layer.parameters())
    (False, False)
    """
    for part in parts.values():
        part.eval().requires_grad_(False)
        for inner in part.modules():
            if isinstance(inner, Difference):
                inner.requires_grad_(True)


class GradualUnfreezing(Callback):
    """Frozen parts begin to train one after another, the topmost first (Howard and Ruder 2018, section 3.3).

    Until then their gradients are thrown away before they are clipped, so that an optimizer neither moves them nor keeps
    anything for them. That they are computed costs time, but lets every rank agree on what is reduced.

    Args:
        parts: The frozen parts, from the bottom to the top.
        every: Steps between one and the next; the first begins after so many.

    Raises:
        ValueError: If one part is within another.
    """

    def __init__(self, parts: dict[str, nn.Module], every: int) -> None:
        for one in parts:
            for other in parts:
                if other.startswith(f"{one}."):
                    raise ValueError(f"`{KEY}` has {other} within {one}; with `unfreeze_every` each part must stand alone")
        self.parts, self.every = list(parts.values())[::-1], every

    def frozen(self, step: int) -> list[nn.Module]:
        """The parts that are still frozen when so many steps have been made."""
        return self.parts[step // self.every :]

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        frozen = self.frozen(trainer.global_step)
        for part in self.parts:
            part.train(part not in frozen)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        for part in self.frozen(trainer.global_step):
            for parameter in part.parameters():
                parameter.grad = None
