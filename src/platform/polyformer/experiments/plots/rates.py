"""What the loss does while the learning rate rises."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from polyformer.experiments.plots.style import grid, line_styles, name_axes

__all__ = ["rates_figure"]


def rates_figure(rates: Sequence[float], losses: Sequence[float], smooth: Sequence[float], suggested: float | None) -> Figure:
    """The loss of each step as a point, their moving mean as a line, and the suggested rate.

    >>> axes = rates_figure([1e-3, 1e-2], [2.0, 1.0], [2.0, 1.5], 1e-3).axes[0]
    >>> axes.get_xscale(), axes.get_xlabel(), len(axes.lines)
    ('log', 'learning rate', 3)
    """
    figure, (axes,) = grid(1, 1, 4.0)
    style = line_styles(1)[0]
    axes.plot(rates, losses, color=style["color"], linestyle="", marker=".", markersize=3, alpha=0.4, label="loss of a step")
    axes.plot(rates, smooth, color=style["color"], linewidth=style["linewidth"], label="moving mean")
    if suggested is not None:
        axes.axvline(suggested, color=line_styles(2)[1]["color"], linewidth=1.2, label=f"suggested: {suggested:.1e}")
    axes.set_xscale("log")
    lowest, highest = min(losses), max(smooth[: max(1, len(smooth) // 4)])
    room = 0.2 * (highest - lowest) + 0.01
    axes.set_ylim(lowest - room, highest + room)  # what explodes is left out
    name_axes(axes, "learning-rate range test", "learning rate", "training loss")
    axes.grid(True, color="0.92", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(fontsize=7, frameon=False)
    return figure
