"""Several data modules as one: each batch is of one of them, and says of which."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from polyformer.data.batches import BatchSettings
from polyformer.data.loader import BatchLoader, BatchPlan
from polyformer.data.mixed_plan import MixedPlan, MixedRows, decoded, encoded
from polyformer.data.module import DataModule
from polyformer.data.sourced import SourcedData
from polyformer.text import Assets, Tokenizer

__all__ = ["MixedData", "PartBatch", "part_assets"]

log = logging.getLogger("polyformer")


@dataclass(frozen=True)
class PartBatch:
    """A batch of one part.

    Args:
        part: the part's name.
        batch: what its data module gave.
    """

    part: str
    batch: Any

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "PartBatch":
        """The batch on a device."""
        return replace(self, batch=self.batch.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "PartBatch":
        """The batch in page-locked memory, from where it is copied to a GPU faster."""
        return replace(self, batch=self.batch.pin_memory())


class MixedData(DataModule):
    """Batches of several data modules in turn, by shares; all are read by the tokenizer of the first.

    An epoch has as many batches as all parts have together. A part with more than its own number of them is gone through
    more than once, a part with fewer goes on in the next epoch where it stopped in this.

    Args:
        parts: the data of each part, by name.
        temperature: each part's share of the batches grows with its size to the power of 1 / temperature: 1 mixes by size,
            a large one evenly.
        shares: how many batches of each part, relative to the others, instead of that.
    """

    def __init__(self, parts: dict[str, DataModule], temperature: float = 1.0, shares: dict[str, float] | None = None) -> None:
        super().__init__(None)
        if not parts:
            raise ValueError("`data.parts` is empty: it must name the data of each part")
        for name, part in parts.items():
            if not name.isidentifier():
                raise ValueError(f"`data.parts` has {name!r}, but names must be of letters, digits and _")
            if isinstance(part, MixedData):
                raise ValueError(f"`data.parts.{name}` has parts itself: name them beside the others")
            part.key = f"data.parts.{name}"
        if not temperature > 0.0:
            raise ValueError(f"`data.temperature` must be above 0, but is {temperature}")
        if shares is not None and (set(shares) != set(parts) or not all(share > 0.0 for share in shares.values())):
            raise ValueError(f"`data.shares` must give a number above 0 for each of {', '.join(parts)}, but is {shares}")
        if shares is not None and temperature != 1.0:
            raise ValueError("`data.shares` and `data.temperature` both say how parts are mixed: leave one out")
        self.parts, self.temperature, self.shares = parts, temperature, shares
        self.batches = BatchSettings(workers=max(part.batches.workers for part in parts.values()))

    def make_assets(self) -> Assets:
        """The first part's tokenizer, and every part's labels under the part's name."""
        first, *others = self.parts.values()
        tokenizer = first.assets.tokenizers["text"]
        for part in others:
            part.adopt(tokenizer)
        labels = {f"{name}/{role}": names for name, part in self.parts.items() for role, names in part.assets.labels.items()}
        numbers = {f"{name}/{role}": told for name, part in self.parts.items() for role, told in part.assets.numbers.items()}
        return Assets({"text": tokenizer}, labels, numbers)

    def use_assets(self, assets: Assets) -> None:
        super().use_assets(assets)
        for name, part in self.parts.items():
            part.use_assets(part_assets(assets, name))

    def adopt(self, tokenizer: Tokenizer, target: Tokenizer | None = None) -> None:
        for part in self.parts.values():
            part.adopt(tokenizer, target)

    def contents(self, split: str) -> list[str] | None:
        """What all parts have of a split; None where none has any."""
        found = {name: part.contents(split) for name, part in self.parts.items()}
        given = [f"{name}: {content}" for name, contents in found.items() for content in contents or ()]
        return given or None

    def load(self, split: str) -> "_Loaded":
        """Loads the split of every part that has it."""
        assert self.assets.tokenizers  # all parts read by one tokenizer
        return _Loaded({name: part.loaded(split).report for name, part in self._having(split)})

    def settings(self) -> dict[str, Any]:
        """What decides the mixture, and every part's own."""
        together = {"accumulated": self._together()}
        own = {f"parts.{name}.{key}": value for name, part in self.parts.items() for key, value in part.data_settings().items()}
        return {**own, **together, "temperature": self.temperature, "shares": self.shares}

    def _together(self) -> int:
        """How many batches make up an optimizer step."""
        return 1 if self.trainer is None else int(self.trainer.accumulate_grad_batches)

    def training_plan(self, world: int) -> "MixedPlan":
        """The parts' plans, mixed; consecutive batches that make up one optimizer step are of one part."""
        plans = {}
        for name, part in self.parts.items():
            part.seed = self.seed
            plans[name] = part.training_plan(world)
        largest = max(map(len, plans.values()))
        by_size = {name: (len(plan) / largest) ** (1.0 / self.temperature) for name, plan in plans.items()}
        shares = by_size if self.shares is None else self.shares
        flat = [one for name, plan in plans.items() for one in _plans_of(name, plan, shares[name])]
        names, found, chosen = zip(*flat, strict=True)
        return MixedPlan(found, chosen, self.seed, self._together(), names)

    def training_source(self) -> MixedRows:
        """The parts' rows, and those of each source of a part that has several, found by the numbers of the mixed plan."""
        rows = [part.training_source() for part in self.parts.values()]
        return MixedRows([own for one in rows for own in (one.parts if isinstance(one, MixedRows) else [one])])

    def prepare_training(self, rows: dict[str, Any], epoch: int) -> PartBatch:
        """A batch of one part, made as in the epoch that this part is in."""
        places = self._places()
        number, its_epoch, local = decoded(rows["index"], len(places))
        name, source, sources = places[number]
        if sources:
            local = encoded(source, its_epoch, np.array(local), sources).tolist()
        return PartBatch(name, self.parts[name].prepare_training({**rows, "index": local}, its_epoch))

    def _places(self) -> list[tuple[str, int, int]]:
        """Of each plan that is mixed the part, the number of its source, and how many the part has, if it mixes any."""
        counts = {name: len(part.sources) if isinstance(part, SourcedData) else 0 for name, part in self.parts.items()}
        return [(name, number, count) for name, count in counts.items() for number in range(max(1, count))]

    def evaluation_loader(self, split: str) -> Any:
        """Everything that the parts have of a split, a batch of each in turn."""
        loaders = {}
        for name, part in self._having(split):
            part.trainer = self.trainer
            loaders[name] = part.evaluation_loader(split)
        return _InTurn(loaders)

    def _having(self, split: str) -> Iterator[tuple[str, DataModule]]:
        return ((name, part) for name, part in self.parts.items() if part.contents(split) is not None)


def _plans_of(name: str, plan: BatchPlan, share: float) -> list[tuple[str, BatchPlan, float]]:
    """The plan of a part, or those of its sources; each with its name and its share of all batches."""
    if not isinstance(plan, MixedPlan):
        return [(name, plan, share)]
    shares = [share * own / sum(plan.shares) for own in plan.shares]
    return list(zip([f"{name}, {source}" for source in plan.names], plan.plans, shares, strict=True))


@dataclass(frozen=True)
class _Loaded:
    """What became of every part's examples."""

    reports: Mapping[str, Any]

    @property
    def report(self) -> str:
        return "; ".join(f"{name}: {report}" for name, report in self.reports.items())


class _InTurn:
    """The evaluation batches of all parts, one of each in turn as long as there are any."""

    def __init__(self, loaders: Mapping[str, BatchLoader]) -> None:
        self.loaders = loaders

    def __len__(self) -> int:
        return sum(map(len, self.loaders.values()))

    def __iter__(self) -> Iterator[PartBatch | None]:
        left = {name: iter(loader) for name, loader in self.loaders.items()}
        while left:
            for name in list(left):
                try:
                    batch = next(left[name])
                except StopIteration:
                    del left[name]
                else:
                    yield None if batch is None else PartBatch(name, batch)


def part_assets(assets: Assets, name: str) -> Assets:
    """What a part needs of the assets of a mixture.

    >>> part_assets(Assets({}, {"mood/label": ["bad", "good"], "place/label": ["here"]}), "mood").labels
    {'label': ['bad', 'good']}
    """
    prefix = f"{name}/"
    labels = {role.removeprefix(prefix): names for role, names in assets.labels.items() if role.startswith(prefix)}
    numbers = {role.removeprefix(prefix): told for role, told in assets.numbers.items() if role.startswith(prefix)}
    return Assets(assets.tokenizers, labels, numbers)
