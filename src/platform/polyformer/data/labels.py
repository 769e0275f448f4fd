"""What is to be predicted for a text, as it stands in a field of the data: one label, several, or a number."""

import difflib
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from polyformer.data.tables import LISTED
from polyformer.text import Assets

__all__ = ["LabelSet", "Labelling", "Number", "OneLabel", "TargetSettings", "make_labelling"]

Field = tuple[str, str]
"""What stands in a field, and where that is: a file and a number, for messages."""

FEW = 20


@dataclass(frozen=True)
class TargetSettings:
    """What is predicted, and how it is written in the data.

    Args:
        kind: one of several labels (class), any number of them (labels), or a number.
        separator: what stands between the labels of a text, for `labels`; lists in JSON, Parquet and the hub need none.
        unlabelled: what stands in the field where there is no label; such examples are left out, and counted with those
            that have an empty field. Not for `labels`, where an empty field is no label at all.

    >>> TargetSettings().kind
    'class'
    """

    kind: Literal["class", "labels", "number"] = "class"
    separator: str = ","
    unlabelled: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"`data.target.kind` must be one of {', '.join(KINDS)}, but is {self.kind!r}")
        if not self.separator:
            raise ValueError("`data.target.separator` must not be empty")


class Labelling(ABC):
    """What a model learns of the labels in the training data, and how labels become numbers.

    Args:
        settings: What is predicted.
    """

    role: ClassVar[str]
    """Its name among the labels or numbers of a model's assets."""

    optional: ClassVar[bool] = False
    """Whether an example may have none."""

    def __init__(self, settings: TargetSettings) -> None:
        self.settings = settings

    @abstractmethod
    def learn(self, fields: Iterable[Field]) -> Assets:
        """What is kept with a model of all training labels. Raises ValueError where nothing can be learned from them."""

    @abstractmethod
    def encode(self, fields: Iterable[Field], assets: Assets) -> list[list[Any]]:
        """The ids or numbers in each field. Raises ValueError, naming the place, for what is not known or no number."""

    @abstractmethod
    def tensor(self, rows: Sequence[Sequence[Any]], assets: Assets) -> Tensor:
        """What `encode` gave for the examples of a batch, as the target of a loss."""

    def is_missing(self, field: str) -> bool:
        """Whether a field says that there is no label."""
        return field in self.settings.unlabelled


class OneLabel(Labelling):
    """One of several classes; its target is (B,) ids."""

    role = "label"

    def learn(self, fields: Iterable[Field]) -> Assets:
        counts = Counter(field for field, _ in fields if not self.is_missing(field))
        return _kept(self.role, counts)

    def encode(self, fields: Iterable[Field], assets: Assets) -> list[list[Any]]:
        ids = _ids(assets, self)
        return [[] if self.is_missing(field) else [_id(field, where, ids)] for field, where in fields]

    def tensor(self, rows: Sequence[Sequence[Any]], assets: Assets) -> Tensor:
        return torch.tensor([row[0] for row in rows], dtype=torch.int64)


class LabelSet(Labelling):
    """Any number of labels; its target is (B, number of labels), 1 where a text has the label."""

    role = "labels"
    optional = True

    def learn(self, fields: Iterable[Field]) -> Assets:
        counts = Counter(name for field, _ in fields for name in self._names(field))
        return _kept(self.role, counts)

    def encode(self, fields: Iterable[Field], assets: Assets) -> list[list[Any]]:
        ids = _ids(assets, self)
        return [[_id(name, where, ids) for name in self._names(field)] for field, where in fields]

    def tensor(self, rows: Sequence[Sequence[Any]], assets: Assets) -> Tensor:
        target = torch.zeros(len(rows), len(assets.labels[self.role]))
        for row, ids in enumerate(rows):
            target[row, list(ids)] = 1.0
        return target

    def _names(self, field: str) -> list[str]:
        """The labels in a field, each once."""
        between = LISTED if field.startswith(LISTED) else self.settings.separator
        return list(dict.fromkeys(name.strip() for name in field.split(between) if name.strip()))


class Number(Labelling):
    """A number; its target is (B,) numbers as they are in the data."""

    role = "number"

    def learn(self, fields: Iterable[Field]) -> Assets:
        """The mean of the training numbers and their standard deviation."""
        numbers = [_number(field, where) for field, where in fields if not self.is_missing(field)]
        if not numbers:
            raise ValueError("the training data has no numbers to learn from")
        mean = math.fsum(numbers) / len(numbers)
        deviation = math.sqrt(math.fsum((number - mean) ** 2 for number in numbers) / len(numbers))
        if not deviation:
            raise ValueError(f"the training data has only one number, {mean:g}, so there is nothing to learn")
        return Assets(numbers={self.role: [mean, deviation]})

    def encode(self, fields: Iterable[Field], assets: Assets) -> list[list[Any]]:
        return [[] if self.is_missing(field) else [_number(field, where)] for field, where in fields]

    def tensor(self, rows: Sequence[Sequence[Any]], assets: Assets) -> Tensor:
        return torch.tensor([row[0] for row in rows], dtype=torch.float32)


def make_labelling(settings: TargetSettings) -> Labelling:
    """The labelling that settings describe.

    >>> make_labelling(TargetSettings(unlabelled=("", "-"))).learn([("pos", "1"), ("neg", "2"), ("-", "3")]).labels
    {'label': ['neg', 'pos']}
    """
    return KINDS[settings.kind](settings)


KINDS: dict[str, type[Labelling]] = {"class": OneLabel, "labels": LabelSet, "number": Number}


def _kept(role: str, counts: Counter[str]) -> Assets:
    if len(counts) < 2:
        found = f"only one label, {next(iter(counts))!r}" if counts else "no labels"
        raise ValueError(f"the training data has {found}; a classifier needs at least two")
    names = sorted(counts)
    return Assets(labels={role: names}, numbers={"counts": [float(counts[name]) for name in names]})


def _ids(assets: Assets, labelling: Labelling) -> dict[str, int]:
    if labelling.role not in assets.labels:
        kind = labelling.settings.kind
        raise ValueError(f"`data.target.kind` is {kind}, but the model was trained for another kind of target")
    return {name: place for place, name in enumerate(assets.labels[labelling.role])}


def _id(name: str, where: str, ids: dict[str, int]) -> int:
    if name in ids:
        return ids[name]
    near = difflib.get_close_matches(name, ids, n=1, cutoff=0.0 if len(ids) > FEW else 0.6)
    known = f"did you mean {near[0]!r}?" if near else f"the labels are {', '.join(map(repr, ids))}"
    raise ValueError(f"{where}: the label {name!r} is not in the training data; {known}")


def _number(field: str, where: str) -> float:
    try:
        number = float(field)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{where}: {field!r} is no number (`data.target.kind` is number)")
    return number
