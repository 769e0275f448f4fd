"""Schedules against their formulas, and what weight decay touches."""

import math

import pytest
import torch
from torch import nn

from polyformer.models import EncoderDecoder, EncoderDecoderOptions
from polyformer.training import (
    Constant,
    Cosine,
    FusedAdamW,
    Horizon,
    InverseSquareRoot,
    Linear,
    Noam,
    Schedule,
    WarmupStableDecay,
    parameter_groups,
)

HORIZON = Horizon(steps=1000, d_model=512)


@pytest.mark.parametrize("step", [1, 2, 3999, 4000, 4001, 100_000])
def test_noam_is_the_papers_formula(step: int) -> None:
    rate = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
    assert math.isclose(Noam(HORIZON, warmup=4000)(step - 1), rate, rel_tol=1e-12)


@pytest.mark.parametrize("kind", [Constant, Linear, Cosine, WarmupStableDecay, InverseSquareRoot])
def test_warm_up_is_a_straight_line_to_the_peak(kind: type[Schedule]) -> None:
    schedule = kind(HORIZON, warmup=100)
    assert [schedule(step) for step in (0, 24, 49, 99)] == pytest.approx([0.01, 0.25, 0.5, 1.0])
    assert schedule(100) == pytest.approx(1.0)


def test_what_follows_the_warm_up() -> None:
    assert InverseSquareRoot(HORIZON, warmup=100)(400) == pytest.approx(0.5)
    assert Linear(HORIZON, warmup=0, floor=0.1)(500) == pytest.approx(0.55)
    assert Linear(HORIZON)(1000) == Cosine(HORIZON)(1000) == pytest.approx(0.0)
    assert Cosine(HORIZON)(500) == pytest.approx(0.5)
    stable = WarmupStableDecay(HORIZON, decay=0.2)
    assert [stable(step) for step in (799, 900, 1000)] == pytest.approx([1.0, 0.5, 0.0])


def test_a_decay_needs_an_end() -> None:
    with pytest.raises(ValueError, match=r"must know when training ends; set `trainer\.max_steps`"):
        Cosine(Horizon(steps=None, d_model=8))(3)


@pytest.mark.parametrize(
    ("kind", "arguments"), [(Constant, {"warmup": -1}), (Noam, {"warmup": 0}), (WarmupStableDecay, {"decay": 0.0})]
)
def test_bad_values_are_refused(kind: type[Schedule], arguments: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        kind(HORIZON, **arguments)  # type: ignore[arg-type]


def test_decay_touches_matrices_alone() -> None:
    model = EncoderDecoder(11, 11, EncoderDecoderOptions(d_model=8, num_heads=2))
    optimizer = FusedAdamW(parameter_groups(model), lr=0.1, weight_decay=0.5)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    linear = {f"{path}.weight" for path, module in model.named_modules() if isinstance(module, nn.Linear)}
    assert linear
    for name, value in model.named_parameters():
        assert torch.equal(value, before[name] * 0.95 if name in linear else before[name]) or (
            name in linear and torch.allclose(value, before[name] * 0.95)
        ), name
