"""What cannot work is refused with the key to change; what can, works at odd sizes and where nothing may be seen."""

import pytest
import torch
from torch import Tensor, nn

from polyformer.models import Decoder, Encoder, EncoderDecoder, EncoderDecoderOptions, Placement, StackOptions
from polyformer.nn import Learned, Memory

from .cases import D_MODEL, MIXERS, POSITIONS, Case, Part, close, fits, over_decoders, over_encoders

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def all_finite(out: Tensor, given: list[Tensor], stack: nn.Module) -> bool:
    """Runs backward; whether the result and every gradient are finite and of the result's type."""
    stack.zero_grad()
    out.float().square().sum().backward()
    gradients = [part.grad for part in (*given, *stack.parameters()) if part.grad is not None]
    assert len(gradients) == len(given) + len(list(stack.parameters())), "a gradient is missing"
    return all(bool(part.isfinite().all()) and part.dtype is out.dtype for part in (out, *gradients))


@over_encoders
def test_a_text_of_padding_only_stays_finite(case: Case) -> None:
    stack, keep = case.make(), torch.tensor([[False] * 4, [True] * 4])
    for dtype in DTYPES:
        x = torch.randn(2, 4, D_MODEL, dtype=dtype, requires_grad=True)
        out = stack.to(dtype)(x, Placement(keep))
        assert out.dtype is dtype and all_finite(out, [x], stack), dtype
        if dtype is torch.float32:
            close(out[1:], stack(x[1:], Placement(keep[1:])))


@over_decoders
def test_a_memory_of_padding_only_stays_finite(case: Case) -> None:
    stack, keep = case.make(), torch.tensor([[False] * 4, [True] * 4])
    for dtype in DTYPES:
        x, keys = (torch.randn(2, 4, D_MODEL, dtype=dtype, requires_grad=True) for _ in range(2))
        out = stack.to(dtype)(x, Memory(keys, torch.arange(4), keep))
        assert out.dtype is dtype and all_finite(out, [x, keys], stack), dtype
        assert keys.grad is not None and bool((keys.grad[0] == 0).all()) and bool((keys.grad[1] != 0).any())


@pytest.mark.parametrize("mixer", MIXERS, ids=str)
@pytest.mark.parametrize("position", POSITIONS, ids=str)
@pytest.mark.parametrize(("d_model", "num_heads"), [(1, 1), (7, 1), (9, 3)])
def test_an_odd_width_works_or_is_refused_by_name(position: Part, mixer: Part, d_model: int, num_heads: int) -> None:
    if dict(mixer.options).get("num_kv_heads", num_heads) not in (1, num_heads) or not fits(mixer, position):
        return
    options = StackOptions(d_model=d_model, num_heads=num_heads, position=position.factory, mixer=mixer.factory)
    try:
        stack = Encoder(options, 1)
    except ValueError as error:
        assert "d_model" in str(error) and str(d_model) in str(error)
        return
    out = stack.eval()(torch.randn(2, 5, d_model))
    assert out.shape == (2, 5, d_model) and bool(out.isfinite().all())


def limited(max_length: int) -> StackOptions:
    return StackOptions(d_model=8, num_heads=2, max_length=max_length, position=Learned, dropout=0.0)


MESSAGE = r"`Learned` has room for 6 tokens \(`model.max_length`\), but 7 are needed; train with a larger"


@pytest.mark.parametrize("causal", [False, True])
def test_learned_positions_end_with_a_message(causal: bool) -> None:
    stack = Encoder(limited(6), 1, causal)
    assert stack(torch.randn(1, 6, 8)).shape == (1, 6, 8)
    with pytest.raises(ValueError, match=MESSAGE):
        stack(torch.randn(1, 7, 8))


@torch.no_grad()
def test_learned_positions_end_with_a_message_in_cached_decoding() -> None:
    stack = Encoder(limited(6), 1, causal=True)
    state = stack.start()
    stack(torch.randn(1, 4, 8), state=state)
    for _ in range(2):
        stack(torch.randn(1, 1, 8), state=state)
    with pytest.raises(ValueError, match=MESSAGE):
        stack(torch.randn(1, 1, 8), state=state)


@torch.no_grad()
def test_learned_positions_end_with_a_message_in_a_decoder() -> None:
    options = EncoderDecoderOptions(d_model=8, num_heads=2, max_length=6, position=Learned, decoder_layers=1)
    decoder, memory = Decoder(options), Memory(torch.randn(1, 3, 8), torch.arange(3))
    with pytest.raises(ValueError, match=MESSAGE):
        decoder(torch.randn(1, 7, 8), memory)
    state = decoder.start()
    decoder(torch.randn(1, 6, 8), memory, state)
    with pytest.raises(ValueError, match=MESSAGE):
        decoder(torch.randn(1, 1, 8), memory, state)


@torch.no_grad()
def test_a_decode_of_a_whole_model_ends_with_a_message() -> None:
    options = EncoderDecoderOptions(d_model=8, num_heads=2, max_length=6, position=Learned)
    model = EncoderDecoder(9, 9, options).eval()
    continuation = model.start(model.encode(torch.tensor([[4, 5, 3]])))
    for _ in range(6):
        continuation.step(torch.tensor([[4]]))
    with pytest.raises(ValueError, match=MESSAGE):
        continuation.step(torch.tensor([[4]]))
    with pytest.raises(ValueError, match=MESSAGE):
        model.encode(torch.full((1, 7), 4))
