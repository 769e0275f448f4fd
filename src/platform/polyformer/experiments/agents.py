"""A sweep as Weights & Biases writes it, for `wandb agent`."""

from collections.abc import Sequence
from typing import Any

from polyformer.experiments.ranges import Range
from polyformer.experiments.sweep import Cell, Sweep

__all__ = ["for_agents"]

LOGGED = ("--logger", "wandb")


def for_agents(sweep: Sweep, judged: tuple[str, str], again: Sequence[str], extra: Sequence[str] | None = ()) -> dict[str, Any]:
    """The sweep as W&B's own description; each of its agents trains by `platform`, and logs to W&B.

    Where single keys take plain values, these become W&B's parameters, so that it can draw and search by them. Where
    settings go together, its one parameter is the name of the cell, which `platform sweep --cell` trains.

    Args:
        sweep: What is varied.
        judged: The metric that W&B is to look at, and its better side.
        again: The words of `platform sweep` that describe this sweep.
        extra: Words of `platform fit` for all trainings, such as those of the budget; None where they differ.

    Raises:
        ValueError: If nothing is varied.

    >>> axis = (("", {"model.position": "Rotary"}), ("", {"model.position": "Learned"}))
    >>> sweep = Sweep("positions", ("c.yaml",), axes=(axis,))
    >>> for_agents(sweep, ("val/bleu", "max"), [])["parameters"]
    {'model.position': {'values': ['Rotary', 'Learned']}}
    """
    parameters, (metric, side) = _parameters(sweep), judged
    if parameters is None or extra is None:
        parameters = {"cell": {"values": [cell.name for cell in sweep.cells]}}
        words, count = ["sweep", *again], 0
    else:
        words = ["fit", *Cell("", {"config": list(sweep.config), **sweep.fixed}).words, *extra]
        count = sweep.search.trials if sweep.search is not None else len(sweep.cells) if sweep.random_count else 0
    if not parameters:
        raise ValueError("nothing is varied, so there is nothing for agents to choose from")
    return {
        "name": sweep.name,
        "program": "platform",
        "method": "grid" if not count else "bayes" if sweep.search is not None and sweep.search.sampler == "tpe" else "random",
        **({"run_cap": count} if count else {}),
        "metric": {"name": metric, "goal": "minimize" if side == "min" else "maximize"},
        "parameters": parameters,
        "command": ["platform", *words, *LOGGED, "${args}"],
    }


def _parameters(sweep: Sweep) -> dict[str, Any] | None:
    """W&B's parameters; None where settings go together, or values are more than words and numbers."""
    found: dict[str, Any] = {}
    for axis in sweep.axes:
        keys = {tuple(settings) for _, settings in axis}
        if len(keys) != 1 or len(next(iter(keys))) != 1:
            return None
        key = next(iter(keys))[0]
        found[key] = {"values": [settings[key] for _, settings in axis]}
    ranges = sweep.search.ranges if sweep.search is not None else sweep.ranges if sweep.random_count else {}
    for key, kind in ranges.items():
        found[key] = _distribution(kind) if isinstance(kind, Range) else {"values": kind}
    if sweep.seeds:
        found["seed"] = {"values": list(sweep.seeds)}
    values = [value for parameter in found.values() for value in parameter.get("values", [])]
    return found if "config" not in found and all(isinstance(value, (str, int, float)) for value in values) else None


def _distribution(kind: Range) -> dict[str, Any]:
    if kind.whole and kind.scale == "linear":
        return {"distribution": "int_uniform", "min": int(kind.low), "max": int(kind.high)}
    if kind.scale == "log":
        if not kind.whole:
            return {"distribution": "log_uniform_values", "min": kind.low, "max": kind.high}
        return {"distribution": "q_log_uniform_values", "q": 1, "min": kind.low - 0.5, "max": kind.high + 0.5}  # it rounds
    return {"distribution": "uniform", "min": kind.low, "max": kind.high}
