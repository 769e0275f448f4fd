"""Pooling: blind to padding whatever stands there, zeros where nothing is, finite in half precision."""

import math

import pytest
import torch
from torch import Tensor

from polyformer.nn import AttentionPooling, FirstToken, Max, Mean, MeanMax, Pooling, Shape

D_MODEL = 6
KINDS: list[type[Pooling]] = sorted(Pooling.__subclasses__(), key=lambda kind: kind.__name__)
over_kinds = pytest.mark.parametrize("kind", KINDS)


def tokens(batch: int = 3, length: int = 5) -> Tensor:
    return torch.randn(batch, length, D_MODEL)


def make(kind: type[Pooling]) -> Pooling:
    return kind(Shape(D_MODEL, 2))


def test_every_kind_is_public() -> None:
    assert set(KINDS) == {AttentionPooling, FirstToken, Max, Mean, MeanMax}


@over_kinds
def test_the_width_is_that_of_the_vector(kind: type[Pooling]) -> None:
    pooling = make(kind)
    assert pooling(tokens()).shape == (3, pooling.width)


@over_kinds
@pytest.mark.parametrize("padding", [0, 1, 7, 64])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("filler", [0.0, 1e4, math.nan, math.inf])
def test_padding_has_no_part(kind: type[Pooling], padding: int, left: bool, filler: float) -> None:
    pooling, x = make(kind), tokens()
    pad, real = torch.full((3, padding, D_MODEL), filler), torch.ones(3, 5, dtype=torch.bool)
    unreal = torch.zeros(3, padding, dtype=torch.bool)
    padded = torch.cat((pad, x) if left else (x, pad), dim=1)
    keep = torch.cat((unreal, real) if left else (real, unreal), dim=1)
    torch.testing.assert_close(pooling(padded, keep), pooling(x))
    torch.testing.assert_close(pooling(padded, keep)[1:2], pooling(x[1:2]))


@over_kinds
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_row_without_tokens_is_zeros_and_gradients_are_finite(kind: type[Pooling], dtype: torch.dtype) -> None:
    pooling = make(kind).to(dtype)
    x = tokens().to(dtype).requires_grad_()
    keep = torch.tensor([[True] * 5, [False] * 5, [True, True, False, False, False]])
    pooled = pooling(x, keep)
    assert pooled.dtype == dtype
    assert bool((pooled[1] == 0).all()) and bool(pooled.isfinite().all())
    pooled.sum().backward()
    gradients = [x.grad, *(parameter.grad for parameter in pooling.parameters())]
    assert all(gradient is not None and bool(gradient.isfinite().all()) for gradient in gradients)
    assert x.grad is not None and bool((x.grad[1] == 0).all()) and bool((x.grad[2, 2:] == 0).all())


@over_kinds
def test_gradients_are_those_of_the_text_alone(kind: type[Pooling]) -> None:
    """Even where what stands in the padding is not a number."""
    pooling, x = make(kind), tokens(1)
    alone = x.clone().requires_grad_()
    pooling(alone).square().sum().backward()
    expected = [parameter.grad.clone() for parameter in pooling.parameters() if parameter.grad is not None]
    pooling.zero_grad()
    padded = torch.cat((x, torch.full((1, 3, D_MODEL), math.nan)), dim=1).requires_grad_()
    pooling(padded, torch.tensor([[True] * 5 + [False] * 3])).square().sum().backward()
    assert alone.grad is not None and padded.grad is not None
    torch.testing.assert_close(padded.grad[:, :5], alone.grad)
    torch.testing.assert_close([parameter.grad for parameter in pooling.parameters()], expected)


def test_figures() -> None:
    x = torch.tensor([[[1.0, -4.0], [3.0, -2.0], [5.0, -9.0]]])
    keep = torch.tensor([[True, True, False]])
    shape = Shape(2, 1)
    assert Mean(shape)(x, keep).tolist() == [[2.0, -3.0]]
    assert Max(shape)(x, keep).tolist() == [[3.0, -2.0]]
    assert MeanMax(shape)(x, keep).tolist() == [[2.0, -3.0, 3.0, -2.0]]
    assert FirstToken(shape)(x, keep).tolist() == [[1.0, -4.0]]


def test_attention_is_a_weighted_mean() -> None:
    pooling, x = AttentionPooling(Shape(D_MODEL, 2)), tokens(1)
    scores = pooling.context(torch.tanh(pooling.inner(x[0]))).squeeze(1).tolist()
    weights = [math.exp(score) / sum(map(math.exp, scores)) for score in scores]
    expected = sum(weight * token for weight, token in zip(weights, x[0], strict=True))
    torch.testing.assert_close(pooling(x)[0], expected)


def test_a_mean_of_many_large_halves_does_not_overflow() -> None:
    x = torch.full((1, 4096, D_MODEL), 100.0, dtype=torch.float16)
    keep = torch.ones(1, 4096, dtype=torch.bool)
    assert Mean(Shape(D_MODEL, 2))(x, keep).tolist() == [[100.0] * D_MODEL]
