"""Pictures that are drawn of a trained model when its run is tracked."""

from typing import Any

from polyformer.training.task import Task

__all__ = ["attention_pictures"]


def attention_pictures(task: Task) -> dict[str, Any]:
    """What each layer looks at in the example that a user may try, the mean of its heads.

    Args:
        task: In evaluation mode.

    Returns:
        "attention"; nothing where no layer keeps weights of tokens, or there is no example.
    """
    from polyformer.experiments.plots import attention_figure
    from polyformer.training.attention import attention_of

    try:
        attention = attention_of(task, task.example)
    except ValueError:
        return {}
    weights = attention.weights.float().mean(dim=1, keepdim=True).numpy()  # (N, 1, L, S)
    names = [f"layer {layer}" for layer in attention.layers], [f"mean of {attention.weights.shape[1]} heads"]
    return {"attention": attention_figure(weights, attention.source, attention.target, names)}
