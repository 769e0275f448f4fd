"""Whole models, assembled from the blocks of :mod:`polyformer.nn`."""

from polyformer.models.encoder_decoder import Continuation, EncoderDecoder
from polyformer.models.initialization import InitializationName, initialize
from polyformer.models.options import EncoderDecoderOptions, StackOptions
from polyformer.models.stack import Decoder, Encoder, StackState

__all__ = [
    "Continuation",
    "Decoder",
    "Encoder",
    "EncoderDecoder",
    "EncoderDecoderOptions",
    "InitializationName",
    "StackOptions",
    "StackState",
    "initialize",
]
