"""Encoder and decoder blocks: sublayers in order, each in a residual wrapper.

Letters: B batch, L tokens, D model.
"""

from collections.abc import Callable

from torch import Tensor, nn

from polyformer.nn.feed_forward import NoFeedForward
from polyformer.nn.mixer import Context, CrossContext, CrossMixer, Mixer
from polyformer.nn.residual import Residual
from polyformer.nn.state import State

__all__ = ["BlockState", "DecoderBlock", "EncoderBlock"]

Wrap = Callable[[nn.Module], Residual]


class EncoderBlock(nn.Module):
    """A mixer and a feed-forward. With a causal mask, a stack of these is a language model.

    Args:
        mixer: Moves information between tokens.
        feed_forward: What each token computes alone.
        wrap: Puts a sublayer into its residual wrapper.
    """

    def __init__(self, mixer: Mixer, feed_forward: nn.Module, wrap: Wrap) -> None:
        super().__init__()
        self.mixer, self.feed_forward = wrap(mixer), wrap_unless_empty(feed_forward, wrap)

    def forward(
        self, x: Tensor, context: Context, places: Tensor | None = None, state: State | None = None
    ) -> Tensor:  # (B, L, D), or (B, R, D) where only the vectors at (B, R) places are wanted
        mixed = self.mixer(x, context, state) if places is None else self.mixer.read(x, context, places)
        out: Tensor = self.feed_forward(mixed)
        return out

    def start(self) -> State:
        """An empty state for decoding step by step."""
        mixer = self.mixer.inner
        assert isinstance(mixer, Mixer)
        return mixer.start()


def wrap_unless_empty(feed_forward: nn.Module, wrap: Wrap) -> nn.Module:
    """A feed-forward in its residual wrapper; :class:`NoFeedForward` as it is, since its shortcut would double the input."""
    return feed_forward if isinstance(feed_forward, NoFeedForward) else wrap(feed_forward)


class BlockState(State):
    """The states of a decoder block's two mixers."""

    def __init__(self, mixer: State, cross: State) -> None:
        self.mixer, self.cross = mixer, cross

    def reorder(self, rows: Tensor) -> None:
        self.mixer.reorder(rows)
        self.cross.reorder(rows)


class DecoderBlock(nn.Module):
    """A mixer, a cross-mixer over a memory, and a feed-forward.

    Args:
        mixer: Moves information between the tokens decoded so far.
        cross: Brings information from the memory.
        feed_forward: What each token computes alone.
        wrap: Puts a sublayer into its residual wrapper.
    """

    def __init__(self, mixer: Mixer, cross: CrossMixer, feed_forward: nn.Module, wrap: Wrap) -> None:
        super().__init__()
        self.mixer, self.cross, self.feed_forward = wrap(mixer), wrap(cross), wrap_unless_empty(feed_forward, wrap)

    def forward(
        self, x: Tensor, context: Context, cross_context: CrossContext, state: BlockState | None = None
    ) -> Tensor:  # (B, L, D)
        x = self.mixer(x, context, state.mixer if state else None)
        x = self.cross(x, cross_context, state.cross if state else None)
        out: Tensor = self.feed_forward(x)
        return out

    def start(self) -> BlockState:
        """An empty state for decoding step by step."""
        mixer, cross = self.mixer.inner, self.cross.inner
        assert isinstance(mixer, Mixer) and isinstance(cross, CrossMixer)
        return BlockState(mixer.start(), cross.start())
