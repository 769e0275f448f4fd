"""What each token computes alone (Vaswani et al. 2017, section 3.3).

Letters: B batch, L tokens, D model, F inner width.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from polyformer.nn.dropout import Dropout, relu_dropout
from polyformer.nn.shape import Shape

__all__ = ["FeedForward", "FeedForwardFactory", "NoFeedForward", "SwiGLU"]

FeedForwardFactory = Callable[[Shape], nn.Module]


class FeedForward(nn.Module):
    """Two linear layers with a non-linearity between: W2 act(W1 x + b1) + b2 (equation 2 of the paper).

    Args:
        shape: What the stack has decided.
        width: Inner width (F); None: four times ``d_model``.
        activation: "relu" as in the paper, or "gelu" (Hendrycks and Gimpel 2016).
        dropout: Dropout on the inner activations; None: the stack's.
    """

    def __init__(
        self,
        shape: Shape,
        width: int | None = None,
        activation: Literal["relu", "gelu"] = "relu",
        dropout: float | None = None,
    ) -> None:
        super().__init__()
        width = 4 * shape.d_model if width is None else width
        self.activation = activation
        self.inner = nn.Linear(shape.d_model, width)
        self.outer = nn.Linear(width, shape.d_model)
        self.dropout = Dropout(shape.dropout if dropout is None else dropout)

    def forward(self, x: Tensor) -> Tensor:  # (B, L, D)
        if self.activation == "relu":
            # Flat: the 3-D result of a linear layer is a view, and autograd copies a view that is overwritten.
            inner = self.inner(x.flatten(0, -2))  # (B L, F)
            return self.outer(relu_dropout(inner, self.dropout.active)).view(x.shape)  # (B, L, D)
        if self.dropout.active == 0.0 and torch.is_grad_enabled():
            return gelu_linear(self.inner(x), self.outer.weight, self.outer.bias)
        return self.outer(self.dropout(F.gelu(self.inner(x))))


def gelu_linear(inner: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """``linear(gelu(inner))``, which keeps ``inner`` alone for the backward pass and computes its gelu again there.

    Half the memory of the widest tensors of a model, for an elementwise pass more.

    Args:
        inner: (..., F) activations.
        weight: (D, F) matrix.
        bias: (D,).
    """
    out: Tensor = _GeluLinear.apply(inner, weight, bias)
    return out


class _GeluLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inner: Tensor, weight: Tensor, bias: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(inner, weight)
        return F.linear(F.gelu(inner), weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:  # type: ignore[no-untyped-def]
        inner, weight = ctx.saved_tensors
        wide = inner.flatten(0, -2)  # (N, F)
        flat = gradient.to(inner.dtype).flatten(0, -2)  # (N, D), of the activations' type also where the forward was autocast
        passed = torch.ops.aten.gelu_backward(flat @ weight.to(flat.dtype), wide).view(inner.shape)
        _, wants_weight, wants_bias = ctx.needs_input_grad  # not where they are frozen
        weight_gradient = (flat.t() @ F.gelu(wide)).to(weight.dtype) if wants_weight else None
        return passed, weight_gradient, flat.sum(dim=0).to(weight.dtype) if wants_bias else None


class SwiGLU(nn.Module):
    """A gated feed-forward: W2 (silu(Wg x) * W1 x), without biases (Shazeer 2020, equation 6).

    Args:
        shape: What the stack has decided.
        width: Inner width (F); None: 8/3 of ``d_model``, which has as many parameters as the ungated kind.
        dropout: Dropout on the inner activations; None: the stack's.
    """

    def __init__(self, shape: Shape, width: int | None = None, dropout: float | None = None) -> None:
        super().__init__()
        width = 8 * shape.d_model // 3 if width is None else width
        self.inner = nn.Linear(shape.d_model, 2 * width, bias=False)
        self.outer = nn.Linear(width, shape.d_model, bias=False)
        self.dropout = Dropout(shape.dropout if dropout is None else dropout)

    def forward(self, x: Tensor) -> Tensor:  # (B, L, D)
        gate, inner = self.inner(x).chunk(2, dim=-1)  # (B, L, F) each
        return self.outer(self.dropout(F.silu(gate) * inner))


class NoFeedForward(nn.Module):
    """Nothing, so that a block is its mixer alone, as a layer of a recurrent network is.

    A block gives it no norm and no shortcut of its own, which would change what passes through.

    Args:
        shape: What the stack has decided.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:  # any shape
        return x
