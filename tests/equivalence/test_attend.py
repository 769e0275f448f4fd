"""The fast kernel equals attention spelled out, and a query that may see nothing gets zeros."""

from collections.abc import Callable, Iterator
from itertools import product

import pytest
import torch
from torch import Tensor

from polyformer.nn import Mask, Position, Shape, Where, attend, attend_by_hand, recorded_weights

from .cases import close

BATCH, HEADS, WIDTH = 2, 4, 3
KEEP = torch.tensor([[False, True, True, True, False], [True, True, False, True, True]])
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def wheres() -> Iterator[tuple[str, Where]]:
    """Every way in which queries and keys may stand to each other, five keys at most."""
    at, late = torch.arange(5), torch.arange(3, 5)
    ragged = torch.tensor([[0, 0, 1, 2, 3], [0, 1, 2, 3, 4]])
    yield "all", Where(Mask(), at, at)
    yield "all_of_memory", Where(Mask(), torch.arange(2), at)
    yield "causal", Where(Mask(causal=True), at, at)
    yield "causal_equal_not_same", Where(Mask(causal=True), at, at.clone())
    yield "causal_chunk", Where(Mask(causal=True), late, at)
    yield "causal_step", Where(Mask(causal=True), torch.tensor([4]), at)
    yield "keep", Where(Mask(keep=KEEP), at, at)
    yield "causal_keep", Where(Mask(causal=True, keep=KEEP), at, at)
    yield "causal_left", Where(Mask(causal=True, keep=ragged != 0), ragged, ragged)
    yield "causal_left_step", Where(Mask(causal=True, keep=KEEP), ragged[:, -1:], ragged)


class _Given(Position):
    """A position whose bias is a given tensor."""

    def __init__(self, given: Tensor) -> None:
        super().__init__(Shape(HEADS * WIDTH, HEADS))
        self.given = given

    def bias(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        return self.given


def position(bias: Tensor | None) -> Position | None:
    return None if bias is None else _Given(bias)


def biases(where: Where) -> Iterator[tuple[str, Tensor | None]]:
    shape = (HEADS, where.q_at.shape[-1], where.k_at.shape[-1])
    yield "plain", None
    yield "bias", torch.randn(1, *shape)
    yield "bias_each", torch.randn(BATCH, *shape)


CASES = [
    pytest.param(where, bias, groups, id=f"{place}-{kind}-{groups}")
    for place, where in wheres()
    for kind, bias in biases(where)
    for groups in (1, 2, HEADS)
]


def inputs(where: Where, groups: int = HEADS, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    lengths = [(HEADS, where.q_at.shape[-1]), (groups, where.k_at.shape[-1]), (groups, where.k_at.shape[-1])]
    return [torch.randn(BATCH, *shape, WIDTH, dtype=dtype, requires_grad=True) for shape in lengths]


@pytest.mark.parametrize(("where", "bias", "groups"), CASES)
def test_attend_equals_attention_by_hand(where: Where, bias: Tensor | None, groups: int) -> None:
    q, k, v = inputs(where, groups)
    added = None if bias is None else bias.clone().requires_grad_()
    given = [q, k, v] if added is None else [q, k, v, added]
    fast, slow = attend(q, k, v, where, position(added)), attend_by_hand(q, k, v, where, position(added))
    close(fast, slow)
    pull = torch.randn_like(fast)
    for one, other in zip(torch.autograd.grad(fast, given, pull), torch.autograd.grad(slow, given, pull), strict=True):
        close(one, other)


@pytest.mark.parametrize(("where", "bias", "groups"), CASES)
def test_attend_equals_a_loop_over_queries(where: Where, bias: Tensor | None, groups: int) -> None:
    q, k, v = (part.detach() for part in inputs(where, groups))
    out, visible = attend(q, k, v, where, position(bias)), where.mask.dense(where.q_at, where.k_at)
    visible = visible.expand(BATCH, 1, q.shape[2], k.shape[2])
    for b, h, i in product(range(BATCH), range(HEADS), range(q.shape[2])):
        group = h * groups // HEADS
        logits = [float(q[b, h, i] @ k[b, group, j]) / WIDTH**0.5 for j in range(k.shape[2])]
        if bias is not None:
            logits = [logit + float(bias[b % len(bias), h, i, j]) for j, logit in enumerate(logits)]
        seen = [j for j in range(k.shape[2]) if visible[b, 0, i, j]]
        expected = torch.zeros(WIDTH)
        if seen:
            weights = torch.tensor([logits[j] for j in seen]).softmax(0)
            expected = weights @ v[b, group, seen]
        close(out[b, h, i], expected)


@pytest.mark.parametrize("attention", [attend, attend_by_hand])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_that_sees_nothing_is_zero(
    attention: Callable[..., Tensor], biased: bool, causal: bool, dtype: torch.dtype
) -> None:
    keep = torch.tensor([[False] * 5, [False, False, True, True, True]])
    where = Where(Mask(causal, keep), torch.arange(5), torch.arange(5))
    q, k, v = inputs(where, dtype=dtype)
    bias = torch.randn(1, HEADS, 5, 5, dtype=dtype, requires_grad=True) if biased else None
    out = attention(q, k, v, where, position(bias))
    out.float().sum().backward()
    blind = ~where.mask.dense(where.q_at, where.k_at).any(-1).expand(BATCH, HEADS, 5)
    assert bool(blind[0].all()) and bool(blind[1, :, :2].all()) == causal
    assert out.dtype is dtype and bool((out[blind] == 0).all()) and bool((out[~blind] != 0).any())
    for part in (q, k, v) if bias is None else (q, k, v, bias):
        assert part.grad is not None and bool(part.grad.isfinite().all())
    assert q.grad is not None and k.grad is not None and v.grad is not None
    assert all(bool((gradient[0] == 0).all()) for gradient in (q.grad, k.grad, v.grad))
    assert bool((q.grad[blind] == 0).all())


@pytest.mark.parametrize(("where", "bias", "groups"), CASES)
def test_recorded_weights_are_those_that_were_used(where: Where, bias: Tensor | None, groups: int) -> None:
    q, k, v = inputs(where, groups)
    with recorded_weights() as weights:
        recorded = attend(q, k, v, where, position(bias))
    close(recorded, attend(q, k, v, where, position(bias)))
    assert len(weights) == 1 and not weights[0].requires_grad
    visible = where.mask.dense(where.q_at, where.k_at).expand(BATCH, HEADS, q.shape[2], k.shape[2])
    close(weights[0].sum(-1), visible.any(-1).float())
    assert bool((weights[0][~visible] == 0).all())
    close(weights[0] @ v.repeat_interleave(HEADS // groups, dim=1), recorded)


def test_dropout_on_weights_keeps_the_expectation() -> None:
    where = Where(Mask(causal=True), torch.arange(5), torch.arange(5))
    q, k, v = inputs(where)
    draws = torch.stack([attend(q, k, v, where, None, 0.3).detach() for _ in range(2000)])
    exact, spread = attend(q, k, v, where).detach(), draws.std(0) / 2000**0.5
    assert bool(((draws.mean(0) - exact).abs() < 5 * spread + 1e-5).all())
    assert bool((draws.std(0) > 0).all())
