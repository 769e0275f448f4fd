"""Loading the checkpoint that a command line names."""

import os

from polyformer.cli.early import MISSING_CHECKPOINT
from polyformer.cli.words import option
from polyformer.errors import UsageError
from polyformer.training.build import Built, load_task
from polyformer.training.checkpoints import find_checkpoint
from polyformer.training.memory import keep_freed_memory
from polyformer.training.task import Task

__all__ = ["load"]

TRAINING = ("--model", "--training", "--trainer", "--logger", "--wandb", "--seed", "--config")
LONGER = ("--model.max_length", "--model.position.scaling", "--model.position.init_args.scaling")
"""What may change after training: longer texts than those of training, as far as the position has room for them."""


def load(words: list[str]) -> tuple[Task, Built]:
    """The task in the checkpoint named by `--ckpt_path`, with the other words laid over its settings."""
    place = option(words, "--ckpt_path")
    if place is None:
        raise UsageError(MISSING_CHECKPOINT)
    for word in words:
        if word.startswith(TRAINING) and not word.startswith(LONGER):
            key = word.partition("=")[0]
            raise UsageError(
                f"{key} is for training; a checkpoint is used as it was trained (--task and --data keys may change, and for "
                "longer texts --model.max_length and --model.position.scaling)"
            )
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    keep_freed_memory()
    return load_task(find_checkpoint(place), words)
