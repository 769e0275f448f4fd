"""What comes out of a training: the content of `results.json`."""

import platform
from importlib.metadata import version
from typing import Any, cast

from lightning.pytorch import Trainer

from polyformer.data import DataModule
from polyformer.training.facts import fingerprints
from polyformer.training.memory import peak_memory
from polyformer.training.progress import Meter
from polyformer.training.task import Task
from polyformer.training.watching import Watch

__all__ = ["count_parameters", "results_of"]


def results_of(
    task: Task, data: DataModule, trainer: Trainer, meter: Meter, metrics: dict[str, float], monitor: tuple[str, str]
) -> dict[str, Any]:
    """What is known of a training that has ended.

    Args:
        task: As it was measured last.
        data: What it was trained on.
        trainer: Knows the steps.
        meter: Knows the seconds.
        metrics: Of the best checkpoint.
        monitor: The metric that says which is the best, and its better side.
    """
    seconds = meter.elapsed()
    return {
        "task": type(task).__name__,
        "model": type(task.network).__name__,
        "parameters": sum(parameter.numel() for parameter in task.parameters()),
        "trained_parameters": sum(parameter.numel() for parameter in task.parameters() if parameter.requires_grad),
        "steps": trainer.global_step,
        "skipped_steps": sum(watch.skipped for watch in cast(Any, trainer).callbacks if isinstance(watch, Watch)),
        "tokens": task.tokens_seen,
        "train_seconds": round(seconds, 3),
        "tokens_per_second": round(task.tokens_seen / seconds, 1) if seconds else None,
        "peak_memory_bytes": peak_memory(),
        "seed": data.seed,
        "versions": {name: version(name) for name in ("polyformer", "torch", "lightning")}
        | {"python": platform.python_version()},
        "metrics": metrics,
        "monitor": list(monitor),
        "signatures": task.signatures(),
        "fingerprints": fingerprints(task, data),
        "data": {split: str(report) for split, report in data.reports.items()},
        "try": task.example,
    }


def count_parameters(task: Task) -> str:
    """The number of parameters, and how many of them are trained where not all are."""
    counts = {is_trained: 0 for is_trained in (True, False)}
    for parameter in task.parameters():
        counts[parameter.requires_grad] += parameter.numel()
    trained = f" ({counts[True]:,} trained)" if counts[False] else ""
    return f"{sum(counts.values()):,} parameters{trained}"
