"""How a task is trained: the keys under `training:`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn
from torch.optim import Optimizer

from polyformer.training.optimizers import FusedAdamW
from polyformer.training.schedules import InverseSquareRoot, ScheduleFactory

__all__ = ["Averaging", "Decayed", "OptimizerFactory", "Recipe", "parameter_groups"]

Decayed = Literal["matrices", "matrices_and_embeddings", "all"]

OptimizerFactory = Callable[[Iterable[Any]], Optimizer]


@dataclass(frozen=True)
class Averaging:
    """Whether the weights that are validated and kept are averages.

    Args:
        kind: "none"; "ema", an exponential moving average of every step; "swa", the plain mean of all steps from a point on
            (Izmailov et al. 2018); "last" or "best", the mean of the weights at the last or the best validations, made
            when training ends and kept if it validates better.
        decay: Of the moving average, per step.
        start: Share of the training after which "swa" begins.
        count: Number of validations in the mean of "last" and "best".

    Raises:
        ValueError: For values that make no sense.
    """

    kind: Literal["none", "ema", "swa", "last", "best"] = "none"
    decay: float = 0.999
    start: float = 0.75
    count: int = 5

    def __post_init__(self) -> None:
        for name in ("decay", "start"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"`training.averaging.{name}` must be at least 0 and below 1, but is {getattr(self, name)}")


@dataclass(frozen=True)
class Recipe:
    """How a task is trained.

    Args:
        optimizer: A torch optimizer.
        decayed: What the optimizer's weight decay touches: the matrices of linear layers; embeddings and positions too; or
            norms and biases as well ("all").
        schedule: How the learning rate moves with the step (a subclass of Schedule).
        averaging: Whether the weights that are kept are averages.
        monitor: The metric that decides which checkpoint is best; None: the task's own.
        patience: Stop after this many validations without a better one; None: never.
        save_every: Write `last.ckpt` every so many steps, beside every validation; None: only then.
        keep: Number of best checkpoints kept, under `checkpoints/`.
    """

    optimizer: OptimizerFactory = FusedAdamW
    decayed: Decayed = "matrices"
    schedule: ScheduleFactory = InverseSquareRoot
    averaging: Averaging = field(default_factory=Averaging)
    monitor: str | None = None
    patience: int | None = None
    save_every: int | None = None
    keep: int = 1


def parameter_groups(module: nn.Module, decayed: Decayed = "matrices") -> list[dict[str, Any]]:
    """Groups of matrices of linear layers, of embeddings and positions, of norms and biases; the last two decay only if asked.

    >>> [len(group["params"]) for group in parameter_groups(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)))]
    [1, 3]
    """
    linear = {id(layer.weight) for layer in module.modules() if isinstance(layer, nn.Linear)}
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    matrices = [parameter for parameter in trained if id(parameter) in linear]
    tables = [parameter for parameter in trained if id(parameter) not in linear and parameter.dim() > 1]
    vectors = [parameter for parameter in trained if id(parameter) not in linear and parameter.dim() <= 1]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "kind": "matrices"},
        {"params": tables, **({"weight_decay": 0.0} if decayed == "matrices" else {})},
        {"params": vectors, **({"weight_decay": 0.0} if decayed != "all" else {})},
    ]
    return [group for group in groups if group["params"]]
