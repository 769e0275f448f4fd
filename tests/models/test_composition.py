"""Layers of one stack may differ in mixer and position; what cannot work is refused with the key to change."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from jsonargparse import ArgumentParser

from polyformer.models import (
    Decoder,
    DecoderOnly,
    DecoderOnlyOptions,
    Encoder,
    EncoderDecoder,
    EncoderDecoderOptions,
    EncoderOnlyOptions,
    Placement,
)
from polyformer.nn import (
    LSTM,
    BigBird,
    FullAttention,
    Learned,
    Linformer,
    NoPosition,
    Relative,
    Rotary,
    Sinusoidal,
    SlidingWindow,
    T5Bias,
)

WINDOW = partial(SlidingWindow, window=3)
OPTIONS = EncoderOnlyOptions(d_model=8, num_heads=2, max_length=32, dropout=0.0)


def kinds(stack: Encoder | Decoder) -> list[type]:
    return [type(block.mixer.inner) for block in stack.blocks]  # type: ignore[union-attr]


def test_mixers_are_repeated_over_the_layers() -> None:
    options = replace(OPTIONS, mixers=[WINDOW, WINDOW, FullAttention])
    assert kinds(Encoder(options, 7)) == [SlidingWindow, SlidingWindow, FullAttention] * 2 + [SlidingWindow]
    assert kinds(Encoder(OPTIONS, 2)) == [FullAttention] * 2


def test_layers_share_a_position_as_its_kind_says() -> None:
    stack = Encoder(replace(OPTIONS, positions=[T5Bias, Relative, NoPosition]), 6)
    of = [stack.positions.of(layer) for layer in range(6)]
    assert [type(position) for position in of] == [T5Bias, Relative, NoPosition] * 2
    assert of[0] is of[3] and of[1] is not of[4] and of[2] is of[5]
    assert {name for name in stack.state_dict() if name.startswith("positions.")} == {f"positions.{i}.table" for i in (0, 1, 3)}


@pytest.mark.parametrize(
    ("position", "names"),
    [
        (Learned, ["positions.0.table"]),
        (T5Bias, ["positions.0.table"]),
        (Relative, [f"positions.{layer}.table" for layer in range(3)]),
        (Sinusoidal, []),
    ],
)
def test_names_of_weights_are_those_of_one_position_for_all(position: type, names: list[str]) -> None:
    weights = Encoder(replace(OPTIONS, position=position), 3).state_dict()
    assert [name for name in weights if name.startswith("positions")] == names


@pytest.mark.parametrize("positions", [[], [Rotary, NoPosition], [Relative, T5Bias, Rotary]])
@torch.no_grad()
def test_a_composition_decodes_as_it_reads(positions: list[Any]) -> None:
    options = DecoderOnlyOptions(
        d_model=8, num_heads=2, num_layers=3, dropout=0.0, mixers=[WINDOW, FullAttention, WINDOW], positions=positions
    )
    model = DecoderOnly(11, options).eval()
    tokens = torch.randint(11, (2, 12))
    whole, decode = model.logits(model(tokens)), model.start()
    for first, last in ((0, 5), (5, 6), (6, 12)):
        torch.testing.assert_close(decode.step(tokens[:, first:last]), whole[:, last - 1], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_decoder_may_have_other_mixers_than_the_encoder() -> None:
    options = EncoderDecoderOptions(
        d_model=8, num_heads=2, max_length=32, dropout=0.0, mixer=Linformer, decoder_mixers=[FullAttention, WINDOW, WINDOW]
    )
    model = EncoderDecoder(11, 11, options).eval()
    assert kinds(model.encoder) == [Linformer] * 3 and kinds(model.decoder) == [FullAttention, SlidingWindow, SlidingWindow]
    source, target = torch.randint(11, (2, 7)), torch.randint(11, (2, 9))
    whole, decode = model.logits(model(source, target)), model.start(model.encode(source))
    for at in range(9):
        torch.testing.assert_close(decode.step(target[:, at : at + 1]), whole[:, at], rtol=1e-5, atol=1e-5)
    both = replace(options, mixer=FullAttention, mixers=[WINDOW, LSTM], decoder_mixers=[])
    assert kinds(EncoderDecoder(11, 11, both).decoder) == [SlidingWindow, LSTM, SlidingWindow]


def test_the_longest_text_is_that_of_all_parts() -> None:
    options = replace(OPTIONS, mixers=[FullAttention, partial(BigBird, block=2)])
    assert options.limit(causal=False) == Encoder(options, 2).limit == 32
    assert OPTIONS.limit(causal=False) is Encoder(OPTIONS, 2).limit is None
    assert replace(OPTIONS, position=Learned).limit(causal=True) == Encoder(replace(OPTIONS, position=Learned), 2).limit == 32
    with pytest.raises(ValueError, match=r"`BigBird` has room for 32 tokens \(`model.max_length`\), but 33 are needed"):
        Encoder(options, 2)(torch.randn(1, 33, 8), Placement())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mixers": [WINDOW] * 3}, "`model.mixers` has 3 items, but there are only 2 layers"),
        ({"positions": [Rotary, Rotary, NoPosition]}, "`model.positions` has 3 items, but there are only 2 layers"),
        ({"mixers": [WINDOW], "mixer": LSTM}, r"`model.mixers` is given, and so is `model.mixer` \(LSTM\); leave one"),
        ({"positions": [Rotary], "position": T5Bias}, r"`model.positions` is given, and so is `model.position` \(T5Bias\)"),
        ({"positions": [Rotary, Learned]}, "`model.positions` must act in layers, but Learned acts on token embeddings"),
        (
            {"mixers": [FullAttention, LSTM], "positions": [Rotary, Rotary]},
            "`model.mixers`: `Rotary` needs a mixer with rotate",
        ),
        ({"mixer": LSTM, "position": T5Bias}, "`model.mixer`: `T5Bias` needs a mixer with bias, which `LSTM` lacks"),
    ],
)
def test_what_cannot_be_composed_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Encoder(replace(OPTIONS, **changes), 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mixer": BigBird}, "`model.mixer`, in a decoder without `model.decoder_mixers`: `BigBird` cannot run causal; use "),
        ({"decoder_mixers": [Linformer]}, "`model.decoder_mixers`: `Linformer` cannot run causal; use .*FullAttention"),
        ({"decoder_mixers": [WINDOW] * 4}, "`model.decoder_mixers` has 4 items, but there are only 3 layers"),
    ],
)
def test_what_a_decoder_cannot_run_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Decoder(replace(EncoderDecoderOptions(d_model=8, num_heads=2), **changes))


def test_settings_survive_being_written_and_read() -> None:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--config", action="config")
    parser.add_class_arguments(EncoderDecoderOptions, "model")
    words = ["--model.mixers", "[{class_path: SlidingWindow, init_args: {window: 5}}, GRU]", "--model.encoder_layers", "4"]
    words += ["--model.decoder_mixers", "[FullAttention]", "--model.positions", "[Rotary, NoPosition]"]
    given = parser.parse_args(words)
    written = parser.dump(given, skip_unset=False)
    read = parser.parse_args(["--config", written])
    assert parser.dump(read, skip_unset=False) == written
    options = replace(parser.instantiate(read).model, d_model=8, num_heads=2, positions=[])
    encoder = Encoder(options, 4)
    assert [kind.__name__ for kind in kinds(encoder)] == ["SlidingWindow", "GRU"] * 2
    assert encoder.blocks[0].mixer.inner.window == 5  # type: ignore[union-attr]
    assert kinds(Decoder(options)) == [FullAttention] * 3
