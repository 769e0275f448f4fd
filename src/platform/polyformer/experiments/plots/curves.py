"""How metrics move while runs train.

Letters: N points of a curve.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from polyformer.experiments.plots.style import grid, line_styles, name_axes

__all__ = ["Curve", "Panel", "curves_figure"]

Floats = NDArray[np.float64]

MOST_POINTS = 400
MARKERS_PER_LINE = 8
LEGEND_COLUMNS = 4


@dataclass(frozen=True)
class Curve:
    """One row of runs, which differ only in the seed.

    Args:
        name: The row.
        lines: For each seed the (N,) places and the (N,) values.
    """

    name: str
    lines: Sequence[tuple[Floats, Floats]]

    @property
    def mean(self) -> tuple[Floats, Floats] | None:
        """The means over the seeds of places and of values; None where there are no places that all seeds reach.

        Of seeds with other numbers of points, as where patience ends one, values are interpolated at the places of the
        shortest that lie between the beginnings and the ends of all.
        """
        if not self.lines:
            return None
        if len({len(places) for places, _ in self.lines}) == 1:
            return np.mean([places for places, _ in self.lines], axis=0), np.mean([values for _, values in self.lines], axis=0)
        shortest = min((places for places, _ in self.lines), key=len)
        begin, end = max(places[0] for places, _ in self.lines), min(places[-1] for places, _ in self.lines)
        shared = shortest[(begin <= shortest) & (shortest <= end)]
        return (shared, np.mean([np.interp(shared, *line) for line in self.lines], axis=0)) if len(shared) else None


@dataclass(frozen=True)
class Panel:
    """One square of the picture.

    Args:
        across: What the places are, with their unit.
        up: What the values are.
        curves: One for each row; rows without a curve here have one without lines.
    """

    across: str
    up: str
    curves: Sequence[Curve]


def curves_figure(panels: Sequence[Panel], columns: int = 3) -> Figure:
    """A line for each row: the mean over its seeds, and each seed as a thin line behind.

    >>> one = Curve("Rotary", [(np.array([1.0, 2.0]), np.array([3.0, 2.0])), (np.array([1.0, 2.0]), np.array([5.0, 2.0]))])
    >>> axes = curves_figure([Panel("steps", "val/loss", [one])]).axes[0]
    >>> axes.get_xlabel(), axes.get_ylabel(), axes.lines[-1].get_ydata().tolist()
    ('steps', 'val/loss', [4.0, 2.0])
    """
    figure, places = grid(len(panels), columns, 2.3)
    for axes, panel in zip(places, panels, strict=True):
        for curve, style in zip(panel.curves, line_styles(len(panel.curves)), strict=True):
            _draw(axes, curve, style)
        name_axes(axes, "", panel.across, panel.up)
        axes.set_xlim(0.0, 1.04 * axes.dataLim.x1 if axes.dataLim.x1 > 0.0 else None)  # room for the last mark
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=panel.across == "steps"))
        axes.grid(True, color="0.92", linewidth=0.6)
        axes.set_axisbelow(True)
    handles, names = figure.axes[0].get_legend_handles_labels()
    shown = min(LEGEND_COLUMNS, max(1, 120 // max(map(len, names), default=1)))
    figure.legend(handles, names, loc="outside lower center", ncols=shown, fontsize=7, frameon=False)
    return figure


def _draw(axes: Axes, curve: Curve, style: dict[str, Any]) -> None:
    thin = {**style, "marker": "", "linewidth": 0.5, "alpha": 0.5}
    if len(curve.lines) > 1:
        for places, values in curve.lines:
            axes.plot(*_thinned(places, values), **thin)
    places, values = _thinned(*(curve.mean or (np.zeros(0), np.zeros(0))))
    axes.plot(places, values, label=curve.name, markevery=max(1, len(places) // MARKERS_PER_LINE), **style)


def _thinned(places: Floats, values: Floats) -> tuple[Floats, Floats]:
    """At most so many points, the last always among them."""
    if len(places) <= MOST_POINTS:
        return places, values
    kept = np.unique(np.linspace(0, len(places) - 1, MOST_POINTS).round().astype(np.int64))
    return places[kept], values[kept]
