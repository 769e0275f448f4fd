"""Whole models, assembled from the blocks of :mod:`polyformer.nn`."""

from polyformer.models.decoder_only import DecoderOnly
from polyformer.models.encoder_decoder import Continuation, EncoderDecoder
from polyformer.models.encoder_only import EncoderOnly
from polyformer.models.initialization import InitializationName, initialize
from polyformer.models.options import DecoderOnlyOptions, EncoderDecoderOptions, EncoderOnlyOptions, Ngrams, StackOptions
from polyformer.models.stack import Decoder, Encoder, Placement, StackState
from polyformer.models.writing import Writing

__all__ = [
    "Continuation",
    "Decoder",
    "DecoderOnly",
    "DecoderOnlyOptions",
    "Encoder",
    "EncoderDecoder",
    "EncoderDecoderOptions",
    "EncoderOnly",
    "EncoderOnlyOptions",
    "InitializationName",
    "Ngrams",
    "Placement",
    "StackOptions",
    "StackState",
    "Writing",
    "initialize",
]
