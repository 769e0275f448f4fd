"""Token embeddings.

Letters: B batch, L tokens, D model, V vocabulary.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polyformer.nn.dropout import Dropout

__all__ = ["TokenEmbedding"]


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
        embedded = F.embedding(tokens, self.table) * self.scale
        if not self.word_dropout.active:
            return embedded
        words = self.word_dropout(torch.ones(len(self.table), 1, device=tokens.device, dtype=embedded.dtype))  # (V, 1)
        return embedded * F.embedding(tokens, words)
