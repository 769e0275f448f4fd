"""The work of the classification benchmark: its sizes, its texts and its batches, the same for every contender.

Letters: B batch, L tokens.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyformer.data import TokenBatches

__all__ = ["Batch", "Sizes", "sorted_batches", "text_lengths"]

PAD, BOS, EOS, FIRST_WORD = 0, 2, 3, 4

LOG_MEAN, LOG_DEVIATION = 5.49, 0.6
"""Of tokens per text, which makes 290 of them in the mean, about as many as in a review of IMDb; long ones are cut."""

SHORTEST = 12
TEXTS = 25_000
TELLING = 0.05
"""Share of the words that tell the label, so that there is something to learn."""


@dataclass(frozen=True)
class Sizes:
    """The network every contender builds: that of BERT-mini (Turc et al. 2019), with a linear layer for two labels."""

    vocabulary: int = 30522
    d_model: int = 256
    num_heads: int = 4
    num_layers: int = 4
    feed_forward: int = 1024
    dropout: float = 0.1
    max_length: int = 512
    labels: int = 2


@dataclass(frozen=True)
class Batch:
    """Padded texts.

    Args:
        tokens: (B, L) token ids, from BOS to EOS, padded on the right.
        labels: (B,).
    """

    tokens: Tensor
    labels: Tensor

    def to(self, device: str) -> "Batch":
        """The batch on a device."""
        return Batch(self.tokens.to(device), self.labels.to(device))

    @property
    def keep(self) -> Tensor | None:
        """(B, L) bool, True where a token is real; None when all are, so that no contender masks for nothing."""
        keep = self.tokens != PAD
        return None if bool(keep.all()) else keep

    @property
    def real_tokens(self) -> int:
        """How many tokens are no padding."""
        return int((self.tokens != PAD).sum())


def text_lengths(sizes: Sizes) -> NDArray[np.int64]:
    """(N,) tokens of each text, BOS and EOS included: the same in every round."""
    lengths = np.random.default_rng(0).lognormal(LOG_MEAN, LOG_DEVIATION, TEXTS)
    return lengths.round().astype(np.int64).clip(SHORTEST, sizes.max_length)


def sorted_batches(count: int, seed: int, tokens: int, sizes: Sizes) -> list[Batch]:
    """``count`` batches of texts of like length, about ``tokens`` tokens each, spread evenly from short to long.

    They are cut as Polyformer cuts its own training data. Which ones are taken, and their order, follow from the seed.
    """
    generator, lengths = np.random.default_rng(seed), text_lengths(sizes)
    plan = TokenBatches(lengths, tokens=tokens, shuffle=False).plan(0)  # longest first
    shares = np.array_split(np.arange(len(plan)), count) if count else []
    chosen = [int(generator.choice(share)) for share in shares]
    return [_fill(lengths[plan[at]], generator, sizes) for at in generator.permutation(chosen)]


def _fill(lengths: NDArray[np.int64], generator: np.random.Generator, sizes: Sizes) -> Batch:
    """Words drawn by Zipf's law; a few of each text are the one word of its label."""
    shares = np.cumsum(1.0 / np.arange(1, sizes.vocabulary - FIRST_WORD + 1))
    labels = generator.integers(sizes.labels, size=len(lengths))
    tokens = np.full((len(lengths), lengths.max()), PAD)
    for row, (length, label) in enumerate(zip(lengths, labels, strict=True)):
        words = np.searchsorted(shares, generator.random(length - 2) * shares[-1]).clip(max=len(shares) - 1) + FIRST_WORD
        words[generator.random(length - 2) < TELLING] = sizes.vocabulary - 1 - label
        tokens[row, :length] = [BOS, *words, EOS]
    return Batch(torch.from_numpy(tokens), torch.from_numpy(labels))
