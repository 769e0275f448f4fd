"""What damage, a full disk and half-written files do to a run: it ends or goes on with what is whole, and says so."""

import os
import resource
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from polyformer.cli import main
from polyformer.plain import whole_file
from polyformer.tasks.classification import Classification
from polyformer.training import MetricsFile, read_checkpoint
from polyformer.training.checkpoints import Checkpoints, newest_checkpoint
from polyformer.training.run import SamplesFile

from ..cli.small import fit, metrics_of
from ..kills import CLASSIFIER, write_data

CONFIG = (
    CLASSIFIER
    + """
training: {save_every: 2, optimizer: {class_path: FusedAdamW, init_args: {lr: 0.003}}, schedule: Constant}
trainer: {max_steps: 6, val_check_interval: 3, log_every_n_steps: 1, accelerator: cpu}
"""
)


@pytest.fixture(scope="module", autouse=True)
def config(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return CONFIG.replace("FOLDER", str(folder))


@pytest.fixture(scope="module")
def whole(config: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose last checkpoint is its best."""
    folder = tmp_path_factory.mktemp("whole")
    assert fit(folder, config=config) == 0
    return folder / "run"


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """A copy of it; links stay links."""
    subprocess.run(["cp", "-a", str(whole), str(tmp_path / "run")], check=True)
    return tmp_path / "run"


def damage(path: Path, kind: str) -> None:
    """In place, so that every link to the file has it."""
    with path.open("r+b") as file:
        size = path.stat().st_size
        if kind == "cut":
            file.truncate(size - 200)
        else:
            file.seek(size // 3)
            byte = file.read(1)[0]
            file.seek(size // 3)
            file.write(bytes([byte ^ 1]))


def test_a_flipped_bit_is_noticed_though_torch_does_not(whole: Path, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "best.ckpt"
    path.write_bytes((whole / "checkpoints" / "best.ckpt").read_bytes())
    damage(path, "flipped")
    torch.load(path, weights_only=True)
    with pytest.raises(ValueError, match=r"best\.ckpt: this file cannot be read safely as a checkpoint: damaged, the checksum"):
        read_checkpoint(path)
    assert main(["predict", "--ckpt_path", str(path), "--input", os.devnull]) == 1
    assert "damaged" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["flipped", "cut"])
def test_the_last_good_checkpoint_is_used(kind: str, whole: Path, run: Path) -> None:
    """`best.ckpt` is the same file as `last.ckpt` here, and damaged with it; what came after the good one is made again."""
    folder = run / "checkpoints"
    assert (folder / "best.ckpt").samefile(folder / "last.ckpt")
    assert not (folder / "previous.ckpt").samefile(folder / "last.ckpt")
    damage(folder / "last.ckpt", kind)
    assert main(["fit", "--run", str(run), "--resume", "--debug"]) == 0
    log = (run / "log.txt").read_text()
    assert "last.ckpt: this file cannot be read" in log and "going on from previous.ckpt, step 4" in log
    assert "best.ckpt is damaged or missing" in log
    assert metrics_of(run) == metrics_of(whole)
    assert (run / "samples.jsonl").read_bytes() == (whole / "samples.jsonl").read_bytes()
    ends = [read_checkpoint(each / "checkpoints" / "best.ckpt")["state_dict"] for each in (run, whole)]
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())


def test_where_all_are_damaged_the_run_says_so(run: Path, capsys: Any) -> None:
    folder = run / "checkpoints"
    for path in folder.glob("*.ckpt"):
        path.write_bytes(b"nothing")
    assert main(["fit", "--run", str(run), "--resume"]) == 1
    assert f"{folder}/last.ckpt: this file cannot be read" in capsys.readouterr().err


def test_a_mean_is_nothing_to_go_on_from(tmp_path: Path) -> None:
    for name, step in (("best", 9), ("previous", 4), ("step-6", 6)):
        content: dict[str, Any] = {"polyformer": {}, "global_step": step}
        torch.save(content if name == "best" else {**content, "optimizer_states": []}, tmp_path / f"{name}.ckpt")
    found = newest_checkpoint(tmp_path)
    assert found is not None and found[0].name == "step-6.ckpt"


@pytest.mark.parametrize("killed_at", ["between last and best", "in a validation"])
def test_a_run_that_dies_at_its_best_validation_is_made_whole(
    killed_at: str, config: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `last.ckpt` was written and before `best.ckpt` was; and after a save on the step that is validated."""

    def dying(self: Any, *arguments: Any) -> None:
        raise ConnectionError("killed")

    places: dict[str, tuple[type, str]] = {
        "between last and best": (Checkpoints, "_link_ranked"),
        "in a validation": (Classification, "validation_step"),
    }
    with monkeypatch.context() as patch:
        patch.setattr(*places[killed_at], dying)
        with pytest.raises(ConnectionError):
            fit(tmp_path, "--training.save_every", "3", config=config)
    folder = tmp_path / "run" / "checkpoints"
    assert read_checkpoint(folder / "last.ckpt")["global_step"] == 3 and not (folder / "best.ckpt").exists()
    with monkeypatch.context() as patch:  # how good the later ones are must not matter
        patch.setattr(Checkpoints, "_order", lambda self, entry: (0.0, 0.0, entry[2]))
        assert main(["fit", "--run", str(tmp_path / "run"), "--resume", "--debug"]) == 0
    assert metrics_of(tmp_path / "run") == metrics_of(whole)
    assert read_checkpoint(folder / "best.ckpt")["global_step"] == 3


def test_a_full_disk_stops_the_run_with_its_last_checkpoint(run: Path, capsys: Any) -> None:
    """A limit on the size of files stands for the disk."""
    folder = run / "checkpoints"
    before, limits = (folder / "last.ckpt").read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))
    try:
        code = main(["fit", "--run", str(run), "--resume", "--trainer.max_steps", "10"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert code == 1
    said = capsys.readouterr().err
    assert f"platform: {folder}/last.ckpt: File too large" in said and f"go on with: platform fit --run {run} --resume" in said
    assert "Traceback" not in said
    assert (folder / "last.ckpt").read_bytes() == before
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_half_written_lines_are_dropped(tmp_path: Path) -> None:
    """A figure cut in its middle would be another figure."""
    (tmp_path / "metrics.csv").write_bytes(b"step,train/loss\r\n4,0.5\r\n5,0.2")
    (tmp_path / "samples.jsonl").write_bytes('{"step": 4, "output": "a"}\n{"step": 5, "output": "你'.encode()[:-1])
    metrics, samples = MetricsFile(tmp_path / "metrics.csv"), SamplesFile(tmp_path / "samples.jsonl")
    metrics.resume(9, 9)
    samples.resume(9)
    assert metrics.rows == [{"step": "4", "train/loss": "0.5"}] and samples.rows == [{"step": 4, "output": "a"}]
    assert (tmp_path / "metrics.csv").read_bytes() == b"step,train/loss\r\n4,0.5\r\n"


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(OSError, match=r"No space left on device: '.*/file'"), whole_file(path) as file:
        file.write("half")
        raise OSError(28, "full")
    assert [each.name for each in tmp_path.iterdir()] == ["file"] and path.read_text() == "before"
