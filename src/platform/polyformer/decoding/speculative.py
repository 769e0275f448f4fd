"""Speculative decoding: a small model proposes, the large one checks several tokens in one step.

Letters: V vocabulary, K proposals of one round.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from polyformer.decoding.beam import Symbols
from polyformer.decoding.sampling import Chances, Sampling, pick, probabilities, repeated

__all__ = ["Acceptance", "Rewindable", "Speculation"]


class Rewindable(Protocol):
    """A decode of one row that can take tokens back."""

    @property
    def room(self) -> int:
        """How many tokens can be checked in one step."""
        ...

    def step(self, tokens: Tensor) -> Tensor:
        """(1, L) tokens that follow those of earlier steps -> (1, V) logits of the token after the last one."""
        ...

    def step_all(self, tokens: Tensor) -> Tensor:
        """As `step`, but (1, L, V), the logits after each of the tokens."""
        ...

    def rewind(self, count: int) -> None:
        """Takes the last ``count`` tokens back."""
        ...


@dataclass
class Acceptance:
    """How many of the proposals were taken, counted while a text is written."""

    proposed: int = 0
    accepted: int = 0

    @property
    def rate(self) -> float:
        """The share of proposals that were taken; 0 where there were none."""
        return self.accepted / self.proposed if self.proposed else 0.0


class _Side:
    """One of the two models, fed with the tokens it has not seen yet."""

    def __init__(self, stepper: Rewindable, sampling: Sampling, symbols: Symbols, device: torch.device) -> None:
        self.stepper, self.sampling, self.symbols, self.device = stepper, sampling, symbols, device
        self.read = 0

    def shares(self, text: list[int], wanted: int) -> Tensor:
        """(wanted, V), the distributions after each of the last ``wanted`` tokens of the text."""
        new = torch.tensor([text[self.read :]], device=self.device)
        fits = new.shape[1] <= self.stepper.room
        logits = self.stepper.step_all(new)[0] if fits else self.stepper.step(new)  # (L, V), or only (1, V)
        self.read = len(text)
        logits = logits[-wanted:].float()
        if self.sampling.repetition_penalty != 1.0:
            logits = torch.cat([self._penalized(logits[at], text, wanted - 1 - at) for at in range(len(logits))])
        logits[:, list(self.symbols.never)] = -torch.inf
        return probabilities(logits, self.sampling)

    def _penalized(self, logits: Tensor, text: list[int], later: int) -> Tensor:
        seen = torch.zeros(1, len(logits), dtype=torch.bool, device=self.device)
        seen[0, text[: len(text) - later]] = True
        seen[0, self.symbols.end] = False
        return repeated(logits.unsqueeze(0), seen, self.sampling.repetition_penalty)

    def room_after(self, text: list[int]) -> int:
        """How many tokens can be checked after the text; where it does not fit itself, all but its last token is read."""
        if len(text) - self.read > max(1, self.stepper.room):
            self.stepper.step(torch.tensor([text[self.read : -1]], device=self.device))
            self.read = len(text) - 1
        return self.stepper.room - (len(text) - self.read)

    def forget(self, length: int) -> None:
        """Goes back to the first ``length`` tokens of the text."""
        if self.read > length:
            self.stepper.rewind(self.read - length)
            self.read = length


class Speculation:
    """Writes with two models; what is written is distributed exactly as the target's own (Leviathan et al. 2023, algorithm 1).

    A proposal x of the draft's distribution q is taken with probability min(1, p(x) / q(x)); at the first that is not, a token
    is drawn from max(0, p - q), scaled up to 1; when all are taken, one more is drawn from p. With temperature 0 both
    distributions are a single token, so the text is that of greedy search.

    Args:
        start: Begins a decode of the target, whose distribution counts, and one of the draft, a faster model with the same
            vocabulary.
        sampling: The settings; `max_tokens` is kept, `stop` and `samples` are the caller's.
        symbols: The end, and what is never written.
        proposals: The most tokens proposed in one round.
        device: Where the models are.
    """

    def __init__(
        self,
        start: Callable[[], tuple[Rewindable, Rewindable]],
        sampling: Sampling,
        symbols: Symbols,
        proposals: int = 4,
        device: torch.device = torch.device("cpu"),  # noqa: B008 - immutable
    ) -> None:
        self.start, self.sampling, self.symbols = start, sampling, symbols
        self.proposals, self.device, self.counts = proposals, device, Acceptance()

    @torch.no_grad()
    def write(self, prompt: list[int], row: tuple[int, ...] = (0, 0)) -> Iterator[int]:
        """The tokens that follow a prompt of at least one token, the end included.

        Args:
            prompt: Token ids.
            row: Numbers that the chances follow from, as in :func:`~polyformer.decoding.generation.generate`.
        """
        text, chances = list(prompt), Chances(self.sampling.seed, [row])
        sides = [_Side(stepper, self.sampling, self.symbols, self.device) for stepper in self.start()]
        end = len(prompt) + self.sampling.max_tokens
        while len(text) < end:
            room = min(side.room_after(text) for side in sides)
            count = max(0, min(self.proposals, room, end - len(text) - 1))
            for token in self._round(sides, text, count, chances):
                text.append(token)
                yield token
                if token == self.symbols.end or len(text) == end:
                    return
            for side in sides:
                side.forget(len(text) - 1)

    def _round(self, sides: list[_Side], text: list[int], count: int, chances: Chances) -> list[int]:
        """The tokens of one round: the proposals that are taken, and one more."""
        target, draft = sides
        guessed, from_draft = list(text), []
        for _ in range(count):
            from_draft.append(draft.shares(guessed, 1)[0])  # (V,)
            guessed.append(int(pick(from_draft[-1].unsqueeze(0), chances.draw([0]))))
        from_target = target.shares(guessed, count + 1)  # (K + 1, V)
        self.counts.proposed += count
        for place, (token, q) in enumerate(zip(guessed[len(text) :], from_draft, strict=True)):
            p = from_target[place]
            if chances.draw([0])[0] * float(q[token]) >= float(p[token]):
                rest = (p - q).clamp(min=0.0)
                return [*guessed[len(text) : len(text) + place], int(pick(rest.unsqueeze(0), chances.draw([0])))]
            self.counts.accepted += 1
        return [*guessed[len(text) :], int(pick(from_target[-1:], chances.draw([0])))]
