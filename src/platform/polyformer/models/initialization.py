"""How weights start, by name.

Embeddings and positions start in their own modules; this is about the linear layers of a whole model.
"""

from collections.abc import Callable
from typing import Literal

from torch import nn

__all__ = ["InitializationName", "initialize"]

InitializationName = Literal["xavier", "gpt2", "torch"]


def initialize(model: nn.Module, name: InitializationName, num_layers: int) -> None:
    """Gives every linear layer its first weights, and zero to its bias.

    "xavier": uniform with variance 2 / (fan in + fan out) (Glorot and Bengio 2010), as Vaswani et al.'s own code does.
    "gpt2": normal with standard deviation 0.02, the last layer of each residual branch divided by the square root of
    the number of branches (Radford et al. 2019, section 2.3). "torch": left as torch makes them.

    Args:
        model: The whole model.
        name: Which recipe.
        num_layers: Number of blocks that follow each other.
    """
    recipes: dict[str, Callable[[str, nn.Linear], object]] = {
        "xavier": lambda _, linear: nn.init.xavier_uniform_(linear.weight),
        "gpt2": lambda path, linear: nn.init.normal_(linear.weight, std=_gpt2_deviation(path, num_layers)),
    }
    if name == "torch":
        return
    for path, module in model.named_modules():
        if isinstance(module, nn.Linear):
            recipes[name](path, module)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def _gpt2_deviation(path: str, num_layers: int) -> float:
    ends_branch = path.rsplit(".", 1)[-1] in ("output", "outer")
    return 0.02 / (2 * num_layers) ** 0.5 if ends_branch else 0.02
