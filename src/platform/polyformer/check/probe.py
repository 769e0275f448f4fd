"""What the laws may do with a network: a text goes in, an output for each of its tokens comes out.

Letters: B texts, L tokens, V vocabulary, N places that are predicted.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from polyformer.check.law import NotApplicable
from polyformer.decoding import Stepper, Symbols
from polyformer.models import Decoder, Encoder
from polyformer.nn import Mixer
from polyformer.text import EOS, PAD

__all__ = ["Composed", "Probe", "Rows", "Text", "first_hidden", "predicted", "side_by_side", "without_padding"]

Stack = Encoder | Decoder


@dataclass(frozen=True)
class Text:
    """What a network is given.

    Args:
        tokens: The tokens that outputs are about: what a decoder or an encoder alone reads.
        source: What the encoder beside a decoder reads.
    """

    tokens: tuple[int, ...]
    source: tuple[int, ...] = ()

    def cut(self, length: int) -> "Text":
        """The first tokens of both."""
        return Text(self.tokens[:length], self.source[:length])


@dataclass(frozen=True)
class Composed:
    """What a search has written.

    Args:
        tokens: The tokens, an end included where there is one.
        log_probability: Of all of them.
        chosen: How many of them the search was free to choose.
    """

    tokens: tuple[int, ...]
    log_probability: float
    chosen: int


class Rows(NamedTuple):
    """Texts side by side: (B, L) ids, which are real (None: all), and their indices (L,) or (B, L)."""

    tokens: Tensor
    keep: Tensor | None
    at: Tensor

    def each(self, outputs: Tensor) -> list[Tensor]:
        """(B, L, ...) -> for each text (its own length, ...)."""
        keep = torch.ones_like(self.tokens, dtype=torch.bool) if self.keep is None else self.keep
        return [output[real] for output, real in zip(outputs, keep, strict=True)]


class Probe(ABC):
    """A network, reached in the same way whatever kind it is of; what a kind cannot do is said by :class:`NotApplicable`.

    Args:
        network: The network, in evaluation mode.
    """

    kind: ClassVar[str]
    """What people call it."""
    widths: ClassVar[tuple[int, ...]] = ()
    """Widths of the beams that it writes with."""
    symbols: ClassVar[Symbols]
    """Begin, end, and what is never written."""

    def __init__(self, network: Any) -> None:
        self.network = network
        self.device = next(network.parameters()).device

    @property
    @abstractmethod
    def stacks(self) -> Sequence[Stack]:
        """What reads texts."""

    @property
    def room(self) -> int | None:
        """The longest text in tokens that all stacks see whole; None where there is no limit."""
        return min((stack.limit for stack in self.stacks if stack.limit is not None), default=None)

    @property
    def mixers(self) -> list[Mixer]:
        """What moves information between the tokens of one text."""
        return [module for stack in self.stacks for module in stack.modules() if isinstance(module, Mixer)]

    @property
    @abstractmethod
    def size(self) -> int:
        """How many ids may stand in a text."""

    @abstractmethod
    def read(self, batch: Any) -> list[Text]:
        """The texts of a batch. Raises AttributeError for a batch of a kind of its own."""

    @abstractmethod
    def text(self, ids: Sequence[int]) -> Text:
        """A text made up of ids."""

    @abstractmethod
    def outputs(self, texts: Sequence[Text], right: int = 0, left: int = 0) -> list[Tensor]:
        """Reads texts side by side, with more padding on a side than is needed: (L, V) for each, or vectors."""

    @abstractmethod
    def seeing_nothing(self, texts: Sequence[Text]) -> Tensor:
        """The outputs of two texts side by side of which the first one is padding alone."""

    @abstractmethod
    def ways_to_be_too_long(self) -> dict[str, Callable[[], object]]:
        """What reads one token more than a stack has room for, by name; nothing where there is no limit."""

    def _ends(self, length: int) -> Tensor:
        """(1, L) a text of nothing but ends."""
        return torch.full((1, length), EOS, device=self.device)

    @property
    def embedding(self) -> nn.Module:
        """What embeds the tokens that outputs are about, in a network in which none sees a later one."""
        raise NotApplicable(f"{self.kind}: every token sees all others")

    def packed(self, texts: Sequence[Text]) -> list[Tensor]:
        """As :meth:`outputs`, but the texts are documents of one row."""
        raise NotApplicable(f"{self.kind}: texts are not packed")

    def start(self, texts: Sequence[Text]) -> Stepper:
        """Begins a decode of texts of the same length."""
        raise NotApplicable(f"{self.kind}: nothing is written")

    def prompt(self, text: Text) -> Text:
        """What stands before what is written."""
        raise NotApplicable(f"{self.kind}: nothing is written")

    def write(self, texts: Sequence[Text], longest: int, width: int, n_best: int = 1) -> list[list[Composed]]:
        """The best that a beam of a width finds to follow each prompt, at most so many tokens."""
        raise NotApplicable(f"{self.kind}: nothing is written")

    def log_probabilities(self, batch: Any) -> tuple[Tensor, Tensor]:
        """(N, V) of what follows at each place of a training batch, by a plain log-softmax; and (N,) what does follow."""
        raise NotApplicable(f"{self.kind}: the loss is the head's own")


def without_padding(ids: Sequence[int]) -> tuple[int, ...]:
    """Ids without the padding at their end.

    >>> without_padding([5, 0, 6, 0, 0])
    (5, 0, 6)
    """
    length = len(ids)
    while length and ids[length - 1] == PAD:
        length -= 1
    return tuple(ids[:length])


def side_by_side(texts: Sequence[Sequence[int]], device: torch.device, right: int = 0, left: int = 0) -> Rows:
    """Texts as one tensor, the shorter ones padded, and all of them by so many places more on a side.

    >>> side_by_side([[5, 6], [7]], torch.device("cpu"), left=1).tokens.tolist()
    [[0, 5, 6], [0, 0, 7]]
    """
    longest = max(map(len, texts))
    tokens = torch.full((len(texts), left + longest + right), PAD, device=device)
    keep = torch.zeros_like(tokens, dtype=torch.bool)
    for row, ids in enumerate(texts):
        begin = left + longest - len(ids) if left else 0
        tokens[row, begin : begin + len(ids)] = torch.tensor(ids, device=device)
        keep[row, begin : begin + len(ids)] = True
    at = (keep.cumsum(dim=1) - 1).clamp(min=0) if left else torch.arange(tokens.shape[1], device=device)
    return Rows(tokens, None if bool(keep.all()) else keep, at)


def first_hidden(rows: Rows) -> Tensor:
    """(B, L) which tokens are real, none of the first row being so."""
    keep = torch.ones_like(rows.tokens, dtype=torch.bool) if rows.keep is None else rows.keep.clone()
    keep[0] = False
    return keep


def predicted(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """(B, L, V) logits and (B, L) targets -> the log-softmax and the targets at places that are not padding."""
    real = target != PAD
    return logits[real].double().log_softmax(dim=-1), target[real]
