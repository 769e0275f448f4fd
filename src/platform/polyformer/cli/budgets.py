"""A budget that is the same for all trainings of a sweep, as keys of `platform fit`."""

import math
from functools import cache
from typing import Any

from polyformer.cli.settings import parse_settings
from polyformer.errors import UsageError
from polyformer.experiments.settings import flat
from polyformer.experiments.sweep import Cell

__all__ = ["SIZES", "complete_settings", "limits_of", "within_budget"]

SIZES = ("data.batches.tokens", "trainer.accumulate_grad_batches")
"""Keys that decide how many tokens a step has."""
NO_LIMIT = {"trainer.max_epochs": -1, "trainer.max_time": None}
"""Keys that might end a training before its steps, and what takes that from them."""
LIMITS = ("trainer.max_steps", *NO_LIMIT)


def within_budget(cell: Cell, budget: dict[str, float]) -> Cell:
    """The cell with the keys that end its training at the budget; they win over its own, and nothing else limits its steps.

    A budget of time does not change the length that the config gives, since schedules are made for it: such a training ends
    at that time wherever its schedule is, or before, at its own length.

    Raises:
        UsageError: For a budget of tokens where batches are not cut by tokens.
    """
    for kind, value in budget.items():
        if kind == "seconds":
            return _with(cell, {"trainer.max_time": _clock(value)})
        settings = complete_settings(tuple(cell.words))
        lifted = {key: none for key, none in NO_LIMIT.items() if settings.get(key) not in (None, none)}
        return _with(cell, {"trainer.max_steps": _steps(kind, value, settings), **lifted})
    return cell


def limits_of(cell: Cell) -> dict[str, Any]:
    """The keys of a cell that end its training."""
    return {key: cell.settings[key] for key in LIMITS if key in cell.settings}


def _steps(kind: str, value: float, settings: dict[str, Any]) -> int:
    if kind == "steps":
        return int(value)
    if "data.batches.tokens" not in settings:
        raise UsageError("--budget tokens needs data with `data.batches.tokens`; give steps=N or seconds=N")
    return max(1, math.ceil(value / math.prod(settings[key] for key in SIZES)))


def _clock(seconds: float) -> str:
    """Seconds as Lightning has them: days, hours, minutes and seconds.

    >>> _clock(90061)
    '01:01:01:01'
    """
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 1440:02d}:{minutes // 60 % 24:02d}:{minutes % 60:02d}:{seconds:02d}"


def _with(cell: Cell, settings: dict[str, Any]) -> Cell:
    own = {name: given for name, given in cell.settings.items() if name not in settings}
    return Cell(cell.name, {**own, **settings})


@cache
def complete_settings(words: tuple[str, ...]) -> dict[str, Any]:
    """The complete settings that words of `platform fit` give, by dotted keys.

    Raises:
        UsageError: For an unknown key, or a value that does not fit.
    """
    parser, settings = parse_settings(list(words))
    return flat(parser.plain(settings))
