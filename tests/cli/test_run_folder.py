"""One training for each run folder, and folders that are runs' own."""

import subprocess
import sys
from pathlib import Path

import pytest

from polyformer.cli import main
from polyformer.training import RunFolder

from .small import SMALL, fit, metrics_of

HOLD = """
import sys, time
from polyformer.training import RunFolder
with RunFolder(sys.argv[1]).held():
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_run_is_trained_by_one_process_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(tmp_path, "--trainer.max_steps", "4", "--trainer.val_check_interval", "4") == 0
    run = tmp_path / "run"
    before = metrics_of(run), (run / "log.txt").read_text()
    with subprocess.Popen([sys.executable, "-c", HOLD, str(run)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        capsys.readouterr()
        assert main(["fit", "--run", str(run), "--resume", "--trainer.max_steps", "6"]) == 1
        said = capsys.readouterr().err
        other.kill()
    assert f"the run `{run}` is being trained by another process" in said and "go on with" not in said
    assert (metrics_of(run), (run / "log.txt").read_text()) == before
    with RunFolder(str(run)).held():  # the process that held it is dead
        pass


@pytest.mark.parametrize("name", [".", "..", "  ", "a\nb"])
def test_names_that_no_folder_of_its_own_can_have(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    assert main(["fit", "--config", str(tmp_path / "small.yaml"), "--run", name]) == 1
    assert f"`--run` must be a name or a path, but is {name!r}" in capsys.readouterr().err


@pytest.mark.parametrize(("more", "said"), [
    ("model: {num_heads: 4}\n", ":16: the key `model` stands there twice"),
    ("seed: 1\nwandb: {tags: [a], project: x, project: y}\n", ":17: the key `project` stands there twice"),
])  # fmt: skip
def test_a_key_that_stands_twice(more: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "twice.yaml").write_text(SMALL + more)
    assert main(["fit", "--config", str(tmp_path / "twice.yaml"), "--run", str(tmp_path / "run")]) == 2
    assert f"twice.yaml{said}" in capsys.readouterr().err


@pytest.mark.parametrize(("key", "value", "said"), [
    ("val_check_interval", "0", "a number of steps, or a share of a pass"),
    ("val_check_interval", "-1", "a number of steps, or a share of a pass"),
    ("val_check_interval", "0.0", "a number of steps, or a share of a pass"),
    ("gradient_clip_val", "-1", "at least 0, where gradients stay as they are, but is -1"),
    ("gradient_clip_val", ".nan", "at least 0, where gradients stay as they are, but is nan"),
])  # fmt: skip
def test_values_of_the_trainer_that_make_no_sense(
    key: str, value: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    words = ["--run", str(tmp_path / "run"), f"--trainer.{key}", value]
    assert main(["fit", "--config", str(tmp_path / "small.yaml"), *words]) == 1
    assert f"`trainer.{key}` must be {said}" in capsys.readouterr().err


def test_a_refused_run_is_not_said_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(tmp_path, "--trainer.max_steps", "4", "--trainer.val_check_interval", "4") == 0
    run = str(tmp_path / "run")
    capsys.readouterr()
    assert main(["fit", "--run", run, "--resume", "--trainer.max_steps", "8", "--model.d_model", "32"]) == 1
    said = capsys.readouterr().err
    assert "cannot be resumed with other `model:` keys" in said and "go on with" not in said
    assert main(["fit", "--run", run, "--resume", "--trainer.max_steps", "2"]) == 0
    assert "raise --trainer.max_steps above 4" in capsys.readouterr().err
    (tmp_path / "lines.gz").write_text("one\n")
    assert main(["predict", "--ckpt_path", run, "--input", str(tmp_path / "lines.gz")]) == 1
    assert "lines.gz: this file cannot be read: Not a gzipped file" in capsys.readouterr().err
