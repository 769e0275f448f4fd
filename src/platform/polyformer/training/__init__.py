"""Training: the base of every task, its losses, schedules, checkpoints and run folder."""

from polyformer.training.checkpoints import AtomicCheckpointIO, Checkpoints, find_checkpoint, read_checkpoint
from polyformer.training.losses import TokenLoss, linear_cross_entropy
from polyformer.training.memory import keep_freed_memory, peak_memory
from polyformer.training.progress import Meter, describe, log
from polyformer.training.recipe import Averaging, FusedAdamW, OptimizerFactory, Recipe, parameter_groups
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
from polyformer.training.task import Answer, LineError, Loss, Task

__all__ = [
    "Answer",
    "AtomicCheckpointIO",
    "Averaging",
    "Checkpoints",
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
    "Noam",
    "OptimizerFactory",
    "Recipe",
    "RunFolder",
    "Schedule",
    "ScheduleFactory",
    "Task",
    "TokenLoss",
    "WarmupStableDecay",
    "describe",
    "find_checkpoint",
    "keep_freed_memory",
    "linear_cross_entropy",
    "log",
    "parameter_groups",
    "peak_memory",
    "read_checkpoint",
]
