"""A rank whose mates have died ends too, soon and with a line that says why; without torch's help, as with NCCL."""

import logging
import os
import signal
import subprocess
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher

from polyformer.errors import LostRankError
from polyformer.training.lost_ranks import LostRanks

ADVICE = "platform fit --run mine --resume"
BOUND = 20.0  # seconds; on a free machine it is one


def forked(work: Callable[[], None], said: Path) -> int:
    """A process that does something and then waits as if for another rank; what it says goes to a file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if not process:
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        log = logging.getLogger("polyformer")
        log.handlers, log.propagate = [logging.FileHandler(said)], False
        work()
        time.sleep(BOUND)
        os._exit(0)
    return process


def watch(local_rank: int, started: list[Any]) -> None:
    launcher = _SubprocessScriptLauncher.__new__(_SubprocessScriptLauncher)
    launcher.procs = started
    trainer: Any = SimpleNamespace(world_size=2, local_rank=local_rank, strategy=SimpleNamespace(launcher=launcher))
    LostRanks(ADVICE).setup(trainer, trainer, "fit")


def test_the_first_rank_looks_after_those_it_started(tmp_path: Path) -> None:
    def first() -> None:
        other = subprocess.Popen(["sleep", "60"])
        watch(0, [other])
        other.kill()

    _, status = os.waitpid(forked(first, tmp_path / "said"), 0)
    assert os.waitstatus_to_exitcode(status) == 1
    said = (tmp_path / "said").read_text()
    assert said == f"rank 1 was killed by SIGKILL, without which this one cannot go on; go on with: {ADVICE}\n"


def test_a_rank_looks_after_the_process_that_started_it(tmp_path: Path) -> None:
    def second() -> None:
        watch(1, [])
        (tmp_path / "watching").touch()

    def first() -> None:
        forked(second, tmp_path / "second")
        while not (tmp_path / "watching").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)

    os.waitpid(forked(first, tmp_path / "first"), 0)
    until = time.monotonic() + BOUND
    while "has died" not in (said := (tmp_path / "second").read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    assert said == f"the process that started this rank has died, without which this one cannot go on; go on with: {ADVICE}\n"


def test_a_connection_that_closes_is_told_from_other_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyformer.training.lost_ranks.PERIOD", 0.0)
    with pytest.raises(LostRankError, match="another rank has ended"), LostRanks(ADVICE).guard():
        raise RuntimeError("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1")
    with pytest.raises(RuntimeError, match="shapes"), LostRanks(ADVICE).guard():
        raise RuntimeError("shapes differ")
