"""Tokenizers: train, save, load, encode, decode; and what a trained model keeps of them."""

from polyformer.text.assets import Assets
from polyformer.text.dropout import SubwordDropout
from polyformer.text.settings import KINDS, Kind, TokenizerSettings
from polyformer.text.tokenizer import BOS, DROPOUT_KINDS, EOS, PAD, SPECIALS, UNK, Tokenizer
from polyformer.text.train import train_tokenizer
from polyformer.text.words import WORD

__all__ = [
    "BOS",
    "DROPOUT_KINDS",
    "EOS",
    "KINDS",
    "PAD",
    "SPECIALS",
    "UNK",
    "WORD",
    "Assets",
    "Kind",
    "SubwordDropout",
    "Tokenizer",
    "TokenizerSettings",
    "train_tokenizer",
]
