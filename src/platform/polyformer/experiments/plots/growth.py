"""How time and memory grow with the length of a text."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from polyformer.experiments.plots.style import grid, line_styles, name_axes

__all__ = ["Growth", "growth_figure"]


@dataclass(frozen=True)
class Growth:
    """What one contender took.

    Args:
        name: The contender.
        lengths: Of the texts, in tokens, those measured.
        seconds: For each of them.
        megabytes: Likewise, at the peak.
    """

    name: str
    lengths: Sequence[int]
    seconds: Sequence[float]
    megabytes: Sequence[float]


def growth_figure(growths: Sequence[Growth], title: str) -> Figure:
    """Time on the left, memory on the right, a line for each contender; both axes are logarithmic.

    Args:
        growths: What was measured.
        title: What was done.

    >>> figure = growth_figure([Growth("FullAttention", [64, 128], [0.1, 0.3], [2.0, 6.0])], "forward and backward")
    >>> [axes.get_yscale() for axes in figure.axes]
    ['log', 'log']
    """
    figure, (time, memory) = grid(2, 2, 4.2)
    for growth, style in zip(growths, line_styles(len(growths)), strict=True):
        time.plot(growth.lengths, growth.seconds, label=growth.name, **style)
        memory.plot(growth.lengths, growth.megabytes, label=growth.name, **style)
    lengths = sorted({length for growth in growths for length in growth.lengths})
    _scale(time, "time", "seconds", lengths)
    _scale(memory, "memory", "megabytes at the peak", lengths)
    figure.suptitle(title, fontsize=8)
    handles, names = time.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, fontsize=7, frameon=False)
    return figure


def _scale(axes: Axes, title: str, unit: str, lengths: Sequence[int]) -> None:
    name_axes(axes, title, "length (tokens)", unit)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(True, which="major", color="0.9", linewidth=0.6)
