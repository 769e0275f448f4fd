"""How weights start, by name.

Embeddings and positions start in their own modules; this is about the linear layers of a whole model.
"""

from collections import Counter
from typing import Literal, TypeVar

from torch import nn

from polyformer.nn import Residual

__all__ = ["InitializationName", "initialize"]

M = TypeVar("M", bound=nn.Module)
InitializationName = Literal["xavier", "gpt2", "torch"]


def initialize(model: M, name: InitializationName) -> M:
    """Gives every linear layer of a model its first weights, and zero to its bias; returns the model.

    "xavier": uniform with variance 2 / (fan in + fan out) (Glorot and Bengio 2010); a packed matrix counts as one, as in
    torch. "gpt2": normal with standard deviation 0.02, the last layer of each residual branch divided by the square root
    of the number of branches in its stack (Radford et al. 2019, section 2.3). "torch": left as torch makes them.

    Args:
        model: The whole model.
        name: Which recipe.
    """
    if name == "torch":
        return model
    branches = Counter(stack_of(path) for path, module in model.named_modules() if isinstance(module, Residual))
    for path, module in model.named_modules():
        if not isinstance(module, nn.Linear):
            continue
        if name == "xavier":
            nn.init.xavier_uniform_(module.weight)
        else:
            ends_branch = path.rsplit(".", 1)[-1] in ("output", "outer")
            nn.init.normal_(module.weight, std=0.02 / branches[stack_of(path)] ** 0.5 if ends_branch else 0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    return model


def stack_of(path: str) -> str:
    """The stack that a module belongs to, given its dotted path: what stands before `blocks`."""
    return path.partition("blocks.")[0]
