"""`platform sweep`: which cells there are, what is run, and how it goes on; mostly with a stand-in for `platform`."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from polyformer.cli import main
from polyformer.experiments.description import sweep_of
from polyformer.experiments.ranges import Range
from polyformer.experiments.running import SweepRunner
from polyformer.experiments.sweep import Cell, Sweep
from polyformer.experiments.sweep_folder import SweepFolder

from ..cli.small import SMALL

STAND_IN = """
import json, os, pathlib, sys, time
words = sys.argv[1:]
run = pathlib.Path(words[words.index("--run") + 1])
with open(run.parent / "calls", "a") as file:
    file.write(json.dumps([run.name, "--resume" in words, os.environ.get("OMP_NUM_THREADS")]) + chr(10))
(run / "checkpoints").mkdir(parents=True, exist_ok=True)
(run / "config.yaml").write_text("seed: 0")
if "broken" in run.name:
    print("platform: `num_heads` must divide `d_model`", file=sys.stderr)
    sys.exit(1)
if "slow" in run.name and "--resume" not in words:
    time.sleep(60)
(run / "results.json").write_text('{"metrics": {"test/bleu": 12.345}}')
"""


def cells(*names: str) -> list[Cell]:
    return [Cell(name, {"config": [], "model.position": name}) for name in names]


@dataclass
class Ran:
    """A runner with the stand-in, and what it says."""

    folder: Path
    parallel: int = 1
    said: list[str] = field(default_factory=list)

    def run(self, *names: str) -> list[str]:
        """The names of the cells that failed."""
        runner = SweepRunner(SweepFolder(self.folder), (sys.executable, "-c", STAND_IN), self.parallel, self.said.append)
        return [cell.name for cell in runner.run(cells(*names))]

    @property
    def calls(self) -> list[list[Any]]:
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]


def test_a_grid_has_every_combination() -> None:
    content = {"config": "c.yaml", "vary": {"model.position": ["Rotary", "Learned"], "model.d_model": [16, 32]}, "seeds": 2}
    found = sweep_of(content, "grid", "here").cells
    assert len(found) == 8
    assert found[1].name == "position=Rotary,d_model=16,seed=1"
    assert found[1].words == ["--config", "c.yaml", "--model.position", "Rotary", "--model.d_model", "16", "--seed", "1"]


def test_a_name_may_stand_for_many_settings_and_configs_add_up() -> None:
    vary = {
        "task": {"translation": {"config": "t.yaml"}, "language": {"config": "l.yaml"}},
        "architecture": {"LSTM": {"model.mixer": "LSTM", "model.position": "NoPosition"}, "Transformer": {}},
    }
    found = sweep_of({"config": "base.yaml", "fixed": {"model.dropout": 0.1}, "vary": vary}, "x", "here").cells
    assert found[0].name == "task=translation,architecture=LSTM"
    assert found[0].words[:4] == ["--config", "base.yaml", "--config", "t.yaml"]
    assert found[0].words[4:] == ["--model.dropout", "0.1", "--model.mixer", "LSTM", "--model.position", "NoPosition"]


def test_a_list_of_cells() -> None:
    found = sweep_of(
        {"config": "c.yaml", "cells": [{"model.dropout": 0.1}, {"model.dropout": 0.3, "seed": 7}]}, "x", "here"
    ).cells
    assert [cell.name for cell in found] == ["dropout=0.1", "dropout=0.3,seed=7"]


def test_names_choose_among_what_is_offered_and_some_cells_are_given_more() -> None:
    offered = {"mixer": {"RNN": {"model.mixer": "RNN"}, "GRU": {"model.mixer": "GRU"}}}
    content = {"config": "c.yaml", "offered": offered, "vary": {"mixer": ["GRU", "RNN"], "model.d_model": [8, 16]}}
    found = sweep_of(content, "x", "here").with_more({"GRU": {"data.train": "own.txt"}}).cells
    assert [cell.name for cell in found] == [f"mixer={name},d_model={size}" for name in ("GRU", "RNN") for size in (8, 16)]
    assert found[1].settings == {"config": ["c.yaml"], "model.mixer": "GRU", "data.train": "own.txt", "model.d_model": 16}
    assert "data.train" not in found[2].settings
    with pytest.raises(ValueError, match=r"`vary.mixer` has LSTM, but `offered.mixer` has RNN, GRU"):
        sweep_of({**content, "vary": {"mixer": ["LSTM"]}}, "x", "here")
    with pytest.raises(ValueError, match="there is no choice `Rotary`; there are GRU, RNN, 8, 16"):
        sweep_of(content, "x", "here").with_more({"Rotary": {}})


def test_a_sample_is_the_same_each_time_and_within_its_ranges() -> None:
    ranges = {
        "lr": {"low": "1e-4", "high": 1e-2, "scale": "log"},
        "layers": {"low": 1, "high": 6, "whole": True},
        "size": [2, 4],
    }
    content = {"config": "c.yaml", "random": {"count": 40, "seed": 3, "from": ranges}}
    found = [cell.settings for cell in sweep_of(content, "x", "here").cells]
    assert found == [cell.settings for cell in sweep_of(content, "x", "here").cells]
    assert len({one["lr"] for one in found}) == 40
    assert all(1e-4 <= one["lr"] <= 1e-2 and one["layers"] in range(1, 7) and one["size"] in (2, 4) for one in found)
    assert 10 < sum(one["lr"] < 1e-3 for one in found) < 30  # half of a logarithmic range lies below its middle


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_whole_numbers_at_the_ends_of_a_range_are_as_likely_as_others(scale: str) -> None:
    """On a scale of logarithms, as what is rounded to them is long."""
    low, high, draws = 2, 6, 4000
    chance, kind = random.Random(1), Range(low, high, scale, whole=True)
    drawn = Counter(kind.draw(chance) for _ in range(draws))
    shares = {
        number: math.log((number + 0.5) / (number - 0.5)) / math.log((high + 0.5) / (low - 0.5)) if scale == "log" else 1 / 5
        for number in range(low, high + 1)
    }
    assert drawn.keys() == shares.keys() and all(isinstance(number, int) for number in drawn)
    assert all(abs(drawn[number] / draws - share) < 0.03 for number, share in shares.items())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"varied": {}}, "unknown key `varied`"),
        ({"vary": {"model.position": "Rotary"}}, "must be a list of values"),
        ({"random": {"count": 1, "from": {"lr": {"low": 2, "high": 1}}}}, "`low` must be below `high`"),
        (
            {"random": {"count": 1, "from": {"lr": {"low": 0, "high": 1, "scale": "log"}}}},
            "must be above 0 where `scale` is log",
        ),
        (
            {"random": {"count": 1, "from": {"n": {"low": 1.5, "high": 4, "whole": True}}}},
            "must be whole where `whole` is true",
        ),
        ({"vary": [1]}, "sweep.yaml: `vary` must have keys of its own, .* but is .1."),
        ({"vary": {"size": {"small": 5}}}, "`vary.size.small` must have keys of its own"),
        ({"vary": {"config": [5]}}, "`vary.config` must be a file, or a list of files, but is 5"),
        ({"vary": {"mixer": ["RNN"]}, "offered": {"mixer": 5}}, "`offered.mixer` must have keys of its own"),
        ({"budget": 5}, "sweep.yaml: `budget` must be one of steps, .* but is 5"),
        ({"budget": {"steps": "many"}}, "`budget.steps` must be a number of at least 0, but is many"),
        ({"cells": [1]}, "sweep.yaml: `cells.0.` must have keys of its own, .* but is 1"),
        ({"cells": 5}, "`cells` must have keys of its own"),
        ({"fixed": [1]}, "sweep.yaml: `fixed` must have keys of its own"),
        ({"config": 5}, "sweep.yaml: `config` must be a file, or a list of files, but is 5"),
        ({"random": {"count": "a"}}, "`random.count` must be a whole number, but is a"),
        ({"random": {"count": 1, "from": {"lr": 5}}}, "`random.from` of `lr`: a range such as"),
        ({"random": {"count": 1, "from": {"lr": {"low": 1}}}}, "`random.from` of `lr`: a range needs `high`"),
        ({"random": {"count": 1, "from": {"lr": {"low": 1, "high": "b"}}}}, "`high` must be a number, but is b"),
        ({"search": {"trials": "a"}}, "sweep.yaml: `search.trials` must be a whole number, but is a"),
        ({"search": 5}, "`search` must have keys of its own"),
        ({"search": {"trials": 1, "metric": 5}}, "`search.metric` must be one of the validation"),
        ({"seeds": "abc"}, "sweep.yaml: `seeds` must be how many there are, at least 1, .* but is abc"),
        ({"seeds": -1}, "`seeds` must be how many there are, at least 1, .* but is -1"),
        ({"seeds": 0}, "but is 0"),
        ({"seeds": [1, "a"]}, "or a list of them such as"),
        ({"parallel": "two"}, "`parallel` must be a whole number, but is two"),
        ({"name": "../x"}, "sweep.yaml: `name` must be a folder's name, or a path without `..`, but is '../x'"),
        ({"name": ".."}, "`name` must be a folder's name"),
        ({"name": ""}, "`name` must be a folder's name"),
        ({"name": "."}, "`name` must be a folder's name"),
        ({"name": "/"}, "`name` must be a folder's name"),
        ({"budget": {"steps": 1, "tokens": 2}}, "`budget` must be one of steps, tokens, seconds, minutes"),
    ],
)
def test_mistakes_in_a_description_are_said(content: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sweep_of(content, "x", "sweep.yaml")


def test_names_are_told_apart() -> None:
    long = [{"model.name": "x" * 200}, {"model.name": "x" * 199 + "y"}]
    names = [cell.name for cell in sweep_of({"cells": long}, "x", "here").cells]
    assert len(set(names)) == 2 and all(len(name) <= 120 for name in names)
    with pytest.raises(ValueError, match="two cells would be named"):
        _ = Sweep("x", (), axes=((("same", {"a": 1}), ("same", {"a": 2})),)).cells


def test_what_has_finished_is_left_alone_and_what_has_begun_is_resumed(tmp_path: Path) -> None:
    ran = Ran(tmp_path)
    assert ran.run("done", "fresh") == []
    (tmp_path / "fresh" / "results.json").unlink()
    assert ran.run("done", "fresh", "more") == []
    assert [call[:2] for call in ran.calls] == [["done", False], ["fresh", False], ["fresh", True], ["more", False]]
    assert any("test/bleu 12.35" in line or "test/bleu 12.34" in line for line in ran.said)


def test_a_training_that_fails_does_not_stop_the_others_and_is_tried_again(tmp_path: Path) -> None:
    ran = Ran(tmp_path)
    assert ran.run("broken", "good") == ["broken"]
    assert any("FAILED with exit code 1: platform: `num_heads` must divide `d_model`" in line for line in ran.said)
    assert ran.run("broken", "good") == ["broken"]
    assert [call[0] for call in ran.calls] == ["broken", "good", "broken"]


def test_of_a_failure_only_what_this_attempt_said_is_told(tmp_path: Path) -> None:
    ran = Ran(tmp_path)
    output = tmp_path / "output" / "broken.txt"
    output.parent.mkdir()
    output.write_text("platform: of an earlier attempt\n")
    silent = STAND_IN.replace("print(", "str(").replace(", file=sys.stderr)", ")")
    runner = SweepRunner(SweepFolder(tmp_path), (sys.executable, "-c", silent), 1, ran.said.append)
    assert [cell.name for cell in runner.run(cells("broken"))] == ["broken"]
    assert "FAILED with exit code 1: no output; all of it: " in ran.said[-1]


def test_many_agents_write_down_their_cells_at_once(tmp_path: Path) -> None:
    several = cells(*(f"cell{number}" for number in range(40)))
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(SweepFolder(tmp_path).accept, [cell]) for cell in several]:
            done.result()
    assert set(yaml.safe_load((tmp_path / "sweep.yaml").read_text())) == {cell.name for cell in several}
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_several_at_once_share_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    ran = Ran(tmp_path, parallel=2)
    assert ran.run("a", "b", "c") == []
    assert sorted(call[0] for call in ran.calls) == ["a", "b", "c"]
    assert {call[2] for call in ran.calls} == {str(max(1, (os.cpu_count() or 1) // 2))}


def test_what_was_killed_before_its_config_was_written_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "cell" / "checkpoints").mkdir(parents=True)
    (tmp_path / "cell" / "log.txt").write_text("")
    SweepFolder(tmp_path).clear(cells("cell")[0])
    assert not (tmp_path / "cell" / "checkpoints").exists() and not (tmp_path / "cell" / "log.txt").exists()


def test_a_cell_that_would_be_another_training_is_refused(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path)
    Ran(tmp_path).run("a")
    with pytest.raises(ValueError, match="was begun with other settings; choose another --name"):
        folder.accept([Cell("a", {"config": [], "model.position": "Learned"})])


def await_file(path: Path) -> None:
    until = time.monotonic() + 240
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert path.exists()


def test_a_training_that_outlives_its_sweep_is_waited_for(tmp_path: Path) -> None:
    """After kill -9 of the sweep its training still runs: nobody else may train in its folder."""
    script = (
        "import sys; from pathlib import Path; from polyformer.experiments.running import SweepRunner\n"
        "from polyformer.experiments.sweep import Cell; from polyformer.experiments.sweep_folder import SweepFolder\n"
        "command = (sys.executable, '-c', sys.argv[2])\n"
        "cell = Cell('slow', {'config': [], 'model.position': 'slow'})\n"
        "SweepRunner(SweepFolder(Path(sys.argv[1])), command, 1, print).run([cell])"
    )
    patient = STAND_IN.replace("time.sleep(60)", "time.sleep(2)")
    sweep = subprocess.Popen([sys.executable, "-c", script, str(tmp_path), patient])
    await_file(tmp_path / "slow" / "config.yaml")
    sweep.kill()
    sweep.wait()
    ran = Ran(tmp_path)
    assert ran.run("slow") == []
    assert any("still trained by a process of an earlier sweep" in line for line in ran.said)
    assert len(ran.calls) == 1


def test_a_sweep_that_is_ended_ends_its_trainings(tmp_path: Path) -> None:
    ran = Ran(tmp_path)
    if os.fork() == 0:  # a second process sends this one the signal, as a scheduler would
        try:
            await_file(tmp_path / "slow" / "config.yaml")
            os.kill(os.getppid(), signal.SIGTERM)
        finally:
            os._exit(0)
    with pytest.raises(KeyboardInterrupt):
        ran.run("slow")
    os.wait()
    assert not (tmp_path / "slow" / "results.json").exists()
    assert ran.run("slow") == []
    assert [call[1] for call in ran.calls] == [False, True]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL)
    return tmp_path / "small.yaml"


def test_the_command_line_says_what_it_would_run(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "--config", "small.yaml", "--vary", "model.position=Rotary,Learned", "--seeds", "2"]
    assert main([*words, "--model.d_model", "8", "--budget", "tokens=2000", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and not Path("runs").exists()
    assert lines[0] == (
        "platform fit --config small.yaml --model.d_model 8 --model.position Rotary --seed 0 --trainer.max_steps 5 "
        "--run runs/small-position/position=Rotary,seed=0"
    )
    one = ["--cell", "position=Learned,seed=1", "--name", "other", "--Learned:model.dropout", "0.5", "--dry-run"]
    assert main([*words, "--budget", "minutes=1.5", *one]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "--trainer.max_time 00:00:01:30" in line and line.endswith("--run runs/other/position=Learned,seed=1")
    assert "--model.dropout 0.5" in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["missing.yaml"], "missing.yaml: no such file"),
        (["--config", "small.yaml"], "say what is to be run"),
        (["--config", "small.yaml", "--vary", "model.position"], "--vary must be KEY=VALUE,VALUE"),
        (
            ["--config", "small.yaml", "--vary", "model.position=[Rotary"],
            "--vary model.position=[Rotary: not readable as values",
        ),
        (["--config", "small.yaml", "--vary", "model.position='a,b"], "--vary model.position='a,b: not readable as values"),
        (["--config", "small.yaml", "--vary", "model.positon=Rotary,Learned"], "cell positon=Rotary: "),
        (["--config", "small.yaml", "--seeds", "2", "--budget", "hours=1"], "--budget must be steps=N"),
        (["--config", "small.yaml", "--seeds", "2", "--cell", "x"], "--cell x: there is no such cell"),
        (["--config", "small.yaml", "--seeds", "0"], "--seeds must be how many there are, at least 1"),
        (["--config", "small.yaml", "--seeds", "2,b"], "--seeds must be a whole number, but is b"),
        (["--config", "small.yaml", "--seeds", "2", "--name", "../x"], "`name` must be a folder's name"),
        (["wrong.yaml", "--vary", "seed=1,2"], "wrong.yaml: `vary` must have keys of its own"),
        (["--config", "small.yaml", "--seeds", "2", "--parallel", "0"], "`parallel` must be at least 1"),
    ],
)
def test_mistakes_are_said_before_anything_is_trained(
    config: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    Path("wrong.yaml").write_text("config: small.yaml\nvary: [1]\n")
    assert main(["sweep", *words]) == 2
    assert said in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_real_sweep_is_killed_and_goes_on(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two trainings; the sweep and the first of them die by kill -9 in the middle, and the same command ends both."""
    words = ["sweep", "--config", "small.yaml", "--vary", "model.position=Rotary,Learned", "--budget", "steps=60"]
    words += ["--training.save_every", "20", "--trainer.val_check_interval", "60", "--data.evaluation_count", "3"]
    program = "import sys; from polyformer.cli import main; sys.exit(main())"
    sweep = subprocess.Popen([sys.executable, "-c", program, *words], stderr=subprocess.PIPE, text=True)
    first = Path("runs", "small-position", "position=Rotary")
    assert sweep.stderr is not None
    begun = next(line for line in sweep.stderr if "begins" in line)
    await_file(first / "checkpoints" / "last.ckpt")
    sweep.kill()
    os.kill(int(begun.rpartition("process ")[2].rstrip(")\n")), signal.SIGKILL)
    sweep.communicate()
    assert not (first / "results.json").exists()
    assert main(words) == 0
    said = capsys.readouterr().err
    assert "position=Rotary: goes on" in said and "position=Learned: begins" in said and "2 of 2 cells have finished" in said
    assert "resuming from step" in (first / "log.txt").read_text()
    assert main(["compare", "small-position"]) == 0
    told = capsys.readouterr().out
    assert "| Rotary " in told and "| Learned " in told and "at least 10 are needed" in told


def test_a_shipped_config_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cell = Cell("base", {"config": ["configs/translation/quickstart.yaml"]})
    SweepFolder(tmp_path / "sweep").accept([cell])
    assert "configs/translation/quickstart.yaml" in (tmp_path / "sweep" / "sweep.yaml").read_text()
