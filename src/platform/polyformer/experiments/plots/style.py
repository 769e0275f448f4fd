"""What all pictures share: their size, their colours, and how they are written."""

import warnings
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["COLOUR_MAP", "SUFFIXES", "WIDTH", "grid", "line_styles", "name_axes", "save_figure"]

SUFFIXES = (".png", ".svg", ".pdf")
WIDTH = 8.0
"""Inches of a whole picture: in the width of a README, about 800 points, text of size 7 can be read."""
DOTS_PER_INCH = 200
COLOUR_MAP = "viridis"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Those that colour-blind readers tell apart (Okabe and Ito 2008); without yellow, which is hard to see on white."""
DASHES = ("-", "--", ":", "-.")
MARKERS = "os^Dvx"


def line_styles(count: int) -> list[dict[str, Any]]:
    """What makes so many lines differ: colours and markers, then dashes too.

    >>> first, eighth = line_styles(8)[0], line_styles(8)[7]
    >>> first["color"] == eighth["color"], first["linestyle"] == eighth["linestyle"]
    (True, False)
    """
    several = [divmod(number, len(COLOURS)) for number in range(count)]
    return [
        {
            "color": COLOURS[place],
            "linestyle": DASHES[turn % len(DASHES)],
            "marker": MARKERS[(turn * len(COLOURS) + place) % len(MARKERS)],
            "markersize": 3.5,
            "linewidth": 1.2,
        }
        for turn, place in several
    ]


def grid(count: int, columns: int, height: float) -> tuple[Figure, list[Axes]]:
    """A picture with room for so many panels, row by row.

    Args:
        count: Number of panels.
        columns: The most of them in a row.
        height: Of a row, in inches.
    """
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(WIDTH, rows * height), layout="constrained", dpi=DOTS_PER_INCH)
    return figure, [figure.add_subplot(rows, columns, number + 1) for number in range(count)]


def name_axes(axes: Axes, title: str, across: str, up: str) -> None:
    """Title and names of the axes, in a size for small panels."""
    axes.set_title(title, fontsize=8)
    axes.set_xlabel(across, fontsize=7)
    axes.set_ylabel(up, fontsize=7)
    axes.tick_params(labelsize=6.5)


def save_figure(figure: Figure, path: Path) -> None:
    """Writes a picture in the form that the file's name ends in, without date and random names, so that it is the same again.

    Raises:
        ValueError: For another ending than those of ``SUFFIXES``.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{path}: a picture's name must end in {', '.join(SUFFIXES)}")
    dated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    with (
        rc_context({"svg.hashsalt": "polyformer"}),
        warnings.catch_warnings(),
    ):  # warned is for each character that no font here has, which `font_advice` tells of
        warnings.simplefilter("ignore", UserWarning)
        figure.savefig(path, metadata=dated.get(path.suffix.lower()), bbox_inches="tight", pad_inches=0.08)
