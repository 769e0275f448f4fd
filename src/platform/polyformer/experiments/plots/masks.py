"""Which tokens reach which: a square for each mixer.

Letters: L tokens that look, S tokens looked at.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from polyformer.experiments.plots.style import WIDTH, grid

__all__ = ["Sight", "masks_figure"]

HIDDEN, SEEN = "#E8E8E8", "#0072B2"
TITLE = 0.55  # inches for up to three lines


@dataclass(frozen=True)
class Sight:
    """What one mixer lets see.

    Args:
        title: Which mixer, and on a line of its own how it runs.
        seen: (L, S) bool, True where what comes out at one token depends on another; None where there is nothing to draw.
        reason: Why there is nothing.
    """

    title: str
    seen: NDArray[np.bool_] | None
    reason: str = ""


def masks_figure(sights: Sequence[Sight], columns: int = 6) -> Figure:
    """A panel for each mixer: a row for each token that looks, coloured where it sees.

    >>> figure = masks_figure([Sight("causal", np.tri(3, dtype=bool)), Sight("other", None, "cannot run causal")])
    >>> [axes.get_title() for axes in figure.axes]
    ['causal: sees 67 %', 'other']
    """
    figure, panels = grid(len(sights), columns, WIDTH / columns + TITLE)
    for axes, sight in zip(panels, sights, strict=True):
        _draw(axes, sight)
    figure.supxlabel("index of the token that is seen", fontsize=8)
    figure.supylabel("index of the token that looks", fontsize=8)
    keys = [Patch(facecolor=SEEN, label="seen"), Patch(facecolor=HIDDEN, label="hidden")]
    figure.legend(handles=keys, loc="outside upper right", ncols=2, fontsize=7, frameon=False)
    return figure


def _draw(axes: Axes, sight: Sight) -> None:
    axes.tick_params(labelsize=6)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4, integer=True))
    if sight.seen is None:
        axes.set_title(sight.title, fontsize=7)
        axes.text(0.5, 0.5, sight.reason, ha="center", va="center", fontsize=7, wrap=True, transform=axes.transAxes)
        axes.set(xticks=[], yticks=[], aspect="equal")
        return
    axes.set_title(f"{sight.title}: sees {100 * sight.seen.mean():.0f} %", fontsize=7)
    axes.imshow(sight.seen, cmap=ListedColormap([HIDDEN, SEEN]), vmin=0, vmax=1, interpolation="nearest")
