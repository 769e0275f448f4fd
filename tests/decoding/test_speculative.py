"""Speculative decoding: the same text as greedy search, the same distribution as sampling."""

from collections import Counter
from itertools import product

import pytest
import torch

from polyformer.decoding import Sampling, Speculation, Symbols, generate, probabilities
from polyformer.models import DecoderOnly, DecoderOnlyOptions
from polyformer.nn import Relative, Rotary

from ..equivalence.cases import shake

SYMBOLS = Symbols(begin=3, end=3, never=(0, 1, 2))


def models(size: int = 9, spread: float = 1.0, **options: object) -> tuple[DecoderOnly, DecoderOnly]:
    """A target and a draft that are not alike."""
    made = []
    for seed, width in ((1, 16), (2, 8)):
        torch.manual_seed(seed)
        model = DecoderOnly(
            size, DecoderOnlyOptions(d_model=width, num_heads=2, num_layers=2, max_length=16, dropout=0.0, **options)
        ).eval()  # type: ignore[arg-type]
        shake(model)
        model.embedding.table.data.mul_(spread)
        made.append(model)
    return made[0], made[1]


@pytest.mark.parametrize("position", [Relative, Rotary], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("proposals", [1, 3, 7])
@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_greedy_speculative_is_greedy(position: object, proposals: int, penalty: float) -> None:
    """Also beyond the context, where texts slide."""
    target, draft = models(position=position)
    sampling = Sampling(temperature=0.0, max_tokens=45, repetition_penalty=penalty)
    for prompt in ([3], [3, 5, 7], [3, *[4, 5, 6, 7, 8] * 5]):
        prompts = torch.tensor([prompt])
        plain = [written.token for written in generate(target.start(), prompts, sampling, SYMBOLS, [(0, 0)], lambda *_: False)]
        speculation = Speculation(lambda: (target.start(), draft.start()), sampling, SYMBOLS, proposals)
        assert list(speculation.write(prompt)) == plain
        assert speculation.counts.proposed


def test_a_draft_that_is_the_target_is_always_accepted() -> None:
    target, _ = models()
    speculation = Speculation(lambda: (target.start(), target.start()), Sampling(max_tokens=12, seed=5), SYMBOLS, 3)
    text = list(speculation.write([3]))
    assert speculation.counts.accepted == speculation.counts.proposed > 0
    assert speculation.counts.rate == 1.0
    assert 1 <= len(text) <= 12


DRAWS = 800


@pytest.mark.parametrize("sampling", [Sampling(max_tokens=2), Sampling(max_tokens=2, temperature=1.5, top_k=4)], ids=str)
def test_the_distribution_is_the_targets(sampling: Sampling) -> None:
    """Pairs of tokens drawn many times against the exact distribution: chi-square below its 99.99th percentile."""
    target, draft = models(spread=0.3)
    counts: Counter[tuple[int, ...]] = Counter()
    speculation = Speculation(lambda: (target.start(), draft.start()), sampling, SYMBOLS, 2)
    for number in range(DRAWS):
        counts[tuple(speculation.write([3], (number, 0)))] += 1

    @torch.no_grad()
    def after(text: list[int]) -> torch.Tensor:
        logits = target.start().step(torch.tensor([text]))
        logits[:, list(SYMBOLS.never)] = -torch.inf
        return probabilities(logits, sampling)[0]

    first = after([3])
    expected = {(3,): float(first[3])}
    for one, two in product(range(4, 9), range(3, 9)):
        expected[one, two] = float(first[one] * after([3, one])[two])
    assert sum(expected.values()) == pytest.approx(1.0)
    likely = {text: share * DRAWS for text, share in expected.items() if share * DRAWS >= 5}
    rest = DRAWS - sum(counts[text] for text in likely)
    wanted = DRAWS - sum(likely.values())
    statistic = sum((counts[text] - share) ** 2 / share for text, share in likely.items())
    statistic += (rest - wanted) ** 2 / max(wanted, 5.0)
    degrees = len(likely)
    limit = degrees * (1 - 2 / (9 * degrees) + 3.72 * (2 / (9 * degrees)) ** 0.5) ** 3  # Wilson and Hilferty 1931
    assert statistic < limit, (statistic, limit)
