"""The work of the translation benchmark: its sizes, its sentences and its batches, the same for every contender.

Letters: B batch, S source tokens, L target tokens.
"""

import gzip
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["BOS", "EOS", "PAD", "Batch", "Sizes", "decoding_batches", "sentence_lengths", "training_batches"]

PAD, BOS, EOS, FIRST_WORD = 0, 1, 2, 4

SOURCE_LOG_MEAN, SOURCE_LOG_DEVIATION = 2.63, 0.354
"""Of subwords per German sentence of Multi30k's training set, cut by a joint BPE of 8000."""

RATIO_LOG_MEAN, RATIO_LOG_DEVIATION = -0.022, 0.183
"""Of English subwords per German one, in the same data."""

Lengths = NDArray[np.int64]


@dataclass(frozen=True)
class Sizes:
    """The network every contender builds: a small Transformer, as for Multi30k."""

    vocabulary: int = 8000
    d_model: int = 256
    num_heads: int = 4
    num_layers: int = 3
    feed_forward: int = 1024
    dropout: float = 0.1
    max_length: int = 128
    label_smoothing: float = 0.1


@dataclass(frozen=True)
class Batch:
    """Padded sentence pairs.

    Args:
        source: (B, S) token ids, ending in EOS, padded on the right.
        target: (B, L + 1) token ids, from BOS to EOS, padded on the right.
    """

    source: Tensor
    target: Tensor

    @property
    def keep(self) -> Tensor | None:
        """(B, S) bool, True where a source token is real; None when all are, so that no contender masks for nothing."""
        keep = self.source != PAD
        return None if bool(keep.all()) else keep

    @property
    def inputs(self) -> Tensor:
        """(B, L) what the decoder reads."""
        return self.target[:, :-1]

    @property
    def labels(self) -> Tensor:
        """(B, L) what it should say."""
        return self.target[:, 1:]

    @property
    def target_tokens(self) -> int:
        """Real target tokens, EOS counted and BOS not."""
        return int((self.labels != PAD).sum())


def sentence_lengths(count: int, seed: int, folder: Path | None = None) -> Lengths:
    """(N, 2) subwords of source and target, without BOS and EOS.

    Args:
        count: Number of pairs drawn.
        seed: Decides the draw.
        folder: Holds `train.de.gz` and `train.en.gz`: their pairs are drawn from, cut by a joint BPE that is trained on
            them (needs `tokenizers`); None: log-normal numbers with Multi30k's moments.
    """
    generator = np.random.default_rng(seed)
    if folder is not None:
        lengths = _corpus_lengths(folder)
        return lengths[generator.permutation(len(lengths))[:count]]
    source = np.exp(generator.normal(SOURCE_LOG_MEAN, SOURCE_LOG_DEVIATION, count))
    target = source * np.exp(generator.normal(RATIO_LOG_MEAN, RATIO_LOG_DEVIATION, count))
    return np.stack((source, target), axis=1).round().astype(np.int64).clip(3, 60)


def training_batches(lengths: Lengths, count: int, seed: int, tokens: int = 4096) -> list[Batch]:
    """``count`` batches of like lengths with about ``tokens`` target tokens each, spread evenly from short to long.

    Pairs are sorted by target length in bands of 8 %, and in a band by source length, rising and falling in turn:
    little padding on both sides. Which batches are taken, and their order, follow from the seed.
    """
    generator = np.random.default_rng(seed)
    band = np.floor(np.log(lengths[:, 1]) / math.log(1.08)).astype(np.int64)
    turn = np.unique(band, return_inverse=True)[1] % 2
    order = np.lexsort((generator.random(len(lengths)), np.where(turn == 0, lengths[:, 0], -lengths[:, 0]), band))
    filled = np.cumsum(lengths[order, 1] + 1) // tokens
    groups = np.split(order, np.flatnonzero(np.diff(filled)) + 1)[:-1]
    shares = np.array_split(np.arange(len(groups)), count)
    chosen = [int(generator.choice(share)) for share in shares]
    return [_fill(lengths[groups[at]], generator) for at in generator.permutation(chosen)]


def decoding_batches(lengths: Lengths, count: int, seed: int, sentences: int = 64) -> list[Batch]:
    """``count`` batches of ``sentences`` pairs with like source lengths, spread evenly from short to long."""
    generator = np.random.default_rng(seed)
    order = np.argsort(lengths[:, 0], kind="stable")
    groups = [order[begin : begin + sentences] for begin in range(0, len(order) - sentences + 1, sentences)]
    shares = np.array_split(np.arange(len(groups)), count)
    return [_fill(lengths[groups[int(generator.choice(share))]], generator) for share in shares]


def _fill(lengths: Lengths, generator: np.random.Generator) -> Batch:
    """Words drawn by Zipf's law, so that there is something to learn: which words are frequent."""
    ranks = np.arange(1, Sizes.vocabulary - FIRST_WORD + 1)
    shares = np.cumsum(1.0 / ranks)
    count, longest = len(lengths), lengths.max(axis=0)
    source, target = np.full((count, longest[0] + 1), PAD), np.full((count, longest[1] + 2), PAD)
    for row, (source_length, target_length) in enumerate(lengths):
        draws = generator.random(source_length + target_length) * shares[-1]
        words = np.searchsorted(shares, draws).clip(max=len(ranks) - 1) + FIRST_WORD
        source[row, : source_length + 1] = [*words[:source_length], EOS]
        target[row, : target_length + 2] = [BOS, *words[source_length:], EOS]
    return Batch(torch.from_numpy(source), torch.from_numpy(target))


def _corpus_lengths(folder: Path) -> Lengths:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    sides = [gzip.decompress((folder / f"train.{side}.gz").read_bytes()).decode().splitlines() for side in ("de", "en")]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=Sizes.vocabulary, show_progress=False)
    tokenizer.train_from_iterator([*sides[0], *sides[1]], trainer)
    lengths = [[len(encoding) for encoding in tokenizer.encode_batch(side)] for side in sides]
    return np.array(lengths).T.clip(1, 100)
