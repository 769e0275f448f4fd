"""Weights of torch's own modules, copied into Polyformer's."""

from collections.abc import Sequence

import torch
from torch import nn

from polyformer.nn import CrossAttention, DecoderBlock, EncoderBlock, FeedForward, FullAttention


@torch.no_grad()
def copy_attention(theirs: nn.MultiheadAttention, ours: FullAttention) -> None:
    assert theirs.in_proj_weight is not None
    ours.project.weight.copy_(theirs.in_proj_weight)
    ours.project.bias.copy_(theirs.in_proj_bias)
    ours.output.load_state_dict(theirs.out_proj.state_dict())


@torch.no_grad()
def copy_cross_attention(theirs: nn.MultiheadAttention, ours: CrossAttention) -> None:
    if theirs.in_proj_weight is None:
        weights = [theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight]
    else:
        weights = list(theirs.in_proj_weight.chunk(3))
    linears, biases = (ours.query, ours.key, ours.value), theirs.in_proj_bias.chunk(3)
    for linear, weight, bias in zip(linears, weights, biases, strict=True):
        linear.weight.copy_(weight)
        linear.bias.copy_(bias)
    ours.output.load_state_dict(theirs.out_proj.state_dict())


def copy_feed_forward(theirs: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer, ours: nn.Module) -> None:
    assert isinstance(ours, FeedForward)
    ours.inner.load_state_dict(theirs.linear1.state_dict())
    ours.outer.load_state_dict(theirs.linear2.state_dict())


def copy_encoder_layer(theirs: nn.TransformerEncoderLayer, ours: EncoderBlock) -> None:
    assert isinstance(ours.mixer.inner, FullAttention)
    copy_attention(theirs.self_attn, ours.mixer.inner)
    copy_feed_forward(theirs, ours.feed_forward.inner)
    ours.mixer.norm.load_state_dict(theirs.norm1.state_dict())
    ours.feed_forward.norm.load_state_dict(theirs.norm2.state_dict())


def copy_decoder_layer(theirs: nn.TransformerDecoderLayer, ours: DecoderBlock) -> None:
    assert isinstance(ours.mixer.inner, FullAttention) and isinstance(ours.cross.inner, CrossAttention)
    copy_attention(theirs.self_attn, ours.mixer.inner)
    copy_cross_attention(theirs.multihead_attn, ours.cross.inner)
    copy_feed_forward(theirs, ours.feed_forward.inner)
    ours.mixer.norm.load_state_dict(theirs.norm1.state_dict())
    ours.cross.norm.load_state_dict(theirs.norm2.state_dict())
    ours.feed_forward.norm.load_state_dict(theirs.norm3.state_dict())


@torch.no_grad()
def shake(module: nn.Module) -> None:
    """Random weights everywhere: torch starts biases at 0 and norms at 1, where faults could hide."""
    for parameter in module.parameters():
        parameter.add_(0.2 * torch.randn_like(parameter))


def same_gradients(ours: torch.Tensor, theirs: torch.Tensor, inputs: Sequence[torch.Tensor]) -> None:
    """Both results, pulled the same way, pull all inputs the same way."""
    pull = torch.randn_like(ours)
    mine, others = (torch.autograd.grad(result, inputs, pull, retain_graph=True) for result in (ours, theirs))
    for one, other in zip(mine, others, strict=True):
        close(one, other)


def close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
