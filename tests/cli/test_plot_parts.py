"""What pictures of positions and mixers are made of: against the formulas, and against a mixer that leaks."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import polyformer.nn
from polyformer.cli.plot_parts import all_positions, all_sights, made_stacks, positions_of, seen_by, sights_of, stacks_of
from polyformer.experiments.plots import ByDistance, Turning, Vectors
from polyformer.models import DecoderOnlyOptions, EncoderDecoderOptions, EncoderOnlyOptions
from polyformer.nn import (
    LSTM,
    ALiBi,
    BigBird,
    Context,
    Convolution,
    FullAttention,
    Learned,
    Mask,
    Mixer,
    NoPosition,
    Performer,
    Position,
    Relative,
    Rotary,
    Shape,
    Sinusoidal,
    SlidingWindow,
    T5Bias,
    TransformerXL,
)
from polyformer.nn.mixer import public_subclasses
from polyformer.nn.position import sinusoids
from polyformer.nn.state import State

D_MODEL, HEADS, WIDTH, LENGTH = 16, 2, 8, 12


def sight(kind: Any, causal: bool, length: int, **options: Any) -> Any:
    shape = Shape(D_MODEL, HEADS, max_length=length, causal=causal)
    return seen_by(kind(shape, **options), NoPosition(shape), causal, length)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", [FullAttention, LSTM, Performer])
def test_some_see_all_that_they_may(kind: type[Mixer], causal: bool) -> None:
    assert np.array_equal(sight(kind, causal, 40), np.tri(40) > 0 if causal else np.ones((40, 40)) > 0)


@pytest.mark.parametrize("length", [5, 50])
@pytest.mark.parametrize("causal", [False, True])
def test_windows_and_kernels_end(causal: bool, length: int) -> None:
    """Long texts are cut into blocks, short ones are masked."""
    back = np.arange(length)[:, None] - np.arange(length)
    assert np.array_equal(sight(SlidingWindow, causal, length, window=3), (abs(back) < 3) & ((back >= 0) | (not causal)))
    kernel = (back >= 0) & (back < 5) if causal else abs(back) <= 2
    assert np.array_equal(sight(Convolution, causal, length, kernel=5), kernel)


def test_random_blocks_are_those_of_the_mixer() -> None:
    shape, at = Shape(D_MODEL, HEADS, max_length=80), torch.arange(80)
    mixer = BigBird(shape, block=2)
    before = {name: value.clone() for name, value in mixer.state_dict().items()}
    assert np.array_equal(seen_by(mixer, NoPosition(shape), False, 80), mixer.narrowed(Mask()).pairs(at, at).numpy())
    assert all(torch.equal(value, before[name]) for name, value in mixer.state_dict().items())


class _Leaking(FullAttention):
    """Believed to be causal."""

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        return super().forward(x, replace(context, mask=Mask()), state)


def test_a_leak_is_in_the_picture() -> None:
    assert sight(_Leaking, True, 6).all()


def test_all_mixers_are_drawn_in_every_direction_they_have() -> None:
    kinds = [kind for kind in public_subclasses(Mixer) if kind.__name__ in polyformer.nn.__all__]
    sights = {
        (shown.title.split("\n")[0], "both" if shown.title.endswith("both ways") else "causal"): shown
        for shown in all_sights(9)
    }
    assert sights.keys() == {(kind.__name__, direction) for kind in kinds for direction in ("both", "causal")}
    for kind in kinds:
        for direction in ("both", "causal"):
            assert (sights[kind.__name__, direction].seen is not None) == (direction in kind.directions)


def test_each_layer_of_a_stack_has_its_own_picture() -> None:
    options = EncoderDecoderOptions(
        d_model=D_MODEL,
        num_heads=HEADS,
        encoder_layers=2,
        decoder_layers=1,
        mixers=[FullAttention, Convolution],
        decoder_mixers=[LSTM],
        position=NoPosition,
        max_length=7,
    )
    encoder0, encoder1, decoder = sights_of(made_stacks(options), 7)
    assert [shown.title for shown in (encoder0, encoder1, decoder)] == [
        "encoder 0\nFullAttention",
        "encoder 1\nConvolution",
        "decoder 0\nLSTM",
    ]
    assert encoder0.seen is not None and encoder0.seen.all()
    assert encoder1.seen is not None and not encoder1.seen.all()
    assert np.array_equal(decoder.seen, np.tri(7) > 0)


def test_stacks_are_found_by_their_names() -> None:
    task = torch.nn.ModuleDict({"network": torch.nn.ModuleDict(made_stacks(EncoderOnlyOptions(d_model=8, num_heads=2)))})
    assert list(stacks_of(task)) == ["stack"]
    assert made_stacks(DecoderOnlyOptions(d_model=8, num_heads=2))["stack"].shape.causal


def panel(kind: Any, causal: bool = False) -> tuple[Any, Any]:
    """What is drawn of a position in a stack of one layer, and the position itself."""
    options = (DecoderOnlyOptions if causal else EncoderOnlyOptions)(
        d_model=D_MODEL, num_heads=HEADS, num_layers=1, max_length=LENGTH, position=kind
    )
    stacks = made_stacks(options)
    (shown,) = positions_of(stacks, LENGTH)
    return shown, stacks["stack"].positions.of(0)


@pytest.mark.parametrize("kind", [Sinusoidal, Learned])
def test_vectors_are_those_that_are_added(kind: type[Position]) -> None:
    shown, position = panel(kind)
    expected = sinusoids(torch.arange(LENGTH), D_MODEL) if kind is Sinusoidal else position.table
    assert isinstance(shown, Vectors)
    assert np.allclose(shown.table, expected.detach())


def test_turning_keeps_the_mean_of_cosines() -> None:
    shown, position = panel(Rotary)
    angles = np.arange(LENGTH)[:, None] * np.array(position.speeds)
    assert isinstance(shown, Turning)
    assert np.allclose(shown.similarity, np.cos(angles).mean(axis=1), atol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
def test_slopes_fall_with_the_distance(causal: bool) -> None:
    shown, position = panel(ALiBi, causal)
    assert isinstance(shown, ByDistance)
    assert shown.distance.tolist() == list(range(1 - LENGTH, 1 if causal else LENGTH))
    assert np.allclose(shown.mean, -np.array(position.slopes)[:, None] * abs(shown.distance))
    assert not shown.deviation.any()


def test_buckets_are_those_of_the_table() -> None:
    shown, position = panel(T5Bias)
    table = position.table.detach().numpy()
    assert np.allclose(shown.mean[:, LENGTH - 1], table[position.bucket[-position.first]])  # at distance 0
    assert len({*map(tuple, shown.mean.T.tolist())}) == len({*position.bucket[shown.distance - position.first].tolist()})
    assert not shown.deviation.any()


def test_vectors_that_queries_meet_are_shown_by_their_length() -> None:
    shown, position = panel(Relative)
    lengths = position.table.detach().norm(dim=1).numpy() / WIDTH**0.5
    assert np.allclose(shown.mean, 0.0, atol=1e-6)
    assert np.allclose(shown.deviation, lengths[np.clip(shown.distance, -16, 16) + 16], atol=1e-6)


def test_what_no_query_has_a_say_in_is_the_mean() -> None:
    stacks = made_stacks(EncoderOnlyOptions(d_model=D_MODEL, num_heads=HEADS, num_layers=1, position=TransformerXL))
    position = stacks["stack"].positions.of(0)
    torch.nn.init.normal_(position.distance_bias)
    torch.nn.init.normal_(position.content_bias)
    (shown,) = positions_of(stacks, LENGTH)
    assert isinstance(shown, ByDistance)
    met = position.distance(sinusoids(torch.tensor(-shown.distance), D_MODEL)).unflatten(-1, (HEADS, WIDTH))  # (S, H, K)
    expected = (met * position.distance_bias).sum(dim=-1).t() * WIDTH**-0.5
    assert np.allclose(shown.mean, expected.detach(), atol=1e-5)
    assert np.allclose(shown.deviation, met.norm(dim=-1).t().detach() * WIDTH**-0.5, atol=1e-5)


def test_positions_of_layers_are_told_apart() -> None:
    options = EncoderOnlyOptions(d_model=D_MODEL, num_heads=HEADS, num_layers=4, positions=[Rotary, Relative])
    titles = [shown.title for shown in positions_of(made_stacks(options), 5)]
    assert titles == ["stack 0,2, Rotary", "stack 1, Relative", "stack 3, Relative"]
    with pytest.raises(ValueError, match="nothing to draw: stack have NoPosition"):
        positions_of(made_stacks(EncoderOnlyOptions(d_model=8, num_heads=2, position=NoPosition)), 5)


def test_all_positions_are_drawn() -> None:
    names = {kind.__name__ for kind in public_subclasses(Position) if kind.__name__ in polyformer.nn.__all__}
    assert {shown.title.split(" ")[0] for shown in all_positions(9)} == names - {"NoPosition"}
