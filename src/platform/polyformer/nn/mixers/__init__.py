"""Mixers besides full attention, each in a file of its own."""

from polyformer.nn.mixers.big_bird import BigBird
from polyformer.nn.mixers.convolution import Convolution, Inputs
from polyformer.nn.mixers.linear_attention import LinearAttention, Sums
from polyformer.nn.mixers.linformer import Linformer
from polyformer.nn.mixers.performer import Performer
from polyformer.nn.mixers.recurrent import GRU, LSTM, RNN, Hidden
from polyformer.nn.mixers.reformer import HashedKeyValues, Reformer
from polyformer.nn.mixers.sliding_window import LatestKeyValues, SlidingWindow

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "BigBird",
    "Convolution",
    "HashedKeyValues",
    "Hidden",
    "Inputs",
    "LatestKeyValues",
    "LinearAttention",
    "Linformer",
    "Performer",
    "Reformer",
    "SlidingWindow",
    "Sums",
]
