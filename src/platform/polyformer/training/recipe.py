"""How a task is trained: the keys under `training:`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import Optimizer

from polyformer.training.schedules import InverseSquareRoot, ScheduleFactory

__all__ = ["Averaging", "FusedAdamW", "OptimizerFactory", "Recipe", "parameter_groups"]

OptimizerFactory = Callable[[Iterable[Any]], Optimizer]


class FusedAdamW(torch.optim.AdamW):
    """AdamW (Loshchilov and Hutter 2019) as one fused update, with the betas of Vaswani et al. 2017.

    Args:
        params: Parameters or groups of them.
        lr: Learning rate, before the schedule's factor.
        betas: Decay of the running means of gradient and squared gradient.
        eps: Added to the root of the second.
        weight_decay: Share of each matrix taken off per step and unit of learning rate.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-9,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, fused=True)
        # Gradients of 16-mixed are then unscaled before they are weighted and clipped, not inside the fused update.
        self._step_supports_amp_scaling = False


@dataclass(frozen=True)
class Averaging:
    """Whether the weights that are validated and kept are averages.

    Args:
        kind: "none"; "ema", an exponential moving average of every step; "last" or "best", the mean of the weights at
            the last or the best validations, made when training ends and kept if it validates better.
        decay: Of the moving average, per step.
        count: Number of validations in the mean.
    """

    kind: Literal["none", "ema", "last", "best"] = "none"
    decay: float = 0.999
    count: int = 5


@dataclass(frozen=True)
class Recipe:
    """How a task is trained.

    Args:
        optimizer: A torch optimizer; weight decay never touches norms, biases and embeddings.
        schedule: How the learning rate moves with the step (a subclass of Schedule).
        averaging: Whether the weights that are kept are averages.
        monitor: The metric that decides which checkpoint is best; None: the task's own.
        patience: Stop after this many validations without a better one; None: never.
        save_every: Write `last.ckpt` every so many steps, beside every validation; None: only then.
        keep: Number of best checkpoints kept, under `checkpoints/`.
    """

    optimizer: OptimizerFactory = FusedAdamW
    schedule: ScheduleFactory = InverseSquareRoot
    averaging: Averaging = field(default_factory=Averaging)
    monitor: str | None = None
    patience: int | None = None
    save_every: int | None = None
    keep: int = 1


def parameter_groups(module: nn.Module) -> list[dict[str, Any]]:
    """Two groups: matrices, which decay, and the rest, which never does (norms, biases, embeddings, positions).

    >>> [len(group["params"]) for group in parameter_groups(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)))]
    [1, 3]
    """
    decayed = {id(layer.weight) for layer in module.modules() if isinstance(layer, nn.Linear) and layer.weight.requires_grad}
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    matrices = [parameter for parameter in parameters if id(parameter) in decayed]
    others = [parameter for parameter in parameters if id(parameter) not in decayed]
    return [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
