"""Token embeddings.

Letters: B batch, L tokens, D model, V vocabulary.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["TokenEmbedding"]


class TokenEmbedding(nn.Module):
    """sqrt(D) * table[tokens] (Vaswani et al. 2017, section 3.4).

    The table starts with variance 1/D, so that it can serve as the output layer too; the factor sqrt(D) brings its
    vectors to the size of the positions that are added to them.

    Args:
        size: Number of tokens in the vocabulary (V).
        d_model: Width of the vectors (D).
    """

    def __init__(self, size: int, d_model: int) -> None:
        super().__init__()
        self.table = nn.Parameter(nn.init.normal_(torch.empty(size, d_model), std=d_model**-0.5))
        self.scale = math.sqrt(d_model)

    def forward(self, tokens: Tensor) -> Tensor:  # (B, L) -> (B, L, D)
        return F.embedding(tokens, self.table) * self.scale
