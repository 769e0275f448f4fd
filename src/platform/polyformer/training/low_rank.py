"""Linear layers tuned by a difference of low rank, their own weights kept (LoRA, Hu et al. 2022)."""

import re
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from polyformer.training.parts import find_parts

__all__ = ["Difference", "LowRank", "add_differences", "merge_differences"]

KEY = re.compile(r"(?P<layer>.+)\.parametrizations\.weight\.(?P<part>original|0\.down|0\.up|0\.scale)")

USUAL_LAYERS = ["encoder"]


@dataclass(frozen=True)
class LowRank:
    """Which linear layers are tuned by a difference of low rank.

    Args:
        rank: Of the difference; 0: none is added.
        scale: What the difference is multiplied with, alpha / rank in the paper.
        layers: Parts whose linear layers get one, as in `freeze`, or what layers are called wherever they occur (`project`,
            `inner`, `outer`).

    Raises:
        ValueError: For a rank below 0, and for layers without a rank.
    """

    rank: int = 0
    scale: float = 2.0
    layers: list[str] = field(default_factory=USUAL_LAYERS.copy)

    def __post_init__(self) -> None:
        if self.rank < 0:
            raise ValueError(f"`training.tuning.low_rank.rank` must be at least 0, but is {self.rank}")
        if not self.rank and self.layers != USUAL_LAYERS:
            raise ValueError(
                f"`training.tuning.low_rank.layers` ({', '.join(self.layers)}) needs `training.tuning.low_rank.rank` above 0: "
                "otherwise no layer gets a difference"
            )


class Difference(nn.Module):
    """W -> W + scale * up @ down; up starts at zero, so that nothing has changed yet.

    Args:
        weight: (O, I), the layer's.
        rank: Of the difference (R).
        scale: What it is multiplied with.
    """

    scale: Tensor

    def __init__(self, weight: Tensor, rank: int, scale: float) -> None:
        super().__init__()
        outputs, inputs = weight.shape
        self.down = nn.Parameter(torch.randn(rank, inputs) * inputs**-0.5)
        self.up = nn.Parameter(torch.zeros(outputs, rank))
        self.register_buffer("scale", torch.tensor(scale))

    def forward(self, weight: Tensor) -> Tensor:  # (O, I) -> (O, I)
        return weight + self.scale * (self.up @ self.down)


def add_differences(task: nn.Module, settings: LowRank) -> int:
    """Gives the chosen linear layers a difference, freezes their own weights, and says how many layers these are.

    Raises:
        ValueError: For a name that is no part, or parts without linear layers.
    """
    parts = [part for name in settings.layers for part in find_parts(task, name, "training.tuning.low_rank.layers").values()]
    layers = dict.fromkeys(layer for part in parts for layer in part.modules() if isinstance(layer, nn.Linear))
    if not layers:
        raise ValueError(f"`training.tuning.low_rank.layers` ({', '.join(settings.layers)}) has no linear layers")
    for layer in layers:
        difference = Difference(layer.weight, settings.rank, settings.scale)
        parametrize.register_parametrization(layer, "weight", difference)
        layer.parametrizations.weight.original.requires_grad_(False)  # type: ignore[union-attr]
    return len(layers)


def merge_differences(weights: dict[str, Any]) -> dict[str, Any]:
    """A state dict in which differences have been added to the weights they belong to, as if they had never been apart."""
    merged: dict[str, Any] = {}
    apart: dict[str, dict[str, Any]] = {}
    for name, value in weights.items():
        match = KEY.fullmatch(name)
        if match is None:
            merged[name] = value
        else:
            apart.setdefault(match["layer"], {})[match["part"]] = value
    for layer, parts in apart.items():
        merged[f"{layer}.weight"] = parts["original"] + parts["0.scale"] * (parts["0.up"] @ parts["0.down"])
    return merged
