"""Dropout that counts bits: its shares, its scale, its mask in both directions, and what it accepts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from polyformer.nn import Dropout, FeedForward, Residual, Shape, SwiGLU, dropout, dropout_add, relu_dropout

PROBABILITIES = [0.1, 0.25, 0.5, 0.9]
over_probabilities = pytest.mark.parametrize("p", PROBABILITIES)


def added(x: Tensor, p: float) -> Tensor:
    return dropout_add(torch.zeros_like(x), x, p)


def rectified(x: Tensor, p: float) -> Tensor:
    return relu_dropout(x.clone(), p)  # it overwrites its input


Drop = Callable[[Tensor, float], Tensor]
KINDS: list[Drop] = [dropout, added, rectified]
over_kinds = pytest.mark.parametrize("drop", KINDS, ids=["dropout", "dropout_add", "relu_dropout"])


def seeded(drop: Drop, x: Tensor, p: float, seed: int = 5) -> Tensor:
    torch.manual_seed(seed)
    return drop(x, p)


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@over_kinds
@over_probabilities
def test_the_share_of_zeros_is_the_probability(drop: Drop, p: float) -> None:
    count = 200_000
    share = float((drop(torch.ones(count), p) == 0).float().mean())
    assert abs(share - p) < 5 * (p * (1 - p) / count) ** 0.5


@over_kinds
@over_probabilities
def test_the_scale_compensates_exactly(drop: Drop, p: float) -> None:
    """The probability that is in force is a multiple of 1/65536, and the scale is that of this one."""
    kept = drop(torch.ones(1000, dtype=torch.float64), p).unique()
    in_force = round(p * 65536) / 65536
    assert len(kept) == 2 and kept[0] == 0.0
    assert float(kept[1]) == pytest.approx(1 / (1 - in_force), rel=1e-12)
    assert abs(in_force - p) <= 0.5 / 65536


@over_kinds
@over_probabilities
def test_backward_uses_the_mask_of_forward(drop: Drop, p: float) -> None:
    x = torch.ones(7, 11, requires_grad=True)
    out = drop(x, p)
    (gradient,) = torch.autograd.grad(out, x, torch.ones_like(out))
    assert torch.equal(gradient, out)
    assert 0 < int((gradient == 0).sum()) < gradient.numel()


@over_probabilities
def test_backward_of_a_sum_reaches_both_terms(p: float) -> None:
    residual, x = (torch.randn(5, 9, requires_grad=True) for _ in range(2))
    out = dropout_add(residual, x, p)
    pull = torch.randn_like(out)
    to_residual, to_x = torch.autograd.grad(out, (residual, x), pull)
    assert torch.equal(to_residual, pull)
    branch = (out - residual).detach()
    torch.testing.assert_close(to_x * x.detach(), branch * pull, rtol=1e-5, atol=1e-6)


def test_backward_of_the_rectified_is_zero_where_it_is_cut_or_dropped() -> None:
    x = torch.randn(50, 40, requires_grad=True)
    out = rectified(x, 0.25)
    (gradient,) = torch.autograd.grad(out, x, torch.full_like(out, 3.0))
    torch.testing.assert_close(gradient, torch.where(out > 0, torch.tensor(3.0 / 0.75), 0.0))


@over_probabilities
def test_relu_dropout_is_relu_then_dropout(p: float) -> None:
    x = torch.randn(13, 7)
    fused = seeded(rectified, x, p)
    assert torch.equal(fused, seeded(dropout, x.relu(), p))


@over_probabilities
def test_dropout_add_is_the_residual_and_dropout(p: float) -> None:
    residual, x = torch.randn(13, 7), torch.randn(13, 7)
    torch.manual_seed(5)
    fused = dropout_add(residual, x, p)
    torch.testing.assert_close(fused, residual + seeded(dropout, x, p), rtol=1e-6, atol=1e-6)


def test_nothing_is_dropped_with_probability_zero() -> None:
    x, residual = torch.randn(5, 3), torch.randn(5, 3)
    assert dropout(x, 0.0) is x
    assert torch.equal(dropout_add(residual, x, 0.0), residual + x)
    assert torch.equal(rectified(x, 0.0), x.relu())
    before = torch.get_rng_state()
    for drop in KINDS:
        drop(x, 0.0)
    assert torch.equal(torch.get_rng_state(), before), "no random number is spent"


@over_kinds
def test_the_seed_decides(drop: Drop) -> None:
    x = torch.ones(301, 17)
    assert torch.equal(seeded(drop, x, 0.3), seeded(drop, x, 0.3))
    assert not torch.equal(seeded(drop, x, 0.3), seeded(drop, x, 0.3, seed=6))
    torch.manual_seed(5)
    assert not torch.equal(drop(x, 0.3), drop(x, 0.3)), "two calls must not drop the same"


@over_kinds
def test_the_number_of_threads_does_not_matter(drop: Drop) -> None:
    x = torch.randn(300, 301)
    with threads(1):
        one = seeded(drop, x, 0.3)
    with threads(2):
        two = seeded(drop, x, 0.3)
    assert torch.equal(one, two)


@over_kinds
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_types_of_numbers(drop: Drop, dtype: torch.dtype) -> None:
    x = torch.ones(501, dtype=dtype, requires_grad=True)
    out = drop(x, 0.5)
    out.sum().backward()
    assert out.dtype is dtype and x.grad is not None and x.grad.dtype is dtype
    assert set(out.unique().tolist()) == {0.0, 2.0} and torch.equal(x.grad, out)


def test_a_half_branch_joins_a_full_residual() -> None:
    """As under autocast: the sublayer's output is bfloat16, the residual is not."""
    residual = torch.zeros(101, requires_grad=True)
    x = torch.ones(101, dtype=torch.bfloat16, requires_grad=True)
    for p in (0.0, 0.5):
        out = dropout_add(residual, x, p)
        to_residual, to_x = torch.autograd.grad(out.sum(), (residual, x))
        assert out.dtype is to_residual.dtype is torch.float32 and to_x.dtype is torch.bfloat16
        assert torch.equal(to_x.float(), out.detach())


@over_kinds
@pytest.mark.parametrize("shape", [(1,), (2,), (3,), (5,), (7, 3), (1, 1, 1), (0,), (4, 0), (2, 3, 5, 7)], ids=str)
def test_odd_sizes(drop: Drop, shape: tuple[int, ...]) -> None:
    x = torch.ones(shape, requires_grad=True)
    out = drop(x, 0.5)
    out.sum().backward()
    assert out.shape == shape and x.grad is not None
    assert torch.equal(x.grad, out.detach())


@over_kinds
def test_views_with_gaps(drop: Drop) -> None:
    whole = torch.randn(6, 10)
    for view in (whole.t(), whole[:, ::2], whole[1:, 3:], whole[:1].expand(6, 10)):
        torch.testing.assert_close(seeded(drop, view, 0.4), seeded(drop, view.contiguous(), 0.4))


def test_relu_dropout_overwrites_only_what_it_is_given() -> None:
    whole = torch.randn(6, 10)
    before = whole.clone()
    relu_dropout(whole[2:4], 0.5)
    assert torch.equal(whole[[0, 1, 4, 5]], before[[0, 1, 4, 5]])


@over_kinds
def test_dropped_elements_have_no_pattern(drop: Drop) -> None:
    """One random number decides four neighbours: they must still be independent."""
    zero = (drop(torch.ones(80_000), 0.5) == 0).view(-1, 4).float() - 0.5
    for lag in range(4):
        agreement = (zero * zero.roll(lag, dims=1)).mean() * 4
        assert abs(float(agreement) - (1.0 if lag == 0 else 0.0)) < 0.03
    assert bool((zero.mean(0).abs() < 0.02).all())


@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5, float("nan")])
def test_what_is_no_probability_is_refused(p: float) -> None:
    with pytest.raises(ValueError, match=r"`dropout` must be at least 0 and below 1, but is "):
        Dropout(p)
    with pytest.raises(ValueError, match=r"`dropout` must be at least 0 and below 1, but is "):
        Shape(8, 2, dropout=p)


@over_kinds
@pytest.mark.parametrize("p", [1e-9, 0.999_999_9])
def test_the_ends_of_the_range(drop: Drop, p: float) -> None:
    out = drop(torch.ones(1000), p)
    assert bool(out.isfinite().all())
    assert int((out == 0).sum()) >= 990 if p > 0.5 else torch.equal(out, torch.ones(1000))


def test_the_module_drops_in_training_only() -> None:
    module, x = Dropout(0.5), torch.ones(1000)
    assert module.active == 0.5 and int((module(x) == 0).sum()) > 0
    module.eval()
    assert module.active == 0.0 and module(x) is x


@pytest.mark.parametrize("layer", [FeedForward, SwiGLU])
def test_feed_forward_takes_the_dropout_of_the_stack_or_its_own(layer: type) -> None:
    def probabilities(module: torch.nn.Module) -> list[float]:
        return [part.probability for part in module.modules() if isinstance(part, Dropout)]

    shape = Shape(8, 2, dropout=0.25)
    assert probabilities(layer(shape)) == [0.25]
    assert probabilities(layer(shape, dropout=0.0)) == [0.0]


@pytest.mark.parametrize("place", ["pre", "post"])
def test_a_residual_drops_the_branch_only(place: str) -> None:
    residual = Residual(torch.nn.Identity(), torch.nn.Identity(), place, 0.5)  # type: ignore[arg-type]
    assert set(residual(torch.ones(1000)).tolist()) == {1.0, 3.0}
    assert set(residual.eval()(torch.ones(1000)).tolist()) == {2.0}
