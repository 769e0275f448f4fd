"""The feed-forward that computes its gelu again in the backward pass: the same numbers, half the memory."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polyformer.nn import FeedForward, Shape
from polyformer.nn.feed_forward import gelu_linear

SHAPE = Shape(d_model=6, num_heads=2, dropout=0.0)


def plain(feed_forward: FeedForward, x: Tensor) -> Tensor:
    out: Tensor = feed_forward.outer(F.gelu(feed_forward.inner(x)))
    return out


def gradients(out: Tensor, feed_forward: FeedForward, x: Tensor) -> list[Tensor]:
    weights = [feed_forward.inner.weight, feed_forward.inner.bias, feed_forward.outer.weight, feed_forward.outer.bias]
    return list(torch.autograd.grad(out.float().square().sum(), [x, *weights]))


def test_its_gradients_are_those_of_numerical_differences() -> None:
    inner, outer = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True), nn.Linear(5, 4).double()
    assert torch.autograd.gradcheck(gelu_linear, (inner, outer.weight, outer.bias))


def test_it_equals_the_plain_composition() -> None:
    feed_forward, x = FeedForward(SHAPE, activation="gelu"), torch.randn(2, 5, 6, requires_grad=True)
    out, expected = feed_forward(x), plain(feed_forward, x)
    torch.testing.assert_close(out, expected)
    for ours, theirs in zip(gradients(out, feed_forward, x), gradients(expected, feed_forward, x), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_it_equals_the_plain_composition_under_autocast() -> None:
    feed_forward, x = FeedForward(SHAPE, activation="gelu"), torch.randn(2, 5, 6, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        out, expected = feed_forward(x), plain(feed_forward, x)
    assert out.dtype is expected.dtype is torch.bfloat16
    for ours, theirs in zip(gradients(out, feed_forward, x), gradients(expected, feed_forward, x), strict=True):
        assert ours.dtype is theirs.dtype is torch.float32
        torch.testing.assert_close(ours, theirs, rtol=0.02, atol=0.02)


def test_it_keeps_one_wide_tensor_for_the_backward_pass() -> None:
    feed_forward, kept = FeedForward(SHAPE, width=64, activation="gelu"), []
    with torch.autograd.graph.saved_tensors_hooks(lambda saved: kept.append(saved.shape), lambda shape: shape):
        feed_forward(torch.randn(7, 6))
    assert [shape for shape in kept if shape == (7, 64)] == [(7, 64)]
