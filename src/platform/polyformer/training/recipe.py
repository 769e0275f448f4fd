"""How a task is trained: the keys under `training:`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn
from torch.optim import Optimizer

from polyformer.training.low_rank import LowRank
from polyformer.training.optimizers import FusedAdamW
from polyformer.training.schedules import InverseSquareRoot, ScheduleFactory

__all__ = ["Averaging", "Decayed", "OptimizerFactory", "Recipe", "Tuning", "parameter_groups"]

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
class Tuning:
    """How a network is trained on that has been trained before (`model.init_from`).

    Args:
        freeze: Parts that are kept as they are, such as `[embedding, encoder.0-3]`: no gradients, no optimizer state, no
            dropout in them.
        unfreeze_every: After each so many steps the topmost frozen part begins to train; None: never.
        layer_decay: Factor of the learning rate from each layer to the one below it, the embeddings last; what stands on
            the stack has the whole rate (Howard and Ruder 2018, section 3.2).
        low_rank: Linear layers that are tuned by a difference of low rank alone.

    Raises:
        ValueError: For values that make no sense.
    """

    freeze: list[str] = field(default_factory=list)
    unfreeze_every: int | None = None
    layer_decay: float = 1.0
    low_rank: LowRank = field(default_factory=LowRank)

    def __post_init__(self) -> None:
        if not 0.0 < self.layer_decay <= 1.0:
            raise ValueError(f"`training.tuning.layer_decay` must be above 0 and at most 1, but is {self.layer_decay}")
        if self.unfreeze_every is not None and self.unfreeze_every < 1:
            raise ValueError(f"`training.tuning.unfreeze_every` must be at least 1, but is {self.unfreeze_every}")
        if self.unfreeze_every is not None and not self.freeze:
            raise ValueError("`training.tuning.unfreeze_every` needs `training.tuning.freeze`, the parts that are frozen first")


@dataclass(frozen=True)
class Recipe:
    """How a task is trained.

    Args:
        optimizer: A torch optimizer.
        decayed: What the optimizer's weight decay touches: the matrices of linear and recurrent layers; embeddings and
            positions too; or norms and biases as well ("all").
        schedule: How the learning rate moves with the step (a subclass of Schedule).
        averaging: Whether the weights that are kept are averages.
        monitor: The metric that decides which checkpoint is best; None: the task's own.
        patience: Stop after this many validations without a better one; None: never.
        save_every: Write `last.ckpt` every so many steps, beside every validation; None: only then. The one before it is
            kept as `previous.ckpt`.
        keep: Number of best checkpoints kept, under `checkpoints/`.
        keep_every: Keep the checkpoint of every so many steps for good, as `checkpoints/kept-STEP.ckpt`; None: of none.
        tuning: How weights that were trained before are trained on.
        compile: Compile the blocks of the network for training steps (torch.compile), which takes time at the start, and on a
            CPU a C++ compiler. Results are the same but for rounding and for what dropout drops.
        watch: What is done about a step whose loss or gradients are no numbers: "stop" the training, and name the examples;
            "skip" the step, and count it in `results.json`; or "off", nothing. A training whose loss has exploded stops too,
            unless this is off.

    Raises:
        ValueError: For averages of differences of low rank.
    """

    optimizer: OptimizerFactory = FusedAdamW
    decayed: Decayed = "matrices"
    schedule: ScheduleFactory = InverseSquareRoot
    averaging: Averaging = field(default_factory=Averaging)
    monitor: str | None = None
    patience: int | None = None
    save_every: int | None = None
    keep: int = 1
    keep_every: int | None = None
    tuning: Tuning = field(default_factory=Tuning)
    compile: bool = False
    watch: Literal["stop", "skip", "off"] = "stop"

    def __post_init__(self) -> None:
        if self.tuning.low_rank.rank and self.averaging.kind != "none":
            raise ValueError(
                f"`training.averaging.kind` {self.averaging.kind} and `training.tuning.low_rank` do not go together: means of "
                "factors are not those of their products"
            )


def parameter_groups(module: nn.Module, decayed: Decayed = "matrices", layer_decay: float = 1.0) -> list[dict[str, Any]]:
    """Groups of matrices of layers, of embeddings and positions, of norms and biases; the last two decay only if asked.

    With ``layer_decay`` below 1 there are such groups for each depth, the top first, and "rate" is their share of the
    learning rate.

    >>> [len(group["params"]) for group in parameter_groups(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)))]
    [1, 3]
    """
    matrices = {f"{name}.{own}" for name, layer in module.named_modules() for own in matrices_of(layer)}
    groups: dict[tuple[int, str], list[nn.Parameter]] = {}
    depths = layer_depths(module) if layer_decay < 1.0 else {}
    for name, parameter in module.named_parameters():
        tuned = name.endswith((".weight.0.down", ".weight.0.up"))  # a difference of low rank decays as its matrix would
        kind = "matrices" if name in matrices else "differences" if tuned else "tables" if parameter.dim() > 1 else "vectors"
        if parameter.requires_grad:
            groups.setdefault((depths.get(name, 0), kind), []).append(parameter)
    whole = {"matrices": ("tables", "vectors"), "matrices_and_embeddings": ("vectors",), "all": ()}[decayed]
    found: list[dict[str, Any]] = []
    for (depth, kind), parameters in sorted(groups.items(), key=lambda entry: entry[0]):
        found.append({"params": parameters, "kind": kind, "rate": layer_decay**depth})
        found[-1] |= {"weight_decay": 0.0} if kind in whole else {}
    return found


def matrices_of(layer: nn.Module) -> list[str]:
    """The matrices of a linear or a recurrent layer, by their names in it.

    >>> matrices_of(nn.LSTM(2, 3))
    ['weight_ih_l0', 'weight_hh_l0']
    """
    own = layer.named_parameters(recurse=False) if isinstance(layer, (nn.Linear, nn.RNNBase)) else ()
    return [name for name, parameter in own if parameter.dim() == 2]


def layer_depths(module: nn.Module) -> dict[str, int]:
    """How far each parameter is below the top: 0 above the stacks, 1 in the last block of one, and so on down to embeddings.

    >>> layer_depths(nn.ModuleDict({"embedding": nn.Embedding(2, 2), "blocks": nn.ModuleList([nn.Linear(1, 1, False)] * 3)}))
    {'embedding.weight': 4, 'blocks.0.weight': 3}
    """
    counts = {name: len(blocks) for name, blocks in module.named_modules() if isinstance(blocks, nn.ModuleList)}
    counts = {name: count for name, count in counts.items() if name.rpartition(".")[2] == "blocks"}
    lowest = 1 + max(counts.values(), default=0)
    depths = {}
    for name, _ in module.named_parameters():
        stack, _, rest = name.partition("blocks.")
        if rest:
            depths[name] = counts[f"{stack}blocks"] - int(rest.split(".")[0])
        else:
            depths[name] = lowest if "embedding" in name or "positions" in name else 0
    return depths
