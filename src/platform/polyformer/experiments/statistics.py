"""Tests of significance on paired examples.

Letters: N examples, R resamples.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

__all__ = ["Bootstrap", "Interval", "mcnemar", "paired_bootstrap", "sign_test", "translation_bootstrap"]

EXACT = 1000  # examples that differ, up to which the exact distribution is summed
RESAMPLES = 1000
LARGEST_DRAW = 2**24  # indices held at a time


@dataclass(frozen=True)
class Interval:
    """A difference of two means.

    Args:
        difference: The second's mean less the first's.
        low: Of the 95 % interval.
        high: Likewise.
        p: Of a difference as large in either direction, if there were none.
    """

    difference: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class Bootstrap:
    """One metric of two systems, as sacreBLEU's paired bootstrap reports it.

    Args:
        first: The first system's score.
        second: The second's.
        margin: Half the 95 % interval of the second's score.
        p: sacreBLEU's p-value of the difference.
    """

    first: float
    second: float
    margin: float
    p: float


def mcnemar(first_only: int, second_only: int) -> float:
    """The p-value of McNemar's test (1947): exact, or for many differing examples by chi-square with Edwards' correction.

    Args:
        first_only: Examples that only the first gets right.
        second_only: Those that only the second does.

    >>> round(mcnemar(3, 12), 5), mcnemar(4, 4), mcnemar(0, 0)
    (0.03516, 1.0, 1.0)
    """
    if first_only + second_only <= EXACT:
        return sign_test(first_only, second_only)
    statistic = (abs(first_only - second_only) - 1) ** 2 / (first_only + second_only)
    return math.erfc(math.sqrt(statistic / 2))


def sign_test(lower: int, higher: int) -> float:
    """The two-sided p-value of so many differences of either sign, if both signs were equally likely.

    >>> sign_test(0, 5)
    0.0625
    """
    total = lower + higher
    chance, tail = 1, 0
    for count in range(min(lower, higher) + 1):
        tail += chance
        chance = chance * (total - count) // (count + 1)
    return min(1.0, 2 * tail / 2**total)


def paired_bootstrap(first: Sequence[float], second: Sequence[float], weights: Sequence[float] | None = None) -> Interval:
    """Resamples examples, the same for both sides, and looks at the difference of their weighted means.

    The p-value is the share of resamples whose difference is as far from the one seen as that is from nothing (Koehn 2004;
    Graham et al. 2014, section 3.2). It is the same each time.

    Args:
        first: (N,) sums for each example, such as its loss.
        second: (N,) likewise.
        weights: (N,) what they are sums over, such as its tokens; None: 1 each.

    >>> paired_bootstrap([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]).p
    1.0
    """
    change, size = np.asarray(second, dtype=np.float64) - np.asarray(first, dtype=np.float64), len(first)
    weight = np.ones(size) if weights is None else np.asarray(weights, dtype=np.float64)
    generator, seen, drawn = np.random.default_rng(12345), change.sum() / weight.sum(), []
    at_once = max(1, LARGEST_DRAW // size)
    for begin in range(0, RESAMPLES, at_once):
        chosen = generator.integers(size, size=(min(at_once, RESAMPLES - begin), size))  # (R, N)
        drawn.append(change[chosen].sum(axis=1) / weight[chosen].sum(axis=1))
    differences = np.concatenate(drawn)  # (R,)
    low, high = np.quantile(differences, (0.025, 0.975))
    beyond = int((np.abs(differences - seen) >= abs(seen)).sum())
    return Interval(float(seen), float(low), float(high), (beyond + 1) / (RESAMPLES + 1))


def translation_bootstrap(
    first: Sequence[str], second: Sequence[str], references: Sequence[str], metrics: dict[str, Metric]
) -> dict[str, Bootstrap]:
    """sacreBLEU's paired bootstrap of two systems' translations (Koehn 2004; Post 2018), with its own seed.

    Equal scores have the p-value 1 here; sacreBLEU gives them its smallest, since chance would hardly make them equal.

    Args:
        first: (N,) translations of the first system, which is the baseline.
        second: (N,) of the second.
        references: (N,) true ones.
        metrics: sacreBLEU's, by name.
    """
    systems: list[tuple[str, Sequence[str]]] = [("first", list(first)), ("second", list(second))]
    test = PairedTest(systems, metrics, [list(references)], test_type="bs", n_samples=RESAMPLES)
    scores: dict[str, Any] = test()[1]
    found = {}
    for name, (baseline, system) in zip(metrics, (scores[one] for one in scores if one != "System"), strict=True):
        p = 1.0 if system.score == baseline.score else float(system.p_value)
        found[name] = Bootstrap(baseline.score, system.score, float(system.ci), p)
    return found
