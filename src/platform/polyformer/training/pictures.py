"""Pictures of how a model does, made without a display.

Letters: N examples, C classes.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torchmetrics.functional.classification import multiclass_confusion_matrix

__all__ = ["confusion_picture"]

INCHES_PER_CLASS, SMALLEST, LARGEST = 0.45, 3.5, 14.0
MOST_NUMBERED, MOST_NAMED = 25, 60  # classes up to which counts are written into the cells, and names beside them
LONGEST_NAME = 30  # characters
FONTS = ("DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "SimHei", "PingFang SC")
"""The first that is there, and those after it for characters that it lacks."""


def confusion_picture(chosen: Tensor, target: Tensor, names: Sequence[str]) -> Any:
    """Which classes are taken for which: a row for each true class, coloured by shares of it, with the counts.

    Args:
        chosen: (N,) ids of the predicted classes.
        target: (N,) ids of the true classes.
        names: of the C classes.

    Returns:
        A figure of matplotlib's.

    >>> import torch
    >>> figure = confusion_picture(torch.tensor([0, 1, 0]), torch.tensor([0, 1, 1]), ["no", "yes"])
    >>> figure.axes[0].get_xlabel(), [text.get_text() for text in figure.axes[0].texts]
    ('predicted', ['1', '0', '1', '1'])
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.font_manager import get_font_names

    known, shown = set(get_font_names()), [name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..." for name in names]
    table = multiclass_confusion_matrix(chosen, target, len(names))  # (C, C)
    shares = table / table.sum(dim=1, keepdim=True).clamp(min=1)
    side = min(max(SMALLEST, 1.5 + INCHES_PER_CLASS * len(names)), LARGEST)
    fonts = [font for font in FONTS if font in known] or ["sans-serif"]
    with rc_context({"font.family": fonts, "text.parse_math": False}):
        figure = Figure(figsize=(side + 1.0, side), layout="constrained", dpi=150)
        axes = figure.add_subplot()
        image = axes.imshow(shares.numpy(), cmap="Blues", vmin=0.0, vmax=1.0)
        axes.set(xlabel="predicted", ylabel="true", title=f"{int(table.trace()):,} of {len(target):,} right")
        if len(names) <= MOST_NAMED:
            axes.set_xticks(range(len(names)), shown, rotation=45, ha="right", rotation_mode="anchor")
            axes.set_yticks(range(len(names)), shown)
        for row, counts in enumerate(table.tolist() if len(names) <= MOST_NUMBERED else []):
            for column, count in enumerate(counts):
                colour = "white" if shares[row, column] > 0.5 else "black"
                axes.text(column, row, f"{count:,}", ha="center", va="center", color=colour, fontsize=8)
        figure.colorbar(image, ax=axes, label="share of the true class", shrink=0.8)
    return figure
