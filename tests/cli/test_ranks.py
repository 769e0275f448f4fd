"""Processes that torchrun or srun starts side by side: who is first, what they share, and work that is done once."""

import os
import threading
import time
from pathlib import Path

import pytest
from filelock import FileLock

import polyformer.data.cache
from polyformer.cli import main
from polyformer.cli.fit import is_first, ranks_started
from polyformer.data.turns import one_before_others

from ..ranks import run_on_ranks
from .small import SMALL


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID", "SLURM_NTASKS", "POLYFORMER_RUN"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("environment", "first", "count"),
    [
        ({}, True, 1),
        ({"LOCAL_RANK": "1"}, False, 1),
        ({"NODE_RANK": "1", "LOCAL_RANK": "0"}, False, 1),
        ({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "16"}, True, 16),
        ({"RANK": "8", "LOCAL_RANK": "0", "WORLD_SIZE": "16"}, False, 16),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "32"}, True, 32),
        ({"SLURM_PROCID": "8", "SLURM_NTASKS": "32"}, False, 32),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "16"}, True, 16),
    ],
)
def test_one_process_is_first_however_they_were_started(
    environment: dict[str, str], first: bool, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert (is_first(), ranks_started()) == (first, count)


def test_processes_started_side_by_side_need_the_name_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_NTASKS", "8")
    assert main(["fit", "--config", str(tmp_path / "small.yaml")]) == 2
    assert "--run NAME is needed" in capsys.readouterr().err


def test_two_ranks_make_a_tokenizer_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYFORMER_CACHE", str(tmp_path / "cache"))
    made = polyformer.data.cache.train_tokenizer

    def counted(*arguments: object, **named: object) -> object:
        with (tmp_path / "made.txt").open("a") as file:
            file.write("once\n")
        return made(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(polyformer.data.cache, "train_tokenizer", counted)
    (tmp_path / "small.yaml").write_text(SMALL)
    words = ["fit", "--config", str(tmp_path / "small.yaml"), "--run", str(tmp_path / "run"), "--trainer.max_steps", "1"]
    run_on_ranks([*words, "--trainer.val_check_interval", "1", "--data.evaluation_count", "2", "--debug"], tmp_path)
    assert (tmp_path / "made.txt").read_text() == "once\n"


def test_others_wait_for_the_first_and_then_for_nobody(tmp_path: Path) -> None:
    file, both = tmp_path / "locks" / "one.lock", threading.Barrier(2, timeout=60)
    begun, done = threading.Event(), []

    def other() -> None:
        begun.set()
        with one_before_others(file):
            done.append("other")
            both.wait()  # side by side

    others = [threading.Thread(target=other) for _ in range(2)]
    with one_before_others(file):
        for each in others:
            each.start()
        assert begun.wait(60) and not others[0].join(0.2)
        done.append("first")
    for each in others:
        each.join(60)
    assert done == ["first", "other", "other"]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_that_dies_while_others_wait_gives_way(tmp_path: Path) -> None:
    file = tmp_path / "one.lock"
    read, write = os.pipe()
    process = os.fork()
    if not process:
        with one_before_others(file):
            os.write(write, b"in")
            time.sleep(300)
    assert os.read(read, 2) == b"in"
    dying = threading.Timer(0.2, os.kill, (process, 9))
    dying.start()
    with one_before_others(file):
        assert os.waitpid(process, 0)[1] == 9  # not before


def test_where_there_are_no_locks_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise NotImplementedError("no flock here")

    monkeypatch.setattr(FileLock, "acquire", refuse)
    with one_before_others(tmp_path / "one.lock"):
        pass
