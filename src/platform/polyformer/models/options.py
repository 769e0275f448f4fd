"""What a user chooses of a Transformer: the keys under `model:`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from polyformer.models.initialization import InitializationName
from polyformer.nn import (
    CrossAttention,
    CrossMixerFactory,
    FeedForward,
    FeedForwardFactory,
    FullAttention,
    Mixer,
    MixerFactory,
    NgramEmbedding,
    NoPosition,
    NormKind,
    NormPlace,
    Position,
    PositionFactory,
    Shape,
    Sinusoidal,
)

__all__ = ["DecoderOnlyOptions", "EncoderDecoderOptions", "EncoderOnlyOptions", "Ngrams", "StackOptions"]

F = TypeVar("F", bound=Callable[[Shape], Any])


@dataclass(frozen=True, kw_only=True)
class StackOptions:
    """What every stack of blocks shares.

    Args:
        d_model: Width of the token vectors.
        num_heads: Number of attention heads; it must divide d_model.
        max_length: Longest sequence in tokens, for positions that have a limit.
        dropout: Probability of dropout on attention weights, on the output of each sublayer and inside the
            feed-forward, unless one of them is given its own.
        embedding_dropout: Probability of dropout on the embeddings, positions added; None: `dropout`.
        position: How the model is told where tokens are (a subclass of Position).
        mixer: What moves information between tokens (a subclass of Mixer).
        mixers: Mixers layer by layer from the lowest on, repeated while there are layers, as [SlidingWindow, SlidingWindow,
            FullAttention]; empty: every layer has `mixer`.
        positions: Positions likewise, of those that act in layers (not Sinusoidal, not Learned), as [Rotary, NoPosition];
            layers that come to the same item share its weights if its kind is shared; empty: every layer has `position`.
        feed_forward: What each token computes alone.
        norm: Kind of normalisation. With "none" the mean over a text stays near the sum of what its words say, where norms
            give a word that says nothing the length of all others; for stacks of few layers.
        norm_place: Before each sublayer ("pre") or after its residual sum ("post", as in Vaswani et al. 2017).
        initialization: How weights start.
        checkpointing: Keep only the inputs of blocks and compute the rest again in the backward pass (Chen et al. 2016):
            about a third more time, far less memory, the same gradients.
        init_from: Checkpoint or run folder, of any task, whose weights training begins with, as far as names and shapes are
            the same; its tokenizer comes along.
    """

    d_model: int = 256
    num_heads: int = 4
    max_length: int = 512
    dropout: float = 0.1
    embedding_dropout: float | None = None
    position: PositionFactory = Sinusoidal
    mixer: MixerFactory = FullAttention
    mixers: list[MixerFactory] = field(default_factory=list)
    positions: list[PositionFactory] = field(default_factory=list)
    feed_forward: FeedForwardFactory = FeedForward
    norm: NormKind = "layer_norm"
    norm_place: NormPlace = "pre"
    initialization: InitializationName = "xavier"
    checkpointing: bool = False
    init_from: str | None = None

    def shape(self, causal: bool) -> Shape:
        """The facts that the parts of one stack must agree on."""
        return Shape(self.d_model, self.num_heads, self.max_length, causal, self.dropout)

    def layer_mixers(self, shape: Shape) -> list[MixerFactory]:
        """What makes the mixers of the layers, to be repeated.

        Raises:
            ValueError: If `mixer` is given besides `mixers`.
        """
        return _one_or_several("mixer", self.mixer, self.mixers, FullAttention, shape)

    def layer_positions(self, shape: Shape) -> list[PositionFactory]:
        """What makes the positions of the layers, to be repeated.

        Raises:
            ValueError: If `position` is given besides `positions`.
        """
        return _one_or_several("position", self.position, self.positions, Sinusoidal, shape)

    def limit(self, causal: bool) -> int | None:
        """The longest sequence, in tokens, that all positions and mixers can take; None when there is no limit."""
        shape = self.shape(causal)
        parts: list[Position | Mixer] = [make(shape) for make in self.layer_positions(shape)]
        parts += [make(shape) for make in self.layer_mixers(shape)]
        return min((part.limit for part in parts if part.limit is not None), default=None)


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderOptions(StackOptions):
    """An encoder, a decoder that looks at what the encoder read, and their embeddings.

    Args:
        encoder_layers: Number of encoder blocks.
        decoder_layers: Number of decoder blocks.
        decoder_mixers: Mixers of the decoder's layers, where they are not those of the encoder, as [FullAttention] beside
            `mixer: BigBird`, which cannot run in a decoder; repeated like `mixers`.
        cross: What brings information from encoder to decoder (a subclass of CrossMixer).
        cross_position: How positions act between decoder and encoder; none in most papers.
        tied: Which embeddings are one matrix: source, target and output ("all"; needs a joint vocabulary), target and
            output ("target"), or none of them ("none").
    """

    encoder_layers: int = 3
    decoder_layers: int = 3
    decoder_mixers: list[MixerFactory] = field(default_factory=list)
    cross: CrossMixerFactory = CrossAttention
    cross_position: PositionFactory = NoPosition
    tied: Literal["all", "target", "none"] = "all"


@dataclass(frozen=True, kw_only=True)
class DecoderOnlyOptions(StackOptions):
    """A causal stack between token embeddings and an output layer.

    Args:
        num_layers: Number of blocks.
        tied: Whether token embeddings and output layer are one matrix (Press and Wolf 2017).
        word_dropout: Probability of dropping a word of the vocabulary from the input, wherever it stands in the batch
            (Gal and Ghahramani 2016; Merity et al. 2018, section 4.3).
        output_dropout: Probability of dropout on the vectors that enter the output layer.
    """

    max_length: int = 256
    num_layers: int = 6
    tied: bool = True
    word_dropout: float = 0.0
    output_dropout: float = 0.0


@dataclass(frozen=True)
class Ngrams:
    """Which n-grams have vectors of their own (:class:`~polyformer.nn.NgramEmbedding`).

    Args:
        orders: Lengths of the n-grams in tokens, as [2, 3]; empty: there are none.
        buckets: Number of vectors; n-grams whose hashes agree share one.
        dropout: Probability of dropping one of these vectors, wherever it is used in the batch.

    Raises:
        ValueError: For a dropout below 0, or of 1 and more.
    """

    orders: list[int] = field(default_factory=list)
    buckets: int = 100_000
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"`model.ngrams.dropout` must be at least 0 and below 1, but is {self.dropout}")

    def embedding(self, d_model: int) -> NgramEmbedding | None:
        """What adds the vectors; None where there are none."""
        return NgramEmbedding(self.orders, self.buckets, d_model, self.dropout) if self.orders else None


@dataclass(frozen=True, kw_only=True)
class EncoderOnlyOptions(StackOptions):
    """An encoder that reads a text whole.

    Args:
        num_layers: Number of blocks.
        segments: Number of parts of a text that the model tells apart, as 2 for pairs of texts (Devlin et al. 2019, section
            3.2); 0: none.
        word_dropout: Probability of dropping a word of the vocabulary from the input, wherever it stands in the batch
            (Gal and Ghahramani 2016).
        ngrams: Vectors of n-grams that are added to those of the tokens.
    """

    num_layers: int = 4
    segments: int = 0
    word_dropout: float = 0.0
    ngrams: Ngrams = field(default_factory=Ngrams)


def _one_or_several(key: str, one: F, several: list[F], default: type[Any], shape: Shape) -> list[F]:
    """The list of a key's plural, or, where that is empty, the one value of the key.

    Raises:
        ValueError: If both are given, as one would be of no effect.
    """
    if not several:
        return [one]
    chosen = type(one(shape))
    if chosen is not default:
        raise ValueError(
            f"`model.{key}s` is given, and so is `model.{key}` ({chosen.__name__}); leave one of them out, or set it back by "
            f"`--model.{key}s []` or `--model.{key} {default.__name__}`"
        )
    return several
