"""What positions keep and for which distances, and what they refuse."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from polyformer.nn import ALiBi, Position, Relative, Shape, T5Bias


def biased(position: Position, length: int) -> Tensor:
    """(H, L, L), the bias of so many tokens, the query being zero."""
    q, at = torch.zeros(1, 2, length, 4), torch.arange(length)
    bias = position.bias(q, q, at, at)
    assert bias is not None
    return bias[0]


def test_relative_without_values_has_no_second_table() -> None:
    assert [name for name, _ in Relative(Shape(8, 2)).named_parameters()] == ["table"]
    assert [name for name, _ in Relative(Shape(8, 2), values=True).named_parameters()] == ["table", "value_table"]
    with pytest.raises(NotImplementedError, match="ALiBi adds nothing to values"):
        ALiBi(Shape(8, 2)).values(torch.ones(1, 2, 1, 1), torch.arange(1), torch.arange(1))


@pytest.mark.parametrize("causal", [False, True])
def test_buckets_are_one_sided_when_causal(causal: bool) -> None:
    position = T5Bias(Shape(8, 2, causal=causal), buckets=8, max_distance=16)
    bias = biased(position, 40)[0]
    assert len(bias[39].unique()) == (8 if causal else 4)
    assert len(bias[0].unique()) == (1 if causal else 4)
    assert len(bias.unique()) == (8 if causal else 7)  # distance 0 has no bucket for the other direction
    assert list(position.state_dict()) == ["table"]


@pytest.mark.parametrize(
    ("kind", "causal", "message"),
    [
        (partial(Relative, clip=0), False, "`clip` of Relative must be at least 1, but is 0"),
        (
            partial(T5Bias, buckets=5),
            False,
            "`buckets` of T5Bias must be even and at least 4, as it serves both directions, but",
        ),
        (partial(T5Bias, buckets=2), False, "must be even and at least 4"),
        (partial(T5Bias, buckets=1), True, "`buckets` of T5Bias must be at least 2, but is 1"),
        (partial(T5Bias, max_distance=8), False, "`max_distance` of T5Bias must be above the 8 distances that have a bucket"),
        (partial(T5Bias, max_distance=16), True, "but is 16; raise it or lower `buckets` .32."),
    ],
)
def test_what_cannot_be_is_refused(kind: Callable[[Shape], Position], causal: bool, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(Shape(8, 2, causal=causal))


def test_odd_numbers_of_buckets_serve_one_direction() -> None:
    position = T5Bias(Shape(8, 2, causal=True), buckets=5, max_distance=9)
    bias = biased(position, 20)
    assert len(bias[0].unique()) == 5
