"""Half precision is near float32 for every position and mixer, where texts are padded or are nothing but padding."""

from itertools import product

import pytest
import torch
from torch import Tensor

from polyformer.models import Encoder, Placement, StackOptions
from polyformer.nn import Reformer

from .cases import D_MODEL, MIXERS, NUM_HEADS, POSITIONS, Part, fits

KEEP = torch.tensor([[True] * 6, [True] * 4 + [False] * 2, [False] * 6])
TOLERANCE = {torch.bfloat16: 0.25, torch.float16: 0.03}
"""Of the length of a difference, as a share of the length of the whole."""


def pairs() -> list[tuple[Part, Part]]:
    """Every mixer with every position that it can have."""
    return [(mixer, position) for mixer, position in product(MIXERS, POSITIONS) if fits(mixer, position)]


def run(stack: Encoder, x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The result at real tokens, and the gradient that reaches the input; all of both must be finite."""
    given = x.clone().requires_grad_()
    out = stack(given, Placement(KEEP))
    (out.float() * weights).sum().backward()  # no sum of squares, which a norm makes the same for all
    assert given.grad is not None and bool(out.isfinite().all()) and bool(given.grad.isfinite().all())
    assert all(bool(part.grad.isfinite().all()) for part in stack.parameters() if part.grad is not None)
    return out[:2][KEEP[:2]].detach().float(), given.grad[:2].float()


def difference(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm())


@pytest.mark.parametrize(("mixer", "position"), pairs(), ids=lambda part: str(part))
def test_half_precision_is_near_float32(mixer: Part, position: Part) -> None:
    options = StackOptions(d_model=D_MODEL, num_heads=NUM_HEADS, position=position.factory, mixer=mixer.factory)
    stack, x, weights = Encoder(options, 1).eval(), torch.randn(3, 6, D_MODEL), torch.randn(3, 6, D_MODEL)
    for dtype, tolerance in TOLERANCE.items():
        stack.to(dtype).float()  # weights that both have
        expected = run(stack, x.to(dtype).float(), weights)
        with torch.autocast("cpu", dtype):
            mixed = run(stack, x, weights)
        true = run(stack.to(dtype), x.to(dtype), weights)
        stack.float()
        if mixer.kind is not Reformer:  # whose hashes tell apart what rounding makes equal
            for found in (mixed, true):
                for one, other in zip(found, expected, strict=True):
                    assert difference(one, other) < tolerance, dtype
