"""A run that is gone on with ends as it would have: whether it ended by patience, with a mean of weights, or in its test."""

from pathlib import Path
from typing import Any

import pytest
import torch

from polyformer.cli import main
from polyformer.plain import appended
from polyformer.tasks.classification import Classification
from polyformer.training import MetricsFile, read_checkpoint
from polyformer.training.checkpoints import AtomicCheckpointIO, Checkpoints

from ..cli.small import fit, metrics_of, results_of
from ..kills import CLASSIFIER, write_data
from .test_faults import damage

TESTED = CLASSIFIER.replace("held_out.tsv", "held_out.tsv\n  test: FOLDER/held_out.tsv")
KEYS = "optimizer: {class_path: FusedAdamW, init_args: {lr: 0.003}}, schedule: Constant"
TRAINER = "trainer: {max_steps: 6, val_check_interval: 3, log_every_n_steps: 4, accelerator: cpu}\n"
PATIENT = "patience: 1, optimizer: {class_path: SGD, init_args: {lr: 0.0}}, schedule: Constant"
"""Nothing gets better, so the second validation is the last."""


@pytest.fixture(scope="module", autouse=True)
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder


def config_of(data: Path, training: str, trainer: str = TRAINER) -> str:
    return f"{TESTED.replace('FOLDER', str(data))}training: {{{training}}}\n{trainer}"


def die(*_: Any, **__: Any) -> None:
    raise ConnectionError("killed")


def resume(run: Path, *words: str) -> int:
    return main(["fit", "--run", str(run), "--resume", "--debug", *words])


def content_of(run: Path) -> list[bytes]:
    return [(run / name).read_bytes() for name in ("results.json", "metrics.csv", "samples.jsonl", "checkpoints/best.ckpt")]


@pytest.mark.parametrize(
    "training",
    [PATIENT, f"averaging: {{kind: last, count: 2}}, {KEYS}", f"averaging: {{kind: best, count: 2}}, {PATIENT}"],
    ids=["patience", "mean", "patience and mean"],
)
def test_one_that_died_in_its_test_is_as_a_whole_one(
    training: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = TRAINER.replace("max_steps: 6", "max_steps: 20") if "patience" in training else TRAINER
    config = config_of(data, training, trainer)
    assert fit(tmp_path, config=config, name="whole") == 0
    with monkeypatch.context() as patch, pytest.raises(ConnectionError):
        patch.setattr(Classification, "test_step", die)
        fit(tmp_path, config=config)
    run, whole = tmp_path / "run", tmp_path / "whole"
    assert resume(run) == 0
    assert metrics_of(run) == metrics_of(whole)
    assert results_of(run)["steps"] == results_of(whole)["steps"] == 6
    assert results_of(run)["metrics"] == results_of(whole)["metrics"]
    assert (run / "samples.jsonl").read_bytes() == (whole / "samples.jsonl").read_bytes()
    finished = content_of(run)
    assert resume(run) == 0  # there is nothing left to do
    assert content_of(run) == finished
    assert "this training has come to its end; to go on with it, raise --trai" in (run / "log.txt").read_text()


def test_more_patience_goes_on(data: Path, tmp_path: Path) -> None:
    assert fit(tmp_path, config=config_of(data, PATIENT, TRAINER.replace("max_steps: 6", "max_steps: 20"))) == 0
    assert resume(tmp_path / "run", "--training.patience", "2") == 0
    assert results_of(tmp_path / "run")["steps"] == 9


def test_steps_cannot_be_cut_otherwise(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(tmp_path, config=config_of(data, KEYS)) == 0
    before = content_of(tmp_path / "run")
    assert main(["fit", "--run", str(tmp_path / "run"), "--resume", "--trainer.accumulate_grad_batches", "2"]) == 1
    assert "with another `trainer.accumulate_grad_batches` (1 then, 2 now)" in capsys.readouterr().err
    assert content_of(tmp_path / "run") == before


def test_a_validation_that_is_made_again_is_told_once(data: Path, tmp_path: Path) -> None:
    """The checkpoint before the damaged one is of the same step, before its validation."""
    config = config_of(data, f"save_every: 3, {KEYS}")
    assert fit(tmp_path, config=config, name="whole") == 0
    assert fit(tmp_path, config=config) == 0
    run, whole = tmp_path / "run", tmp_path / "whole"
    damage(run / "checkpoints" / "last.ckpt", "cut")
    (run / "results.json").unlink()
    before = read_checkpoint(run / "checkpoints" / "previous.ckpt")
    assert (before["global_step"], before["callbacks"]["Checkpoints"]["validated_step"]) == (3, 3)
    assert resume(run) == 0
    assert metrics_of(run) == metrics_of(whole)
    assert (run / "samples.jsonl").read_bytes() == (whole / "samples.jsonl").read_bytes()


def test_a_damaged_checkpoint_never_takes_the_place_of_a_good_one(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when the run that goes on saves for the first time."""
    assert fit(tmp_path, config=config_of(data, f"save_every: 2, {KEYS}")) == 0
    folder = tmp_path / "run" / "checkpoints"
    damage(folder / "last.ckpt", "cut")
    with monkeypatch.context() as patch, pytest.raises(ConnectionError):
        patch.setattr(AtomicCheckpointIO, "save_checkpoint", die)
        resume(tmp_path / "run")
    assert [read_checkpoint(folder / name)["global_step"] for name in ("last.ckpt", "previous.ckpt")] == [4, 4]
    assert resume(tmp_path / "run") == 0


@pytest.mark.parametrize(("lost", "best", "kept"), [(3, 2, [2, 4, 6]), (2, 3, [3, 4, 6])])
def test_the_other_best_checkpoints_stay(
    lost: int, best: int, kept: list[int], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step 3 is the best, then 2, then 4."""
    monkeypatch.setattr(Checkpoints, "_order", lambda self, entry: (0.0, 0.0, {3: 0, 2: 1, 1: 9}.get(entry[2], entry[2])))
    trainer = TRAINER.replace("max_steps: 6, val_check_interval: 3", "max_steps: 5, val_check_interval: 1")
    assert fit(tmp_path, config=config_of(data, f"keep: 3, {KEYS}", trainer)) == 0
    run, folder = tmp_path / "run", tmp_path / "run" / "checkpoints"
    damage(folder / f"step-{lost}.ckpt", "cut")
    assert resume(run, "--trainer.max_steps", "6") == 0
    assert sorted(int(path.stem[5:]) for path in folder.glob("step-*.ckpt")) == kept
    assert read_checkpoint(folder / "best.ckpt")["global_step"] == best
    validated = next(row for row in metrics_of(run) if row["step"] == str(best) and row["val/loss"])
    assert results_of(run)["metrics"]["val/loss"] == float(validated["val/loss"])
    name = "best.ckpt" if lost == 3 else "step-2.ckpt"
    assert f"{name} is damaged or missing: step {best} is the best" in (run / "log.txt").read_text()


def test_checkpoints_are_kept_for_good(data: Path, tmp_path: Path) -> None:
    assert fit(tmp_path, config=config_of(data, f"keep_every: 2, {KEYS}")) == 0
    folder = tmp_path / "run" / "checkpoints"
    found = {path.name: read_checkpoint(path)["global_step"] for path in folder.glob("kept-*.ckpt")}
    assert found == {"kept-2.ckpt": 2, "kept-4.ckpt": 4, "kept-6.ckpt": 6}
    assert torch.load(folder / "kept-6.ckpt", weights_only=True)["callbacks"]["Checkpoints"]["validated_step"] == 6


def test_a_disk_that_is_full_while_lines_are_added_is_named() -> None:
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"), appended(Path("/dev/full")) as file:
        file.write("1\n")


def test_rows_that_will_be_made_again_are_dropped(tmp_path: Path) -> None:
    file = tmp_path / "metrics.csv"
    file.write_bytes(b"step,train/loss,val/loss\r\n2,0.5,\r\n2,,0.6\r\n4,0.4,\r\n4,,0.5\r\n4,,0.3\r\n5,0.3,\r\n")
    for trained, validated, kept in ((4, 4, [0, 1, 2, 3]), (4, 2, [0, 1, 2]), (5, 4, [0, 1, 2, 3, 4]), (2, -1, [0])):
        (tmp_path / "copy.csv").write_bytes(file.read_bytes())
        metrics = MetricsFile(tmp_path / "copy.csv")
        metrics.resume(trained, validated)
        lines = [f"{row['step']},{row['train/loss']},{row['val/loss']}" for row in metrics.rows]
        assert lines == [["2,0.5,", "2,,0.6", "4,0.4,", "4,,0.5", "5,0.3,"][at] for at in kept]
