"""Figures of classifiers, of regressions and of answers over a whole split, by torchmetrics; and spans.

Letters: N examples, C classes or labels.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor
from torch.nn.functional import one_hot
from torchmetrics.functional.classification import (
    binary_auroc,
    multiclass_confusion_matrix,
    multiclass_f1_score,
    multiclass_matthews_corrcoef,
    multilabel_exact_match,
    multilabel_f1_score,
)
from torchmetrics.functional.regression import pearson_corrcoef, spearman_corrcoef
from torchmetrics.functional.text import squad

from polyformer.training.losses import perplexity

__all__ = [
    "answer_metrics",
    "class_metrics",
    "confusion_lines",
    "find_spans",
    "goodness_of_fit",
    "label_metrics",
    "number_metrics",
]

WIDEST_TABLE = 12  # classes
SHOWN_CONFUSIONS = 10


def class_metrics(scores: Tensor, target: Tensor, names: Sequence[str]) -> dict[str, float]:
    """Accuracy, F1, Matthews' correlation and the area under the ROC curve, where each example has one class.

    The F1 of a class that is neither there nor predicted is 0, and it is left out of the macro mean, as in scikit-learn.

    Args:
        scores: (N, C) logits.
        target: (N,) ids of the true classes.
        names: of the C classes.

    >>> import torch
    >>> scores = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> figures = class_metrics(scores, torch.tensor([0, 1, 1]), ["no", "yes"])
    >>> {name: round(value, 3) for name, value in figures.items()}
    {'accuracy': 0.667, 'macro_f1': 0.667, 'mcc': 0.5, 'auroc': 1.0, 'f1/no': 0.667, 'f1/yes': 0.667}
    """
    chosen, count = scores.argmax(dim=-1), len(names)
    each = multiclass_f1_score(chosen, target, count, average="none").tolist()
    return {
        "accuracy": float((chosen == target).double().mean()),
        "macro_f1": float(multiclass_f1_score(chosen, target, count, average="macro")),
        "mcc": _matthews(chosen, target, count),
        "auroc": _area(scores.double().softmax(dim=-1), one_hot(target, count)),
        **{f"f1/{name}": value for name, value in zip(names, each, strict=True)},
    }


def label_metrics(scores: Tensor, target: Tensor, names: Sequence[str]) -> dict[str, float]:
    """Exact match, F1 and the area under the ROC curve, where each example has any number of labels: logits above 0.

    Args:
        scores: (N, C) logits.
        target: (N, C), 1 where an example has the label.
        names: of the C labels, at least two.

    >>> import torch
    >>> figures = label_metrics(torch.tensor([[2.0, -1.0], [1.0, 1.0]]), torch.tensor([[1, 0], [0, 1]]), ["a", "b"])
    >>> {name: round(value, 3) for name, value in figures.items()}
    {'exact_match': 0.5, 'micro_f1': 0.8, 'macro_f1': 0.833, 'auroc': 1.0, 'f1/a': 0.667, 'f1/b': 1.0}
    """
    chosen, count = (scores > 0).int(), len(names)
    each = multilabel_f1_score(chosen, target.int(), count, average="none").tolist()
    return {
        "exact_match": float(multilabel_exact_match(chosen, target.int(), count)),
        "micro_f1": float(multilabel_f1_score(chosen, target.int(), count, average="micro")),
        "macro_f1": math.fsum(each) / count,
        "auroc": _area(scores.double().sigmoid(), target),
        **{f"f1/{name}": value for name, value in zip(names, each, strict=True)},
    }


def number_metrics(predicted: Tensor, target: Tensor) -> dict[str, float]:
    """Correlations, NaN where one side is constant, and the root of the mean squared error.

    Args:
        predicted: (N,) numbers.
        target: (N,) true numbers.

    >>> import torch
    >>> round(number_metrics(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([1.0, 2.0, 3.0]))["spearman"], 4)
    1.0
    """
    predicted, target = predicted.double(), target.double()
    varied = bool((predicted != predicted[0]).any()) and bool((target != target[0]).any())
    return {
        "pearson": float(pearson_corrcoef(predicted, target)) if varied else math.nan,
        "spearman": float(spearman_corrcoef(predicted, target)) if varied else math.nan,
        "rmse": float((predicted - target).square().mean().sqrt()),
    }


def answer_metrics(answers: Sequence[tuple[str, Sequence[str]]]) -> dict[str, float]:
    """Exact match and F1 of words in percent, as SQuAD's own script counts them.

    Args:
        answers: For each question what was answered, and the true answers; one of them is empty where there is none.

    >>> answer_metrics([("The cat!", ["a cat", "it"]), ("black cat", ["cat"])])
    {'exact_match': 50.0, 'f1': 83.33333587646484}
    """
    given = [{"id": str(at), "prediction_text": text} for at, (text, _) in enumerate(answers)]
    true: Any = [{"id": str(at), "answers": {"text": list(texts)}} for at, (_, texts) in enumerate(answers)]
    return {name: float(value) for name, value in squad(given, true).items()}


def find_spans(labels: Sequence[str]) -> list[tuple[str, int, int]]:
    """Spans as (type, first word, word after the last), by the rules of conlleval and seqeval; L and U are read as E and S.

    >>> find_spans(["B-PER", "I-PER", "O", "I-LOC"])
    [('PER', 0, 2), ('LOC', 3, 4)]
    """
    found: list[tuple[str, int, int]] = []
    for place, (before, label) in enumerate(pairwise(["O", *labels])):
        goes_on = before[0] in "BIM" and label[0] in "IMEL" and before[2:] == label[2:]
        if label != "O":
            found.append((label[2:], found.pop()[1] if goes_on else place, place + 1))
    return found


def confusion_lines(chosen: Tensor, target: Tensor, names: Sequence[str]) -> list[str]:
    """Which classes are taken for which: a table, or for many classes the most frequent confusions.

    Args:
        chosen: (N,) ids of the predicted classes.
        target: (N,) ids of the true classes.
        names: of the classes.

    >>> import torch
    >>> print("\\n".join(confusion_lines(torch.tensor([0, 1, 0]), torch.tensor([0, 1, 1]), ["no", "yes"])))
    true \\ predicted   no  yes
                  no    1    0
                 yes    1    1
    """
    table = multiclass_confusion_matrix(chosen, target, len(names)).tolist()
    if len(names) > WIDEST_TABLE:
        pairs = [(row, column) for row in range(len(names)) for column in range(len(names)) if row != column]
        most = sorted(pairs, key=lambda pair: -table[pair[0]][pair[1]])[:SHOWN_CONFUSIONS]
        return [f"{names[row]} taken for {names[column]}: {table[row][column]}" for row, column in most if table[row][column]]
    corner = "true \\ predicted"
    first = max(len(corner), *map(len, names))
    width = max(len(str(cell)) for cell in (*names, *(count for row in table for count in row))) + 2
    lines = [corner.rjust(first) + "".join(name.rjust(width) for name in names)]
    return lines + [
        name.rjust(first) + "".join(str(count).rjust(width) for count in row) for name, row in zip(names, table, strict=True)
    ]


def _matthews(chosen: Tensor, target: Tensor, count: int) -> float:
    """Matthews' correlation; 0 where one side is constant, as in scikit-learn (torchmetrics gives other limits there)."""
    if bool((chosen == chosen[0]).all()) or bool((target == target[0]).all()):
        return 0.0
    return float(multiclass_matthews_corrcoef(chosen, target, count))


def _area(shares: Tensor, target: Tensor) -> float:
    """The mean of the areas of (N, C) shares for classes or labels, (N, C) 1 where an example has one.

    Left out is what all examples have, or none; NaN where nothing else is.
    """
    there = [number for number, has in enumerate(target.unbind(dim=1)) if 0 < int(has.sum()) < len(has)]
    areas = [float(binary_auroc(shares[:, number], target[:, number].int())) for number in there]
    return math.fsum(areas) / len(areas) if areas else math.nan


def goodness_of_fit(nats: float, tokens: float, words: float, size: float) -> dict[str, float]:
    """What papers report of a language model, from the nats it needs for a text of so many tokens, words and bytes.

    >>> {name: round(value, 3) for name, value in goodness_of_fit(math.log(4) * 6, 6, 3, 12).items()}
    {'loss': 1.386, 'perplexity': 4.0, 'word_perplexity': 16.0, 'bits_per_byte': 1.0}
    """
    return {
        "loss": nats / tokens,
        "perplexity": perplexity(nats / tokens),
        "word_perplexity": perplexity(nats / words),
        "bits_per_byte": nats / math.log(2) / size,
    }
