"""The trackers that settings name."""

from typing import Any

from polyformer.training.tensor_board import TensorBoard
from polyformer.training.tracking import Tracker
from polyformer.training.weights_and_biases import WeightsAndBiases, WeightsAndBiasesOptions

__all__ = ["make_trackers"]


def make_trackers(settings: dict[str, Any]) -> list[Tracker]:
    """Those under `logger`, which may be one name, several or none, each once.

    >>> [tracker.title for tracker in make_trackers({"logger": "wandb", "wandb": {"project": "mine"}})]
    ['Weights & Biases']
    """
    given = settings["logger"] or []
    names = dict.fromkeys([given] if isinstance(given, str) else given)
    return [TensorBoard() if name == "tensorboard" else _weights_and_biases(settings) for name in names]


def _weights_and_biases(settings: dict[str, Any]) -> Tracker:
    return WeightsAndBiases(WeightsAndBiasesOptions(**settings["wandb"]))
