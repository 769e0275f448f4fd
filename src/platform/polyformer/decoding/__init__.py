"""Searches over one protocol: they see a model only as something that makes a step and reorders its rows."""

from polyformer.decoding.beam import Hypothesis, Search, Symbols, beam_search
from polyformer.decoding.generation import Written, generate, pad_left
from polyformer.decoding.protocol import Stepper
from polyformer.decoding.sampling import Sampling, probabilities
from polyformer.decoding.scoring import log_probabilities
from polyformer.decoding.speculative import Acceptance, Rewindable, Speculation

__all__ = [
    "Acceptance",
    "Hypothesis",
    "Rewindable",
    "Sampling",
    "Search",
    "Speculation",
    "Stepper",
    "Symbols",
    "Written",
    "beam_search",
    "generate",
    "log_probabilities",
    "pad_left",
    "probabilities",
]
