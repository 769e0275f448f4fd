"""The Transformer of Vaswani et al. 2017: an encoder reads, a decoder writes.

Letters: B batch, N rows being decoded, L target tokens, S source tokens, D model, V target vocabulary.
"""

import torch
from torch import Tensor, nn

from polyformer.models.initialization import initialize
from polyformer.models.options import EncoderDecoderOptions
from polyformer.models.stack import Decoder, Encoder, Placement
from polyformer.nn import Memory, TokenEmbedding, prepare_output

__all__ = ["Continuation", "EncoderDecoder"]


class EncoderDecoder(nn.Module):
    """Source tokens in, target tokens out.

    Args:
        source_size: Number of tokens in the source vocabulary.
        target_size: Number of tokens in the target vocabulary (V).
        options: What the user chose.

    Raises:
        ValueError: If all embeddings are to be one matrix, but the vocabularies differ.

    >>> model = EncoderDecoder(9, 9, EncoderDecoderOptions(d_model=8, num_heads=2))
    >>> hidden = model(torch.tensor([[4, 5, 3]]), torch.tensor([[2, 6]]))
    >>> model.logits(hidden).shape
    torch.Size([1, 2, 9])
    """

    def __init__(self, source_size: int, target_size: int, options: EncoderDecoderOptions) -> None:
        super().__init__()
        if options.tied == "all" and source_size != target_size:
            raise ValueError(
                f"`model.tied: all` needs one vocabulary for both sides, but they have {source_size} and {target_size} "
                "tokens; use `model.tied: target`, or a joint vocabulary"
            )
        self.target_embedding = TokenEmbedding(target_size, options.d_model)
        tied_source = options.tied == "all"
        self.source_embedding = self.target_embedding if tied_source else TokenEmbedding(source_size, options.d_model)
        self.encoder = Encoder(options, options.encoder_layers)
        self.decoder = Decoder(options)
        tied_output = options.tied != "none"
        self.output = self.target_embedding if tied_output else TokenEmbedding(target_size, options.d_model)
        initialize(self, options.initialization)

    def forward(self, source: Tensor, target: Tensor, source_keep: Tensor | None = None) -> Tensor:
        """The decoder's vectors for given target tokens (teacher forcing).

        Args:
            source: (B, S) token ids, padded on the right.
            target: (B, L) token ids, beginning with BOS, padded on the right.
            source_keep: (B, S) bool, True where a source token is real; None when all are.

        Returns:
            (B, L, D); vector i is meant to predict token i + 1.
        """
        return self.decode(target, self.encode(source, source_keep))

    def encode(self, source: Tensor, keep: Tensor | None = None) -> Memory:
        """Reads (B, S) source tokens."""
        read = self.encoder(self.source_embedding(source), Placement(keep))  # (B, S, D)
        return Memory(read, torch.arange(source.shape[1], device=source.device), keep)

    def decode(self, target: Tensor, memory: Memory) -> Tensor:
        """(B, L) target tokens -> (B, L, D)."""
        hidden: Tensor = self.decoder(self.target_embedding(target), memory)
        return hidden

    @property
    def output_weight(self) -> Tensor:
        """(V, D), the matrix that turns vectors into logits."""
        return self.output.table

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., D) -> (..., V)."""
        return hidden @ self.output_weight.t()

    def start(self, memory: Memory) -> "Continuation":
        """Begins a decode; see :class:`Continuation`."""
        return Continuation(self, memory)


class Continuation:
    """One decode in progress, as a search sees it: new tokens in, logits out, rows reordered.

    Args:
        model: The model that decodes.
        memory: What it read, for B sentences; the N rows decoded are a multiple of them, those of a sentence together.
    """

    def __init__(self, model: EncoderDecoder, memory: Memory) -> None:
        self.model, self.memory = model, memory
        self.state, self.output = model.decoder.start(), prepare_output(model.output_weight)

    def step(self, tokens: Tensor) -> Tensor:
        """(N, L) tokens that follow those of earlier steps -> (N, V) logits of the token after the last one."""
        hidden = self.model.decoder(self.model.target_embedding(tokens), self.memory, self.state)  # (N, L, D)
        return self.output(hidden[:, -1])

    def reorder(self, rows: Tensor) -> None:
        """Row i continues what row ``rows[i]`` was."""
        if self.state.at is None:
            self.memory = self.memory.take(rows)
        self.state.reorder(rows)
