"""An encoder alone (Devlin et al. 2019): the body under heads that read a text whole.

Letters: B batch, L tokens, D model, V vocabulary, W width of a pooled vector, R tokens that a pooling looks at.
"""

from torch import Tensor, nn

from polyformer.models.initialization import initialize
from polyformer.models.options import EncoderOnlyOptions
from polyformer.models.stack import Encoder, Placement
from polyformer.nn import Pooling, TokenEmbedding

__all__ = ["EncoderOnly"]


class EncoderOnly(nn.Module):
    """Tokens in, a vector for each token out.

    Its parts are named as those of :class:`DecoderOnly`, so that either can begin with the other's weights; the encoder of a
    translator is its `stack`.

    Args:
        size: Number of tokens in the vocabulary (V).
        options: What the user chose.

    Raises:
        ValueError: For a number of segments below 0, and for n-grams that cannot be.

    >>> import torch
    >>> model = EncoderOnly(9, EncoderOnlyOptions(d_model=8, num_heads=2, num_layers=1, segments=2))
    >>> model(torch.tensor([[2, 4, 3, 5, 3]]), torch.tensor([[0, 0, 0, 1, 1]])).shape
    torch.Size([1, 5, 8])
    """

    def __init__(self, size: int, options: EncoderOnlyOptions) -> None:
        super().__init__()
        if options.segments < 0:
            raise ValueError(f"`model.segments` must be at least 0, but is {options.segments}")
        self.embedding = TokenEmbedding(size, options.d_model, options.word_dropout)
        self.ngram_embedding = options.ngrams.embedding(options.d_model)
        self.segment_embedding = TokenEmbedding(options.segments, options.d_model) if options.segments else None
        self.stack = Encoder(options, options.num_layers)
        initialize(self, options.initialization)

    def forward(self, tokens: Tensor, segment: Tensor | None = None, keep: Tensor | None = None) -> Tensor:
        """Reads texts.

        Args:
            tokens: (B, L) token ids.
            segment: (B, L) numbers of the segments the tokens belong to, for a model with segment embeddings; None: all
                belong to the first.
            keep: (B, L) bool, True where a token is real; None when all are.

        Returns:
            (B, L, D).
        """
        read: Tensor = self.stack(self.embed(tokens, segment, keep), Placement(keep))
        return read

    def pooled(self, pooling: Pooling, tokens: Tensor, segment: Tensor | None = None, keep: Tensor | None = None) -> Tensor:
        """What a pooling makes of what :meth:`forward` gives of the same, (B, W).

        Where it looks at some tokens only, the last block computes no others: with the first token of each text, a network of
        four layers saves a fifth of its work.
        """
        places = pooling.places(tokens, keep)  # (B, R)
        read: Tensor = self.stack(self.embed(tokens, segment, keep), Placement(keep), places=places)  # (B, L or R, D)
        kept = keep if keep is None or places is None else keep.gather(1, places)
        vectors: Tensor = pooling(read, kept)
        return vectors

    def embed(self, tokens: Tensor, segment: Tensor | None = None, keep: Tensor | None = None) -> Tensor:
        """What enters the stack, (B, L, D), of the same as :meth:`forward`."""
        x: Tensor = self.embedding(tokens)
        if self.ngram_embedding is not None:
            x = x + self.ngram_embedding(tokens, keep)
        if self.segment_embedding is not None:
            x = x + self.segment_embedding(tokens.new_zeros(tokens.shape) if segment is None else segment)
        else:
            assert segment is None
        return x
