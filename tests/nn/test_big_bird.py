"""What BigBird sees is what its paper says, and what it cannot do it says."""

from itertools import product
from typing import Any

import pytest
import torch

from polyformer.nn import BigBird, Context, Mask, NoPosition, Shape, check_fit

from .scenes import HEADS, MAX_LENGTH, WIDTH, made


def test_random_blocks_are_drawn_once_and_are_beyond_what_is_seen_anyway() -> None:
    sizes: dict[str, Any] = {"block": 4, "global_blocks": 2, "random_blocks": 3}
    layers = [BigBird(Shape(WIDTH, HEADS, MAX_LENGTH), **sizes) for _ in range(2)]
    assert not torch.equal(layers[0].random, layers[1].random), "layers look to different places"
    torch.default_generator.manual_seed(5)
    one = BigBird(Shape(WIDTH, HEADS, MAX_LENGTH), **sizes)
    torch.default_generator.manual_seed(5)
    assert torch.equal(one.random, BigBird(Shape(WIDTH, HEADS, MAX_LENGTH), **sizes).random)
    assert "random" in one.state_dict() and one.random.shape == (MAX_LENGTH // 4, 3)
    for number, drawn in enumerate(one.random.tolist()):
        there = [block for block in drawn if block >= 0]
        assert len(there) == len(set(there)) == (0 if number < 2 else 3)
        assert all(block >= 2 and abs(block - number) > 1 for block in there)


def test_a_block_sees_what_the_paper_says() -> None:
    mixer, at = BigBird(Shape(WIDTH, HEADS, MAX_LENGTH), block=4, global_blocks=1, random_blocks=2), torch.arange(MAX_LENGTH)
    seen = mixer.narrowed(Mask()).dense(at, at)[0, 0]
    for q, k in product(range(0, MAX_LENGTH, 3), range(MAX_LENGTH)):
        i, j = q // 4, k // 4
        assert bool(seen[q, k]) == (abs(i - j) <= 1 or i == 0 or j == 0 or j in mixer.random[i].tolist())


def test_big_bird_says_what_it_cannot() -> None:
    with pytest.raises(ValueError, match=r"`BigBird` cannot run causal; use .*FullAttention.* or SlidingWindow"):
        check_fit(BigBird, NoPosition, causal=True)
    at = torch.arange(MAX_LENGTH + 1)
    message = (
        r"`BigBird` has room for 92 tokens \(`model.max_length`\), but 93 are needed; train with a larger `model.max_length`"
    )
    with pytest.raises(ValueError, match=message):
        made(BigBird)(torch.randn(1, MAX_LENGTH + 1, WIDTH), Context(Mask(), made(NoPosition), at, at))
