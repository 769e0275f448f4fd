"""The work of the language model benchmark: its sizes and tokens, the same for every contender.

Letters: B windows, L tokens in each.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Sizes", "prompts", "windows"]

FIRST_WORD = 4


@dataclass(frozen=True)
class Sizes:
    """The network every contender builds: a small GPT, without dropout, as language models are trained now."""

    vocabulary: int = 8000
    d_model: int = 256
    num_heads: int = 4
    num_layers: int = 4
    feed_forward: int = 1024
    context: int = 256
    batch: int = 16


def windows(count: int, seed: int, sizes: Sizes) -> list[Tensor]:
    """``count`` batches (B, L + 1) of random tokens, rare ones rarer (Zipf's law)."""
    generator = torch.Generator().manual_seed(seed)
    shares = 1.0 / torch.arange(1, sizes.vocabulary - FIRST_WORD + 1, dtype=torch.float64)
    drawn = torch.multinomial(shares, count * sizes.batch * (sizes.context + 1), replacement=True, generator=generator)
    return list((drawn + FIRST_WORD).view(count, sizes.batch, sizes.context + 1))


def prompts(rows: int, length: int, seed: int, sizes: Sizes) -> Tensor:
    """(N, L) random tokens."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(FIRST_WORD, sizes.vocabulary, (rows, length), generator=generator)
