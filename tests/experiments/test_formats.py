"""What each format of a comparison says beside the table: refusals, the commands of a sweep, several tasks at once."""

import json
from pathlib import Path

import pytest
import yaml

from polyformer.cli import main
from polyformer.experiments.comparison import compare_runs
from polyformer.experiments.formats import as_json, as_markdown, table_of
from polyformer.experiments.page import as_page
from polyformer.experiments.runs import find_runs

from .made_up import made_up


def test_what_keeps_its_runs_within_itself_is_one_run(tmp_path: Path) -> None:
    """W&B keeps a config.yaml of its own in the folder of a run."""
    for name in ("one", "two"):
        made_up(tmp_path / "sweep", name)
        inner = tmp_path / "sweep" / name / "wandb" / "run-1" / "files"
        inner.mkdir(parents=True)
        (inner / "config.yaml").write_text("seed: 0")
    assert [run.name for run in find_runs([str(tmp_path)])] == ["one", "two"]


def test_seeds_that_agree_have_no_spread_but_one_seed_has_none_known(tmp_path: Path) -> None:
    runs = [made_up(tmp_path, f"a{seed}", "Rotary", seed, metrics={"test/bleu": 30.0}) for seed in (0, 1)]
    (comparison,) = compare_runs([*runs, made_up(tmp_path, "b", "Learned", metrics={"test/bleu": 29.0})], tested=False)
    titles, lines = table_of(comparison)
    assert [line[titles.index("test/bleu")] for line in lines] == ["30 \u00b1 0", "29"]


def test_a_table_of_numbers_says_elsewhere_what_is_not_ranked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("Rotary", "Learned"):
        made_up(tmp_path, name, name, fingerprints={"test": name, "tokenizers": {}})
    assert main(["compare", str(tmp_path), "--format", "csv"]) == 0
    said = capsys.readouterr()
    assert "the test data differ" in said.err and "one seed each" in said.err and "differ" not in said.out


def test_runs_of_a_sweep_have_their_commands(tmp_path: Path) -> None:
    words = {name: f"--config c.yaml --model.position {name} --trainer.max_steps 5" for name in ("Rotary", "Learned")}
    for name in words:
        made_up(tmp_path, name, name)
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump({name: {"words": one, "configs": []} for name, one in words.items()}))
    found = compare_runs(find_runs([str(tmp_path)]), tested=False)
    for name, one in words.items():
        assert f"| 0    | `platform fit {one}`" in as_markdown(found)
        assert f'<td class="words">platform fit {one}</td>' in as_page(found, "title")
        assert any(row["runs"][0]["command"] == f"platform fit {one}" for row in json.loads(as_json(found))[0]["rows"]), name
    assert "Commands" not in as_markdown(compare_runs([made_up(tmp_path / "alone", "run")], tested=False))


def test_all_tasks_at_once_are_in_json_too(tmp_path: Path) -> None:
    settings = [{"model": {"mixer": mixer}, "data": {"test": "t"}} for mixer in ("RNN", "LSTM")]
    runs = [made_up(tmp_path, f"{task}{at}", settings=one, task=task) for task in "AB" for at, one in enumerate(settings)]
    *_, field = json.loads(as_json(compare_runs(runs, tested=False)))
    assert field["task"] == "All tasks" and [row["name"] for row in field["rows"]] == ["mixer=RNN", "mixer=LSTM"]
    assert set(field["rows"][0]["measured"]) >= {"A: test/bleu", "B: test/bleu"} and "runs" not in field["rows"][0]
