"""Several data modules as one: each batch is of one of them, and says of which."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from polyformer.data.batches import BatchSettings, Indices
from polyformer.data.loader import BatchLoader, BatchPlan
from polyformer.data.module import DataModule
from polyformer.text import Assets, Tokenizer

__all__ = ["MixedData", "MixedPlan", "MixedRows", "PartBatch", "decoded", "part_assets"]

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
        for name in parts:
            if not name.isidentifier():
                raise ValueError(f"`data.parts` has {name!r}, but names must be of letters, digits and _")
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
        for part in self.parts.values():
            part.seed = self.seed
        plans = [part.training_plan(world) for part in self.parts.values()]
        chosen = [len(plan) ** (1.0 / self.temperature) for plan in plans]
        if self.shares is not None:
            chosen = [self.shares[name] for name in self.parts]
        return MixedPlan(plans, chosen, self.seed, self._together(), list(self.parts))

    def training_source(self) -> "MixedRows":
        """The parts' rows, found by the numbers of the mixed plan."""
        return MixedRows([part.training_source() for part in self.parts.values()])

    def prepare_training(self, rows: dict[str, Any], epoch: int) -> PartBatch:
        """A batch of one part, made as in the epoch that this part is in."""
        number, its_epoch, local = decoded(rows["index"], len(self.parts))
        name = list(self.parts)[number]
        return PartBatch(name, self.parts[name].prepare_training({**rows, "index": local}, its_epoch))

    def evaluation_loader(self, split: str) -> Any:
        """Everything that the parts have of a split, a batch of each in turn."""
        loaders = {}
        for name, part in self._having(split):
            part.trainer = self.trainer
            loaders[name] = part.evaluation_loader(split)
        return _InTurn(loaders)

    def _having(self, split: str) -> Iterator[tuple[str, DataModule]]:
        return ((name, part) for name, part in self.parts.items() if part.contents(split) is not None)


class MixedPlan:
    """Batches of several plans in a random order; a number tells the part, the epoch it is in, and the example.

    Args:
        plans: of the parts.
        shares: how many batches of each, relative to the others.
        seed: decides the order, together with the epoch.
        together: how many consecutive batches are of one part.
        names: what the parts are called in the log.

    >>> from polyformer.data.batches import TokenBatches
    >>> plans = [TokenBatches(np.full(count, 5), tokens=10) for count in (8, 4)]
    >>> mixed = MixedPlan(plans, [1.0, 1.0], seed=0, together=1, names=["a", "b"])
    >>> len(mixed), sorted(decoded(batch, 2)[0] for batch in mixed.plan(0))
    (6, [0, 0, 0, 1, 1, 1])
    """

    def __init__(
        self, plans: Sequence[BatchPlan], shares: Sequence[float], seed: int, together: int, names: Sequence[str]
    ) -> None:
        self.plans, self.seed, self.together, self.names = plans, seed, together, names
        total, whole = sum(map(len, plans)), sum(shares)
        self.steps = [max(1, round(total * share / whole / together)) for share in shares]
        self.at_least = min(plan.at_least for plan in plans)

    def __len__(self) -> int:
        """Batches per epoch."""
        return sum(self.steps) * self.together

    def plan(self, epoch: int) -> list[Indices]:
        """All batches of an epoch, over all ranks."""
        generator = np.random.Generator(np.random.PCG64([self.seed, epoch, len(self.plans)]))
        order = generator.permutation(np.repeat(np.arange(len(self.plans)), self.steps))
        streams = [self._stream(number, epoch * steps * self.together) for number, steps in enumerate(self.steps)]
        return [next(streams[number]) for number in order for _ in range(self.together)]

    def _stream(self, number: int, served: int) -> Iterator[Indices]:
        """A part's batches, epoch after epoch, those already served left out."""
        plan = self.plans[number]
        epoch, skipped = divmod(served, len(plan))
        while True:
            for batch in plan.plan(epoch)[skipped:]:
                yield _encoded(number, epoch, batch, len(self.plans))
            epoch, skipped = epoch + 1, 0

    def split(self, batch: Indices, rank: int, world: int) -> Indices:
        """A rank's part of a global batch."""
        number, _, _ = decoded(batch, len(self.plans))
        return self.plans[number].split(batch, rank, world)

    def places(self, batch: Indices) -> int:
        """How many places a batch has, padding included."""
        number, _, local = decoded(batch, len(self.plans))
        return self.plans[number].places(np.array(local))

    def describe(self) -> str:
        """How many batches of each part, and how often it is gone through in an epoch, for the log."""
        shown = zip(self.names, self.steps, self.plans, strict=True)
        told = ((name, steps * self.together, plan) for name, steps, plan in shown)
        shares = [
            f"{steps:,} ({steps / len(self):.2%}, {steps / len(plan):.3g} passes) of {name}, {plan.describe()}"
            for name, steps, plan in told
        ]
        return f"{len(self):,} batches an epoch: " + "; ".join(shares)


EXAMPLES = 2**36  # more than any part has; 2**27 is then left for parts times epochs


def _encoded(number: int, epoch: int, batch: Indices, parts: int) -> Indices:
    encoded: Indices = batch + EXAMPLES * (epoch * parts + number)
    return encoded


def decoded(batch: Any, parts: int) -> tuple[int, int, list[int]]:
    """(number of the part, its epoch, its own numbers of the examples) for a batch that is of one part.

    >>> decoded(_encoded(1, 7, np.array([3, 5]), 2), 2)
    (1, 7, [3, 5])
    """
    array = np.asarray(batch, dtype=np.int64)
    epoch, number = divmod(int(array[0] // EXAMPLES), parts)
    return number, epoch, (array % EXAMPLES).tolist()


class MixedRows:
    """The rows of all parts, by the numbers of a mixed plan."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = parts

    def __getitem__(self, batch: list[int]) -> dict[str, Any]:
        number, _, local = decoded(batch, len(self.parts))
        return dict(self.parts[number][local])


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
