"""Training a copy of a task for a step or two, by the trainer of every training."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from polyformer.training.checkpoints import AtomicCheckpointIO
from polyformer.training.fitting import make_trainer
from polyformer.training.task import Task

__all__ = ["trained"]


@contextmanager
def trained(task: Task, batches: Sequence[Any], place: Path | None = None, **keys: Any) -> Iterator[Any]:
    """Lightning's trainer, after it has trained a task with batches.

    Afterwards the task is of no more use: the two hold each other, so that its weights and gradients would stay in memory.

    Args:
        task: It is trained as it is.
        batches: What is served, from the beginning.
        place: A checkpoint to go on from, whose steps are not made again.
        keys: Of the trainer.
    """
    trainer = make_trainer(None, devices=1, plugins=[AtomicCheckpointIO()], **keys)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that nothing is validated
        loader: Any = DataLoader(batches, batch_size=None)  # type: ignore[arg-type]
        trainer.fit(task, loader, ckpt_path=place, weights_only=True)
    yield trainer
    for optimizer in trainer.optimizers:
        optimizer.state.clear()
        optimizer.param_groups.clear()
    task.to("meta")
