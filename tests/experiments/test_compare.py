"""`platform compare` on made-up runs: the table, the spread, and what it refuses."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from polyformer.cli import main
from polyformer.experiments.comparison import Comparison, compare_runs
from polyformer.experiments.field import field_of
from polyformer.experiments.formats import as_csv, as_json, as_markdown, table_of
from polyformer.experiments.page import as_page
from polyformer.experiments.rows import Mark
from polyformer.experiments.runs import find_runs

from .made_up import made_up


def compared(*runs: Any, **options: Any) -> Comparison:
    (found,) = compare_runs(runs, **options)
    return found


def column(comparison: Comparison, title: str) -> list[str]:
    titles, lines = table_of(comparison)
    return [line[titles.index(title)] for line in lines]


def test_only_what_differs_is_named_and_seeds_are_one_row(tmp_path: Path) -> None:
    runs = [made_up(tmp_path, f"{name}{seed}", name, seed) for name in ("Rotary", "Learned") for seed in (0, 1)]
    comparison = compared(*runs, tested=False)
    titles, lines = table_of(comparison)
    assert titles[:2] == ["model.position", "seeds"]
    assert [line[:2] for line in lines] == [["Rotary", "2"], ["Learned", "2"]]
    assert column(comparison, "test/bleu") == ["30.50 \u00b1 0.71"] * 2
    assert column(comparison, "training time") == ["13 \u00b1 1 s"] * 2
    assert column(comparison, "peak memory") == ["512 MB"] * 2


def test_spread_is_over_seeds_and_a_lonely_seed_is_said(tmp_path: Path) -> None:
    metrics = [{"test/bleu": value} for value in (20.0, 22.0, 27.0, 25.0)]
    names = ("Rotary", "Rotary", "Rotary", "Learned")
    runs = [made_up(tmp_path, str(at), name, at, metrics[at]) for at, name in enumerate(names)]
    comparison = compared(*runs, tested=False)
    best = comparison.columns[0]
    assert [row.name for row in comparison.rows] == ["position=Learned", "position=Rotary"]
    assert best.cells[1].mean == 23.0 and best.cells[1].spread == pytest.approx(3.605551)
    assert best.best == {0} and best.cells[0].spread is None
    assert any("one seed only" in note and "Learned" in note for note in comparison.notes)


def test_arguments_of_another_class_are_no_difference(tmp_path: Path) -> None:
    def model(name: str, **arguments: Any) -> dict[str, Any]:
        return {"model": {"position": {"class_path": f"polyformer.nn.{name}", "init_args": arguments}}}

    one = made_up(tmp_path, "a", settings=model("Rotary", base=100, fraction=1.0))
    two = made_up(tmp_path, "b", settings=model("Rotary", base=500, fraction=1.0))
    other = made_up(tmp_path, "c", settings=model("Learned"))
    comparison = compared(one, two, other, tested=False)
    assert comparison.settings == ["model.position", "model.position.base"]
    assert compared(one, two, tested=False).settings == ["model.position.base"]


def test_the_same_run_twice_is_told_apart_by_name(tmp_path: Path) -> None:
    comparison = compared(made_up(tmp_path, "first"), made_up(tmp_path, "again"), tested=False)
    assert sorted(row.name for row in comparison.rows) == ["again", "first"]


def test_time_to_a_mark(tmp_path: Path) -> None:
    quick = made_up(tmp_path, "quick", "Rotary", losses=(4.0, 2.9, 2.0))
    late = made_up(tmp_path, "late", "Learned", losses=(4.0, 3.9, 3.0))
    never = made_up(tmp_path, "never", "Sinusoidal", losses=(4.0, 3.9, 3.1))
    comparison = compared(quick, late, never, marks=[Mark("val/loss", 3.0)], tested=False)
    told = dict(zip((row.name for row in comparison.rows), column(comparison, "time to val/loss 3"), strict=True))
    assert told == {"position=Rotary": "8.0 s", "position=Learned": "12 s", "position=Sinusoidal": "\u2013"}
    rising = compared(quick, late, marks=[Mark("val/bleu", 20.0)], tested=False)
    assert column(rising, "step to val/bleu 20") == ["20", "20"]


def test_other_test_data_are_not_ranked(tmp_path: Path) -> None:
    one = made_up(tmp_path, "a", "Rotary", fingerprints={"test": "aaaa", "tokenizers": {"source": "x"}})
    two = made_up(tmp_path, "b", "Learned", fingerprints={"test": "bbbb", "tokenizers": {"source": "x"}})
    comparison = compared(one, two, tested=False)
    assert comparison.ranked_by is None
    assert not any(column.best for column in comparison.columns)
    assert "the test data differ" in str(comparison.refused[0]) and "platform test" in str(comparison.refused[0])


def test_data_that_moved_are_the_same(tmp_path: Path) -> None:
    moved = {"data": {"class_path": "polyformer.data.PairData", "init_args": {"test": "/elsewhere/t.tsv"}}}
    marks = {"test": "aaaa", "tokenizers": {"source": "x"}}
    one = made_up(tmp_path, "a", fingerprints=marks)
    two = made_up(tmp_path, "b", "Learned", fingerprints=marks, settings=moved)
    assert compared(one, two, tested=False).ranked_by == "test/bleu"


def test_another_signature_closes_its_metric_alone(tmp_path: Path) -> None:
    one = made_up(tmp_path, "a", "Rotary")
    other = {"bleu": "nrefs:1|case:mixed|eff:no|tok:zh|smooth:exp|version:2.6.0"}
    two = made_up(tmp_path, "b", "Learned", metrics={"test/loss": 2.4, "test/bleu": 30.0}, signatures=other)
    comparison = compared(one, two, tested=False)
    assert [refusal.metrics for refusal in comparison.refused] == [("test/bleu",)]
    assert "tok:zh" in str(comparison.refused[0])
    best = {column.title: column.best for column in comparison.columns}
    assert not best["test/bleu"] and best["test/loss"]


def language_model(folder: Path, name: str, tokenizer: str, bits: float, **more: Any) -> Any:
    metrics = {"test/loss": 3.0, "test/perplexity": 20.0, "test/bits_per_byte": bits, "test/accuracy": 0.4}
    settings = {"model": {"d_model": 64}, "data": {"test": "t.txt", "tokenizer": {"kind": tokenizer, "vocab_size": 99}}}
    return made_up(folder, name, metrics=metrics, settings=settings, task="LanguageModeling", signatures={}, **more)


def test_perplexities_of_other_tokenizers_are_not_ranked_but_bits_per_byte_are(tmp_path: Path) -> None:
    comparison = compared(language_model(tmp_path, "a", "bpe", 1.6), language_model(tmp_path, "b", "word", 1.5), tested=False)
    (refusal,) = comparison.refused
    assert set(refusal.metrics) == {"test/loss", "test/perplexity", "test/accuracy"}
    assert "compare test/bits_per_byte instead" in refusal.instead and "bpe" in refusal.reason
    assert comparison.ranked_by == "test/bits_per_byte"
    assert [row.runs[0].name for row in comparison.rows] == ["b", "a"]


def test_each_task_has_its_own_table(tmp_path: Path) -> None:
    found = compare_runs([made_up(tmp_path, "a"), language_model(tmp_path, "b", "bpe", 1.5)], tested=False)
    assert [one.task for one in found] == ["Translation", "LanguageModeling"]


def test_the_same_settings_in_several_tasks_stand_side_by_side(tmp_path: Path) -> None:
    settings = [{"model": {"mixer": mixer}, "data": {"test": "t", "tokenizer": {"kind": "bpe"}}} for mixer in ("RNN", "LSTM")]
    figures = {"test/accuracy": 0.4, "test/perplexity": 20.0}
    runs = [made_up(tmp_path, f"t{at}", settings=one) for at, one in enumerate(settings)]
    for at, one in enumerate(settings):
        own = {name: value + at for name, value in figures.items()}
        runs.append(made_up(tmp_path, f"l{at}", settings=one, task="LanguageModeling", metrics=own))
    found = compare_runs([*runs, made_up(tmp_path, "alone", task="Tagging", metrics={"test/f1": 0.5})], tested=False)
    field = field_of(found)
    assert field is not None
    titles, lines = table_of(field, "**{}**")
    assert titles == [
        "model.mixer", "seeds", "Translation: test/bleu", "Translation: training time", "Translation: parameters",
        "LanguageModeling: test/accuracy", "LanguageModeling: test/perplexity", "LanguageModeling: training time",
        "LanguageModeling: parameters",
    ]  # fmt: skip
    assert [[line[at] for at in (0, 5, 6)] for line in lines] == [["RNN", "0.4", "**20**"], ["LSTM", "**1.4**", "21"]]
    assert as_markdown(found).count("## All tasks") == 1 and "All tasks</h2>" in as_page(found, "title")
    assert field_of(found[:1]) is None and "All tasks" not in as_markdown(found[1:])


def test_losses_and_accuracies_of_training_are_means_over_its_end(tmp_path: Path) -> None:
    run = made_up(tmp_path, "a")
    rows = [(80, 9.0, 9.0), (92, 0.5, 5.0), (100, 1.0, 4.0)]
    (run.path / "metrics.csv").write_text(
        "step,train/accuracy,train/learning_rate\n" + "".join(f"{step},{share},{rate}\n" for step, share, rate in rows)
    )
    assert run.metrics["train/accuracy"] == pytest.approx((0.5 * 12 + 1.0 * 8) / 20)
    assert run.metrics["train/learning_rate"] == 4.0


def test_a_run_that_goes_on_is_left_out_and_named(tmp_path: Path) -> None:
    done, going = made_up(tmp_path, "done"), made_up(tmp_path, "going", "Learned")
    (going.path / "results.json").unlink()
    comparison = compared(*find_runs([str(tmp_path)]), tested=False)
    assert [row.runs[0].path for row in comparison.rows] == [done.path]
    assert any("not finished" in note and "going" in note for note in comparison.notes)


def test_formats_say_the_same(tmp_path: Path) -> None:
    found = compare_runs([made_up(tmp_path, "a", "Rotary"), made_up(tmp_path, "b", "Learned", 0, {"test/bleu": 31.5})])
    rows = list(csv.DictReader(io.StringIO(as_csv(found))))
    (content,) = json.loads(as_json(found))
    assert [row["model.position"] for row in rows] == ["Learned", "Rotary"]
    assert [float(row["test/bleu"]) for row in rows] == [31.5, 30.0]
    assert [row["measured"]["test/bleu"]["mean"] for row in content["rows"]] == [31.5, 30.0]
    assert content["ranked_by"] == "test/bleu"
    assert "**31.5**" in as_markdown(found) and "| Learned " in as_markdown(found)


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("Rotary", "Learned"):
        made_up(tmp_path / "runs" / "pos", name, name)
    assert main(["compare", "pos", "--mark", "val/loss=4", "--curves", "c.png"]) == 0
    said = capsys.readouterr().out
    assert "| model.position |" in said and "time to val/loss 4" in said
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    words = ["--output", "out.json", "--metrics", "train/loss,test/bleu"]
    assert main(["compare", "runs/pos/R*", "runs/pos/Learned", *words]) == 0
    (content,) = json.loads((tmp_path / "out.json").read_text())
    assert content["rows"][0]["measured"]["train/loss"]["mean"] == 3.5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "say what is to be compared"),
        (["nothing"], "no run and no folder of runs"),
        (["pos", "--by", "test/rouge"], "--by test/rouge: no run has it"),
        (["pos", "--metrics", "test/rouge"], "no run of Translation has test/rouge"),
        (["pos", "--mark", "fast"], "--mark must be METRIC=VALUE"),
        (["pos", "--format", "pdf"], "--format must be md, csv, json, html"),
        (["pos", "--baseline", "other"], "--baseline other: no such run or row"),
        (["pos", "--sort", "x"], "unknown option --sort"),
    ],
)
def test_mistakes_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    made_up(tmp_path / "runs" / "pos", "a")
    assert main(["compare", *words]) in (1, 2)
    assert said in capsys.readouterr().err


def test_runs_that_differ_in_much_are_told_by_their_names(tmp_path: Path) -> None:
    more = {"model": {"d_model": 128, "dropout": 0.1, "num_heads": 8, "norm": "rms_norm"}, "task": {"label_smoothing": 0}}
    comparison = compared(made_up(tmp_path, "small"), made_up(tmp_path, "large", settings=more), tested=False)
    titles, lines = table_of(comparison)
    assert titles[0] == "run" and {line[0] for line in lines} == {"small", "large"} and len(comparison.settings) > 4
    few = compared(made_up(tmp_path, "a"), made_up(tmp_path, "b", "Learned"), tested=False)
    assert table_of(few)[0][0] == "model.position" and few.rows[1].name == "position=Learned"
