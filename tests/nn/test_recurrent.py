"""Recurrent mixers, convolutions and the attention of recurrent translators, where the product of all mixers does not look."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from polyformer.models import (
    DecoderOnly,
    DecoderOnlyOptions,
    Encoder,
    EncoderDecoder,
    EncoderDecoderOptions,
    Placement,
    StackOptions,
)
from polyformer.nn import (
    GRU,
    LSTM,
    RNN,
    Bahdanau,
    Context,
    Convolution,
    CrossContext,
    Luong,
    Mask,
    Memory,
    MixerFactory,
    NoFeedForward,
    NoPosition,
    NormPlace,
    Shape,
    recorded_weights,
)

D = 8
networks = pytest.mark.parametrize("kind", [RNN, GRU, LSTM])
mixers = pytest.mark.parametrize("kind", [RNN, GRU, LSTM, Convolution])
directions = pytest.mark.parametrize("causal", [False, True])
NOWHERE = NoPosition(Shape(D, 1))


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def stack(kind: MixerFactory, causal: bool, **options: Any) -> Encoder:
    return Encoder(StackOptions(d_model=D, num_heads=1, dropout=0.0, mixer=kind, **options), 2, causal).eval()


# ---- documents and padding


@mixers
@directions
@torch.no_grad()
def test_packed_documents_do_not_see_each_other(kind: MixerFactory, causal: bool) -> None:
    """Two rows of documents, one of them with padding between and after its documents."""
    encoder, texts = stack(kind, causal), [torch.randn(1, length, D) for length in (3, 1, 4, 2)]
    alone = [encoder(text)[0] for text in texts]
    hole = torch.full((1, 2, D), 9.0)
    x = torch.cat((torch.cat((*texts[:3], hole[:, :1]), 1), torch.cat((texts[3], hole, texts[2], hole[:, :1]), 1)))
    document = torch.tensor([[1, 1, 1, 2, 3, 3, 3, 3, 3], [1, 1, 1, 1, 2, 2, 2, 2, 2]])
    at = torch.tensor([[0, 1, 2, 0, 0, 1, 2, 3, 0], [0, 1, 0, 0, 0, 1, 2, 3, 0]])
    keep = torch.ones(2, 9, dtype=torch.bool)
    keep[0, 8] = keep[1, 2] = keep[1, 3] = keep[1, 8] = False
    out = encoder(x, Placement(keep, at, document))
    close(out[0, :8], torch.cat(alone[:3]))
    close(out[1, :2], alone[3])
    close(out[1, 4:8], alone[2])


@networks
@directions
@torch.no_grad()
def test_padding_within_a_text_is_left_out(kind: MixerFactory, causal: bool) -> None:
    encoder, keep = stack(kind, causal, position=NoPosition), torch.tensor([[True, False, True, True, False, True]])
    x = torch.randn(1, 6, D)
    close(encoder(x, Placement(keep))[keep], encoder(x[keep].unsqueeze(0))[0])


@mixers
@directions
def test_a_batch_of_padding_only_gives_every_weight_a_gradient(kind: MixerFactory, causal: bool) -> None:
    encoder = stack(kind, causal)
    out = encoder(torch.randn(2, 3, D), Placement(torch.zeros(2, 3, dtype=torch.bool)))
    out.square().sum().backward()
    assert bool(out.isfinite().all())
    assert all(part.grad is not None and bool(part.grad.isfinite().all()) for part in encoder.parameters())


@mixers
@torch.no_grad()
def test_a_long_padding_on_the_left_of_a_prompt(kind: MixerFactory) -> None:
    """A row of which no token is in the part of the prompt that is read at once."""
    encoder, state = stack(kind, causal=True), None
    text, new = torch.randn(2, 40, D), torch.randn(2, 1, D)
    keep = torch.ones(2, 41, dtype=torch.bool)
    keep[0, :35] = False
    state = encoder.start()
    encoder(text, Placement(keep[:, :40], (keep[:, :40].cumsum(1) - 1).clamp(min=0)), state)
    out = encoder(new, Placement(keep), state)
    close(out[0], encoder(torch.cat((text[:1, 35:], new[:1]), dim=1))[0, -1:])
    close(out[1], encoder(torch.cat((text[1:], new[1:]), dim=1))[0, -1:])


# ---- taking tokens back


@mixers
@pytest.mark.parametrize(("sizes", "count"), [([4], 3), ([5, 1, 1], 4), ([20, 5], 4), ([1, 30], 16), ([18] + [1] * 20, 16)])
@torch.no_grad()
def test_tokens_taken_back_were_never_there(kind: MixerFactory, sizes: list[int], count: int) -> None:
    encoder, x = stack(kind, causal=True), torch.randn(2, sum(sizes), D)
    state = encoder.start()
    for part in x.split(sizes, dim=1):
        encoder(part, state=state)
    state.rewind(count)
    others = torch.randn(2, 3, D)
    whole = encoder(torch.cat((x[:, : x.shape[1] - count], others), dim=1))
    close(encoder(others, state=state), whole[:, -3:])


@mixers
@torch.no_grad()
def test_more_tokens_than_are_remembered_are_refused(kind: MixerFactory) -> None:
    encoder, state = stack(kind, causal=True), None
    state = encoder.start()
    encoder(torch.randn(2, 40, D), state=state)
    with pytest.raises(ValueError, match=r"take back its last 16 tokens, but 17 .* `task.proposals` to at most 16"):
        state.rewind(17)
    state = encoder.start()
    with pytest.raises(ValueError, match="last 0 tokens, but 1 "):
        state.rewind(1)


@mixers
@torch.no_grad()
def test_rows_that_were_reordered_take_back_what_came_after(kind: MixerFactory) -> None:
    encoder, x, rows = stack(kind, causal=True), torch.randn(2, 9, D), torch.tensor([1, 1, 0])
    state, later = encoder.start(), torch.randn(3, 3, D)
    encoder(x, state=state)
    state.reorder(rows)
    encoder(later, state=state)
    state.rewind(2)
    new = torch.randn(3, 1, D)
    close(encoder(new, state=state), encoder(torch.cat((x[rows], later[:, :1], new), dim=1))[:, -1:])
    with pytest.raises(ValueError, match="last 2 tokens, but 3 "):
        state.rewind(3)


@mixers
@torch.no_grad()
def test_a_language_model_takes_tokens_back(kind: MixerFactory) -> None:
    options = DecoderOnlyOptions(d_model=D, num_heads=1, num_layers=2, max_length=32, mixer=kind)
    model, tokens = DecoderOnly(11, options).eval(), torch.randint(3, 11, (1, 12))
    writing, other = model.start(), model.start()
    writing.step_all(tokens)
    writing.rewind(4)
    other.step(tokens[:, :8])
    close(writing.step(tokens[:, 2:4]), other.step(tokens[:, 2:4]))


def test_a_state_keeps_little() -> None:
    recurrent, convolution = LSTM(Shape(D, 1, causal=True)), Convolution(Shape(D, 1, causal=True), kernel=3)
    context = Context(Mask(causal=True), NOWHERE, torch.arange(100), torch.arange(100))
    hidden, inputs = recurrent.start(), convolution.start()
    recurrent(torch.randn(2, 100, D), context, hidden)
    convolution(torch.randn(2, 100, D), context, inputs)
    assert [part.shape for part in hidden.past] == [(2, 2, D)] * 17
    assert inputs.inputs is not None and inputs.inputs.shape == (2, 2 + 16, D)
    hidden.reorder(torch.tensor([0, 1]))
    inputs.reorder(torch.tensor([0, 1]))
    assert len(hidden.past) == 1 and inputs.inputs.shape == (2, 2, D)


# ---- how weights start, widths and kernels, precision


@networks
@directions
def test_first_weights(kind: type[RNN], causal: bool) -> None:
    recurrent = kind(Shape(16, 1, causal=causal)).recurrent
    width = 16 if causal else 8
    for name, parameter in recurrent.named_parameters():
        for number, gate in enumerate(parameter.detach().split(width)):
            if name.startswith("weight_hh"):
                close(gate @ gate.t(), torch.eye(width))
            elif name.startswith("weight_ih"):
                assert 0.5 < float(gate.abs().max()) / (6 / (16 + width)) ** 0.5 <= 1.0
            else:
                forgets = kind is LSTM and name.startswith("bias_ih") and number == 1
                assert bool((gate == float(forgets)).all())


@networks
def test_an_odd_width_is_refused_in_an_encoder(kind: MixerFactory) -> None:
    with pytest.raises(ValueError, match=r"needs an even `d_model` in an encoder, .* but has 7; choose 8"):
        kind(Shape(7, 1))
    kind(Shape(7, 1, causal=True))


def test_a_kernel_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="`kernel` of Convolution must be at least 1, but is 0"):
        Convolution(Shape(D, 1, causal=True), kernel=0)
    with pytest.raises(ValueError, match=r"`kernel` of Convolution must be odd in an encoder, .* but is 4; use 3 or 5"):
        Convolution(Shape(D, 1), kernel=4)
    assert Convolution(Shape(D, 1, causal=True), kernel=4).back == 3


@mixers
@directions
@pytest.mark.parametrize("padded", [False, True])
def test_mixed_precision_on_a_processor(kind: MixerFactory, causal: bool, padded: bool) -> None:
    encoder, x = stack(kind, causal), torch.randn(2, 4, D)
    placement = Placement(torch.arange(4) < torch.tensor([[4], [2]]) if padded else None)
    exact = encoder(x, placement)
    with torch.autocast("cpu", torch.bfloat16):
        out = encoder(x, placement)
        if causal:
            state = encoder.start()
            cached = torch.cat([encoder(part, Placement(), state) for part in x.split(1, dim=1)], dim=1)
            torch.testing.assert_close(cached[0].float(), exact[0], rtol=0.1, atol=0.1)
    torch.testing.assert_close(out[0].float(), exact[0], rtol=0.1, atol=0.1)
    out.float().sum().backward()


# ---- blocks without a feed-forward, attention of translators


@networks
@pytest.mark.parametrize("place", ["pre", "post"])
@torch.no_grad()
def test_without_a_feed_forward_a_block_is_its_mixer(kind: type[RNN], place: NormPlace) -> None:
    encoder, x = stack(kind, True, position=NoPosition, feed_forward=NoFeedForward, norm_place=place), torch.randn(2, 5, D)
    expected = x
    for block in encoder.blocks:
        assert list(block.feed_forward.parameters()) == []
        recurrent, norm = block.mixer.inner.recurrent, block.mixer.norm
        given = norm(expected) if place == "pre" else expected
        expected = expected + recurrent(given)[0]
        expected = expected if place == "pre" else norm(expected)
    close(encoder(x), encoder.norm(expected))


@pytest.mark.parametrize("cross", [Luong, partial(Luong, score="dot"), Bahdanau])
def test_a_recurrent_translator_trains_all_its_weights_and_decodes(cross: Any) -> None:
    options = EncoderDecoderOptions(
        d_model=D, num_heads=1, dropout=0.0, position=NoPosition, mixer=LSTM, cross=cross, feed_forward=NoFeedForward
    )
    model, source, target = EncoderDecoder(9, 9, options), torch.tensor([[4, 5, 3], [6, 3, 0]]), torch.tensor([[2, 6, 7]] * 2)
    hidden = model(source, target, source != 0)
    hidden.square().sum().backward()
    assert all(part.grad is not None and bool((part.grad != 0).any()) for part in model.parameters())
    with torch.no_grad():
        continuation = model.start(model.encode(source, source != 0))
        stepped = [continuation.step(token) for token in target.split(1, dim=1)]
        close(torch.stack(stepped, dim=1), model.logits(hidden))


@pytest.mark.parametrize("kind", [Luong, Bahdanau])
@torch.no_grad()
def test_recorded_weights_are_those_of_one_head(kind: type[nn.Module]) -> None:
    cross, x, keys = kind(Shape(D, 2)), torch.randn(6, 4, D), torch.randn(2, 5, D)
    keep = torch.arange(5) < torch.tensor([[5], [3]])
    with recorded_weights() as weights:
        cross(x, CrossContext(Memory(keys, torch.arange(5), keep), NOWHERE, torch.arange(4)))
    (recorded,) = weights
    assert recorded.shape == (2, 1, 3 * 4, 5)
    close(recorded.sum(-1), torch.ones(2, 1, 12))
    assert bool((recorded[1, :, :, 3:] == 0).all()) and bool((recorded[0] > 0).all())


@pytest.mark.parametrize("kind", [Luong, Bahdanau])
@torch.no_grad()
def test_values_of_a_memory_may_differ_from_its_keys(kind: type[nn.Module]) -> None:
    cross, x, keys = kind(Shape(D, 1)), torch.randn(2, 4, D), torch.randn(2, 5, D)
    values, at = torch.randn(2, 5, D), torch.arange(5)
    with recorded_weights() as weights:
        mixed = cross(x, CrossContext(Memory(keys, at, None, values), NOWHERE, torch.arange(4)))
    gathered = weights[0][:, 0] @ values
    literal = cross.output(gathered) if kind is Bahdanau else torch.tanh(cross.output(torch.cat((gathered, x), dim=-1)))
    close(mixed, literal)
