"""Which trainings a sweep is made of."""

import hashlib
import itertools
import json
import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from polyformer.experiments.settings import in_words

__all__ = ["Cell", "Range", "Sweep", "seeds_of", "sweep_of"]

KEYS = ("name", "config", "fixed", "vary", "cells", "random", "seeds", "budget", "parallel")
LONGEST_NAME = 120
BUDGETS = ("steps", "tokens", "seconds")

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
class Range:
    """Numbers that are drawn from.

    Args:
        low: The least.
        high: The most.
        scale: "linear", or "log" for what matters by its magnitude, such as learning rates.
        whole: Whether only whole numbers are drawn.

    Raises:
        ValueError: If there is nothing between the two, or a logarithm of what has none.
    """

    low: float
    high: float
    scale: str = "linear"
    whole: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"`low` must be below `high`, but they are {self.low:g} and {self.high:g}")
        if self.scale not in ("linear", "log"):
            raise ValueError(f"`scale` must be linear or log, but is {self.scale}")
        if self.scale == "log" and self.low <= 0:
            raise ValueError(f"`low` must be above 0 where `scale` is log, but is {self.low:g}")

    def draw(self, chance: random.Random) -> float | int:
        """A number, each as likely as any other on the scale; of four digits."""
        low, high = (math.log(self.low), math.log(self.high)) if self.scale == "log" else (self.low, self.high)
        value = chance.uniform(low, high)
        value = math.exp(value) if self.scale == "log" else value
        return round(value) if self.whole else float(f"{value:.4g}")


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
    """

    name: str
    config: tuple[str, ...]
    fixed: Settings = field(default_factory=dict)
    axes: tuple[tuple[tuple[str, Settings], ...], ...] = ()
    random_count: int = 0
    random_seed: int = 0
    ranges: dict[str, Range | list[Any]] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    budget: dict[str, float] = field(default_factory=dict)
    parallel: int = 1

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

    def _draws(self) -> Iterator[tuple[list[str], Settings]]:
        if not self.random_count:
            yield [], {}
        for number in range(self.random_count):
            chance = random.Random(f"{self.random_seed}/{number}")
            yield [f"draw={number}"], {key: _drawn(kind, chance) for key, kind in self.ranges.items()}


def sweep_of(content: Settings, name: str, where: str) -> Sweep:
    """A sweep from its description.

    Args:
        content: See `platform sweep --help`.
        name: What it is called where the description does not say it.
        where: What to name in errors.

    Raises:
        ValueError: For an unknown key, or a value that does not fit.
    """
    unknown = [key for key in content if key not in KEYS]
    if unknown:
        raise ValueError(f"{where}: unknown key `{unknown[0]}`; there are {', '.join(KEYS)}")
    try:
        axes = [_axis(key, choices) for key, choices in (content.get("vary") or {}).items()]
        cells = content.get("cells") or []
        named = cells.items() if isinstance(cells, dict) else ((_named(cell), cell) for cell in cells)
        axes += [tuple((str(name), dict(settings or {})) for name, settings in named)] if cells else []
        drawn = content.get("random") or {}
        ranges = {key: _range(kind) for key, kind in (drawn.get("from") or {}).items()}
        budget = {str(kind): float(value) for kind, value in (content.get("budget") or {}).items()}
        if len(budget) > 1 or any(kind not in BUDGETS for kind in budget):
            raise ValueError(f"`budget` must be one of {', '.join(BUDGETS)}, but is {', '.join(budget)}")
        config = content.get("config") or []
        return Sweep(
            name=str(content.get("name") or name),
            config=tuple([config] if isinstance(config, str) else config),
            fixed=dict(content.get("fixed") or {}),
            axes=tuple(axes),
            random_count=int(drawn.get("count", 0)),
            random_seed=int(drawn.get("seed", 0)),
            ranges=ranges,
            seeds=seeds_of(content.get("seeds")),
            budget=budget,
            parallel=int(content.get("parallel", 1)),
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{where}: {error}") from None


def seeds_of(value: Any) -> tuple[int, ...]:
    """Seeds as a list, or their number: 3 means 0, 1 and 2.

    >>> seeds_of(3), seeds_of([7, 9]), seeds_of(None)
    ((0, 1, 2), (7, 9), ())
    """
    if value is None:
        return ()
    if isinstance(value, int):
        return tuple(range(value))
    return tuple(int(seed) for seed in value)


def _axis(key: str, choices: Any) -> tuple[tuple[str, Settings], ...]:
    """A list is the values of a key; a mapping gives names to whole sets of settings."""
    if isinstance(choices, dict):
        return tuple((f"{key}={name}", dict(settings or {})) for name, settings in choices.items())
    if not isinstance(choices, list) or not choices:
        raise ValueError(f"`vary.{key}` must be a list of values, or a mapping of names to settings, but is {choices}")
    return tuple((_named({key: value}), {key: value}) for value in choices)


def _joined(base: Settings, several: Sequence[Settings]) -> Settings:
    """Settings laid over each other; config files add up, as on the command line of `fit`."""
    found = dict(base)
    for settings in several:
        files = settings.get("config", [])
        config = [*found["config"], *([files] if isinstance(files, str) else files)]
        found = {**found, **settings, "config": config}
    return found


def _drawn(kind: Range | list[Any], chance: random.Random) -> Any:
    return kind.draw(chance) if isinstance(kind, Range) else chance.choice(kind)


def _range(kind: Any) -> Range | list[Any]:
    if isinstance(kind, list):
        return kind
    unknown = set(kind) - {"low", "high", "scale", "whole"}
    if unknown:
        raise ValueError(f"a range has `low`, `high`, `scale` and `whole`, but not `{sorted(unknown)[0]}`")
    return Range(float(kind["low"]), float(kind["high"]), kind.get("scale", "linear"), bool(kind.get("whole", False)))


def _named(settings: Settings) -> str:
    """Settings in short: the last word of each key, and of a class its name and arguments."""
    told = []
    for key, value in settings.items():
        if isinstance(value, dict) and "class_path" in value:
            inner = value.get("init_args") or {}
            value = "-".join([str(value["class_path"]), *(f"{name}-{in_words(one)}" for name, one in inner.items())])
        told.append(f"{key.rpartition('.')[2]}={in_words(value).removesuffix('.yaml').rpartition('/')[2]}")
    return ",".join(told)


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
