"""What a user chooses of a Transformer: the keys under `model:`."""

from dataclasses import dataclass
from typing import Literal

from polyformer.models.initialization import InitializationName
from polyformer.nn import (
    CrossAttention,
    CrossMixerFactory,
    FeedForward,
    FeedForwardFactory,
    FullAttention,
    MixerFactory,
    NoPosition,
    NormKind,
    NormPlace,
    PositionFactory,
    Shape,
    Sinusoidal,
)

__all__ = ["EncoderDecoderOptions", "StackOptions"]


@dataclass(frozen=True, kw_only=True)
class StackOptions:
    """What every stack of blocks shares.

    Args:
        d_model: Width of the token vectors.
        num_heads: Number of attention heads; it must divide d_model.
        max_length: Longest sequence in tokens, for positions that have a limit.
        dropout: Probability of dropout on attention weights, on the output of each sublayer and inside the
            feed-forward, unless one of them is given its own.
        position: How the model is told where tokens are (a subclass of Position).
        mixer: What moves information between tokens (a subclass of Mixer).
        feed_forward: What each token computes alone.
        norm: Kind of normalisation.
        norm_place: Before each sublayer ("pre") or after its residual sum ("post", as in Vaswani et al. 2017).
        initialization: How weights start.
    """

    d_model: int = 256
    num_heads: int = 4
    max_length: int = 512
    dropout: float = 0.1
    position: PositionFactory = Sinusoidal
    mixer: MixerFactory = FullAttention
    feed_forward: FeedForwardFactory = FeedForward
    norm: NormKind = "layer_norm"
    norm_place: NormPlace = "pre"
    initialization: InitializationName = "xavier"

    def shape(self, causal: bool) -> Shape:
        """The facts that the parts of one stack must agree on."""
        return Shape(self.d_model, self.num_heads, self.max_length, causal, self.dropout)


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderOptions(StackOptions):
    """An encoder, a decoder that looks at what the encoder read, and their embeddings.

    Args:
        encoder_layers: Number of encoder blocks.
        decoder_layers: Number of decoder blocks.
        cross: What brings information from encoder to decoder (a subclass of CrossMixer).
        cross_position: How positions act between decoder and encoder; none in most papers.
        tied: Which embeddings are one matrix: source, target and output ("all"; needs a joint vocabulary), target and
            output ("target"), or none of them ("none").
    """

    encoder_layers: int = 3
    decoder_layers: int = 3
    cross: CrossMixerFactory = CrossAttention
    cross_position: PositionFactory = NoPosition
    tied: Literal["all", "target", "none"] = "all"
