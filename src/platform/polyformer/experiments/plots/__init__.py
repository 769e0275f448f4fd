"""Pictures of arrays, by matplotlib's objects alone: nothing is drawn on a screen, and no state is shared."""

from polyformer.experiments.plots.attention import attention_figure
from polyformer.experiments.plots.curves import Curve, Panel, curves_figure
from polyformer.experiments.plots.fonts import font_advice, fonts_for
from polyformer.experiments.plots.growth import Growth, growth_figure
from polyformer.experiments.plots.masks import Sight, masks_figure
from polyformer.experiments.plots.positions import ByDistance, Turning, Vectors, positions_figure
from polyformer.experiments.plots.rates import rates_figure
from polyformer.experiments.plots.style import SUFFIXES, save_figure

__all__ = [
    "SUFFIXES",
    "ByDistance",
    "Curve",
    "Growth",
    "Panel",
    "Sight",
    "Turning",
    "Vectors",
    "attention_figure",
    "curves_figure",
    "font_advice",
    "fonts_for",
    "growth_figure",
    "masks_figure",
    "positions_figure",
    "rates_figure",
    "save_figure",
]
