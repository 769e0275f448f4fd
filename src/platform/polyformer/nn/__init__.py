"""The building blocks: pure torch, importing nothing else of Polyformer."""

from polyformer.nn.attend import Where, attend, attend_by_hand, recorded_weights
from polyformer.nn.attention import CrossAttention, FullAttention
from polyformer.nn.block import BlockState, DecoderBlock, EncoderBlock
from polyformer.nn.cross import Bahdanau, Luong
from polyformer.nn.dropout import Dropout, dropout, dropout_add, relu_dropout
from polyformer.nn.embedding import NgramEmbedding, TokenEmbedding
from polyformer.nn.feed_forward import FeedForward, FeedForwardFactory, NoFeedForward, SwiGLU
from polyformer.nn.mask import Mask, Pattern
from polyformer.nn.mixer import (
    Context,
    CrossContext,
    CrossMixer,
    CrossMixerFactory,
    Memory,
    Mixer,
    MixerFactory,
    check_fit,
    check_takes_back,
)
from polyformer.nn.mixers import (
    GRU,
    LSTM,
    RNN,
    BigBird,
    Convolution,
    LinearAttention,
    Linformer,
    Performer,
    Reformer,
    SlidingWindow,
)
from polyformer.nn.output import prepare_output
from polyformer.nn.pooling import AttentionPooling, FirstToken, Max, Mean, MeanMax, Pooling, PoolingFactory
from polyformer.nn.position import Learned, NoPosition, Position, PositionFactory, Sinusoidal
from polyformer.nn.relative import ALiBi, Relative, T5Bias, TransformerXL
from polyformer.nn.residual import NormKind, NormPlace, Residual, make_norm
from polyformer.nn.rotary import LinearScaling, NTKScaling, Rotary, RotaryScaling, YaRNScaling
from polyformer.nn.shape import Shape
from polyformer.nn.state import CrossState, KeyValues, Projected, State

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "ALiBi",
    "AttentionPooling",
    "Bahdanau",
    "BigBird",
    "BlockState",
    "Context",
    "Convolution",
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
    "LinearAttention",
    "LinearScaling",
    "Linformer",
    "Luong",
    "Mask",
    "Max",
    "Mean",
    "MeanMax",
    "Memory",
    "Mixer",
    "MixerFactory",
    "NTKScaling",
    "NgramEmbedding",
    "NoFeedForward",
    "NoPosition",
    "NormKind",
    "NormPlace",
    "Pattern",
    "Performer",
    "Pooling",
    "PoolingFactory",
    "Position",
    "PositionFactory",
    "Projected",
    "Reformer",
    "Relative",
    "Residual",
    "Rotary",
    "RotaryScaling",
    "Shape",
    "Sinusoidal",
    "SlidingWindow",
    "State",
    "SwiGLU",
    "T5Bias",
    "TokenEmbedding",
    "TransformerXL",
    "Where",
    "YaRNScaling",
    "attend",
    "attend_by_hand",
    "check_fit",
    "check_takes_back",
    "dropout",
    "dropout_add",
    "make_norm",
    "prepare_output",
    "recorded_weights",
    "relu_dropout",
]
