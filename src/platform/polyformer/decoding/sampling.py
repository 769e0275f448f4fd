"""Choosing the next token: greedy, or drawn from the distribution after it has been cut and reshaped.

Letters: N rows, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

__all__ = ["Chances", "Sampling", "choose", "pick", "probabilities", "repeated"]


@dataclass(frozen=True)
class Sampling:
    """How texts are continued.

    Args:
        temperature: Logits are divided by it; 0 is greedy: always the likeliest token.
        top_k: Only the k likeliest tokens may be drawn (Fan et al. 2018); None: all.
        top_p: Only the likeliest tokens that make up this share of the probability (Holtzman et al. 2020).
        min_p: Only tokens at least this share as likely as the likeliest one (Nguyen et al. 2024).
        repetition_penalty: Logits of tokens that the text holds already, the end excepted, are divided by it, or multiplied
            where they are negative (Keskar et al. 2019, section 4.1); 1 changes nothing.
        max_tokens: The most tokens that are written.
        stop: Texts that end the writing; they are not part of it.
        samples: Number of texts for each prompt.
        seed: Decides what is drawn, together with the prompt's number and the sample's.

    Raises:
        ValueError: For values that make no sense.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    max_tokens: int = 100
    stop: tuple[str, ...] = ()
    samples: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        rules = {
            "temperature": (self.temperature >= 0.0, "at least 0"),
            "top_k": (self.top_k is None or self.top_k >= 1, "at least 1"),
            "top_p": (0.0 < self.top_p <= 1.0, "above 0 and at most 1"),
            "min_p": (0.0 <= self.min_p < 1.0, "at least 0 and below 1"),
            "repetition_penalty": (self.repetition_penalty > 0.0, "above 0"),
            "max_tokens": (self.max_tokens >= 1, "at least 1"),
            "stop": (all(self.stop), "texts that are not empty"),
            "samples": (self.samples >= 1, "at least 1"),
            "seed": (self.seed >= 0, "at least 0"),
        }
        for name, (holds, rule) in rules.items():
            if not holds:
                raise ValueError(f"`sampling.{name}` must be {rule}, but is {getattr(self, name)}")


class Chances:
    """A stream of uniform numbers for each row, which follows from the seed and the row's own numbers alone.

    So what is drawn for a prompt does not depend on the batch that it stands in.

    Args:
        seed: Of the whole.
        rows: For each row the numbers that tell it apart, such as (prompt, sample).

    >>> both, one = Chances(0, [(0, 0), (1, 0)]), Chances(0, [(1, 0)])
    >>> both.draw([0, 1])[1] == one.draw([0])[0]
    True
    """

    def __init__(self, seed: int, rows: Sequence[tuple[int, ...]]) -> None:
        self.streams = [np.random.Generator(np.random.PCG64([seed, *row])) for row in rows]

    def draw(self, rows: Sequence[int]) -> list[float]:
        """The next number in [0, 1) for each of the given rows."""
        return [float(self.streams[row].random()) for row in rows]


def repeated(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """(N, V) logits with the repetition penalty on the tokens that are ``seen``, (N, V) bool."""
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """The distribution that tokens are drawn from.

    Temperature comes first; then each of top-k, top-p and min-p removes tokens by that distribution, the likeliest one
    always stays, and what is left is scaled up to 1.

    Args:
        logits: (N, V), penalties included.
        sampling: The settings.

    Returns:
        (N, V) float64 where there is such a type; with temperature 0 all of it is on the likeliest token, the first of equals.

    >>> logits = torch.tensor([[0.5, 0.3, 0.2]]).log()
    >>> probabilities(logits, Sampling(top_k=2)).round(decimals=3)
    tensor([[0.6250, 0.3750, 0.0000]], dtype=torch.float64)
    """
    wide = torch.float32 if logits.device.type == "mps" else torch.float64
    if sampling.temperature == 0.0:
        best = logits.argmax(dim=-1, keepdim=True)  # (N, 1)
        return torch.zeros(logits.shape, dtype=wide, device=logits.device).scatter_(-1, best, 1.0)
    shares = (logits.to(wide) / sampling.temperature).softmax(dim=-1)  # (N, V)
    if sampling.top_k is None and sampling.top_p == 1.0 and sampling.min_p == 0.0:
        return shares
    count = shares.shape[-1] if sampling.top_k is None else min(sampling.top_k, shares.shape[-1])
    ordered, places = shares.topk(count, dim=-1)
    kept = ordered >= sampling.min_p * ordered[..., :1]
    kept &= ordered.cumsum(dim=-1) - ordered < sampling.top_p  # what is likelier does not make up the share yet
    kept[..., 0] = True
    cut = torch.zeros_like(shares).scatter_(-1, places, ordered * kept)
    return cut / cut.sum(dim=-1, keepdim=True)


def pick(shares: Tensor, chances: Sequence[float]) -> Tensor:
    """(N, V) distributions and a number in [0, 1) for each -> (N,) the tokens drawn: the inverse of the cumulated shares."""
    cumulated = shares.cumsum(dim=-1)
    level = torch.tensor(chances, dtype=shares.dtype, device=shares.device).unsqueeze(-1) * cumulated[..., -1:]
    return (cumulated <= level).sum(dim=-1).clamp(max=shares.shape[-1] - 1)


def choose(logits: Tensor, sampling: Sampling, chances: Callable[[], Sequence[float]]) -> Tensor:
    """(N, V) logits, penalties included -> (N,) tokens; chances are asked for only where something is drawn."""
    if sampling.temperature == 0.0:
        return logits.argmax(dim=-1)
    return pick(probabilities(logits, sampling), chances())
