"""Which trainings a sweep is made of."""

import hashlib
import itertools
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from polyformer.experiments.ranges import Choices, drawn_from

__all__ = ["BUDGETS", "Cell", "Search", "Settings", "Sweep"]

LONGEST_NAME = 120
BUDGETS = ("steps", "tokens", "seconds", "minutes")

Settings = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One training of a sweep.

    Args:
        name: Its folder's name.
        settings: Keys and values in their order; `config` is a list of files.
    """

    name: str
    settings: Settings

    @property
    def words(self) -> list[str]:
        """The words after `platform fit`, without `--run`."""
        return [word for key, value in self.settings.items() for word in _words(key, value)]


@dataclass(frozen=True)
class Search:
    """Settings that are chosen by what earlier ones came to.

    Args:
        ranges: Key -> what its values are chosen from.
        trials: How many trainings there are, those that are ended early among them.
        seed: Decides what is tried.
        metric: Of the validation, what is to be made better; None: what checkpoints are judged by.
        sampler: "tpe", which learns from trial to trial (Bergstra et al. 2011), or "random".
        prune_after: From so many finished trials on, a training is ended early whose metric so far is worse than the median
            of theirs at the same step (Golovin et al. 2017, section 3.2.2); None: never.

    Raises:
        ValueError: For values that make no sense.
    """

    ranges: dict[str, Choices]
    trials: int
    seed: int = 0
    metric: str | None = None
    sampler: str = "tpe"
    prune_after: int | None = 5

    def __post_init__(self) -> None:
        if not self.ranges:
            raise ValueError("`search.from` must name the keys to search over, each with a range or a list")
        for name, least in (("trials", 1), ("prune_after", 1)):
            if (value := getattr(self, name)) is not None and value < least:
                raise ValueError(f"`search.{name}` must be at least {least}, but is {value}")
        if self.sampler not in ("tpe", "random"):
            raise ValueError(f"`search.sampler` must be tpe or random, but is {self.sampler}")
        if self.metric is not None and not self.metric.startswith("val/"):
            raise ValueError(f"`search.metric` must be one of the validation, such as val/loss, but is {self.metric}")


@dataclass(frozen=True)
class Sweep:
    """A base config and what is varied.

    Args:
        name: The folder under `runs/`.
        config: Base config files.
        fixed: Settings that all cells share.
        axes: The grid: each axis has choices, a short name and settings for each.
        random_count: Draws from ``ranges``; 0: none.
        random_seed: Decides what is drawn.
        ranges: Key -> a range, or a list to choose from.
        seeds: Of the runs of each setting.
        budget: "steps", "tokens" or "seconds" -> how much every cell may have; at most one.
        parallel: How many trainings run at once.
        search: What else chooses settings, one after another; then nothing above does.

    Raises:
        ValueError: If settings are both listed and searched for.
    """

    name: str
    config: tuple[str, ...]
    fixed: Settings = field(default_factory=dict)
    axes: tuple[tuple[tuple[str, Settings], ...], ...] = ()
    random_count: int = 0
    random_seed: int = 0
    ranges: dict[str, Choices] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    budget: dict[str, float] = field(default_factory=dict)
    parallel: int = 1
    search: Search | None = None

    def __post_init__(self) -> None:
        if self.search is not None and (self.axes or self.random_count or self.seeds):
            raise ValueError("`search` chooses the settings of each training: leave `vary`, `cells`, `random` and `seeds` out")

    @property
    def cells(self) -> list[Cell]:
        """All trainings: the seeds of one setting after the other."""
        found: dict[str, Cell] = {}
        for choice in itertools.product(*self.axes):
            for drawn_name, drawn in self._draws():
                for seed in self.seeds or (None,):
                    named = [name for name, _ in choice] + drawn_name + ([f"seed={seed}"] if seed is not None else [])
                    own = [self.fixed, *(settings for _, settings in choice), drawn, {} if seed is None else {"seed": seed}]
                    name = _cell_name(named)
                    if name in found:
                        raise ValueError(f"two cells would be named {name}; give the choices other names")
                    found[name] = Cell(name, _joined({"config": list(self.config)}, own))
        return list(found.values())

    def cell_with(self, name: str, settings: Settings) -> Cell:
        """A training of the base with some settings."""
        return Cell(name, _joined({"config": list(self.config)}, [self.fixed, settings]))

    def with_more(self, more: dict[str, Settings]) -> "Sweep":
        """The sweep with more settings for the cells that have certain choices.

        Args:
            more: The name of a choice, such as `translation` in the axis `task`, -> settings.

        Raises:
            ValueError: If there is no such choice.
        """
        known = [name.rpartition("=")[2] for axis in self.axes for name, _ in axis]
        for choice in more:
            if choice not in known:
                raise ValueError(f"there is no choice `{choice}`; there are {', '.join(known) or 'none'}")
        axes = [
            tuple((name, {**settings, **more.get(name.rpartition("=")[2], {})}) for name, settings in axis)
            for axis in self.axes
        ]
        return replace(self, axes=tuple(axes))

    def _draws(self) -> Iterator[tuple[list[str], Settings]]:
        if not self.random_count:
            yield [], {}
        for number in range(self.random_count):
            chance = random.Random(f"{self.random_seed}/{number}")
            yield [f"draw={number}"], {key: drawn_from(kind, chance) for key, kind in self.ranges.items()}


def _joined(base: Settings, several: Sequence[Settings]) -> Settings:
    """Settings laid over each other; config files add up, as on the command line of `fit`."""
    found = dict(base)
    for settings in several:
        files = settings.get("config", [])
        config = [*found["config"], *([files] if isinstance(files, str) else files)]
        found = {**found, **settings, "config": config}
    return found


def _cell_name(parts: Sequence[str]) -> str:
    """A folder's name without anything that a shell or a file system minds; a long one is cut, and ends in a digest.

    >>> _cell_name(["position=Rotary", "seed=1"]), _cell_name([])
    ('position=Rotary,seed=1', 'base')
    """
    whole = ",".join(part for part in parts if part)
    name = re.sub(r"[^\w.,=+-]+", "-", whole).strip("-.") or "base"
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 9]}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"


def _words(key: str, value: Any) -> list[str]:
    if key == "config":
        return [word for file in value for word in ("--config", str(file))]
    return [f"--{key}", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)]
