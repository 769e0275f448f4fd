"""From what a file or a command line says to a sweep."""

import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import PurePath
from typing import Any

from polyformer.experiments.ranges import Choices, range_of
from polyformer.experiments.settings import in_words
from polyformer.experiments.sweep import BUDGETS, Search, Settings, Sweep

__all__ = ["mapping", "seeds_of", "sweep_of"]

KEYS = ("name", "config", "fixed", "vary", "offered", "cells", "random", "search", "seeds", "budget", "parallel")
SEARCH_KEYS = ("from", "trials", "seed", "metric", "sampler", "prune_after")


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
        drawn = mapping(content.get("random"), "random")
        return Sweep(
            name=_name(name if content.get("name") is None else content["name"]),
            config=_files(content.get("config"), "config"),
            fixed=_settings(content.get("fixed"), "fixed"),
            axes=tuple([*_axes(content), *_cells(content.get("cells"))]),
            random_count=_whole(drawn.get("count", 0), "random.count", 0),
            random_seed=_whole(drawn.get("seed", 0), "random.seed", 0),
            ranges=_ranges(drawn.get("from"), "random.from"),
            seeds=seeds_of(content.get("seeds")),
            budget=_budget(content.get("budget")),
            parallel=_whole(content.get("parallel", 1), "parallel", 1),
            search=_search(content.get("search")),
        )
    except (ValueError, TypeError) as error:  # the second for values that JSON does not know
        raise ValueError(f"{where}: {error}") from None


def seeds_of(value: Any) -> tuple[int, ...]:
    """Seeds as a list, or their number: 3 means 0, 1 and 2.

    Raises:
        ValueError: If it is neither, or there are none.

    >>> seeds_of(3), seeds_of([7, 9]), seeds_of(None)
    ((0, 1, 2), (7, 9), ())
    """
    if value is None:
        return ()
    seeds = value if isinstance(value, (list, tuple)) else range(value) if _is_whole(value) else ()
    if not seeds or not all(_is_whole(seed) and seed >= 0 for seed in seeds):
        raise ValueError(f"`seeds` must be how many there are, at least 1, or a list of them such as [3, 7], but is {value}")
    return tuple(seeds)


def mapping(value: Any, key: str) -> dict[Any, Any]:
    """What stands under a key that has keys of its own; nothing where it is left out.

    Raises:
        ValueError: If it is something else.
    """
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"`{key}` must have keys of its own, as in `{key}: {{KEY: VALUE}}`, but is {value}")
    return value or {}


def _settings(value: Any, key: str) -> Settings:
    """Keys of `fit` and their values."""
    settings = {str(name): one for name, one in mapping(value, key).items()}
    if "config" in settings:
        _files(settings["config"], f"{key}.config")
    return settings


def _files(value: Any, key: str) -> tuple[str, ...]:
    files = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(files, list) or not all(isinstance(file, str) and file for file in files):
        raise ValueError(f"`{key}` must be a file, or a list of files, but is {value}")
    return tuple(files)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(value: Any, key: str, least: int) -> int:
    if not _is_whole(value):
        raise ValueError(f"`{key}` must be a whole number, but is {value}")
    if value < least:
        raise ValueError(f"`{key}` must be at least {least}, but is {value}")
    return int(value)


def _name(value: Any) -> str:
    """A folder's name or path; one that climbs out of a folder, or is the folder of all runs itself, is refused."""
    name = str(value)
    if not name.strip() or ".." in PurePath(name).parts or not PurePath(name).name:
        raise ValueError(f"`name` must be a folder's name, or a path without `..`, but is {name!r}")
    return name


def _axes(content: Settings) -> Iterator[tuple[tuple[str, Settings], ...]]:
    """What is varied: where the values of a key are names of choices, of those under `vary` and `offered`, these choices."""
    offered = mapping(content.get("offered"), "offered")
    for key, choices in mapping(content.get("vary"), "vary").items():
        if key in offered and isinstance(choices, list):
            known = mapping(offered[key], f"offered.{key}")
            unknown = [name for name in choices if name not in list(known)]
            if unknown:
                raise ValueError(f"`vary.{key}` has {unknown[0]}, but `offered.{key}` has {', '.join(map(str, known))}")
            choices = {name: known[name] for name in choices}
        yield _axis(str(key), choices)


def _axis(key: str, choices: Any) -> tuple[tuple[str, Settings], ...]:
    """A list is the values of a key; a mapping gives names to whole sets of settings."""
    if not isinstance(choices, (list, dict)) or not choices:
        raise ValueError(f"`vary.{key}` must be a list of values, or a mapping of names to settings, but is {choices}")
    if isinstance(choices, dict):
        return tuple((f"{key}={name}", _settings(settings, f"vary.{key}.{name}")) for name, settings in choices.items())
    return tuple((_named({key: value}), _settings({key: value}, "vary")) for value in choices)


def _cells(value: Any) -> list[tuple[tuple[str, Settings], ...]]:
    """The axis of the cells that are listed, or named; none where there are none."""
    if isinstance(value, list):
        several = [_settings(cell, f"cells[{place}]") for place, cell in enumerate(value)]
        return [tuple((_named(settings), settings) for settings in several)] if several else []
    named = mapping(value, "cells")
    return [tuple((str(name), _settings(settings, f"cells.{name}")) for name, settings in named.items())] if named else []


def _ranges(value: Any, key: str) -> dict[str, Choices]:
    found = {}
    for name, kind in mapping(value, key).items():
        try:
            found[str(name)] = range_of(kind)
        except ValueError as error:
            raise ValueError(f"`{key}` of `{name}`: {error}") from None
    return found


def _budget(value: Any) -> dict[str, float]:
    if value is None or value == {}:
        return {}
    budget = value if isinstance(value, dict) else {}
    if len(budget) != 1 or any(kind not in BUDGETS for kind in budget):
        said = ", ".join(map(str, budget)) or value
        raise ValueError(f"`budget` must be one of {', '.join(BUDGETS)}, as in `budget: {{steps: 1000}}`, but is {said}")
    (kind, given), amount = *budget.items(), math.nan
    with suppress(ValueError, TypeError):
        amount = float(given)
    if not 0 <= amount < math.inf:
        raise ValueError(f"`budget.{kind}` must be a number of at least 0, but is {given}")
    return {"seconds": 60.0 * amount} if kind == "minutes" else {kind: amount}


def _search(value: Any) -> Search | None:
    if value is None:
        return None
    given = mapping(value, "search")
    unknown = [name for name in given if name not in SEARCH_KEYS]
    if unknown or "trials" not in given:
        said = f"has no key `{unknown[0]}`" if unknown else "needs `trials`, how many trainings there are"
        raise ValueError(f"`search` {said}; there are {', '.join(SEARCH_KEYS)}")
    told = {name: one for name, one in given.items() if name != "from"}
    for name, least in (("trials", 1), ("seed", 0), ("prune_after", 1)):
        if name in told and not (name == "prune_after" and told[name] is None):
            _whole(told[name], f"search.{name}", least)
    if not isinstance(told.get("metric"), (str, type(None))):
        raise ValueError(f"`search.metric` must be one of the validation, such as val/loss, but is {told['metric']}")
    return Search(_ranges(given.get("from"), "search.from"), **told)


def _named(settings: Settings) -> str:
    """Settings in short: the last word of each key, and of a class its name and arguments."""
    told = []
    for key, value in settings.items():
        if isinstance(value, dict) and "class_path" in value:
            inner = value.get("init_args") or {}
            value = "-".join([str(value["class_path"]), *(f"{name}-{in_words(one)}" for name, one in inner.items())])
        told.append(f"{key.rpartition('.')[2]}={in_words(value).removesuffix('.yaml').rpartition('/')[2]}")
    return ",".join(told)
