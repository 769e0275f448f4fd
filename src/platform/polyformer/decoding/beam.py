"""Beam search; with a beam of one it is greedy search.

Letters: B sentences still open, W beam width, N = B W rows, C = 2 W candidates, V vocabulary, T tokens.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from polyformer.decoding.protocol import Stepper

__all__ = ["Hypothesis", "Search", "Symbols", "beam_search"]

BLOCK = 16


@dataclass(frozen=True)
class Symbols:
    """Token ids that mean something to a search: ``begin`` and ``end`` a text, ``never`` are not to be written."""

    begin: int
    end: int
    never: tuple[int, ...] = ()


@dataclass(frozen=True)
class Search:
    """How the best text is searched for.

    Args:
        beam: Number of hypotheses kept per sentence; 1 is greedy search.
        length_penalty: Alpha of Wu et al. 2016 (equation 14): log-probabilities are divided by ((5 + length) / 6)^alpha;
            0 compares plain log-probabilities, larger values prefer longer texts.
        n_best: Number of hypotheses returned per sentence, at most the beam.
        max_ratio: Longest text, in tokens per source token ...
        max_extra: ... plus this many tokens.

    Raises:
        ValueError: For widths and lengths that make no sense.
    """

    beam: int = 5
    length_penalty: float = 1.0
    n_best: int = 1
    max_ratio: float = 2.0
    max_extra: int = 20

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise ValueError(f"`beam` must be at least 1, but is {self.beam}")
        if not 1 <= self.n_best <= self.beam:
            raise ValueError(f"`n_best` must be from 1 to `beam` ({self.beam}), but is {self.n_best}")
        for name in ("max_ratio", "max_extra"):
            if getattr(self, name) < 0:
                raise ValueError(f"`{name}` must not be negative, but is {getattr(self, name)}")

    def penalty(self, length: int) -> float:
        """What the log-probability of ``length`` tokens, the end included, is divided by."""
        return float(((5 + length) / 6) ** self.length_penalty)

    def max_lengths(self, source_lengths: Tensor) -> Tensor:
        """(B,) source lengths in tokens -> (B,) longest texts, the end included."""
        return (source_lengths * self.max_ratio).long() + self.max_extra


@dataclass(frozen=True)
class Hypothesis:
    """A finished text.

    Args:
        tokens: Its token ids, without begin and end.
        log_probability: Of the tokens and the end, in nats.
        score: What hypotheses are compared by: the log-probability over the length penalty.
    """

    tokens: list[int]
    log_probability: float
    score: float


class _Beams:
    """The open hypotheses of all open sentences.

    Args:
        count: Number of sentences.
        search: The settings.
        symbols: Begin, end and forbidden tokens.
        device: Where the tensors live.
    """

    def __init__(self, count: int, search: Search, symbols: Symbols, device: torch.device) -> None:
        self.search, self.symbols = search, symbols
        self.sentences = torch.arange(count, device=device)  # (B,), which sentence each group of rows is
        self.tokens = torch.full((count, 1, 1), symbols.begin, device=device)  # (B, W, T), W = 1 until the first step
        self.scores = torch.zeros(count, 1, device=device)  # (B, W), log-probabilities
        self.finished: list[list[Hypothesis]] = [[] for _ in range(count)]

    def candidates(self, logits: Tensor, last: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The best continuations of every open sentence, (B, C) each: log-probability, row within the beam, token.

        ``last`` (B,) marks sentences that have reached their longest text and must end now.
        """
        each = logits.log_softmax(dim=-1)  # (N, V)
        ending = each[:, self.symbols.end].clone()
        each[:, list(self.symbols.never)] = -torch.inf
        rows = last.repeat_interleave(self.tokens.shape[1])  # (N,)
        if bool(rows.any()):
            each[rows] = -torch.inf
            each[rows, self.symbols.end] = ending[rows]
        best, tokens = _top(each, 2 * self.search.beam)  # (N, C'), sorted
        grouped = best.view(*self.scores.shape, -1) + self.scores.unsqueeze(-1)  # (B, W, C')
        width = grouped.shape[-1]
        scores, flat = _top(grouped.flatten(1), 2 * self.search.beam)  # (B, C)
        return scores, flat // width, tokens.view(len(tokens) // self.tokens.shape[1], -1).gather(1, flat)

    def finish(self, scores: Tensor, origins: Tensor, tokens: Tensor) -> Tensor:
        """Stores the hypotheses that end among the first W candidates; returns (B,) whether a sentence goes on."""
        length, beam = self.tokens.shape[-1], self.search.beam
        penalty, is_end = self.search.penalty(length), tokens == self.symbols.end
        ends = is_end[:, :beam] & scores[:, :beam].isfinite()
        for group, place in ends.nonzero().tolist():
            value = float(scores[group, place])
            history = self.tokens[group, int(origins[group, place]), 1:].tolist()
            done = self.finished[int(self.sentences[group])]
            done.append(Hypothesis(history, value, value / penalty))
            done.sort(key=lambda hypothesis: -hypothesis.score)
            del done[beam:]
        best_open = (scores.masked_fill(is_end, -torch.inf).amax(dim=1) / penalty).tolist()
        pairs = zip(self.sentences.tolist(), best_open, strict=True)
        goes_on = [best > self._bar(sentence) for sentence, best in pairs]
        return torch.tensor(goes_on, dtype=torch.bool, device=tokens.device)

    def _bar(self, sentence: int) -> float:
        """What an open hypothesis must score to be of any use: more than the worst of W that have ended."""
        done = self.finished[sentence]
        return done[-1].score if len(done) == self.search.beam else -torch.inf

    def advance(self, scores: Tensor, origins: Tensor, tokens: Tensor, goes_on: Tensor) -> Tensor:
        """Keeps the W best unended candidates of sentences that go on; returns (N,) the row each continues."""
        width, beam = self.tokens.shape[1], self.search.beam
        scores = scores.masked_fill(tokens == self.symbols.end, -torch.inf)[goes_on]
        origins, tokens = origins[goes_on], tokens[goes_on]
        order = scores.sort(dim=1, descending=True, stable=True).indices[:, :beam]  # (B, W)
        self.scores, origins, tokens = (part.gather(1, order) for part in (scores, origins, tokens))
        rows = origins + goes_on.nonzero() * width  # (B, W)
        history = self.tokens.flatten(0, 1)[rows]  # (B, W, T)
        self.tokens = torch.cat((history, tokens.unsqueeze(-1)), dim=-1)
        self.sentences = self.sentences[goes_on]
        return rows.flatten()


@torch.no_grad()
def beam_search(stepper: Stepper, max_lengths: Tensor, search: Search, symbols: Symbols) -> list[list[Hypothesis]]:
    """The best texts found for every sentence, best first.

    A sentence is done when as many hypotheses as the beam is wide have ended, and the best open one scores less, at its
    present length, than the worst of them. (To stop at the first W ends would let the bad guesses that a sure model has
    beside its good one fill the places before that one ends.) A hypothesis that reaches its longest text is made to end
    there, the probability of ending included. Sentences that are done leave the batch, so that neither their
    mates nor ``n_best`` change a result.

    Args:
        stepper: The decode, before its first step; it begins with one row per sentence.
        max_lengths: (B,) longest text of each sentence in tokens, the end included.
        search: The settings.
        symbols: Begin, end and forbidden tokens.

    Returns:
        For each sentence ``n_best`` hypotheses (fewer if fewer exist).
    """
    beams = _Beams(len(max_lengths), search, symbols, max_lengths.device)
    while len(beams.sentences):
        newest = beams.tokens[:, :, -1:].flatten(0, 1)  # (N, 1)
        last = max_lengths[beams.sentences] <= beams.tokens.shape[-1]
        candidates = beams.candidates(stepper.step(newest).float(), last)
        rows = beams.advance(*candidates, beams.finish(*candidates))
        if len(rows) and not (len(rows) == len(newest) and search.beam == 1):
            stepper.reorder(rows)
    return [done[: search.n_best] for done in beams.finished]


def _top(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest of each row (N, V) in falling order, at most ``count``: (values, indices).

    They lie in the ``count`` columns whose maxima are largest when a row is folded into BLOCK lines: sorting sees those
    columns alone, and the maxima are one pass at the speed of memory.
    """
    rows, width = values.shape
    columns = width // BLOCK
    if columns <= count:
        top = values.topk(min(count, width), dim=1)
        return top.values, top.indices
    maxima = values[:, : BLOCK * columns].view(rows, BLOCK, columns).amax(dim=1)  # (N, V / BLOCK)
    lines = torch.arange(BLOCK, device=values.device).unsqueeze(1) * columns  # (BLOCK, 1)
    places = (maxima.topk(count, dim=1).indices.unsqueeze(1) + lines).flatten(1)  # (N, BLOCK count)
    rest = torch.arange(BLOCK * columns, width, device=values.device).expand(rows, -1)
    places = torch.cat((places, rest), dim=1)
    top = values.gather(1, places).topk(count, dim=1)
    return top.values, places.gather(1, top.indices)
