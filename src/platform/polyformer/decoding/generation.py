"""Continuing texts with a language model, token by token.

Letters: N rows, P tokens of the longest prompt, V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from polyformer.decoding.beam import Symbols
from polyformer.decoding.protocol import Stepper
from polyformer.decoding.sampling import Chances, Sampling, choose, repeated

__all__ = ["Written", "generate", "pad_left"]

IsDone = Callable[[int, list[int]], bool]


@dataclass(frozen=True)
class Written:
    """One token as it comes.

    Args:
        row: The row it belongs to.
        token: Its id; the last one may be the end.
        log_probability: Of the token, in nats, in the model's own distribution, before it was cut and reshaped; None where
            that was not computed.
        is_last: Whether the row ends here.
    """

    row: int
    token: int
    log_probability: float | None
    is_last: bool


class _Seen:
    """Which tokens each row holds, for the repetition penalty; nothing where there is none. The end never counts."""

    def __init__(self, prompts: Tensor, size: int, penalty: float, end: int) -> None:
        self.penalty, self.end = penalty, end
        self.table: Tensor | None = None  # (N, V) bool
        if penalty != 1.0:
            self.table = torch.zeros(len(prompts), size, dtype=torch.bool, device=prompts.device)
            self.add(prompts)

    def add(self, tokens: Tensor) -> None:
        if self.table is not None:
            self.table.scatter_(1, tokens, True)
            self.table[:, self.end] = False

    def penalized(self, logits: Tensor) -> Tensor:
        return logits if self.table is None else repeated(logits, self.table, self.penalty)

    def keep(self, rows: Tensor) -> None:
        self.table = None if self.table is None else self.table[rows]


@torch.no_grad()
def generate(
    stepper: Stepper, prompts: Tensor, sampling: Sampling, symbols: Symbols, rows: Sequence[tuple[int, ...]], is_done: IsDone
) -> Iterator[Written]:
    """Writes after prompts; rows that have ended leave the batch.

    Args:
        stepper: The decode, before its first step; it knows how the prompts are padded.
        prompts: (N, P) token ids, padded on the left; padding counts as seen by the repetition penalty, which does not
            matter, since it is never written.
        sampling: The settings.
        symbols: The end, and what is never written.
        rows: For each row the numbers that its chances follow from, such as (prompt, sample).
        is_done: Asked with the row's number and its tokens so far after each of them: whether a stop text is complete.
    """
    chances, open_rows = Chances(sampling.seed, rows), list(range(len(prompts)))
    texts: list[list[int]] = [[] for _ in open_rows]
    new, seen = prompts, None
    while open_rows:
        logits = stepper.step(new).float()  # (N, V)
        seen = _Seen(prompts, logits.shape[1], sampling.repetition_penalty, symbols.end) if seen is None else seen
        penalized = seen.penalized(logits)
        tokens = choose(_without(penalized, symbols.never), sampling, partial(chances.draw, open_rows))  # (N,)
        each = logits.log_softmax(dim=-1).gather(1, tokens.unsqueeze(1)).squeeze(1).tolist()
        going: list[int] = []
        for place, (row, token) in enumerate(zip(open_rows, tokens.tolist(), strict=True)):
            if token != symbols.end:
                texts[row].append(token)
            is_last = token == symbols.end or len(texts[row]) == sampling.max_tokens or is_done(row, texts[row])
            yield Written(row, token, each[place], is_last)
            going += [] if is_last else [place]
        new = tokens.unsqueeze(1)
        seen.add(new)
        if len(going) < len(open_rows):
            kept = torch.tensor(going, dtype=torch.long, device=tokens.device)
            open_rows, new = [open_rows[place] for place in going], new[kept]
            seen.keep(kept)
            if going:
                stepper.reorder(kept)


def _without(logits: Tensor, never: tuple[int, ...]) -> Tensor:
    return logits.index_fill(1, torch.tensor(never, device=logits.device), -torch.inf) if never else logits


def pad_left(prompts: Sequence[Sequence[int]], padding: int) -> tuple[Tensor, list[int]]:
    """Prompts as one tensor (N, P), and how many places at the left of each row are padding.

    >>> pad_left([[5, 6], [7]], padding=0)
    (tensor([[5, 6],
            [0, 7]]), [0, 1])
    """
    longest = max(map(len, prompts))
    missing = [longest - len(prompt) for prompt in prompts]
    return torch.tensor([[padding] * gap + list(prompt) for gap, prompt in zip(missing, prompts, strict=True)]), missing
