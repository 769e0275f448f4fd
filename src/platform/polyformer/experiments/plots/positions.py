"""What position encodings say of places and distances.

Letters: H heads, L indices, S distances, D features.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from polyformer.experiments.plots.style import COLOUR_MAP, grid, line_styles, name_axes

__all__ = ["ByDistance", "Turning", "Vectors", "positions_figure"]

Floats = NDArray[np.floating]

CURVES = 5
MOST_NAMED = 8  # heads that the legend names one by one


@dataclass(frozen=True)
class Vectors:
    """Vectors added to embeddings.

    Args:
        title: Which position.
        table: (L, D), the vector of each index.
    """

    title: str
    table: Floats


@dataclass(frozen=True)
class Turning:
    """Queries and keys turned.

    Args:
        title: Which position.
        similarity: (L,), the mean product of a vector with itself turned by each distance, as a share of its square.
    """

    title: str
    similarity: Floats


@dataclass(frozen=True)
class ByDistance:
    """Numbers added to logits.

    Args:
        title: Which position.
        distance: (S,), index of the key minus that of the query.
        mean: (H, S), over normally distributed queries.
        deviation: (H, S), over the same; zeros where the query has no say.
    """

    title: str
    distance: NDArray[np.integer]
    mean: Floats
    deviation: Floats


def positions_figure(positions: Sequence[Vectors | Turning | ByDistance]) -> Figure:
    """Two panels for vectors, some of their features and all of their products; one for anything else.

    >>> waves = Vectors("Sinusoidal", np.sin(np.arange(12.0)).reshape(4, 3))
    >>> figure = positions_figure([waves, Turning("Rotary", np.array([1.0, 0.8]))])
    >>> [axes.get_title() for axes in figure.axes[:3]]
    ['Sinusoidal: features', 'Sinusoidal: dot products', 'Rotary: products']
    """
    pairs = [isinstance(position, Vectors) for position in positions]
    figure, panels = grid(len(pairs) + sum(pairs), 2 if all(pairs) else 3, 2.2)
    free = iter(panels)
    for position in positions:
        if isinstance(position, Vectors):
            _draw_features(next(free), position)
            _draw_products(next(free), position)
        elif isinstance(position, Turning):
            _draw_turning(next(free), position)
        else:
            _draw_distances(next(free), position)
    return figure


def _draw_features(axes: Axes, vectors: Vectors) -> None:
    width = vectors.table.shape[1]
    chosen = range(0, width, max(1, width // 8))[:CURVES]
    for feature, style in zip(chosen, line_styles(CURVES), strict=False):
        axes.plot(vectors.table[:, feature], label=str(feature), **{**style, "marker": "", "linewidth": 1.0})
    name_axes(axes, f"{vectors.title}: features", "index (tokens)", "value")
    axes.margins(x=0)
    _explain(axes, "feature")


def _draw_products(axes: Axes, vectors: Vectors) -> None:
    image = axes.imshow(vectors.table @ vectors.table.T, cmap=COLOUR_MAP, interpolation="nearest", origin="lower")
    name_axes(axes, f"{vectors.title}: dot products", "index (tokens)", "index (tokens)")
    bar = axes.figure.colorbar(image, ax=axes)
    bar.ax.tick_params(labelsize=6)


def _draw_turning(axes: Axes, turning: Turning) -> None:
    axes.plot(turning.similarity, **{**line_styles(1)[0], "marker": ""})
    axes.axhline(0.0, color="0.7", linewidth=0.6)
    name_axes(axes, f"{turning.title}: products", "distance (tokens)", "share of the product kept")
    axes.margins(x=0)


def _draw_distances(axes: Axes, biases: ByDistance) -> None:
    lines, band = biases.mean, biases.deviation
    of_queries = bool(np.abs(lines).max() < 1e-6 < band.max())  # a mean of nothing says nothing
    lines, band = (band, np.zeros_like(band)) if of_queries else (lines, band)
    alike = bool(np.allclose(lines, lines[:1]) and np.allclose(band, band[:1]))
    for head, style in zip(range(1 if alike else len(lines)), line_styles(len(lines)), strict=False):
        label = "all" if alike else str(head)
        axes.plot(biases.distance, lines[head], label=label if head < MOST_NAMED else None, **{**style, "marker": ""})
        low, high = lines[head] - band[head], lines[head] + band[head]
        axes.fill_between(biases.distance, low, high, color=style["color"], alpha=0.15, linewidth=0)
    how = "deviation over queries" if of_queries else "mean and deviation over queries" if band.any() else ""
    name_axes(axes, biases.title, "distance of the key (tokens)", "added to logits" + (f":\n{how}" if how else ""))
    axes.margins(x=0)
    if of_queries:
        axes.set_ylim(bottom=0.0)
    _explain(axes, "head")


def _explain(axes: Axes, title: str) -> None:
    """A legend over the lines, and room for it."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.3 * (high - low))
    axes.legend(title=title, title_fontsize=6, fontsize=6, ncols=MOST_NAMED, loc="upper center", **LEGEND)


LEGEND: dict[str, Any] = {"frameon": False, "handlelength": 1.0, "columnspacing": 0.7, "borderpad": 0.2}
