"""The learning curves of a comparison: which metrics, against what."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyformer.experiments.comparable import refusals
from polyformer.experiments.comparison import Comparison
from polyformer.experiments.plots import Curve, Panel, curves_figure
from polyformer.experiments.rows import Row

__all__ = ["curves_of"]

AGAINST = ("step", "tokens", "seconds")
UNITS = {"loss": "nats", "bits_per_byte": "bits", "accuracy": "share", "bleu": "points", "exact_match": "share", "f1": "share"}


def curves_of(comparison: Comparison) -> Any | None:
    """Loss in training, and in validation the loss and what the runs are judged by, each against steps, tokens and time.

    A metric that may not be ranked is not drawn, since lines in one picture are compared.

    Returns:
        A figure of matplotlib's; None where there is nothing to draw.
    """
    runs = [run for row in comparison.rows for run in row.runs]
    judged = (comparison.ranked_by or "").rpartition("/")[2]
    names = list(dict.fromkeys(name for name in ("train/loss", "val/loss", f"val/{judged}")))
    closed = {name for refusal in refusals(runs, names) for name in refusal.metrics}
    closed |= {"train/loss"} if "val/loss" in closed else set()
    drawn = [name for name in names if name not in closed and any(run.curve(name) for run in runs)]
    if not drawn:
        return None
    return curves_figure([_panel(comparison.rows, name, against) for name in drawn for against in AGAINST])


def _panel(rows: Sequence[Row], metric: str, against: str) -> Panel:
    divisor, across = _unit(rows, against)
    curves = []
    for row in rows:
        pairs = [np.array(curve) for run in row.runs if (curve := run.curve(metric, against))]
        curves.append(Curve(row.name, [(pair[:, 0] / divisor, pair[:, 1]) for pair in pairs]))
    unit = next((unit for ending, unit in UNITS.items() if metric.endswith(ending)), None)
    return Panel(across, f"{metric} ({unit})" if unit else metric, curves)


def _unit(rows: Sequence[Row], against: str) -> tuple[float, str]:
    """What places are divided by, and what they are called."""
    longest = max((row.get(against, 0.0) for one in rows for run in one.runs for row in run.history[-1:]), default=0.0)
    if against == "tokens":
        return (1e6, "tokens trained on (millions)") if longest >= 1e6 else (1e3, "tokens trained on (thousands)")
    if against == "seconds":
        return (60.0, "training time (minutes)") if longest >= 600 else (1.0, "training time (seconds)")
    return 1.0, "steps"
