"""A search by Optuna, with a stand-in for `platform`: what it tries, what it ends early, and how it goes on."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from polyformer.cli import main
from polyformer.cli import sweep as command
from polyformer.experiments import running
from polyformer.experiments.agents import for_agents
from polyformer.experiments.description import sweep_of
from polyformer.experiments.running import SweepRunner
from polyformer.experiments.search import Trials, validations
from polyformer.experiments.sweep_folder import SweepFolder

from ..cli.small import SMALL

RATE = "training.optimizer.lr"
STAND_IN = """
import json, pathlib, signal, sys, time
words = sys.argv[1:]
run = pathlib.Path(words[words.index("--run") + 1])
config = run / "config.yaml"
if "--resume" in words:
    rate = json.loads(config.read_text())["rate"]
else:
    rate = float(words[words.index("--training.optimizer.lr") + 1])
    run.mkdir(parents=True, exist_ok=True)
    config.write_text(json.dumps({"rate": rate, "task": "Translation"}))
with open(run.parent / "calls", "a") as file:
    file.write(json.dumps([run.name, rate, "--resume" in words]) + chr(10))
is_bad = run.parent.name == "bad"
loss = {"trial=000": 2.0, "trial=002": 9.0}.get(run.name, rate) if is_bad else abs(rate - 0.3)
if is_bad and run.name == "trial=003":
    sys.exit("platform: out of memory")
signal.signal(signal.SIGTERM, lambda *_: (run / "asked").touch() if is_bad else sys.exit(0))
with open(run / "metrics.csv", "w") as file:
    file.write(f"step,val/loss,val/bleu{chr(10)}5,{loss},1.0{chr(10)}")
if loss == 9.0:
    time.sleep(300)
(run / "results.json").write_text(json.dumps({"task": "Translation", "metrics": {"val/loss": loss, "val/bleu": 1.0}}))
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna", reason="a search needs Optuna: pip install 'optuna>=4'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(running, "PATIENCE", 0.01)
    monkeypatch.setattr(running, "GRACE", 0.5)
    monkeypatch.setattr(command, "PLATFORM", (sys.executable, "-c", STAND_IN))
    (tmp_path / "small.yaml").write_text(SMALL)


def described(**more: Any) -> dict[str, Any]:
    search = {"from": {RATE: {"low": 0.001, "high": 1.0}, "model.norm": ["layer_norm", "rms_norm"]}, "trials": 13, **more}
    return {"config": "small.yaml", "search": search}


def calls(folder: Path) -> list[list[Any]]:
    return [json.loads(line) for line in (folder / "calls").read_text().splitlines()]


class Ran:
    """A search in a folder, which may be stopped when a trial begins."""

    def __init__(self, folder: Path, stop_at: str = "nothing") -> None:
        sweep = sweep_of(described(seed=3), "x", "here")
        self.trials, self.stop_at = Trials(sweep, SweepFolder(folder), "val/loss", "min", lambda cell: cell), stop_at
        runner = SweepRunner(SweepFolder(folder), (sys.executable, "-c", STAND_IN), 1, self.say, self.trials)
        try:
            runner.run_as_they_come(self.trials.cells(), 13, self.trials.done)
        except KeyboardInterrupt:
            assert stop_at in str(self.said)

    said = ""

    def say(self, line: str) -> None:
        self.said = line
        if line.startswith(f"{self.stop_at}: begins"):
            raise KeyboardInterrupt


def test_a_search_that_is_stopped_tries_what_it_would_have_tried(tmp_path: Path) -> None:
    """In the middle of the trials that follow from earlier ones, which begin with the eleventh."""
    whole = Ran(tmp_path / "whole").trials
    Ran(tmp_path / "parted", stop_at="trial=011")
    assert len(calls(tmp_path / "parted")) <= 12
    parted = Ran(tmp_path / "parted").trials
    rates = [{name: rate for name, rate, _ in calls(tmp_path / folder)} for folder in ("whole", "parted")]
    assert rates[0] == rates[1] and len(rates[0]) == len(set(rates[0].values())) == 13
    assert whole.best == parted.best and whole.done == 13
    assert whole.best is not None and abs(whole.best.settings[RATE] - 0.3) == pytest.approx(whole.best.value, abs=1e-3)
    assert whole.best.value == min(abs(rate - 0.3) for rate in rates[0].values())


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The third trial is worse than the two before, and goes on when it is asked to end; the fourth fails."""
    content = described(metric="val/loss", prune_after=1, trials=4) | {"name": "runs/bad", "budget": {"steps": 7}}
    content["search"]["from"][RATE]["high"] = 0.01
    Path("search.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    assert main(["sweep", "search.yaml", "--trials", "5"]) == 0
    said = capsys.readouterr().err
    assert "trial=002: ended early after" in said and "step 5  val/loss 9" in said
    assert "trial=003: FAILED" in said and "out of memory" in said
    assert json.loads(Path("runs/bad/trial=002/pruned.json").read_text()) == {"step": 5, "val/loss": 9.0}
    assert Path("runs/bad/trial=002/asked").exists() and not Path("runs/bad/trial=002/results.json").exists()
    rates = {name: rate for name, rate, _ in calls(Path("runs/bad"))}
    best = min(("trial=001", "trial=004"), key=lambda name: rates[name])
    assert f"best of 5 trials: {best}, val/loss {rates[best]:.4g}, with {RATE} {rates[best]}, model.norm " in said
    words = yaml.safe_load(Path("runs/bad/sweep.yaml").read_text())[best]["words"]
    assert words.startswith("--config small.yaml ") and words.endswith("--trainer.max_steps 7")
    assert main(["sweep", "search.yaml", "--trials", "5"]) == 0
    assert "5 of 5 cells have finished already" in capsys.readouterr().err and len(calls(Path("runs/bad"))) == 5
    assert main(["compare", "runs/bad", "--no-tests"]) == 0
    told = capsys.readouterr().out
    assert f"ended early by a search, left out: {Path('runs/bad/trial=002')}" in told
    assert f"not finished, left out: {Path('runs/bad/trial=003')}" in told


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (described(trials=0), "`search.trials` must be at least 1"),
        (described(metric="test/bleu"), "`search.metric` must be one of the validation"),
        (described(sampler="grid"), "`search.sampler` must be tpe or random"),
        (described(tries=3), "`search` has no key `tries`"),
        (described() | {"seeds": 2}, "leave `vary`, `cells`, `random` and `seeds` out"),
        ({"search": {"from": {"model.d_modle": [8, 16]}, "trials": 2}, "config": "small.yaml"}, "cell trial=000: "),
        ({"search": {"trials": 2}, "config": "small.yaml"}, "`search.from` must name the keys"),
    ],
)
def test_mistakes_are_said(content: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("search.yaml").write_text(yaml.safe_dump(content))
    assert main(["sweep", "search.yaml"]) == 2
    assert said in capsys.readouterr().err and not Path("runs").exists()


def test_another_search_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    folder, complete = SweepFolder(tmp_path / "s"), lambda cell: cell
    Trials(sweep_of(described(), "x", "here"), folder, "val/loss", "min", complete)
    Trials(sweep_of(described(trials=40), "x", "here"), folder, "val/loss", "min", complete)
    (tmp_path / "s" / "search.log").open("ab").write(b'{"half a li')  # killed in the middle of it
    with pytest.raises(ValueError, match="holds a search that was begun otherwise"):
        Trials(sweep_of(described(seed=1), "x", "here"), folder, "val/loss", "min", complete)
    with pytest.raises(ValueError, match="holds a search that was begun otherwise"):
        Trials(sweep_of(described(), "x", "here"), folder, "val/loss", "max", complete)


def test_without_optuna_the_way_to_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ValueError, match="pip install 'optuna>=4'"):
        Trials(sweep_of(described(), "x", "here"), SweepFolder(tmp_path), "val/loss", "min", lambda cell: cell)


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "metrics.csv"
    assert validations(file, "val/loss") == []
    file.write_text("step,train/loss,val/loss\n5,1.0,\n5,,2.25\n10,,1.1")
    assert validations(file, "val/loss") == [(5, 2.25)]


def test_agents_of_wandb_search_too() -> None:
    """What is searched over is what W&B's own way from their files to Optuna makes of the file."""
    from wandb.sdk.sweeps.scheduler.optuna import sweep_parameter_to_distribution

    content = for_agents(sweep_of(described(), "x", "here"), ("val/loss", "min"), [])
    assert content["method"] == "bayes" and content["run_cap"] == 13
    found = {key: sweep_parameter_to_distribution(one) for key, one in content["parameters"].items()}
    assert found[RATE].low == 0.001 and found[RATE].high == 1.0 and not found[RATE].log
    assert found["model.norm"].choices == ("layer_norm", "rms_norm")
