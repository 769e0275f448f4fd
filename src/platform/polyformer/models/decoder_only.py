"""A language model (Radford et al. 2018): a causal stack of encoder blocks between embeddings and an output layer.

Letters: B batch, L tokens, D model, V vocabulary.
"""

from torch import Tensor, nn

from polyformer.models.initialization import initialize
from polyformer.models.options import DecoderOnlyOptions
from polyformer.models.stack import Encoder, Placement
from polyformer.models.writing import Writing
from polyformer.nn import Dropout, TokenEmbedding

__all__ = ["DecoderOnly"]


class DecoderOnly(nn.Module):
    """Tokens in, a vector for each next token out.

    Args:
        size: Number of tokens in the vocabulary (V).
        options: What the user chose.

    >>> import torch
    >>> model = DecoderOnly(9, DecoderOnlyOptions(d_model=8, num_heads=2, num_layers=1))
    >>> model.logits(model(torch.tensor([[3, 4, 5]]))).shape
    torch.Size([1, 3, 9])
    """

    def __init__(self, size: int, options: DecoderOnlyOptions) -> None:
        super().__init__()
        self.context = options.max_length
        self.embedding = TokenEmbedding(size, options.d_model, options.word_dropout)
        self.stack = Encoder(options, options.num_layers, causal=True)
        self.output_dropout = Dropout(options.output_dropout)
        self.output = self.embedding if options.tied else TokenEmbedding(size, options.d_model)
        initialize(self, options.initialization)

    def forward(self, tokens: Tensor, placement: Placement = Placement()) -> Tensor:  # noqa: B008 - frozen
        """(B, L) tokens -> (B, L, D); vector i is meant to predict token i + 1. Padding on the right needs no mask."""
        hidden: Tensor = self.output_dropout(self.stack(self.embedding(tokens), placement))
        return hidden

    @property
    def output_weight(self) -> Tensor:
        """(V, D), the matrix that turns vectors into logits."""
        return self.output.table

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., D) -> (..., V)."""
        return hidden @ self.output_weight.t()

    def start(self, padding: list[int] | None = None) -> Writing:
        """Begins a decode of texts that follow prompts.

        Args:
            padding: How many tokens at the left of each row of the first step are no tokens; None: there are none.
        """
        return Writing(self, padding)
