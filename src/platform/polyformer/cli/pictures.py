"""Pictures that are drawn of a trained model when its run is tracked."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from polyformer.training.task import Task

__all__ = ["INDICES", "TOKENS", "model_pictures"]

INDICES, TOKENS = 128, 48
"""How far pictures of positions and of masks go, where nobody says."""


def model_pictures(task: Task) -> dict[str, Any]:
    """What each layer looks at in the example that a user may try, what positions say, and what mixers let see.

    Args:
        task: In evaluation mode.

    Returns:
        "attention", "positions" and "masks"; without those of which there is nothing to draw.
    """
    figures: dict[str, Any] = {}
    draws: dict[str, Callable[[Task], Any]] = {"attention": _attention, "positions": _positions, "masks": _masks}
    for name, draw in draws.items():
        with suppress(ValueError):  # no layer keeps weights of tokens, there is no example, or there are no positions
            figures[name] = draw(task)
    return figures


def _attention(task: Task) -> Any:
    """The mean of a layer's heads."""
    from polyformer.experiments.plots import attention_figure
    from polyformer.training.attention import attention_of

    attention = attention_of(task, task.example)
    weights = attention.weights.float().mean(dim=1, keepdim=True).numpy()  # (N, 1, L, S)
    names = [f"layer {layer}" for layer in attention.layers], [f"mean of {attention.weights.shape[1]} heads"]
    return attention_figure(weights, attention.source, attention.target, names)


def _positions(task: Task) -> Any:
    from polyformer.cli.plot_parts import positions_of, stacks_of
    from polyformer.experiments.plots import positions_figure

    return positions_figure(positions_of(stacks_of(task), INDICES))


def _masks(task: Task) -> Any:
    from polyformer.cli.plot_parts import sights_of, stacks_of
    from polyformer.experiments.plots import masks_figure

    return masks_figure(sights_of(stacks_of(task), TOKENS), columns=4)
