"""Runs on Weights & Biases beside folders, by an object of the shape of its public API: they are read as folders are."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb
import yaml
from wandb.apis import public

from polyformer.cli import main, online
from polyformer.experiments.comparison import compare_runs
from polyformer.experiments.online import OnlineRun
from polyformer.experiments.runs import Run
from polyformer.training import weights_and_biases

from .made_up import examples_of_answers, made_up

PLACE = "team/project/abc123"
MARKS = {"train": "aaaa", "validation": "dddd", "test": "bbbb", "tokenizers": {"source": "cccc"}}


class File:
    """As `wandb.apis.public.File`: it downloads into a folder under its name."""

    def __init__(self, name: str, content: bytes) -> None:
        self.name, self.content = name, content

    def download(self, root: str = ".", replace: bool = False) -> io.TextIOWrapper:
        path = Path(root, self.name)
        path.write_bytes(self.content)
        return path.open()


class Remote:
    """As `wandb.apis.public.Run`: what the tracker logs of a folder's run, with numbers as W&B keeps them."""

    state = "finished"

    def __init__(self, run: Run) -> None:
        config = yaml.safe_load((run.path / "config.yaml").read_text())
        results = dict(run.results)
        told = {
            "parameters": results["parameters"],
            "trained_parameters": results["parameters"],
            "git": None,
            "splits": {
                split: {"fingerprint": MARKS[split], "examples": results["data"].get(split)}
                for split in ("train", "validation", "test")
            },
            "tokenizers": {"source": {"kind": "bpe", "size": 9, "fingerprint": "cccc"}},
            "signatures": results["signatures"],
        }
        metrics = {name if name.startswith("test/") else f"best/{name}": one for name, one in results["metrics"].items()}
        figures = {
            name: results[name] for name in ("steps", "tokens", "train_seconds", "tokens_per_second", "peak_memory_bytes")
        }
        self.name = run.name
        self.config: dict[str, Any] = json.loads(json.dumps({**config, **told}).replace(".0,", ",").replace(".0}", "}"))
        self.summary_metrics = {**figures, **metrics, "val/loss": {"min": 3, "last": 3}, "_step": 8}
        rows = [*run.history[:4], *run.history[2:]]  # killed after the fourth row, resumed after the second
        self.rows = [{"_step": at, "_timestamp": 1.5, **row} for at, row in enumerate(rows)]
        self.rows.insert(1, {"_step": 1, "step": 10, "samples": {"_type": "table-file"}})
        file = run.path / "test.jsonl.gz"
        self.uploaded = [File(file.name, file.read_bytes())] if file.exists() else []

    def scan_history(self) -> Any:
        return iter(self.rows)

    def files(self, names: list[str]) -> list[File]:
        return [file for file in self.uploaded if file.name in names]


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Run]]:
    """Two runs, of which the second is also on W&B."""
    monkeypatch.chdir(tmp_path)
    right = [True] * 20 + [False] * 15 + [True] * 4, [True] * 20 + [True] * 15 + [False] * 4
    runs = [
        made_up(tmp_path / "runs", name, name, metrics={"test/accuracy": share, "val/loss": 3.0}, fingerprints=MARKS,
                examples=examples_of_answers(own), settings={"model": {"position": name, "dropout": 0.0}})
        for name, share, own in zip(("Rotary", "Learned"), (0.6, 0.9), right, strict=True)
    ]  # fmt: skip
    remote = Remote(runs[1])

    class Api:
        def run(self, path: str) -> Remote:
            if path != PLACE:
                raise wandb.errors.CommError(f"Could not find run <Run {path} (not found)>\nmore")
            return remote

    monkeypatch.setattr(wandb, "Api", Api)
    monkeypatch.setattr(weights_and_biases, "obstacle", lambda: "")
    yield runs
    wandb.teardown()  # it would remember its settings


def test_the_stand_in_has_the_shape_of_the_real_one() -> None:
    for name in ("name", "state", "config", "summary_metrics", "scan_history", "files"):
        assert hasattr(public.Run, name)
    assert hasattr(public.File, "download") and hasattr(wandb.Api, "run")


def test_a_run_is_the_same_here_and_there(folders: list[Run]) -> None:
    here, there = folders[1], online.online_run(PLACE)
    assert isinstance(there, OnlineRun) and there.name == here.name and there.task == here.task and there.is_finished
    assert there.metrics == here.metrics and there.history == here.history
    assert there.examples == here.examples and there.seed == here.seed
    for name in ("parameters", "steps", "train_seconds", "signatures", "fingerprints"):
        assert there.results[name] == here.results[name], name
    assert [row.name for row in compare_runs([here, there], tested=False)[0].rows] == ["Learned", "Learned"]


@pytest.mark.parametrize("place", [PLACE, f"wandb:{PLACE}"])
def test_both_kinds_are_compared(folders: list[Run], place: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "Rotary", place, "--format", "json"]) == 0
    (content,) = json.loads(capsys.readouterr().out)
    assert [row["settings"] for row in content["rows"]] == [{"model.position": "Learned"}, {"model.position": "Rotary"}]
    assert content["ranked_by"] == "test/accuracy" and not content["refused"]
    assert "McNemar" in content["tests"][0]["method"]
    assert main(["compare", "Rotary", place, "--output", "page.html"]) == 0
    assert "Learning curves" in Path("page.html").read_text()


def test_without_its_examples_a_run_is_not_tested(folders: list[Run]) -> None:
    there = online.online_run(PLACE)
    there.remote.uploaded.clear()
    (verdict,) = compare_runs([folders[0], there])[0].verdicts
    assert verdict.refusal.startswith(f"wandb:{PLACE} has no file test.jsonl.gz, which is uploaded when")


def test_a_run_that_goes_on_is_left_out(folders: list[Run]) -> None:
    there = online.online_run(PLACE)
    there.remote.state = "running"
    assert f"not finished, left out: {PLACE}" in compare_runs([folders[0], there])[0].notes


@pytest.mark.parametrize(
    ("place", "obstacle", "said"),
    [
        ("team/project/other", "", "wandb:team/project/other: Could not find run <Run team/project/other (not found)>\n"),
        (PLACE, "no API key (`wandb login` keeps one)", f"wandb:{PLACE}: Weights & Biases cannot be asked: no API key"),
        ("nowhere", "", "nowhere: no run and no folder of runs; in runs/ there are Learned, Rotary"),
        ("wandb:team/abc123", "", "no run and no folder of runs"),
    ],
)
def test_what_is_not_there_is_said(
    folders: list[Run],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    place: str,
    obstacle: str,
    said: str,
) -> None:
    monkeypatch.setattr(weights_and_biases, "obstacle", lambda: obstacle)
    assert main(["compare", "Rotary", place]) == 1
    assert said in capsys.readouterr().err


def test_runs_of_others_are_named(folders: list[Run]) -> None:
    there = online.online_run(PLACE)
    del there.remote.config["task"]
    with pytest.raises(ValueError, match="it is no run of Polyformer's"):
        compare_runs([there])
