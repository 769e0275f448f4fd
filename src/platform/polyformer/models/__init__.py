"""Whole models, assembled from the blocks of :mod:`polyformer.nn`."""

from polyformer.models.decoder_only import DecoderOnly, Writing
from polyformer.models.encoder_decoder import Continuation, EncoderDecoder
from polyformer.models.initialization import InitializationName, initialize
from polyformer.models.options import DecoderOnlyOptions, EncoderDecoderOptions, StackOptions
from polyformer.models.stack import Decoder, Encoder, Placement, StackState

__all__ = [
    "Continuation",
    "Decoder",
    "DecoderOnly",
    "DecoderOnlyOptions",
    "Encoder",
    "EncoderDecoder",
    "EncoderDecoderOptions",
    "InitializationName",
    "Placement",
    "StackOptions",
    "StackState",
    "Writing",
    "initialize",
]
