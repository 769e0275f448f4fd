"""Attention, blocks and stacks against torch's, with the same weights: forward and backward."""

from functools import partial
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from polyformer.models import Decoder, Encoder, EncoderDecoderOptions, Placement
from polyformer.nn import (
    Context,
    CrossAttention,
    CrossContext,
    DecoderBlock,
    EncoderBlock,
    FeedForward,
    FullAttention,
    Mask,
    Memory,
    NoPosition,
    NormPlace,
    Shape,
)

from .copying import (
    close,
    copy_attention,
    copy_cross_attention,
    copy_decoder_layer,
    copy_encoder_layer,
    same_gradients,
    shake,
)

D, HEADS, FF, BATCH, LENGTH, MEMORY = 12, 3, 20, 2, 5, 4
SHAPE = Shape(d_model=D, num_heads=HEADS)
NOWHERE = NoPosition(SHAPE)
AT, MEMORY_AT = torch.arange(LENGTH), torch.arange(MEMORY)
KEEP = torch.arange(LENGTH) < torch.tensor([[LENGTH], [3]])
MEMORY_KEEP = torch.arange(MEMORY) < torch.tensor([[MEMORY], [2]])
FUTURE = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)

Activation = Literal["relu", "gelu"]
places = pytest.mark.parametrize("place", ["pre", "post"])
activations = pytest.mark.parametrize("activation", ["relu", "gelu"])
masks = pytest.mark.parametrize("causal", [False, True])
kept = pytest.mark.parametrize("keep", [None, KEEP], ids=["all", "padded"])
memory_kept = pytest.mark.parametrize("memory_keep", [None, MEMORY_KEEP], ids=["all", "padded"])


def no(keep: Tensor | None) -> Tensor | None:
    """torch marks what to leave out."""
    return None if keep is None else ~keep


def same(ours: Tensor, theirs: Tensor, *inputs: Tensor) -> None:
    """Both results, and the gradients of all inputs, agree."""
    close(ours, theirs)
    same_gradients(ours, theirs, inputs)


def given(length: int, width: int = D) -> Tensor:
    return torch.randn(BATCH, length, width, requires_grad=True)


@masks
@kept
def test_full_attention(causal: bool, keep: Tensor | None) -> None:
    theirs, ours, x = nn.MultiheadAttention(D, HEADS, batch_first=True), FullAttention(SHAPE), given(LENGTH)
    shake(theirs)
    copy_attention(theirs, ours)
    expected, _ = theirs(x, x, x, no(keep), attn_mask=FUTURE if causal else None, need_weights=False)
    same(ours(x, Context(Mask(causal, keep), NOWHERE, AT, AT)), expected, x)


@memory_kept
@pytest.mark.parametrize(("kdim", "vdim"), [(None, None), (7, 7), (7, 10), (D, 5)])
def test_cross_attention(kdim: int | None, vdim: int | None, memory_keep: Tensor | None) -> None:
    theirs = nn.MultiheadAttention(D, HEADS, kdim=kdim, vdim=vdim, batch_first=True)
    shake(theirs)
    ours = CrossAttention(SHAPE, kdim, vdim)
    copy_cross_attention(theirs, ours)
    x, keys, values = given(LENGTH), given(MEMORY, kdim or D), given(MEMORY, vdim or D)
    expected, _ = theirs(x, keys, values, no(memory_keep), need_weights=False)
    memory = Memory(keys, MEMORY_AT, memory_keep, values)
    same(ours(x, CrossContext(memory, NOWHERE, AT)), expected, x, keys, values)


def test_values_are_made_from_keys_unless_given() -> None:
    ours, keys = CrossAttention(SHAPE, kdim=7), given(MEMORY, 7)
    assert ours.value.in_features == 7
    x, twice = given(LENGTH), Memory(keys, MEMORY_AT, None, keys)
    once = ours(x, CrossContext(Memory(keys, MEMORY_AT), NOWHERE, AT))
    assert torch.equal(once, ours(x, CrossContext(twice, NOWHERE, AT)))


def options(place: NormPlace, activation: Activation, layers: int) -> EncoderDecoderOptions:
    return EncoderDecoderOptions(
        d_model=D,
        num_heads=HEADS,
        dropout=0.0,
        position=NoPosition,
        feed_forward=partial(FeedForward, width=FF, activation=activation),
        norm_place=place,
        encoder_layers=layers,
        decoder_layers=layers,
    )


def encoder_layer(place: NormPlace, activation: Activation) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(D, HEADS, FF, 0.0, activation, batch_first=True, norm_first=place == "pre")


def decoder_layer(place: NormPlace, activation: Activation) -> nn.TransformerDecoderLayer:
    return nn.TransformerDecoderLayer(D, HEADS, FF, 0.0, activation, batch_first=True, norm_first=place == "pre")


@places
@activations
@masks
@kept
def test_encoder_block(place: NormPlace, activation: Activation, causal: bool, keep: Tensor | None) -> None:
    theirs, x = encoder_layer(place, activation), given(LENGTH)
    shake(theirs)
    ours = Encoder(options(place, activation, 1), 1).blocks[0]
    assert isinstance(ours, EncoderBlock)
    copy_encoder_layer(theirs, ours)
    expected = theirs(x, FUTURE if causal else None, no(keep))
    same(ours(x, Context(Mask(causal, keep), NOWHERE, AT, AT)), expected, x)


@places
@activations
@memory_kept
def test_decoder_block(place: NormPlace, activation: Activation, memory_keep: Tensor | None) -> None:
    theirs, x, keys = decoder_layer(place, activation), given(LENGTH), given(MEMORY)
    shake(theirs)
    ours = Decoder(options(place, activation, 1)).blocks[0]
    assert isinstance(ours, DecoderBlock)
    copy_decoder_layer(theirs, ours)
    expected = theirs(x, keys, FUTURE, memory_key_padding_mask=no(memory_keep))
    cross = CrossContext(Memory(keys, MEMORY_AT, memory_keep), NOWHERE, AT)
    same(ours(x, Context(Mask(True), NOWHERE, AT, AT), cross), expected, x, keys)


@places
@activations
@masks
@kept
def test_encoder(place: NormPlace, activation: Activation, causal: bool, keep: Tensor | None) -> None:
    norm = nn.LayerNorm(D) if place == "pre" else None
    theirs = nn.TransformerEncoder(encoder_layer(place, activation), 3, norm, enable_nested_tensor=False)
    shake(theirs)
    ours, x = Encoder(options(place, activation, 3), 3, causal), given(LENGTH)
    for block, layer in zip(ours.blocks, theirs.layers, strict=True):
        assert isinstance(block, EncoderBlock) and isinstance(layer, nn.TransformerEncoderLayer)
        copy_encoder_layer(layer, block)
    if norm is not None:
        assert theirs.norm is not None
        ours.norm.load_state_dict(theirs.norm.state_dict())
    same(ours(x, Placement(keep)), theirs(x, FUTURE if causal else None, no(keep)), x)


@places
@activations
@memory_kept
def test_decoder(place: NormPlace, activation: Activation, memory_keep: Tensor | None) -> None:
    theirs = nn.TransformerDecoder(decoder_layer(place, activation), 3, nn.LayerNorm(D) if place == "pre" else None)
    shake(theirs)
    ours, x, keys = Decoder(options(place, activation, 3)), given(LENGTH), given(MEMORY)
    for block, layer in zip(ours.blocks, theirs.layers, strict=True):
        assert isinstance(block, DecoderBlock) and isinstance(layer, nn.TransformerDecoderLayer)
        copy_decoder_layer(layer, block)
    if theirs.norm is not None:
        ours.norm.load_state_dict(theirs.norm.state_dict())
    expected = theirs(x, keys, FUTURE, memory_key_padding_mask=no(memory_keep))
    same(ours(x, Memory(keys, MEMORY_AT, memory_keep)), expected, x, keys)
