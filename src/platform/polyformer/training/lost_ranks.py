"""What a rank does when another has died: it ends as well, instead of waiting for it without end."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from subprocess import Popen

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher
from torch import distributed

from polyformer.errors import LostRankError
from polyformer.training.progress import log

__all__ = ["LostRanks"]

PERIOD = 0.5  # seconds between two looks


class LostRanks(Callback):
    """Ends this process soon after another one of the training on this machine has died.

    The first rank looks after those that it started, and each of the others after the process that started it. What is
    on other machines is noticed by torchrun and SLURM, or by connections that close.

    Args:
        advice: The command that goes on with the run.
    """

    def __init__(self, advice: str) -> None:
        self.advice = advice
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Begins to watch, as soon as there are other ranks."""
        if trainer.world_size > 1 and self._thread is None:
            launcher = trainer.strategy.launcher
            started = launcher.procs if isinstance(launcher, _SubprocessScriptLauncher) else []
            parent = None if trainer.local_rank == 0 else os.getppid()
            self._thread = threading.Thread(target=self._watch, args=(started, parent), daemon=True, name="lost-ranks")
            self._thread.start()

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Within it ranks need each other.

        Raises:
            LostRankError: If another rank has closed its connection, and it is not seen here which one.
        """
        try:
            yield
        except RuntimeError as error:
            if not isinstance(error, distributed.DistError) and "gloo" not in str(error):
                raise
            time.sleep(4 * PERIOD)  # the thread knows more, if it is a process that it watches
            raise LostRankError("another rank has ended, without which this one cannot go on; its output says why") from error
        finally:
            self._ended.set()

    def _watch(self, started: Sequence["Popen[bytes]"], parent: int | None) -> None:
        while not self._ended.wait(PERIOD):
            lost = _lost(started, parent)
            if lost and not self._ended.wait(PERIOD):  # a run that ends well may lose its first rank first
                log.error("%s, without which this one cannot go on; go on with: %s", lost, self.advice)
                os._exit(1)


def _lost(started: Sequence["Popen[bytes]"], parent: int | None) -> str:
    """Which process has died, and how; "" while all are at work."""
    for rank, process in enumerate(started, 1):
        code = process.poll()
        if code:
            return f"rank {rank} was killed by {signal.Signals(-code).name}" if code < 0 else f"rank {rank} has failed"
    return "the process that started this rank has died" if parent is not None and os.getppid() != parent else ""
