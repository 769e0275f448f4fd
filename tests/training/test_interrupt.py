"""Ctrl-C and SIGTERM: what is saved, what is said, and that nothing is lost."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from polyformer.cli import main
from polyformer.data import LabelledData
from polyformer.tasks.classification import Classification
from polyformer.training import read_checkpoint

from ..cli.small import fit, metrics_of, results_of
from ..kills import CLASSIFIER, Case, write_data

CONFIG = (
    CLASSIFIER
    + """
training: {averaging: {kind: ema, decay: 0.8}}
trainer: {max_steps: 6, val_check_interval: 3, log_every_n_steps: 1, accelerator: cpu, accumulate_grad_batches: 2}
"""
)
"""Two batches a step, averages that stand in for the weights while they are validated, and no save but at validations."""

Step = Callable[[Classification, Any, int], Any]


@pytest.fixture(scope="module", autouse=True)
def config(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return CONFIG.replace("FOLDER", str(folder))


@pytest.fixture(scope="module")
def whole(config: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    assert fit(folder, config=config) == 0
    return folder / "run"


def signalled(method: Step, number: int, is_time: Callable[[Classification, int], bool]) -> Step:
    """A step of a task at whose beginning its process gets a signal."""

    def step(self: Classification, batch: Any, batch_idx: int) -> Any:
        if is_time(self, batch_idx):
            os.kill(os.getpid(), number)
        return method(self, batch, batch_idx)

    return step


def stop(folder: Path, config: str, number: int, place: str, is_time: Callable[..., bool]) -> int:
    """Trains until a signal comes; the exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Classification, place, signalled(getattr(Classification, place), number, is_time))
        code = fit(folder, config=config)
    return code


def same_end(run: Path, whole: Path) -> None:
    """Goes on, and fails unless it comes to the same as a run that was left alone."""
    assert main(["fit", "--run", str(run), "--resume", "--debug"]) == 0
    assert metrics_of(run) == metrics_of(whole)
    ends = [read_checkpoint(each / "checkpoints" / "last.ckpt") for each in (run, whole)]
    for part in ("state_dict", "current_model_state"):
        assert all(torch.equal(value, ends[1][part][name]) for name, value in ends[0][part].items())


@pytest.mark.parametrize(("number", "code", "batch", "step"), [(signal.SIGTERM, 143, 4, 3), (signal.SIGINT, 130, 7, 4)])
def test_a_signal_ends_a_training_after_the_step_at_work(
    tmp_path: Path, config: str, whole: Path, number: int, code: int, batch: int, step: int
) -> None:
    """In its first batch of two as in its second; what is resumed is that step to the bit, and a validation that was due."""
    before = signal.getsignal(number)
    assert stop(tmp_path, config, number, "training_step", lambda task, at: at == batch) == code
    assert signal.getsignal(number) is before
    folder = tmp_path / "run" / "checkpoints"
    assert read_checkpoint(folder / "last.ckpt")["global_step"] == step
    *lines, last = (tmp_path / "run" / "log.txt").read_text().splitlines()
    assert any("ending after this step; the same again ends at once" in line for line in lines) == (batch == 4)
    name = signal.Signals(number).name
    assert last.endswith(f"stopped by {name}; go on with: platform fit --run {tmp_path / 'run'} --resume")
    same_end(tmp_path / "run", whole)


def test_a_validation_is_left_and_made_up_for(tmp_path: Path, config: str, whole: Path) -> None:
    assert stop(tmp_path, config, signal.SIGTERM, "validation_step", lambda task, at: at == 0) == 143
    assert read_checkpoint(tmp_path / "run" / "checkpoints" / "last.ckpt")["global_step"] == 3
    assert not any(row["val/loss"] for row in metrics_of(tmp_path / "run") if "val/loss" in row)
    same_end(tmp_path / "run", whole)


def test_the_last_validation_is_finished(tmp_path: Path, config: str, whole: Path) -> None:
    """Nothing but the test is left to be done then."""
    assert stop(tmp_path, config, signal.SIGTERM, "validation_step", lambda task, at: task.trainer.global_step == 6) == 143
    assert metrics_of(tmp_path / "run") == metrics_of(whole)
    assert not (tmp_path / "run" / "results.json").exists()
    same_end(tmp_path / "run", whole)
    assert (tmp_path / "run" / "results.json").exists()


def test_while_data_is_prepared_nothing_is_left_behind(
    tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(LabelledData, "prepare_data", lambda self: os.kill(os.getpid(), signal.SIGTERM))
    assert fit(tmp_path, config=config) == 143
    assert "stopped by SIGTERM before a step was saved" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_second_signal_ends_at_once(tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a step; nothing is saved."""

    def twice(self: Classification, batch: Any, batch_idx: int) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)  # which some programs do when they end a process
        time.sleep(1.1)
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("still there")

    monkeypatch.setattr(Classification, "training_step", twice)
    case = Case(tmp_path / "case", config, 1)
    assert case.wait(case.start()) == {0: 143}
    assert "still there" not in case.said()
    assert not list((case.run / "checkpoints").iterdir())


@pytest.mark.parametrize(("place", "batch", "step"), [("training_step", 2, 2), ("validation_step", 0, 3)])
def test_two_ranks_stop_at_the_same_step(
    tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch, place: str, batch: int, step: int
) -> None:
    """Though only the second is told to; the first alone saves."""
    told = signalled(getattr(Classification, place), signal.SIGTERM, lambda task, at: task.global_rank == 1 and at == batch)
    monkeypatch.setattr(Classification, place, told)
    case = Case(tmp_path / "case", config, 2)
    assert case.wait(case.start()) == {0: 143, 1: 0}
    assert [path.name for path in (case.run / "checkpoints").iterdir()] == ["last.ckpt"]
    assert read_checkpoint(case.run / "checkpoints" / "last.ckpt")["global_step"] == step
    assert "stopped by SIGTERM; go on with" in case.said()


def test_scaler_patience_and_workers_go_on(tmp_path: Path, config: str) -> None:
    """Patience ends the training with its third validation; a worker prepares batches beyond the one of the signal."""
    stateful = config.replace("accelerator: cpu", "accelerator: cpu, precision: 16-mixed").replace(
        "tokens: 128", "workers: 1, tokens: 128"
    )
    stateful = stateful.replace(
        "training: {", "training: {patience: 2, keep: 2, optimizer: {class_path: SGD, init_args: {lr: 0.0}}, "
    )
    stateful = stateful.replace("val_check_interval: 3", "val_check_interval: 1")
    assert fit(tmp_path, config=stateful, name="whole") == 0
    assert stop(tmp_path, stateful, signal.SIGTERM, "training_step", lambda task, at: at == 3) == 143
    contents = [read_checkpoint(tmp_path / name / "checkpoints" / "last.ckpt") for name in ("run", "whole")]
    counts = [[state["wait_count"] for state in one["callbacks"].values() if "wait_count" in state] for one in contents]
    assert [one["global_step"] for one in contents] == [2, 3] and counts == [[0], [2]]
    assert contents[0]["MixedPrecision"]["_growth_tracker"] == 2 and contents[0]["MixedPrecision"]["scale"] > 1.0
    same_end(tmp_path / "run", tmp_path / "whole")
    assert results_of(tmp_path / "run")["steps"] == 3
    ends = [read_checkpoint(tmp_path / name / "checkpoints" / "last.ckpt")["MixedPrecision"] for name in ("run", "whole")]
    assert ends[0] == ends[1] and ends[0]["_growth_tracker"] == 3
