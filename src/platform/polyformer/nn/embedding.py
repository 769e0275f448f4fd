"""Embeddings of tokens, and of n-grams of them.

Letters: B batch, L tokens, D model, V vocabulary, U buckets.
"""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polyformer.nn.dropout import Dropout

__all__ = ["NgramEmbedding", "TokenEmbedding"]


class TokenEmbedding(nn.Module):
    """sqrt(D) * table[tokens] (Vaswani et al. 2017, section 3.4).

    The table starts with variance 1/D, so that it can serve as the output layer too; the factor sqrt(D) brings its
    vectors to the size of the positions that are added to them.

    Args:
        size: Number of tokens in the vocabulary (V).
        d_model: Width of the vectors (D).
        word_dropout: Probability of dropping a word of the vocabulary, wherever it stands in the batch (Gal and Ghahramani
            2016), while training; the others are scaled up.
    """

    def __init__(self, size: int, d_model: int, word_dropout: float = 0.0) -> None:
        super().__init__()
        self.word_dropout = Dropout(word_dropout)
        self.table = nn.Parameter(nn.init.normal_(torch.empty(size, d_model), std=d_model**-0.5))
        self.scale = math.sqrt(d_model)

    def forward(self, tokens: Tensor) -> Tensor:  # (B, L) -> (B, L, D)
        return _drop_words(F.embedding(tokens, self.table) * self.scale, tokens, self.word_dropout, len(self.table))


class NgramEmbedding(nn.Module):
    """The sum of the vectors of the n-grams that end at each token, for a text that is read whole.

    A linear model over n-grams is hard to beat where words decide (Wang and Manning 2012); this is the part of it that token
    embeddings lack. As in fastText (Joulin et al. 2017, section 2), an n-gram has the row of a table that its hash names,
    and shares it with others. The table begins at zero: an n-gram that training has not seen adds nothing.

    Args:
        orders: Lengths of the n-grams in tokens, each at least 2.
        buckets: Rows of the table (U).
        d_model: Width of the vectors (D).
        dropout: Probability of dropping a row, wherever it is used in the batch, while training.

    Raises:
        ValueError: For an order below 2, or one that is given twice, and for no buckets.

    >>> NgramEmbedding([2, 3], buckets=100, d_model=8)(torch.tensor([[5, 6, 7]])).shape
    torch.Size([1, 3, 8])
    """

    def __init__(self, orders: Sequence[int], buckets: int, d_model: int, dropout: float = 0.0) -> None:
        super().__init__()
        if min(orders) < 2 or len(set(orders)) < len(orders):
            raise ValueError(f"`model.ngrams.orders` must be different numbers of tokens, at least 2, but is {list(orders)}")
        if buckets < 1:
            raise ValueError(f"`model.ngrams.buckets` must be at least 1, but is {buckets}")
        self.orders = frozenset(orders)
        self.dropout = Dropout(dropout)
        self.table = nn.Parameter(torch.zeros(buckets, d_model))
        self.scale = math.sqrt(d_model)

    def forward(self, tokens: Tensor, keep: Tensor | None = None) -> Tensor:
        """Embeds n-grams; those that reach over the beginning of the text, or into padding, add nothing.

        Args:
            tokens: (B, L) token ids.
            keep: (B, L) bool, True where a token is real; None when all are.

        Returns:
            (B, L, D).
        """
        found = [torch.where(whole, hashed % len(self.table), -1) for hashed, whole in self._ngrams(tokens, keep)]
        rows = torch.stack(found)  # (orders, B, L), -1 where there is no n-gram
        vectors = F.embedding(rows.clamp(min=0), self.table) * (rows >= 0).unsqueeze(-1) * self.scale
        return _drop_words(vectors, rows.clamp(min=0), self.dropout, len(self.table)).sum(dim=0)

    def _ngrams(self, tokens: Tensor, keep: Tensor | None) -> Iterator[tuple[Tensor, Tensor]]:
        """(hashes, whether there is one) of the n-grams that end at each token, (B, L) both, for each order."""
        hashed, whole = tokens.long(), torch.ones_like(tokens, dtype=torch.bool) if keep is None else keep
        before, real = hashed, whole
        for order in range(2, max(self.orders) + 1):
            before, real = F.pad(before, (1, -1)), F.pad(real, (1, -1))  # one token further back
            hashed, whole = _mixed(hashed * MULTIPLIER + before + order), whole & real
            if order in self.orders:
                yield hashed, whole


MULTIPLIER = 0x9E3779B97F4A7C15 - 2**64
"""2^64 over the golden ratio, as a signed number: products wrap around (Knuth 1973, section 6.4)."""


def _mixed(numbers: Tensor) -> Tensor:
    """Numbers of 64 bits whose low bits depend on all of theirs."""
    numbers = (numbers ^ (numbers >> 31)) * MULTIPLIER
    return numbers ^ (numbers >> 29)


def _drop_words(vectors: Tensor, rows: Tensor, dropout: Dropout, size: int) -> Tensor:
    """Drops some rows of a table of a size, wherever they are among (..., D) vectors, and scales the others up."""
    if not dropout.active:
        return vectors
    words = dropout(torch.ones(size, 1, device=rows.device, dtype=vectors.dtype))  # (V, 1)
    return vectors * F.embedding(rows, words)
