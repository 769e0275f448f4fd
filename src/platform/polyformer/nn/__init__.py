"""The building blocks: pure torch, importing nothing else of Polyformer."""

from polyformer.nn.attend import Where, attend, attend_by_hand, recorded_weights
from polyformer.nn.attention import CrossAttention, FullAttention
from polyformer.nn.block import BlockState, DecoderBlock, EncoderBlock
from polyformer.nn.dropout import Dropout, dropout, dropout_add, relu_dropout
from polyformer.nn.embedding import TokenEmbedding
from polyformer.nn.feed_forward import FeedForward, FeedForwardFactory, SwiGLU
from polyformer.nn.mask import Mask
from polyformer.nn.mixer import (
    Context,
    CrossContext,
    CrossMixer,
    CrossMixerFactory,
    Memory,
    Mixer,
    MixerFactory,
    check_fit,
)
from polyformer.nn.output import prepare_output
from polyformer.nn.pooling import AttentionPooling, FirstToken, Max, Mean, MeanMax, Pooling, PoolingFactory
from polyformer.nn.position import Learned, NoPosition, Position, PositionFactory, Relative, Rotary, Sinusoidal
from polyformer.nn.residual import NormKind, NormPlace, Residual, make_norm
from polyformer.nn.shape import Shape
from polyformer.nn.state import CrossState, KeyValues, Projected, State

__all__ = [
    "AttentionPooling",
    "BlockState",
    "Context",
    "CrossAttention",
    "CrossContext",
    "CrossMixer",
    "CrossMixerFactory",
    "CrossState",
    "DecoderBlock",
    "Dropout",
    "EncoderBlock",
    "FeedForward",
    "FeedForwardFactory",
    "FirstToken",
    "FullAttention",
    "KeyValues",
    "Learned",
    "Mask",
    "Max",
    "Mean",
    "MeanMax",
    "Memory",
    "Mixer",
    "MixerFactory",
    "NoPosition",
    "NormKind",
    "NormPlace",
    "Pooling",
    "PoolingFactory",
    "Position",
    "PositionFactory",
    "Projected",
    "Relative",
    "Residual",
    "Rotary",
    "Shape",
    "Sinusoidal",
    "State",
    "SwiGLU",
    "TokenEmbedding",
    "Where",
    "attend",
    "attend_by_hand",
    "check_fit",
    "dropout",
    "dropout_add",
    "make_norm",
    "prepare_output",
    "recorded_weights",
    "relu_dropout",
]
