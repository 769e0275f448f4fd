"""Searches over one protocol: they see a model only as something that makes a step and reorders its rows."""

from polyformer.decoding.beam import Hypothesis, Search, Symbols, beam_search
from polyformer.decoding.protocol import Stepper
from polyformer.decoding.scoring import log_probabilities

__all__ = ["Hypothesis", "Search", "Stepper", "Symbols", "beam_search", "log_probabilities"]
