"""Sweeps written for agents of W&B: what they choose from, what they are judged by, and how long they train."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from polyformer.cli import main
from polyformer.experiments.agents import for_agents
from polyformer.experiments.description import sweep_of
from polyformer.experiments.ranges import Range
from polyformer.experiments.sweep import Sweep

from ..cli.small import SMALL
from .test_outputs import LABELS


def grid(**more: Any) -> Sweep:
    content = {
        "config": "c.yaml",
        "fixed": {"model.d_model": 16},
        "vary": {"model.position": ["Rotary", "Learned"]},
        "seeds": 2,
    }
    return sweep_of({**content, **more}, "positions", "here")


SWEEPS: dict[str, Callable[[], Sweep]] = {
    "grid": grid,
    "sets": lambda: grid(vary={"size": {"small": {"model.d_model": 8}, "large": {"model.d_model": 32, "model.num_heads": 4}}}),
    "sample": lambda: grid(random={"count": 5, "from": {"lr": {"low": 0.001, "high": 0.1, "scale": "log"}, "layers": [1, 2]}}),
}


@pytest.mark.parametrize("name", SWEEPS)
def test_the_file_for_agents_is_one_that_wandb_accepts(name: str) -> None:
    """By W&B's own validation where its package for that is installed, and in any case by what their agent does with it."""
    content = for_agents(SWEEPS[name](), ("val/bleu", "max"), ["sweep.yaml"], ["--trainer.max_steps", "5"])
    assert yaml.safe_load(yaml.safe_dump(content)) == content
    assert content["metric"] == {"name": "val/bleu", "goal": "maximize"}
    assert content["command"][-3:] == ["--logger", "wandb", "${args}"]
    assert ("cell" in content["parameters"]) == (name == "sets")
    utils = pytest.importorskip("wandb.sdk.launch.sweeps.utils")
    assert utils.create_sweep_command(content["command"]) == content["command"]
    given = {key: {"value": (value.get("values") or [0.01])[0]} for key, value in content["parameters"].items()}
    words = utils.create_sweep_command_args({"args": given})["args"]
    assert words[0] == ("--cell=size=small,seed=0" if name == "sets" else "--model.position=Rotary")
    with warnings.catch_warnings():  # it was written for an older pydantic
        warnings.simplefilter("ignore")
        schema = pytest.importorskip("sweeps.config.schema", reason="W&B's own validation is not installed: pip install sweeps")
    assert not list(schema.validator.iter_errors(content))
    assert schema.fill_validate_schema(content)["method"] == content["method"]


def test_a_range_for_agents() -> None:
    axes = ((("p=A", {"p": "A"}), ("p=B", {"p": "B"})),)
    ranges = {"n": Range(1, 6, whole=True), "d": Range(0.0, 0.5), "w": Range(2, 64, "log", whole=True)}
    sweep = Sweep("x", (), axes=axes, random_count=3, ranges=ranges, seeds=(0, 1))
    content = for_agents(sweep, ("val/mae", "min"), [])
    assert content["parameters"]["n"] == {"distribution": "int_uniform", "min": 1, "max": 6}
    assert content["parameters"]["w"] == {"distribution": "q_log_uniform_values", "q": 1, "min": 1.5, "max": 64.5}
    assert content["metric"] == {"name": "val/mae", "goal": "minimize"}
    assert content["run_cap"] == len(sweep.cells) == 12 and content["method"] == "random"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(SMALL)
    Path("labels.yaml").write_text(LABELS)


def written(*words: str, config: str = "small.yaml") -> dict[str, Any]:
    assert main(["sweep", "--config", config, *words, "--to-wandb", "w.yaml"]) == 0
    content: dict[str, Any] = yaml.safe_load(Path("w.yaml").read_text())
    return content


def test_the_same_limits_are_in_the_command_and_others_are_those_of_cells(place: None) -> None:
    alike = written("--vary", "model.position=Rotary,Learned", "--seeds", "2", "--budget", "tokens=2000")
    assert alike["parameters"]["seed"] == {"values": [0, 1]} and alike["metric"] == {"name": "val/bleu", "goal": "maximize"}
    assert alike["command"][alike["command"].index("--trainer.max_steps") + 1] == "5"
    unlike = written("--vary", "data.batches.tokens=100,200", "--budget", "tokens=2000")
    assert unlike["parameters"] == {"cell": {"values": ["tokens=100", "tokens=200"]}}
    assert unlike["command"][:2] == ["platform", "sweep"] and "--trainer.max_steps" not in unlike["command"]


def test_a_search_over_what_a_budget_is_told_from_is_refused(place: None, capsys: pytest.CaptureFixture[str]) -> None:
    search = {"config": "small.yaml", "search": {"from": {"data.batches.tokens": [100, 200]}, "trials": 3}}
    Path("search.yaml").write_text(yaml.safe_dump(search))
    assert main(["sweep", "search.yaml", "--budget", "tokens=2000", "--to-wandb", "w.yaml"]) == 2
    assert "cannot search over `data.batches.tokens` with a budget of tokens" in capsys.readouterr().err
    assert main(["sweep", "search.yaml", "--budget", "steps=5", "--to-wandb", "w.yaml"]) == 0


def test_what_is_judged_by_follows_from_the_labels(place: None, capsys: pytest.CaptureFixture[str]) -> None:
    """And where they are not here, that is said."""
    words = ["--vary", "model.position=Rotary,Learned"]
    Path("texts.tsv").write_text("good text\tyes\nbad text\tno\nso so\tno\n")
    assert written(*words, config="labels.yaml")["metric"] == {"name": "val/accuracy", "goal": "maximize"}
    numbers = ["--data.target.kind", "number", "--data.train", "numbers.tsv"]
    Path("numbers.tsv").write_text("good text\t1.5\nbad text\t0\nso so\t1\n")
    assert written(*words, *numbers, config="labels.yaml")["metric"] == {"name": "val/rmse", "goal": "minimize"}
    capsys.readouterr()
    gone = written(*words, "--data.train", "gone.tsv", config="labels.yaml")
    assert gone["metric"]["name"] == "val/loss" and "no data is here to ask (gone.tsv" in capsys.readouterr().err
