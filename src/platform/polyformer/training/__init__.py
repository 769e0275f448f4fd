"""Training: the base of every task, its losses, schedules, checkpoints and run folder.

Names are imported on first use, since lightning takes seconds to load.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polyformer.training.build import load_task
    from polyformer.training.checkpoints import AtomicCheckpointIO, Checkpoints, find_checkpoint, read_checkpoint
    from polyformer.training.contract import Answer, LineError, Loss
    from polyformer.training.losses import TokenLoss, linear_cross_entropy, perplexity, sequence_loss, token_losses
    from polyformer.training.memory import keep_freed_memory, peak_memory
    from polyformer.training.metrics import answer_metrics, find_spans
    from polyformer.training.optimizers import FusedAdamW, MuonAdamW
    from polyformer.training.progress import Meter, describe, log
    from polyformer.training.recipe import Averaging, OptimizerFactory, Recipe, parameter_groups
    from polyformer.training.run import MetricsFile, RunFolder
    from polyformer.training.schedules import (
        Constant,
        Cosine,
        Horizon,
        InverseSquareRoot,
        Linear,
        Noam,
        Schedule,
        ScheduleFactory,
        WarmupStableDecay,
    )
    from polyformer.training.targets import ClassWeights, Target, make_target
    from polyformer.training.task import Task

__all__ = [
    "Answer",
    "AtomicCheckpointIO",
    "Averaging",
    "Checkpoints",
    "ClassWeights",
    "Constant",
    "Cosine",
    "FusedAdamW",
    "Horizon",
    "InverseSquareRoot",
    "LineError",
    "Linear",
    "Loss",
    "Meter",
    "MetricsFile",
    "MuonAdamW",
    "Noam",
    "OptimizerFactory",
    "Recipe",
    "RunFolder",
    "Schedule",
    "ScheduleFactory",
    "Target",
    "Task",
    "TokenLoss",
    "WarmupStableDecay",
    "answer_metrics",
    "describe",
    "find_checkpoint",
    "find_spans",
    "keep_freed_memory",
    "linear_cross_entropy",
    "load_task",
    "log",
    "make_target",
    "parameter_groups",
    "peak_memory",
    "perplexity",
    "read_checkpoint",
    "sequence_loss",
    "token_losses",
]

MODULES = {
    "build": ("load_task",),
    "checkpoints": (
        "AtomicCheckpointIO",
        "Checkpoints",
        "find_checkpoint",
        "read_checkpoint",
    ),
    "contract": ("Answer", "LineError", "Loss"),
    "losses": (
        "TokenLoss",
        "linear_cross_entropy",
        "perplexity",
        "sequence_loss",
        "token_losses",
    ),
    "memory": (
        "keep_freed_memory",
        "peak_memory",
    ),
    "metrics": (
        "answer_metrics",
        "find_spans",
    ),
    "optimizers": (
        "FusedAdamW",
        "MuonAdamW",
    ),
    "progress": (
        "Meter",
        "describe",
        "log",
    ),
    "recipe": (
        "Averaging",
        "OptimizerFactory",
        "Recipe",
        "parameter_groups",
    ),
    "run": (
        "MetricsFile",
        "RunFolder",
    ),
    "schedules": (
        "Constant",
        "Cosine",
        "Horizon",
        "InverseSquareRoot",
        "Linear",
        "Noam",
        "Schedule",
        "ScheduleFactory",
        "WarmupStableDecay",
    ),
    "targets": (
        "ClassWeights",
        "Target",
        "make_target",
    ),
    "task": ("Task",),
}


def __getattr__(name: str) -> Any:
    for module, names in MODULES.items():
        if name in names:
            return getattr(import_module(f"polyformer.training.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
