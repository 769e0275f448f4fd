"""What a head may predict for a text: one label, several, or a number; each with its loss, its metrics and its words.

Letters: B batch, N examples, K outputs.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from torch import Tensor
from torch.nn import functional as F

from polyformer.text import Assets
from polyformer.training.contract import Answer
from polyformer.training.metrics import class_metrics, confusion_lines, label_metrics, number_metrics
from polyformer.training.names import nearest
from polyformer.training.pictures import confusion_picture

__all__ = ["ClassWeights", "Target", "make_target"]

ClassWeights = Literal["none", "balanced"] | dict[str, float]


class Target(ABC):
    """What a linear head predicts."""

    monitor: tuple[str, Literal["min", "max"]]
    """The metric that decides which checkpoint is best, and its better side."""

    signatures: ClassVar[dict[str, str]] = {}
    """How metrics are computed, where their name does not say it all."""

    is_number: ClassVar[bool] = False
    """Whether an answer is near or far rather than right or wrong."""

    size: int
    """Number of outputs (K)."""

    @abstractmethod
    def losses(self, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """(B, K) outputs and targets -> (B,) losses to train with, and (B,) without weights and smoothing, to report."""

    @abstractmethod
    def measure(self, outputs: Tensor, target: Tensor) -> dict[str, float]:
        """(N, K) outputs and targets of a whole split -> metrics."""

    @abstractmethod
    def answer(self, outputs: Tensor, separator: str = ",") -> Answer:
        """(K,) outputs -> what is printed for a text; several labels with a separator between them."""

    @abstractmethod
    def score(self, outputs: Tensor) -> Answer:
        """(K,) outputs -> log-probabilities."""

    def right(self, outputs: Tensor, target: Tensor) -> Tensor | None:
        """(B, K) outputs and targets -> (B,) which answers are right; None where an answer is more than right or wrong."""
        return None

    def summary(self, outputs: Tensor, target: Tensor) -> list[str]:
        """(N, K) outputs and targets -> lines that show where the model errs."""
        return []

    def pictures(self, outputs: Tensor, target: Tensor) -> dict[str, Any]:
        """(N, K) outputs and targets -> figures that show the same, by name."""
        return {}

    @abstractmethod
    def truth(self, target: Tensor) -> str:
        """The target of one example in words."""


class _Named(Target):
    """A target with names.

    Args:
        names: Of the labels.
        weights: How many times each label counts in training.
        smoothing: Share of each target that is given away.
    """

    def __init__(self, names: list[str], weights: list[float], smoothing: float) -> None:
        self.names, self.weights, self.smoothing, self.size = names, weights, smoothing, len(names)


class OneClass(_Named):
    """One of several classes, by a softmax.

    Args:
        names: Of the classes.
        weights: How many times an example of each class counts in training.
        smoothing: Share of each target given to all classes evenly (Szegedy et al. 2016, section 7).
    """

    monitor = ("val/accuracy", "max")
    signatures: ClassVar[dict[str, str]] = {
        "macro_f1": "mean over classes, without those that are neither there nor predicted",
        "auroc": "each class against the rest, mean over the classes that are there",
    }

    def losses(self, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        weights = outputs.new_tensor(self.weights)  # of what is given away each class has its share times its own weight
        trained = F.cross_entropy(outputs, target, weights, reduction="none", label_smoothing=self.smoothing)
        return trained, F.cross_entropy(outputs, target, reduction="none")

    def right(self, outputs: Tensor, target: Tensor) -> Tensor:
        return outputs.argmax(dim=-1) == target

    def measure(self, outputs: Tensor, target: Tensor) -> dict[str, float]:
        return class_metrics(outputs, target, self.names)

    def answer(self, outputs: Tensor, separator: str = ",") -> Answer:
        shares = outputs.softmax(dim=-1).tolist()
        best = int(outputs.argmax())
        details = {"probability": shares[best], "probabilities": dict(zip(self.names, shares, strict=True))}
        return Answer(self.names[best], details)

    def score(self, outputs: Tensor) -> Answer:
        return _scored(self.names, outputs.log_softmax(dim=-1).tolist())

    def summary(self, outputs: Tensor, target: Tensor) -> list[str]:
        return confusion_lines(outputs.argmax(dim=-1), target, self.names)

    def pictures(self, outputs: Tensor, target: Tensor) -> dict[str, Any]:
        return {"confusion": confusion_picture(outputs.argmax(dim=-1), target, self.names)}

    def truth(self, target: Tensor) -> str:
        return self.names[int(target)]


class ManyLabels(_Named):
    """Any number of labels, each by a sigmoid of its own.

    Args:
        names: Of the labels.
        weights: How many times the loss of each label counts in training.
        smoothing: Share of each target given to both answers evenly.
    """

    monitor = ("val/micro_f1", "max")
    signatures: ClassVar[dict[str, str]] = {
        "macro_f1": "mean over labels",
        "auroc": "mean over the labels that some examples have and others have not",
    }

    def losses(self, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        smoothed = target * (1.0 - self.smoothing) + 0.5 * self.smoothing  # (B, K)
        each = F.binary_cross_entropy_with_logits(outputs, smoothed, outputs.new_tensor(self.weights), reduction="none")
        likelihood = F.binary_cross_entropy_with_logits(outputs, target, reduction="none")
        return each.sum(dim=-1), likelihood.sum(dim=-1)

    def measure(self, outputs: Tensor, target: Tensor) -> dict[str, float]:
        return label_metrics(outputs, target, self.names)

    def answer(self, outputs: Tensor, separator: str = ",") -> Answer:
        shares = outputs.sigmoid().tolist()
        labels = [name for name, output in zip(self.names, outputs.tolist(), strict=True) if output > 0]
        return Answer(separator.join(labels), {"labels": labels, "probabilities": dict(zip(self.names, shares, strict=True))})

    def score(self, outputs: Tensor) -> Answer:
        return _scored(self.names, F.logsigmoid(outputs).tolist())

    def truth(self, target: Tensor) -> str:
        return ",".join(name for name, has in zip(self.names, target.tolist(), strict=True) if has)


class OneNumber(Target):
    """A number, by least squares. The head's output is in units of the training numbers' deviation from their mean.

    So loss and gradients are of one size whatever the numbers measure, and learning rates need not know it.

    Args:
        mean: Of the training numbers.
        deviation: Their standard deviation.
    """

    monitor = ("val/rmse", "min")
    is_number = True
    size = 1

    def __init__(self, mean: float, deviation: float) -> None:
        self.mean, self.deviation = mean, deviation

    def losses(self, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        squared = (outputs.squeeze(1) - (target - self.mean) / self.deviation).square()  # (B,)
        return squared, squared

    def measure(self, outputs: Tensor, target: Tensor) -> dict[str, float]:
        return number_metrics(outputs.squeeze(1).double() * self.deviation + self.mean, target)

    def answer(self, outputs: Tensor, separator: str = ",") -> Answer:
        number = float(outputs) * self.deviation + self.mean
        return Answer(f"{number:.6g}", {"number": number})

    def score(self, outputs: Tensor) -> Answer:
        raise ValueError("a number has no probability, so there is nothing to score; `platform predict` gives the number")

    def truth(self, target: Tensor) -> str:
        return f"{float(target):.6g}"


def make_target(assets: Assets, weights: ClassWeights = "none", smoothing: float = 0.0) -> Target:
    """The target that the labels or numbers of the training data ask for.

    Args:
        assets: With labels "label" (one of them) or "labels" (any of them), or the numbers "number" (mean, deviation).
        weights: "none"; "balanced", so that each label weighs the same in sum; or by label, 1 for those not named.
        smoothing: Label smoothing.

    Raises:
        ValueError: For options that do not fit the target.
    """
    if not 0.0 <= smoothing < 1.0:
        raise ValueError(f"`task.label_smoothing` must be at least 0 and below 1, but is {smoothing}")
    if "number" in assets.numbers:
        for key, is_set in (("class_weights", weights != "none"), ("label_smoothing", smoothing > 0.0)):
            if is_set:
                raise ValueError(f"`task.{key}` is for labels, but `data.target.kind` is number")
        mean, deviation = assets.numbers["number"]
        return OneNumber(mean, deviation)
    kind, role = (OneClass, "label") if "label" in assets.labels else (ManyLabels, "labels")
    names = assets.labels[role]
    return kind(names, _weights(names, weights, assets.numbers.get("counts", [])), smoothing)


def _weights(names: Sequence[str], chosen: ClassWeights, counts: Sequence[float]) -> list[float]:
    if chosen == "balanced":
        total = math.fsum(counts)
        return [total / (len(names) * count) for _, count in zip(names, counts, strict=True)]
    given: Mapping[str, float] = chosen if isinstance(chosen, dict) else {}
    for name, weight in given.items():
        if name not in names:
            raise ValueError(f"`task.class_weights` has {name!r}, which is no label of the training data{nearest(name, names)}")
        if weight < 0:
            raise ValueError(f"`task.class_weights.{name}` must be at least 0, but is {weight}")
    return [given.get(name, 1.0) for name in names]


def _scored(names: Sequence[str], values: list[float]) -> Answer:
    text = "\t".join(f"{name} {value:.4f}" for name, value in zip(names, values, strict=True))
    return Answer(text, {"log_probabilities": dict(zip(names, values, strict=True))})
