"""Attention weights: a square for each layer and head, with the tokens beside it.

Letters: N layers, H heads, L queries, S keys.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from polyformer.experiments.plots.fonts import fonts_for
from polyformer.experiments.plots.style import COLOUR_MAP, DOTS_PER_INCH

__all__ = ["attention_figure"]

INCHES_PER_TOKEN, LARGEST_PANEL, SMALLEST_PANEL, LARGEST = 0.16, 7.0, 1.1, 24.0
SMALLEST_TOKEN = 0.08  # inches; below, tokens are numbered instead of written


def attention_figure(
    weights: NDArray[np.floating],
    source: Sequence[str],
    target: Sequence[str],
    names: tuple[Sequence[str], Sequence[str]] | None = None,
) -> Figure:
    """A row of panels for each layer, a column for each head; each panel's rows sum to 1.

    Args:
        weights: (N, H, L, S).
        source: The S tokens that are looked at.
        target: The L tokens that look, the same object as ``source`` where a text looks at itself; of cross-attention in a
            decoder the tokens about to be written.
        names: Of the layers and of the heads; None: their numbers.

    >>> figure = attention_figure(np.full((1, 2, 2, 3), 1 / 3), ["ein", "Hund", "<eos>"], ["a", "dog"])
    >>> [axes.get_title() for axes in figure.axes[:2]], [text.get_text() for text in figure.axes[0].get_yticklabels()]
    (['layer 0, head 0', 'layer 0, head 1'], ['a', 'dog'])
    """
    layers, heads, queries, keys = weights.shape
    assert (queries, keys) == (len(target), len(source))
    rows, columns = names or ([f"layer {number}" for number in range(layers)], [f"head {number}" for number in range(heads)])
    across, up = _panel(keys, heads), _panel(queries, layers)
    size = heads * across + 1.6, layers * (up + 0.25) + 1.2  # with room for tokens and names, cut off where it is not needed
    figure = Figure(figsize=size, layout="compressed", dpi=DOTS_PER_INCH)
    panels = figure.subplots(layers, heads, squeeze=False, sharex=True, sharey=True)
    families, _ = fonts_for([*source, *target])
    highest = float(weights.max())
    is_cross = source is not target
    for place, axes in np.ndenumerate(panels):
        image = axes.imshow(weights[place], cmap=COLOUR_MAP, vmin=0.0, vmax=highest, interpolation="nearest", aspect="auto")
        axes.set_box_aspect(up / across)
        axes.set_title(f"{rows[place[0]]}, {columns[place[1]]}", fontsize=7)
    for axes in panels[:, 0]:
        axes.set_ylabel("token about to be written" if is_cross else "token that looks", fontsize=7)
        _write(axes, "y", target, up / queries, families)
    for axes in panels[-1]:
        axes.set_xlabel("source token" if is_cross else "token looked at", fontsize=7)
        _write(axes, "x", source, across / keys, families)
    bar = figure.colorbar(image, ax=panels, shrink=0.8, pad=0.01)
    bar.set_label("attention weight", fontsize=7)
    bar.ax.tick_params(labelsize=6)
    return figure


def _panel(tokens: int, panels: int) -> float:
    """How many inches a panel gets."""
    most = max(min(LARGEST_PANEL, LARGEST / panels), SMALLEST_PANEL)
    return min(max(tokens * INCHES_PER_TOKEN, SMALLEST_PANEL), most)


def _write(axes: Axes, axis: str, tokens: Sequence[str], inches: float, families: list[str]) -> None:
    """The tokens along an axis; their numbers where there is no room for them."""
    if inches < SMALLEST_TOKEN:
        axes.tick_params(axis, labelsize=6)  # type: ignore[arg-type]
        return
    size = min(7.0, inches * 62)
    ticks = axes.set_xticks if axis == "x" else axes.set_yticks
    turn = 90 if axis == "x" else 0
    ticks(range(len(tokens)), list(tokens), fontsize=size, family=families, parse_math=False, rotation=turn)
