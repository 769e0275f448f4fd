"""Runs of Weights & Biases: real ones on disk, read back, and what can be uploaded of them."""

import fcntl
import json
import logging
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb

from polyformer.cli import main
from polyformer.training.facts import git_state
from polyformer.training.weights_and_biases import WeightsAndBiases, WeightsAndBiasesOptions, answers

from ..cli.small import SMALL, fit, metrics_of, results_of
from ..experiments.test_outputs import LABELS
from .transaction_log import config_of, history_of, records_of, summary_of

NOWHERE = "http://127.0.0.1:9"
"""Where nothing answers."""


@pytest.fixture(scope="module", autouse=True)
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Nobody's keys and settings, and folders of our own."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("WANDB_")]:
            patch.delenv(name)
        for name in ("POLYFORMER_CACHE", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
            patch.setenv(name, str(home))
        patch.setenv("NETRC", str(home / "netrc"))
        patch.setenv("WANDB_BASE_URL", NOWHERE)
        patch.setenv("WANDB_ERROR_REPORTING", "false")
        wandb.teardown()  # of settings that were read before
        yield home
        wandb.teardown()


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any], list[Any]]:
    """A run folder, the records of its first session, and those of a second one that goes on."""
    folder = tmp_path_factory.mktemp("tracked")
    words = ["--logger", "wandb", "--wandb.mode", "offline", "--wandb.tags", "[mine]", "--wandb.checkpoints", "best"]
    assert fit(folder, *words) == 0
    run = folder / "run"
    (first,) = run.glob("wandb/offline-run-*")
    assert main(["fit", "--run", str(run), "--resume", "--trainer.max_steps", "14", "--debug"]) == 0
    (second,) = set(run.glob("wandb/offline-run-*")) - {first}
    return run, records_of(first), records_of(second)


def table_of(run: Path, cell: dict[str, Any]) -> dict[str, Any]:
    """The content of a table that a row of the history points at."""
    (file,) = run.glob(f"wandb/offline-run-*/files/{cell['path']}")
    table: dict[str, Any] = json.loads(file.read_text())
    return table


def test_a_run_says_what_it_is(tracked: tuple[Path, list[Any], list[Any]]) -> None:
    run, records, _ = tracked
    (begun,) = [record.run for record in records if record.HasField("run")][:1]
    assert (begun.project, begun.run_group, begun.display_name) == ("polyformer", "small", "run")
    assert set(begun.tags) == {"Translation", "Sinusoidal", "FullAttention", "SpelledNumbers", "mine"}
    config = config_of(records)
    assert config["model"]["d_model"] == 16 and config["training"]["save_every"] == 4 and config["seed"] == 0
    assert config["model"]["position"]["class_path"].endswith(".Sinusoidal")
    assert config["parameters"] == results_of(run)["parameters"]
    assert config["git"] == git_state(Path.cwd())
    assert config["tokenizers"]["source"]["kind"] == "character" and len(config["tokenizers"]["source"]["fingerprint"]) == 16
    assert config["data"]["init_args"]["train_count"] == 120
    fingerprints = [config["splits"][split]["fingerprint"] for split in ("train", "validation", "test")]
    assert len(set(fingerprints)) == 3
    assert "tok:13a" in config["signatures"]["bleu"] and config["monitor"] == ["val/bleu", "max"]


def test_metrics_are_those_of_the_run_folder(tracked: tuple[Path, list[Any], list[Any]]) -> None:
    """Each with step, tokens and seconds, over both sessions; the validation's keep their best side."""
    run, *sessions = tracked
    rows = [row for records in sessions for row in history_of(records) if "seconds" in row]
    written = metrics_of(run)
    assert len(rows) == len(written) > 14
    for row, kept in zip(rows, written, strict=True):
        for name in ("step", "tokens", "train/loss", "val/bleu"):
            assert (name in row) == bool(kept[name]) and (name not in row or row[name] == float(kept[name])), name
    metrics = {record.metric.name: record.metric for record in sessions[0] if record.HasField("metric")}
    assert metrics["val/bleu"].step_metric == "step" and metrics["val/bleu"].summary.max and metrics["val/loss"].summary.min


def test_the_summary_has_the_best(tracked: tuple[Path, list[Any], list[Any]]) -> None:
    run, _, records = tracked
    summary, results = summary_of(records), results_of(run)
    for name, value in results["metrics"].items():
        assert summary[name if name.startswith("test/") else f"best/{name}"] == value
    assert summary["tokens_per_second"] == results["tokens_per_second"] and summary["steps"] == 14


def test_the_table_of_samples_grows(tracked: tuple[Path, list[Any], list[Any]]) -> None:
    run, *sessions = tracked
    tables = [table_of(run, row["samples"]) for records in sessions for row in history_of(records) if "samples" in row]
    assert [len(table["data"]) for table in tables] == [8, 16, 24]
    assert tables[-1]["columns"] == ["step", "source", "reference", "output", "score"]
    assert [row[0] for row in tables[-1]["data"]] == [5] * 8 + [10] * 8 + [14] * 8
    kept = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
    assert [list(row.values()) for row in kept] == tables[-1]["data"]


def test_pictures_and_checkpoints_are_sent(tracked: tuple[Path, list[Any], list[Any]]) -> None:
    run, records, _ = tracked
    (row,) = [row for row in history_of(records) if "pictures/attention" in row]
    for name in ("attention", "positions", "masks"):
        sent = next(run.glob(f"wandb/offline-run-*/files/{row[f'pictures/{name}']['path']}"))
        assert sent.read_bytes()[:4] == b"\x89PNG" and (run / "pictures" / f"{name}.png").is_file()
    models = [record.request.log_artifact.artifact for record in records if record.request.HasField("log_artifact")]
    models += [record.artifact for record in records if record.HasField("artifact")]
    (model,) = [artifact for artifact in models if artifact.type == "model"]
    assert "best" in model.aliases and [entry.path for entry in model.manifest.contents] == ["best.ckpt"]


def test_a_classifier_sends_its_confusions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("texts.tsv").write_text("good text\tyes\nbad text\tno\nso so\tno\n")
    assert fit(tmp_path, "--logger", "wandb", "--wandb.mode", "offline", config=LABELS) == 0
    (made,) = (tmp_path / "run").glob("wandb/offline-run-*")
    (row,) = [row for row in history_of(records_of(made)) if "pictures/confusion" in row]
    for name in ("confusion", "attention"):
        sent = (made / "files" / row[f"pictures/{name}"]["path"]).read_bytes()
        assert sent == (tmp_path / "run" / "pictures" / f"{name}.png").read_bytes()


def test_the_examples_of_the_test_are_sent(tracked: tuple[Path, list[Any], list[Any]]) -> None:
    run, records, _ = tracked
    sent = [file.path for record in records if record.HasField("files") for file in record.files.files]
    assert "test.jsonl.gz" in sent
    (first, *_) = sorted(run.glob("wandb/offline-run-*/files/test.jsonl.gz"))
    assert first.read_bytes()[:2] == b"\x1f\x8b"


def test_their_own_viewer_reads_it(tracked: tuple[Path, list[Any], list[Any]]) -> None:
    """`wandb leet`, once as text, and once as the picture that it draws on a terminal."""
    run, *_ = tracked
    last = sorted(run.glob("wandb/offline-run-*/*.wandb"))[-1]
    viewer, results = [sys.executable, "-m", "wandb", "leet"], results_of(run)
    words = [*viewer, "inspect", "--summary", "--json", str(last)]
    told = json.loads(subprocess.run(words, capture_output=True, text=True, timeout=300, check=True).stdout)
    assert (told["name"], told["state"], told["project"]) == ("run", "finished", "polyformer")
    assert told["config"]["model"]["d_model"] == 16 and "Translation" in told["tags"]
    assert told["summary"]["test/bleu"] == results["metrics"]["test/bleu"]
    assert told["summary"]["samples"]["nrows"] == 24 and told["summary"]["pictures/attention"]["_type"] == "image-file"
    seen = on_a_terminal([*viewer, "run", str(last)], until=["Finished", "train/loss", "val/bleu"], leave="q")
    assert "polyformer" in seen


def on_a_terminal(words: list[str], until: list[str], leave: str) -> str:
    """What a program shows on a terminal of 60 lines, until all of some words have been there and it was told to leave."""
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 200, 0, 0))
    program = subprocess.Popen(words, stdin=there, stdout=there, stderr=there, env={**os.environ, "TERM": "xterm-256color"})
    os.close(there)
    seen, latest, told = "", time.monotonic() + 120, False
    while select.select([here], [], [], max(0.0, latest - time.monotonic()))[0]:
        try:
            seen += os.read(here, 1 << 16).decode("utf-8", "replace")
        except OSError:  # it has left
            break
        shown = re.sub(r"\x1b(\[[0-9;?>=]*\$?[a-zA-Z]|\][^\x07]*\x07)", "", seen)
        if not told and all(word in shown for word in until):
            told = os.write(here, leave.encode()) > 0
    if not told:
        program.kill()
    code = program.wait(60)
    os.close(here)
    assert told and code == 0, seen[-2000:]
    return shown


def test_a_resumed_run_goes_on_in_the_same_run(tracked: tuple[Path, list[Any], list[Any]]) -> None:
    run, *sessions = tracked
    numbers = {record.run.run_id for records in sessions for record in records if record.HasField("run")}
    assert numbers == {json.loads((run / "wandb.json").read_text())["id"]}


def test_two_ranks_without_a_key_make_one_run_offline(tmp_path: Path) -> None:
    """Asked for online, with nobody to answer a question."""
    (tmp_path / "small.yaml").write_text(SMALL)
    program = [str(Path(sys.executable).with_name("platform")), "fit", "--config", str(tmp_path / "small.yaml")]
    words = ["--run", str(tmp_path / "run"), "--trainer.max_steps", "2", "--trainer.devices", "2", "--trainer.strategy", "ddp"]
    ended = subprocess.run(
        [*program, *words, "--logger", "wandb", "--wandb.mode", "online"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    said = [line for line in ended.stderr.splitlines() if "wandb" in line and not line.startswith("run ")]
    (line,) = said
    assert "offline, no API key" in line and line.endswith(f"upload it later by: wandb sync {tmp_path}/run/wandb")
    (made,) = (tmp_path / "run").glob("wandb/*run-*")
    assert [row["step"] for row in history_of(records_of(made)) if "train/loss" in row] == [1, 2]


def test_without_a_network_training_ends_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    assert fit(tmp_path, "--trainer.max_steps", "2", "--logger", "wandb") == 0
    said = (tmp_path / "run" / "log.txt").read_text()
    assert said.count(f"offline, {NOWHERE} does not answer; upload it later by: wandb sync {tmp_path}/run/wandb\n") == 1
    assert results_of(tmp_path / "run")["steps"] == 2


def dry(command: str) -> str:
    """What a command for uploading would upload."""
    words = [sys.executable, "-m", *command.replace("wandb sync", "wandb sync --dry-run").split()]
    return subprocess.run(words, capture_output=True, text=True, timeout=300, check=True).stderr


def test_the_advice_finds_what_is_left_here(tracked: tuple[Path, list[Any], list[Any]]) -> None:
    run, *_ = tracked
    said = (run / "log.txt").read_text()
    command = f"wandb sync {run}/wandb"
    assert said.count(f"upload it later by: {command}\n") == 2 and "Would sync 2 run(s)" in dry(command)


def test_a_run_that_began_online_is_found_as_well(tmp_path: Path) -> None:
    """The network went away: W&B passes over its folder unless it is told not to."""
    tracker = WeightsAndBiases(WeightsAndBiasesOptions())
    tracker._folder = tmp_path
    folder = tmp_path / "wandb" / "run-20260101_000000-abcd1234"
    folder.mkdir(parents=True)
    (folder / "run-abcd1234.wandb").touch()
    command = tracker.advice().partition(": ")[2]
    assert "Would sync 1 run(s)" in dry(command) and "No runs to sync" in dry(f"wandb sync {tmp_path}/wandb")


def test_the_last_and_the_best_checkpoint_are_sent(tmp_path: Path) -> None:
    words = ["--trainer.max_steps", "3", "--trainer.val_check_interval", "2", "--training.monitor", "val/exact_match"]
    assert fit(tmp_path, *words, "--logger", "wandb", "--wandb.mode", "offline", "--wandb.checkpoints", "all") == 0
    (made,) = (tmp_path / "run").glob("wandb/offline-run-*")
    records = records_of(made)
    models = [record.request.log_artifact.artifact for record in records if record.request.HasField("log_artifact")]
    models += [record.artifact for record in records if record.HasField("artifact")]
    sent = [(sorted(one.aliases), [entry.path for entry in one.manifest.contents]) for one in models if one.type == "model"]
    assert sent == [(["last", "latest"], ["last.ckpt"]), (["best", "latest"], ["best.ckpt"])]


def test_the_summary_of_a_metric_keeps_the_side_that_the_task_names() -> None:
    class Run:
        asked: dict[str, Any] = {}

        def define_metric(self, name: str, **options: Any) -> None:
            self.asked[name] = options["summary"]

        def log(self, row: dict[str, float]) -> None:
            pass

    tracker = WeightsAndBiases(WeightsAndBiasesOptions())
    tracker.run, tracker._judged = Run(), ["val/mae", "min"]
    tracker.metrics({"val/mae": 1.0, "val/bleu": 1.0, "val/loss": 1.0, "train/loss": 1.0}, 1)
    assert Run.asked == {"val/mae": "min,last", "val/bleu": "max,last", "val/loss": "min,last", "train/loss": None}


def test_nobody_answers_where_nothing_listens(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert not answers(NOWHERE) and not answers("no address")
