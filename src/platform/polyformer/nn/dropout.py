"""Dropout whose random numbers are cheap on a processor without an accelerator.

On the CPU, torch draws one Bernoulli number per element, which costs more than the matrix product it follows. Here one
64-bit number decides four elements, so the probability is a multiple of 1/65536; what is saved for the backward pass is
one byte per element. Elsewhere torch's own kernels are used.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Dropout", "dropout", "dropout_add", "keep_mask", "relu_dropout"]

STEPS = 1 << 16


def dropout(x: Tensor, probability: float) -> Tensor:
    """Sets elements to zero with ``probability`` and scales the others so that the expectation stays.

    >>> bool((dropout(torch.ones(1000), 0.5).unique() == torch.tensor([0.0, 2.0])).all())
    True
    """
    if probability == 0.0:
        return x
    if not _counts_bits(x):
        return F.dropout(x, probability)
    dropped: Tensor = _Dropout.apply(x, probability)
    return dropped


def dropout_add(residual: Tensor, x: Tensor, probability: float) -> Tensor:
    """``residual + dropout(x)`` in one pass over memory."""
    if probability == 0.0:
        return residual + x
    if not _counts_bits(x):
        return residual + F.dropout(x, probability)
    added: Tensor = _DropoutAdd.apply(residual, x, probability)
    return added


def relu_dropout(x: Tensor, probability: float) -> Tensor:
    """``dropout(relu(x))``, which overwrites ``x`` and keeps nothing but its own result for the backward pass."""
    if not _counts_bits(x):
        return F.dropout(F.relu(x), probability) if probability else F.relu(x)
    activated: Tensor = _ReluDropout.apply(x, probability)
    return activated


def keep_mask(like: Tensor, probability: float) -> tuple[Tensor, float]:
    """Which elements stay, as bool, and what they are multiplied by, on a CPU."""
    dropped = min(round(probability * STEPS), STEPS - 1)
    words = torch.empty(-(-like.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    lanes = words.view(torch.int16)[: like.numel()].view(like.shape)
    return lanes >= dropped - STEPS // 2, STEPS / (STEPS - dropped)


class Dropout(nn.Module):
    """:func:`dropout` while training, the identity otherwise.

    Args:
        probability: Share of elements set to zero; at least 0 and below 1.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        if not 0.0 <= probability < 1.0:
            raise ValueError(f"`dropout` must be at least 0 and below 1, but is {probability}")
        self.probability = probability

    @property
    def active(self) -> float:
        """The probability in force now: zero in evaluation."""
        return self.probability if self.training else 0.0

    def forward(self, x: Tensor) -> Tensor:  # any shape
        return dropout(x, self.active)

    def extra_repr(self) -> str:
        return f"{self.probability}"


def _counts_bits(x: Tensor) -> bool:
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, probability: float) -> Tensor:  # type: ignore[no-untyped-def]
        keep, ctx.scale = keep_mask(x, probability)
        ctx.save_for_backward(keep)
        return torch.mul(x, keep.to(x.dtype)).mul_(ctx.scale)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        (keep,) = ctx.saved_tensors
        return torch.mul(gradient, keep.to(gradient.dtype)).mul_(ctx.scale), None


class _DropoutAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx, residual: Tensor, x: Tensor, probability: float) -> Tensor:  # type: ignore[no-untyped-def]
        keep, ctx.scale = keep_mask(x, probability)
        ctx.save_for_backward(keep)
        ctx.dtype = x.dtype
        return torch.addcmul(residual, x.to(residual.dtype), keep.to(residual.dtype), value=ctx.scale)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[no-untyped-def]
        (keep,) = ctx.saved_tensors
        branch = torch.mul(gradient, keep.to(gradient.dtype)).mul_(ctx.scale)
        return gradient, branch.to(ctx.dtype), None


class _ReluDropout(torch.autograd.Function):
    """An element is positive in the result exactly if it was positive and kept: the result is the mask."""

    @staticmethod
    def forward(ctx, x: Tensor, probability: float) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.mark_dirty(x)
        ctx.scale = 1.0
        x.clamp_(min=0)
        if probability:
            keep, ctx.scale = keep_mask(x, probability)
            x.mul_(keep.to(x.dtype)).mul_(ctx.scale)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        (result,) = ctx.saved_tensors
        passed = torch.ops.aten.threshold_backward(gradient, result, 0.0)
        return passed.mul_(ctx.scale) if ctx.scale != 1.0 else passed, None
