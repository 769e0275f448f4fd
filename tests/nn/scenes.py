"""Mixers that see few keys, and tokens as they may stand."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from polyformer.nn import (
    BigBird,
    Context,
    FullAttention,
    Mask,
    NoPosition,
    Position,
    Relative,
    Rotary,
    Shape,
    SlidingWindow,
    T5Bias,
    TransformerXL,
)

WIDTH, HEADS, LENGTH, MAX_LENGTH = 8, 2, 23, 92
WINDOW = partial(SlidingWindow, window=3)
MAKERS: dict[str, Callable[[Shape], FullAttention]] = {
    "window": WINDOW,
    "window_of_one": partial(SlidingWindow, window=1, num_kv_heads=1),
    "global": partial(SlidingWindow, window=3, global_tokens=2, num_kv_heads=1),
    "big_bird": partial(BigBird, block=2, global_blocks=1, random_blocks=2, num_kv_heads=1),
    "big_bird_without_global_blocks": partial(BigBird, block=3, global_blocks=0, random_blocks=1),
}
POSITIONS: dict[str, Callable[[Shape], Position]] = {
    "none": NoPosition,
    "rotary": Rotary,
    "t5": partial(T5Bias, buckets=8, max_distance=6),
    "values": partial(Relative, clip=2, values=True),
    "transformer_xl": TransformerXL,
}
over_makers = pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
over_positions = pytest.mark.parametrize("position", POSITIONS.values(), ids=POSITIONS)


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def made(maker: Callable[[Shape], Any], causal: bool = False, dropout: float = 0.0) -> Any:
    """A part whose weights are far from any symmetry."""
    part = maker(Shape(WIDTH, HEADS, MAX_LENGTH, causal, dropout))
    with torch.no_grad():
        for parameter in part.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return part


@dataclass(frozen=True)
class Scene:
    """Tokens as they may stand: what is padded and packed, and their indices."""

    keep: Tensor | None
    document: Tensor | None
    at: Tensor

    def context(self, causal: bool, position: Position) -> Context:
        return Context(Mask(causal, self.keep, self.document), position, self.at, self.at)

    @property
    def real(self) -> Tensor:
        return torch.ones(2, self.at.shape[-1], dtype=torch.bool) if self.keep is None else self.keep


def scenes() -> Iterator[tuple[str, Scene]]:
    at = torch.arange(LENGTH)
    before = at < torch.tensor([[LENGTH], [14]])
    behind = before.flip(1)
    lengths = torch.tensor([[8, 1, LENGTH - 9], [3, 12, LENGTH - 15]])
    document = torch.stack([torch.arange(3).repeat_interleave(row) for row in lengths])
    begins = torch.cat((torch.zeros(2, 1, dtype=torch.long), lengths.cumsum(1)[:, :-1]), dim=1)
    within = at - begins.gather(1, document)
    yield "plain", Scene(None, None, at)
    yield "shifted", Scene(None, None, at + torch.tensor([[0], [5]]))
    yield "padded_on_the_right", Scene(before, None, at)
    yield "padded_on_the_left", Scene(behind, None, counted(behind))
    yield "padded_on_both_sides", Scene(before & (at > 3), None, counted(before & (at > 3)))
    yield "packed", Scene(None, document, within)
    yield "packed_and_padded", Scene(before, document, within)


def counted(keep: Tensor) -> Tensor:
    """Indices that count real tokens."""
    return (keep.cumsum(1) - 1).clamp(min=0)


SCENES = dict(scenes())
over_scenes = pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)


def fits(mixer: FullAttention, causal: bool) -> bool:
    return ("causal" if causal else "both") in mixer.directions
