"""Figures by their definitions, spelled out; and as scikit-learn has them, where it is installed."""

import math
from collections.abc import Sequence
from itertools import chain

import numpy as np
import pytest
import torch
from torch import Tensor

from polyformer.training.metrics import class_metrics, confusion_lines, label_metrics, number_metrics

CASES = [(2, 40, 0), (2, 41, 1), (3, 60, 2), (5, 25, 3), (7, 9, 4)]
"""(classes, examples, seed)"""


def drawn(classes: int, examples: int, seed: int, ties: bool = False) -> tuple[Tensor, Tensor, list[str]]:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(examples, classes, generator=generator)
    target = torch.randint(classes, (examples,), generator=generator)
    scores[torch.arange(examples), target] += 0.7
    return scores.round() if ties else scores, target, [f"c{number}" for number in range(classes)]


def f1(chosen: Sequence[bool], true: Sequence[bool]) -> float:
    hits = sum(here and there for here, there in zip(chosen, true, strict=True))
    total = sum(chosen) + sum(true)
    return 2 * hits / total if total else 0.0


def matthews(chosen: Sequence[int], true: Sequence[int], classes: int) -> float:
    """Gorodkin 2004, as a correlation of two 0/1 matrices."""
    x, y = np.eye(classes)[list(chosen)], np.eye(classes)[list(true)]
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    scale = math.sqrt((x * x).sum() * (y * y).sum())
    return float((x * y).sum() / scale) if scale else 0.0


def area(shares: Sequence[float], true: Sequence[bool]) -> float:
    """The share of pairs of a positive and a negative example in the right order; equal ones count half."""
    positive = [share for share, is_true in zip(shares, true, strict=True) if is_true]
    negative = [share for share, is_true in zip(shares, true, strict=True) if not is_true]
    pairs = [(above, below) for above in positive for below in negative]
    return sum((above > below) + 0.5 * (above == below) for above, below in pairs) / len(pairs)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("classes", "examples", "seed"), CASES)
def test_classes_by_hand(classes: int, examples: int, seed: int, ties: bool) -> None:
    scores, target, names = drawn(classes, examples, seed, ties)
    figures = class_metrics(scores, target, names)
    chosen, true = scores.argmax(-1).tolist(), target.tolist()
    each = [f1([one == number for one in chosen], [one == number for one in true]) for number in range(classes)]
    there = [number for number in range(classes) if number in chosen or number in true]
    assert [figures[f"f1/{name}"] for name in names] == pytest.approx(each, abs=1e-6)
    assert figures["macro_f1"] == pytest.approx(sum(each[number] for number in there) / len(there), abs=1e-6)
    assert figures["accuracy"] == sum(one == other for one, other in zip(chosen, true, strict=True)) / examples
    assert figures["mcc"] == pytest.approx(matthews(chosen, true, classes), abs=1e-6)
    shares = scores.double().softmax(-1)
    known = [number for number in range(classes) if number in true]
    areas = [area(shares[:, number].tolist(), [one == number for one in true]) for number in known]
    assert figures["auroc"] == pytest.approx(sum(areas) / len(areas), abs=1e-6)


@pytest.mark.parametrize(("classes", "examples", "seed"), CASES)
def test_classes_as_scikit_learn_has_them(classes: int, examples: int, seed: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    scores, target, names = drawn(classes, examples, seed)
    figures, chosen, true = class_metrics(scores, target, names), scores.argmax(-1).numpy(), target.numpy()
    assert figures["macro_f1"] == pytest.approx(metrics.f1_score(true, chosen, average="macro"), abs=1e-6)
    assert figures["mcc"] == pytest.approx(metrics.matthews_corrcoef(true, chosen), abs=1e-6)
    assert figures["accuracy"] == metrics.accuracy_score(true, chosen)


@pytest.mark.parametrize(
    ("chosen", "true", "mcc", "macro_f1"),
    [
        ([1, 1, 1, 1], [1, 1, 0, 1], 0.0, 3 / 7),  # one class is never predicted: 0 and 6/7
        ([1, 1, 1], [1, 1, 1], 0.0, 1.0),  # the other class is nowhere, and left out
        ([0, 0], [1, 1], 0.0, 0.0),
        ([0, 1, 0, 1], [0, 1, 0, 1], 1.0, 1.0),
        ([1, 0], [0, 1], -1.0, 0.0),
    ],
)
def test_classes_that_are_missing(chosen: list[int], true: list[int], mcc: float, macro_f1: float) -> None:
    scores = torch.eye(2)[chosen]
    figures = class_metrics(scores, torch.tensor(true), ["no", "yes"])
    assert figures["mcc"] == pytest.approx(mcc, abs=1e-6) and figures["macro_f1"] == pytest.approx(macro_f1, abs=1e-6)
    assert math.isnan(figures["auroc"]) == (len(set(true)) == 1)


def test_a_sure_model_still_has_an_order() -> None:
    """In single precision all these probabilities are 1, and equal."""
    scores = torch.tensor([[0.0, 20.0], [0.0, 24.0], [0.0, 22.0], [0.0, 26.0]])
    assert class_metrics(scores, torch.tensor([0, 1, 0, 1]), ["no", "yes"])["auroc"] == 1.0


@pytest.mark.parametrize("seed", range(4))
def test_labels_by_hand(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores, target = torch.randn(30, 4, generator=generator), torch.randint(2, (30, 4), generator=generator)
    figures = label_metrics(scores, target, list("abcd"))
    chosen, true = (scores > 0).tolist(), target.bool().tolist()
    each = [f1([row[label] for row in chosen], [row[label] for row in true]) for label in range(4)]
    assert [figures[f"f1/{name}"] for name in "abcd"] == pytest.approx(each, abs=1e-6)
    assert figures["macro_f1"] == pytest.approx(sum(each) / 4, abs=1e-6)
    assert figures["micro_f1"] == pytest.approx(f1([*chain(*chosen)], [*chain(*true)]), abs=1e-6)
    assert figures["exact_match"] == pytest.approx(sum(map(list.__eq__, chosen, true)) / 30, abs=1e-6)
    areas = [area(scores[:, label].tolist(), [row[label] for row in true]) for label in range(4)]
    assert figures["auroc"] == pytest.approx(sum(areas) / 4, abs=1e-6)


def test_labels_that_are_constant_have_no_area() -> None:
    """A label that all examples have, or none, is left out; there is no figure where all are so."""
    scores, target = (
        torch.tensor([[2.0, 1.0, -9.0], [1.0, 3.0, 9.0], [0.0, 2.0, 0.0]]),
        torch.tensor([[1, 1, 0], [0, 1, 0], [1, 1, 0]]),
    )
    assert label_metrics(scores, target, list("abc"))["auroc"] == 0.5
    assert math.isnan(label_metrics(scores[:, 1:], target[:, 1:], list("bc"))["auroc"])


@pytest.mark.parametrize("seed", range(2))
def test_labels_as_scikit_learn_has_them(seed: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    generator = torch.Generator().manual_seed(seed)
    scores, target = torch.randn(40, 3, generator=generator), torch.randint(2, (40, 3), generator=generator)
    figures = label_metrics(scores, target, list("abc"))
    assert figures["auroc"] == pytest.approx(metrics.roc_auc_score(target.numpy(), scores.numpy(), average="macro"), abs=1e-6)
    assert figures["macro_f1"] == pytest.approx(metrics.f1_score(target.numpy(), scores.numpy() > 0, average="macro"), abs=1e-6)


def ranks(values: np.ndarray) -> np.ndarray:
    return np.array([(values < value).sum() + ((values == value).sum() + 1) / 2 for value in values])


@pytest.mark.parametrize("ties", [False, True])
def test_numbers_by_hand(ties: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    true = torch.randn(50, generator=generator) * 10 + 500
    predicted = true + torch.randn(50, generator=generator) * 5
    predicted, true = (predicted.round(), true.round()) if ties else (predicted, true)
    figures, x, y = number_metrics(predicted, true), predicted.double().numpy(), true.double().numpy()
    assert figures["pearson"] == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-9)
    assert figures["spearman"] == pytest.approx(np.corrcoef(ranks(x), ranks(y))[0, 1], abs=1e-5)
    assert figures["rmse"] == pytest.approx(float(np.sqrt(((x - y) ** 2).mean())), rel=1e-9)


def test_a_constant_correlates_with_nothing() -> None:
    figures = number_metrics(torch.full((4,), 2.0), torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert math.isnan(figures["pearson"]) and math.isnan(figures["spearman"])
    assert math.isnan(number_metrics(torch.tensor([1.0]), torch.tensor([1.0]))["pearson"])


def test_many_classes_are_shown_by_their_confusions() -> None:
    names = [f"class {number}" for number in range(20)]
    lines = confusion_lines(torch.tensor([1, 1, 2, 3]), torch.tensor([0, 0, 2, 4]), names)
    assert lines == ["class 0 taken for class 1: 2", "class 4 taken for class 3: 1"]
