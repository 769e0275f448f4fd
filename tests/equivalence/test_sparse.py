"""A mixer that narrows the mask is full attention under the narrower one, whatever path it takes."""

from collections.abc import Iterator
from itertools import product

import pytest
import torch
from torch import Tensor

from polyformer.nn import Context, FullAttention, Mask, Mixer, Position, Shape

from .cases import D_MODEL, LAYER_POSITIONS, MAX_LENGTH, MIXERS, NUM_HEADS, PLAIN, Part, close, fits, shake

LENGTHS = (5, 23, 40)
"""From texts that no window narrows to such as are read in blocks."""
NARROWING = [mixer for mixer in MIXERS if mixer.kind.narrowed is not Mixer.narrowed]
UNBOUND: dict[str, dict[str, int]] = {"SlidingWindow": {"window": max(LENGTHS)}, "BigBird": {"block": max(LENGTHS)}}
"""Options by which a mixer hides nothing."""


def pairs() -> Iterator[tuple[Part, Part, bool]]:
    for mixer, position, causal in product(NARROWING, LAYER_POSITIONS, (False, True)):
        if fits(mixer, position, causal):
            yield mixer, position, causal


def layer(part: Part, position: Part, causal: bool) -> tuple[FullAttention, FullAttention, Position]:
    """A mixer, full attention with the same weights, and a position."""
    shape = Shape(D_MODEL, NUM_HEADS, MAX_LENGTH, causal)
    mixer, place = part.factory(shape), position.factory(shape)
    shake(mixer)
    shake(place)
    full = FullAttention(shape, mixer.num_kv_heads)
    full.load_state_dict({name: value for name, value in mixer.state_dict().items() if name in full.state_dict()})
    return mixer, full, place


def contexts(length: int, causal: bool, place: Position) -> Iterator[tuple[Context, Tensor]]:
    """Two texts, the second shorter, padded on the right and on the left; and which tokens are real."""
    at = torch.arange(length)
    yield Context(Mask(causal), place, at, at), torch.ones(2, length, dtype=torch.bool)
    for keep in (at < torch.tensor([[length], [length - 3]]), at >= torch.tensor([[0], [3]])):
        at = (keep.cumsum(1) - 1).clamp(min=0) if not bool(keep[1, 0]) else at
        yield Context(Mask(causal, keep), place, at, at), keep


@pytest.mark.parametrize(("mixer", "position", "causal"), list(pairs()), ids=str)
@torch.no_grad()
def test_sparse_equals_dense_with_the_same_mask(mixer: Part, position: Part, causal: bool) -> None:
    sparse, full, place = layer(mixer, position, causal)
    for length in LENGTHS:
        x = torch.randn(2, length, D_MODEL)
        for context, real in contexts(length, causal, place):
            narrowed = Context(sparse.narrowed(context.mask), place, context.at, context.k_at)
            close(sparse(x, context)[real], full(x, narrowed)[real], f"{length} tokens")


@pytest.mark.parametrize(("mixer", "position", "causal"), list(pairs()), ids=str)
@torch.no_grad()
def test_what_hides_nothing_equals_full_attention(mixer: Part, position: Part, causal: bool) -> None:
    options = dict(mixer.options) | UNBOUND[mixer.kind.__name__]
    sparse, full, place = layer(Part(mixer.kind, tuple(options.items())), position, causal)
    for length in LENGTHS:
        x = torch.randn(2, length, D_MODEL)
        for context, real in contexts(length, causal, place):
            close(sparse(x, context)[real], full(x, context)[real], f"{length} tokens")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("position", LAYER_POSITIONS, ids=str)
@torch.no_grad()
def test_distances_alone_count_for_a_position_in_attention(position: Part, causal: bool) -> None:
    _, full, place = layer(Part(FullAttention), position, causal)
    at, x = torch.arange(9), torch.randn(2, 9, D_MODEL)
    moved = (at + 5, at + torch.tensor([[7], [40]]))
    for other in moved:
        close(full(x, Context(Mask(causal), place, other, other)), full(x, Context(Mask(causal), place, at, at)))
    if position != PLAIN:
        apart = full(x, Context(Mask(causal), place, 2 * at, 2 * at))
        assert not torch.allclose(apart, full(x, Context(Mask(causal), place, at, at)), atol=1e-4)
