"""The contract of mixers: modules that move information between the tokens of one sequence.

Letters: B batch, L queries, S keys, D model, C width of a memory.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from polyformer.nn.mask import Mask
from polyformer.nn.position import Position
from polyformer.nn.shape import Shape
from polyformer.nn.state import State

__all__ = ["Context", "CrossContext", "CrossMixer", "CrossMixerFactory", "Memory", "Mixer", "MixerFactory", "check_fit"]


@dataclass(frozen=True)
class Context:
    """Everything a mixer may know besides its input.

    Args:
        mask: Who may look at whom; ``keep`` speaks of all keys, those in the state included.
        position: The stack's way of telling positions.
        at: Indices of the input's tokens, (L,) or (B, L).
        k_at: Indices of all keys, those in the state first; the same object as ``at`` without a state.
    """

    mask: Mask
    position: Position
    at: Tensor
    k_at: Tensor


@dataclass(frozen=True)
class Memory:
    """What an encoder leaves for a decoder.

    Args:
        keys: (B, S, C) vectors that keys are made from, and values too unless ``values`` is given.
        at: Their indices, (S,) or (B, S).
        keep: (B, S) bool, True where there is a real token; None when all are.
        values: (B, S, another C) vectors that values are made from.
    """

    keys: Tensor
    at: Tensor
    keep: Tensor | None = None
    values: Tensor | None = None

    def take(self, rows: Tensor) -> "Memory":
        """The memories of the given rows, in that order."""
        at = self.at if self.at.dim() == 1 else self.at[rows]
        keep, values = (None if part is None else part[rows] for part in (self.keep, self.values))
        return Memory(self.keys[rows], at, keep, values)


@dataclass(frozen=True)
class CrossContext:
    """Everything a cross-mixer may know besides its input: the memory, the position kind, the queries' indices."""

    memory: Memory
    position: Position
    at: Tensor


class Mixer(nn.Module):
    """Moves information between the tokens of one sequence: (B, L, D) in, (B, L, D) out. It owns its projections."""

    doors: ClassVar[frozenset[str]] = frozenset()
    """The doors of a :class:`Position` it honours besides ``embed``: "rotate", "bias"."""

    directions: ClassVar[frozenset[str]] = frozenset({"both", "causal"})
    """The ways it can run: "both" in an encoder, "causal" in a decoder."""

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """Mixes (B, L, D); with a state, ``x`` continues what the state remembers, and is remembered."""
        raise NotImplementedError

    def start(self) -> State:
        """An empty state for decoding step by step."""
        raise NotImplementedError(f"{type(self).__name__} cannot decode step by step")


class CrossMixer(nn.Module):
    """Brings information from a memory to the tokens of a sequence: (B, L, D) in, (B, L, D) out."""

    doors: ClassVar[frozenset[str]] = frozenset()

    def forward(self, x: Tensor, context: CrossContext, state: State | None = None) -> Tensor:
        raise NotImplementedError

    def start(self) -> State:
        """An empty state, which keeps what is computed from the memory alone."""
        raise NotImplementedError(f"{type(self).__name__} cannot decode step by step")


MixerFactory = Callable[[Shape], Mixer]
CrossMixerFactory = Callable[[Shape], CrossMixer]


def check_fit(mixer: type[Mixer] | type[CrossMixer], position: type[Position], causal: bool = False) -> None:
    """Refuses a mixer that cannot honour a position or a direction, naming what would work.

    Raises:
        ValueError: With the names of both and the alternatives.
    """
    missing = position.doors() - {"embed"} - mixer.doors
    if missing:
        fits = sorted(kind.__name__ for kind in Position.__subclasses__() if kind.doors() <= mixer.doors | {"embed"})
        raise ValueError(
            f"`{position.__name__}` needs a mixer with {' and '.join(sorted(missing))}, which `{mixer.__name__}` lacks; "
            f"with it, use {' or '.join(fits)}"
        )
    direction = "causal" if causal else "both"
    if issubclass(mixer, Mixer) and direction not in mixer.directions:
        fits = sorted(kind.__name__ for kind in Mixer.__subclasses__() if direction in kind.directions)
        raise ValueError(f"`{mixer.__name__}` cannot run {direction}; use {' or '.join(fits)}")
