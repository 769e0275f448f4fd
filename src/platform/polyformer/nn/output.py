"""The output layer while decoding: one large matrix, met by a few rows at every step.

Letters: N rows, D model, V vocabulary.
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

__all__ = ["prepare_output"]


def prepare_output(weight: Tensor) -> Callable[[Tensor], Tensor]:
    """A function (N, D) -> (N, V), ``hidden @ weight.T``, for many calls with the same weight.

    A general matrix product reorders the weight in memory at each call, which for a few rows takes longer than the product
    itself: with 32 rows, D 256 and V 8,000 it is two to three times as slow. On a processor without an accelerator the
    weight is therefore reordered once, at the first call, by oneDNN. Where that is not to be had, and where gradients are
    wanted, the product is the plain one.

    Args:
        weight: (V, D); changes made to it after the first call may not be seen.

    >>> weight = torch.arange(6.0).view(3, 2)
    >>> with torch.no_grad():
    ...     prepare_output(weight)(torch.ones(1, 2))
    tensor([[1., 5., 9.]])
    """
    reordered = cache(lambda: _reordered(weight))

    def output(hidden: Tensor) -> Tensor:
        packed = reordered() if _is_worth_it(weight) else None
        if packed is None:
            return hidden @ weight.t()
        product: Tensor = torch.ops.mkldnn._linear_pointwise(hidden.contiguous(), packed, None, "none", [], None)
        return product

    return output


def _reordered(weight: Tensor) -> Tensor | None:
    """The weight as oneDNN wants it; None where this build of torch cannot."""
    reorder = getattr(torch.ops.mkldnn, "_reorder_linear_weight", None)
    return None if reorder is None else reorder(weight.detach(), None)


def _is_worth_it(weight: Tensor) -> bool:
    plain = weight.device.type == "cpu" and weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    return plain and torch.backends.mkldnn.is_available() and not torch.is_grad_enabled()
