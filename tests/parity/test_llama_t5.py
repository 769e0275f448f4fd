"""Stacks against Hugging Face's Llama and T5, with the same small random weights: forward and backward."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from polyformer.models import Decoder, Encoder, EncoderDecoderOptions, Placement, StackOptions
from polyformer.nn import (
    CrossAttention,
    FullAttention,
    LinearScaling,
    Memory,
    NTKScaling,
    Rotary,
    RotaryScaling,
    Shape,
    SwiGLU,
    T5Bias,
    YaRNScaling,
)

from .copying import close, same_gradients, shake

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install -e '.[parity]'")
ropes = pytest.importorskip("transformers.modeling_rope_utils")
llama = pytest.importorskip("transformers.models.llama.modeling_llama")
t5 = pytest.importorskip("transformers.models.t5.modeling_t5")

D, HEADS, KV_HEADS, FF, LAYERS, BATCH, LENGTH = 16, 4, 2, 20, 2, 2, 7
KEEP = torch.arange(LENGTH) >= torch.tensor([[0], [3]])  # padding on the left

ROPES: dict[str, tuple[dict[str, Any], RotaryScaling | None]] = {
    "default": ({"rope_type": "default"}, None),
    "linear": ({"rope_type": "linear", "factor": 4.0}, LinearScaling(4.0)),
    "yarn": ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}, YaRNScaling(4.0, 64)),
    "yarn, betas": (
        {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32, "beta_fast": 4.0, "beta_slow": 0.5},
        YaRNScaling(8.0, 32, beta_fast=4.0, beta_slow=0.5),
    ),
}
over_ropes = pytest.mark.parametrize(("rope", "scaling"), ROPES.values(), ids=ROPES)


def llama_config(rope: dict[str, Any], d_model: int = D, **more: Any) -> Any:
    return transformers.LlamaConfig(
        vocab_size=5,
        hidden_size=d_model,
        intermediate_size=FF,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_theta": 10000.0, **rope},
        attn_implementation="eager",
        **{"max_position_embeddings": 256, **more},
    )


def copy(ours: nn.Linear, *theirs: nn.Linear) -> None:
    """One matrix from several, side by side."""
    ours.load_state_dict({"weight": torch.cat([linear.weight.detach() for linear in theirs])})


def llama_stack(theirs: Any, scaling: RotaryScaling | None) -> Encoder:
    """Ours with the weights of a whole Llama."""
    options = StackOptions(
        d_model=D,
        num_heads=HEADS,
        dropout=0.0,
        position=partial(Rotary, scaling=scaling),
        mixer=partial(FullAttention, num_kv_heads=KV_HEADS, bias=False),
        feed_forward=partial(SwiGLU, width=FF),
        norm="rms_norm",
    )
    ours = Encoder(options, LAYERS, causal=True)
    for block, layer in zip(ours.blocks, theirs.layers, strict=True):
        copy(block.mixer.inner.project, layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj)
        copy(block.mixer.inner.output, layer.self_attn.o_proj)
        copy(block.feed_forward.inner.inner, layer.mlp.gate_proj, layer.mlp.up_proj)
        copy(block.feed_forward.inner.outer, layer.mlp.down_proj)
        block.mixer.norm.load_state_dict(layer.input_layernorm.state_dict())
        block.feed_forward.norm.load_state_dict(layer.post_attention_layernorm.state_dict())
    ours.norm.load_state_dict(theirs.norm.state_dict())
    return ours


@over_ropes
@pytest.mark.parametrize("far", [0, 50])
def test_llama(rope: dict[str, Any], scaling: RotaryScaling | None, far: int) -> None:
    """Grouped heads, rotary in halves, RMSNorm before and SwiGLU; also where the indices begin far out."""
    theirs, x = llama.LlamaModel(llama_config(rope)).eval(), torch.randn(BATCH, LENGTH, D, requires_grad=True)
    shake(theirs)
    at = torch.arange(far, far + LENGTH)
    expected = theirs(inputs_embeds=x, position_ids=at.unsqueeze(0), use_cache=False).last_hidden_state
    ours = llama_stack(theirs, scaling)(x, Placement(at=at))
    close(ours, expected)
    same_gradients(ours, expected, [x])


def test_llama_with_padding_on_the_left() -> None:
    theirs, x = llama.LlamaModel(llama_config({"rope_type": "default"})).eval(), torch.randn(BATCH, LENGTH, D)
    shake(theirs)
    at = (KEEP.cumsum(1) - 1).clamp(min=0)
    given = {"inputs_embeds": x, "attention_mask": KEEP.long(), "position_ids": at, "use_cache": False}
    close(llama_stack(theirs, None)(x, Placement(KEEP, at))[KEEP], theirs(**given).last_hidden_state[KEEP])


@over_ropes
@pytest.mark.parametrize("d_head", [8, 32, 64])
def test_speeds_of_rotary(rope: dict[str, Any], scaling: RotaryScaling | None, d_head: int) -> None:
    config = llama_config(rope, d_model=HEADS * d_head)
    theirs = llama.LlamaRotaryEmbedding(config)
    ours = Rotary(Shape(HEADS * d_head, HEADS), scaling=scaling)
    close(torch.tensor(ours.speeds), theirs.inv_freq, 1e-6)
    assert ours.growth == pytest.approx(theirs.attention_scaling)


@pytest.mark.parametrize("length", [256, 512, 1000])
@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_ntk_is_the_dynamic_kind_at_one_length(length: int, factor: float) -> None:
    """Theirs follows the length of the text at hand, by factor * length / trained - (factor - 1)."""
    config = llama_config({"rope_type": "dynamic", "factor": factor}, d_model=HEADS * 32)
    speeds, _ = ropes.ROPE_INIT_FUNCTIONS["dynamic"](config, "cpu", seq_len=length)
    ours = Rotary(Shape(HEADS * 32, HEADS), scaling=NTKScaling(factor * length / 256 - (factor - 1.0)))
    close(torch.tensor(ours.speeds), speeds, 1e-6)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (32, 64), (8, 16), (64, 1000), (6, 20)])
def test_buckets_of_t5(causal: bool, buckets: int, max_distance: int) -> None:
    """Every distance that has a bucket of its own and every other, to twice the largest."""
    position = T5Bias(Shape(buckets, 1, causal=causal), buckets, max_distance)
    position.table.data = torch.arange(buckets, dtype=torch.float32).unsqueeze(1)
    at = torch.arange(4 * max_distance + 1)
    q_at, q = at[2 * max_distance].unsqueeze(0), torch.zeros(1, 1, 1, 1)
    ours = position.bias(q, q, q_at, at)
    theirs = t5.T5Attention._relative_position_bucket(at - q_at, not causal, buckets, max_distance)
    assert torch.equal(ours[0, 0, 0].long(), theirs)


def t5_config(**more: Any) -> Any:
    return transformers.T5Config(
        vocab_size=5,
        d_model=D,
        d_kv=D // HEADS,
        d_ff=FF,
        num_layers=LAYERS,
        num_heads=HEADS,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=6,
        dropout_rate=0.0,
        feed_forward_proj="gated-silu",
        attn_implementation="eager",
        **more,
    )


T5 = EncoderDecoderOptions(
    d_model=D,
    num_heads=HEADS,
    dropout=0.0,
    position=partial(T5Bias, buckets=8, max_distance=6),
    mixer=partial(FullAttention, bias=False),
    cross=partial(CrossAttention, bias=False),
    feed_forward=partial(SwiGLU, width=FF),
    norm="rms_norm",
    encoder_layers=LAYERS,
    decoder_layers=LAYERS,
)


@torch.no_grad()
def copy_t5(theirs: Any, ours: Encoder | Decoder) -> None:
    """T5 does not divide logits by sqrt(K), so its queries become larger by that."""
    for block, layer in zip(ours.blocks, theirs.block, strict=True):
        own = layer.layer[0].SelfAttention
        copy(block.mixer.inner.project, own.q, own.k, own.v)
        block.mixer.inner.project.weight[:D] *= (D / HEADS) ** 0.5
        copy(block.mixer.inner.output, own.o)
        block.mixer.norm.load_state_dict(layer.layer[0].layer_norm.state_dict())
        if isinstance(ours, Decoder):
            beyond, cross = layer.layer[1].EncDecAttention, block.cross.inner
            for mine, other in (
                (cross.query, beyond.q),
                (cross.key, beyond.k),
                (cross.value, beyond.v),
                (cross.output, beyond.o),
            ):
                copy(mine, other)
            cross.query.weight *= (D / HEADS) ** 0.5
            block.cross.norm.load_state_dict(layer.layer[1].layer_norm.state_dict())
        feed_forward = layer.layer[-1].DenseReluDense
        copy(block.feed_forward.inner.inner, feed_forward.wi_0, feed_forward.wi_1)
        copy(block.feed_forward.inner.outer, feed_forward.wo)
        block.feed_forward.norm.load_state_dict(layer.layer[-1].layer_norm.state_dict())
    (position,) = ours.positions
    position.table.copy_(theirs.block[0].layer[0].SelfAttention.relative_attention_bias.weight)
    ours.norm.load_state_dict(theirs.final_layer_norm.state_dict())


@pytest.mark.parametrize("keep", [None, KEEP], ids=["all", "padded"])
def test_t5_encoder(keep: Tensor | None) -> None:
    """One table of biases for all layers, RMSNorm before, a gated feed-forward."""
    theirs = t5.T5EncoderModel(t5_config()).encoder.eval()
    shake(theirs)
    ours, x = Encoder(T5, LAYERS), torch.randn(BATCH, LENGTH, D, requires_grad=True)
    copy_t5(theirs, ours)
    expected = theirs(inputs_embeds=x, attention_mask=None if keep is None else keep.long()).last_hidden_state
    real = torch.ones(BATCH, LENGTH, dtype=torch.bool) if keep is None else keep
    mine, other = ours(x, Placement(keep))[real], expected[real]
    close(mine, other)
    same_gradients(mine, other, [x])


def test_t5_decoder() -> None:
    theirs = t5.T5Model(t5_config()).decoder.eval()
    shake(theirs)
    ours, x, keys = Decoder(T5), torch.randn(BATCH, LENGTH, D, requires_grad=True), torch.randn(BATCH, 5, D, requires_grad=True)
    copy_t5(theirs, ours)
    keep = torch.arange(5) < torch.tensor([[5], [3]])
    given = {"encoder_hidden_states": keys, "encoder_attention_mask": keep.long(), "use_cache": False}
    expected = theirs(inputs_embeds=x, **given).last_hidden_state
    mine = ours(x, Memory(keys, torch.arange(5), keep))
    close(mine, expected)
    same_gradients(mine, expected, [x, keys])
