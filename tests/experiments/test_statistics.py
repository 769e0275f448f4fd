"""Tests of significance against sacreBLEU, scipy and what can be counted by hand."""

import math
import random

import numpy as np
import pytest
import sacrebleu
from sacrebleu.significance import PairedTest

from polyformer.experiments.statistics import mcnemar, paired_bootstrap, sign_test, translation_bootstrap

WORDS = ["the", "a", "dog", "cat", "sees", "runs", "over", "small", "green", "house", "and", "then", "it", "he", "she", "with"]


def corrupted(sentences: list[str], share: float, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choice(WORDS) if chance.random() < share else word for word in text.split()) for text in sentences]


def test_translation_bootstrap_is_that_of_sacrebleu() -> None:
    """Their own command on the same texts: the same scores, intervals and p-values, to the bit."""
    chance = random.Random(0)
    references = [" ".join(chance.choices(WORDS, k=12)) for _ in range(80)]
    first, second = corrupted(references, 0.30, 1), corrupted(references, 0.27, 2)
    ours = translation_bootstrap(first, second, references, {"BLEU": sacrebleu.BLEU(), "chrF": sacrebleu.CHRF()})
    theirs = PairedTest(
        [("one", first), ("two", second)],
        {"BLEU": sacrebleu.BLEU(), "chrF": sacrebleu.CHRF()},
        [references],
        test_type="bs",
        n_samples=1000,
    )()[1]
    for name, one in ours.items():
        baseline, system = theirs["chrF2" if name == "chrF" else name]
        assert (one.first, one.second) == (baseline.score, system.score)
        assert (one.margin, one.p) == (system.ci, system.p_value)
    assert ours["BLEU"].first == sacrebleu.corpus_bleu(first, [references]).score
    assert ours["BLEU"].p > 0.001


def test_equal_translations_do_not_differ() -> None:
    texts = ["a dog runs over the green house"] * 20
    assert translation_bootstrap(texts, texts, texts, {"BLEU": sacrebleu.BLEU()})["BLEU"].p == 1.0


@pytest.mark.parametrize(("lower", "higher"), [(0, 0), (0, 1), (3, 12), (7, 7), (40, 60), (400, 500), (499, 501)])
def test_mcnemar_and_sign_test_are_the_binomial_test_of_scipy(lower: int, higher: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    expected = stats.binomtest(lower, lower + higher).pvalue if lower + higher else 1.0
    assert sign_test(lower, higher) == pytest.approx(expected, rel=1e-9)
    assert mcnemar(lower, higher) == sign_test(lower, higher)


@pytest.mark.parametrize(("lower", "higher"), [(500, 520), (900, 1100), (1500, 1400)])
def test_mcnemar_of_many_is_chi_square_of_scipy(lower: int, higher: int) -> None:
    """With Edwards' correction, as statsmodels has it; and close to the exact test."""
    stats = pytest.importorskip("scipy.stats")
    statistic = (abs(lower - higher) - 1) ** 2 / (lower + higher)
    assert mcnemar(lower, higher) == pytest.approx(stats.chi2.sf(statistic, 1), rel=1e-9)
    assert mcnemar(lower, higher) == pytest.approx(sign_test(lower, higher), abs=0.01)


def test_paired_bootstrap_agrees_with_the_t_test_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(3)
    for shift in (0.0, 0.08, 0.3):
        first = generator.normal(size=400)
        second = first + generator.normal(shift, 1.0, size=400)
        found = paired_bootstrap(first.tolist(), second.tolist())
        exact = stats.ttest_rel(second, first)
        interval = exact.confidence_interval(0.95)
        assert found.difference == pytest.approx(float(second.mean() - first.mean()))
        assert found.p == pytest.approx(exact.pvalue, abs=0.04)
        assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=0.02)


def test_weights_make_it_the_difference_of_whole_corpora() -> None:
    """Losses of documents over their bytes: as if both corpora had been measured as one text."""
    first, second, sizes = [2.0, 30.0, 4.0], [3.0, 20.0, 5.0], [1.0, 20.0, 3.0]
    found = paired_bootstrap(first, second, sizes)
    assert found.difference == pytest.approx(sum(second) / sum(sizes) - sum(first) / sum(sizes))
    assert not math.isnan(found.p) and found.low <= found.difference <= found.high
