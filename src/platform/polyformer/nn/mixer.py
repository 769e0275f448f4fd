"""The contract of mixers: modules that move information between the tokens of one sequence.

Letters: B batch, L queries, S keys, D model, C width of a memory, R places that are wanted.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from torch import Tensor, nn

from polyformer.nn.mask import Mask
from polyformer.nn.position import Position
from polyformer.nn.shape import Limited, Shape
from polyformer.nn.state import State

__all__ = [
    "Context",
    "CrossContext",
    "CrossMixer",
    "CrossMixerFactory",
    "Memory",
    "Mixer",
    "MixerFactory",
    "check_fit",
    "check_takes_back",
    "public_subclasses",
    "take",
]

T = TypeVar("T")


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


class Mixer(Limited, nn.Module):
    """Moves information between the tokens of one sequence: (B, L, D) in, (B, L, D) out. It owns its projections."""

    without_limit = "SlidingWindow"

    doors: ClassVar[frozenset[str]] = frozenset()
    """The doors of a :class:`Position` it honours besides ``embed``: "rotate", "bias"."""

    directions: ClassVar[frozenset[str]] = frozenset({"both", "causal"})
    """The ways it can run: "both" in an encoder, "causal" in a decoder."""

    takes_back: ClassVar[int | None] = 0
    """The most tokens that its state can take back, as speculative decoding does; None: all of them."""

    @property
    def long(self) -> int:
        """Tokens of a text that is read in every way in which this mixer reads long ones, in pieces too; 0: all are alike."""
        return 0

    def narrowed(self, mask: Mask) -> Mask:
        """The mask, without what this mixer hides besides; of those that do not look at tokens one by one, the mask itself."""
        return mask

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """Mixes (B, L, D); with a state, ``x`` continues what the state remembers, and is remembered."""
        raise NotImplementedError

    def read(self, x: Tensor, context: Context, places: Tensor) -> Tensor:
        """What ``forward`` gives at (B, R) places alone, (B, R, D), for less where a mixer knows how."""
        return take(self(x, context), places)

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
    role: type[Mixer] | type[CrossMixer] = Mixer if issubclass(mixer, Mixer) else CrossMixer
    direction = "causal" if causal else "both"
    able = [kind for kind in public_subclasses(role) if _honours(kind, position) and _runs(kind, direction)]
    if not _honours(mixer, position):
        missing = " and ".join(sorted(position.doors() - {"embed"} - mixer.doors))
        fits = [kind for kind in public_subclasses(Position) if _honours(mixer, kind)]
        raise ValueError(
            f"`{position.__name__}` needs a mixer with {missing}, which `{mixer.__name__}` lacks; "
            f"with it, use {_either(fits)}; or take {_either(able)} instead of it"
        )
    if not _runs(mixer, direction):
        raise ValueError(f"`{mixer.__name__}` cannot run {direction}; use {_either(able)}")


def check_takes_back(mixers: Iterable[Mixer], count: int) -> None:
    """Refuses mixers whose states cannot take so many tokens back, naming what would work.

    Raises:
        ValueError: With the name of one and the most that it takes back, or the alternatives.
    """
    able = [kind for kind in public_subclasses(Mixer) if kind.takes_back != 0 and _runs(kind, "causal")]
    for mixer in mixers:
        name, most = type(mixer).__name__, mixer.takes_back
        if most == 0:
            raise ValueError(f"`{name}` cannot take tokens back; {_either(able)} can")
        if most is not None and count > most:
            raise ValueError(f"`{name}` can take back {most} tokens at most")


def take(x: Tensor, places: Tensor) -> Tensor:
    """Some vectors of each row: (B, ..., L, D) at (B, R) places -> (B, ..., R, D)."""
    where = places.view(len(places), *[1] * (x.dim() - 3), -1, 1)
    return x.take_along_dim(where, dim=-2)


def public_subclasses(kind: type[T]) -> list[type[T]]:
    """Every class below one, however far, that has been imported and is not private, by name."""
    found: set[type[T]] = set()
    for child in kind.__subclasses__():
        found.update([child, *public_subclasses(child)])
    return sorted((child for child in found if not child.__name__.startswith("_")), key=lambda child: child.__name__)


def _honours(mixer: type[Mixer] | type[CrossMixer], position: type[Position]) -> bool:
    return position.doors() <= mixer.doors | {"embed"}


def _runs(mixer: type[Mixer] | type[CrossMixer], direction: str) -> bool:
    return not issubclass(mixer, Mixer) or direction in mixer.directions


def _either(kinds: list[type[Any]]) -> str:
    return " or ".join(dict.fromkeys(kind.__name__ for kind in kinds))
