"""Classification as a user meets it: trained by the command, measured, and used on single lines."""

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polyformer.cli import main
from polyformer.data import batch_texts
from polyformer.training import load_task

from ..cli.small import examples_of, results_of
from ..cli.test_use import say

SMALL = """
task: Classification
model: {d_model: 16, num_heads: 2, num_layers: 1, max_length: 32, dropout: 0.0, pooling: MeanMax}
data:
  train: FOLDER/train.tsv
  validation: FOLDER/held_out.tsv
  test: FOLDER/held_out.tsv
  limits: {max_length: 16, cut: both}
  tokenizer: {kind: word, min_frequency: 1}
  batches: {tokens: 256, evaluation_tokens: 300}
training: {optimizer: {class_path: FusedAdamW, init_args: {lr: 0.01}}, schedule: Constant}
trainer: {max_steps: 60, val_check_interval: 30, log_every_n_steps: 10, accelerator: cpu}
"""
OTHERS = ["the", "film", "was", "long", "and", "we", "saw", "it", "on", "a", "train", "with", "two", "men", "who", "slept"]
MARKS = {"good": "fine", "bad": "awful", "plain": "grey"}
LINES = ["the film was fine", "", "awful men", "it was grey and we slept on a train", "a fine 你好 film"]


def sentence(chance: random.Random, *marks: str) -> str:
    words = [*chance.choices(OTHERS, k=chance.randint(2, 10)), *marks]
    chance.shuffle(words)
    return " ".join(words)


def write(folder: Path, rows: Any, columns: str = "text\tlabel") -> Path:
    """The rows of each split, made by a function of a source of chance."""
    for number, (name, count) in enumerate((("train", 200), ("held_out", 61))):
        chance = random.Random(number)
        lines = [columns, *("\t".join(rows(chance)) for _ in range(count))]
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    file = folder / "small.yaml"
    file.write_text(SMALL.replace("FOLDER", str(folder)))
    return file


def one_label(chance: random.Random) -> tuple[str, str]:
    label = chance.choice(sorted(MARKS))
    return sentence(chance, MARKS[label]), label


def fit(config: Path, name: str, *words: str) -> Path:
    run = config.parent / name
    assert main(["fit", "--config", str(config), "--run", str(run), *words, "--debug"]) == 0
    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    return fit(write(folder, one_label), "run")


def use(verb: str, run: Path, lines: Sequence[str], monkeypatch: Any, capsys: Any, *words: str) -> tuple[list[str], str]:
    """What the command prints, and what it says to standard error."""
    say(monkeypatch, "".join(f"{line}\n" for line in lines))
    capsys.readouterr()
    assert main([verb, "--ckpt_path", str(run), *words, "--debug"]) == 0
    shown = capsys.readouterr()
    return shown.out.splitlines(), shown.err


def test_it_learns_and_is_measured(run: Path) -> None:
    results = results_of(run)
    assert results["metrics"]["test/accuracy"] == results["metrics"]["val/accuracy"] == 1.0
    for name in ("mcc", "auroc", "macro_f1", *(f"f1/{label}" for label in MARKS)):
        assert results["metrics"][f"test/{name}"] == pytest.approx(1.0)
    assert results["signatures"]["texts"] == "max_length:16|cut:both"
    assert results["tokens"] > 200 * 5  # real tokens, not examples
    log = (run / "log.txt").read_text()
    assert "true \\ predicted" in log and "(truth: " in log
    assert (run / "pictures" / "confusion.png").read_bytes().startswith(b"\x89PNG")


def test_labels_come_back_as_strings(run: Path, monkeypatch: Any, capsys: Any) -> None:
    lines, said = use("predict", run, LINES, monkeypatch, capsys)
    assert [lines[0], *lines[2:]] == ["good", "bad", "plain", "good"] and lines[1] in MARKS
    assert "1 of 5 lines without any text, answered all the same" in said
    for line in use("predict", run, LINES, monkeypatch, capsys, "--json")[0]:
        answer = json.loads(line)
        assert set(answer["probabilities"]) == set(MARKS)
        assert sum(answer["probabilities"].values()) == pytest.approx(1.0)
        assert answer["probability"] == max(answer["probabilities"].values()) == answer["probabilities"][answer["text"]]


def test_scores_are_the_logarithms(run: Path, monkeypatch: Any, capsys: Any) -> None:
    answers, scores = (
        [json.loads(line) for line in use(verb, run, LINES, monkeypatch, capsys, "--json")[0]] for verb in ("predict", "score")
    )
    for answer, score in zip(answers, scores, strict=True):
        for label, probability in answer["probabilities"].items():
            assert math.exp(score["log_probabilities"][label]) == pytest.approx(probability, rel=1e-4)


def test_a_text_of_100_000_words_is_cut_and_counted(run: Path, monkeypatch: Any, capsys: Any) -> None:
    long, short = "fine " * 7 + "awful " * 100_000 + "fine " * 7, "fine " * 14
    lines, said = use("predict", run, [long, short], monkeypatch, capsys, "--json")
    assert json.loads(lines[0])["probabilities"] == pytest.approx(json.loads(lines[1])["probabilities"], rel=1e-4)
    assert "1 of 2 lines longer than 16 tokens and cut (data.limits.cut: both)" in said
    for cut, label in (("head", "bad"), ("tail", "good")):
        limits = ["--data.limits.cut", cut]
        lines, _ = use("predict", run, ["awful " * 50_000 + "fine " * 50_000], monkeypatch, capsys, *limits)
        assert lines == [label]


def test_a_long_text_is_read_in_windows(folder: Path, run: Path, monkeypatch: Any, capsys: Any) -> None:
    """What is decided is the mean over the windows; a model trained so finds a word wherever it stands."""
    stride = ["--data.limits", "{max_length: 8, stride: 4, windows: 5}"]
    windowed = fit(folder / "small.yaml", "windowed", *stride)
    figures = results_of(windowed)
    assert figures["metrics"]["test/accuracy"] == 1.0
    assert figures["signatures"]["texts"] == "max_length:8|cut:both|stride:4|windows:5"
    task, _ = load_task(windowed / "checkpoints" / "best.ckpt")
    text = "the film was long and we saw it on a train with two awful men"  # 6 + 4 + 4 + 1 words
    windows = [task.tokenizer.encode(text)[begin : begin + 6] for begin in (0, 4, 8, 9)]
    logits = [task.outputs(batch_texts([[window]], [0])) for window in windows]
    whole = task.answer([text])[0].details["probabilities"]
    torch.testing.assert_close(torch.tensor(list(whole.values())), sum(logits)[0].div(4).softmax(0), atol=1e-5, rtol=1e-5)
    _, said = use("predict", windowed, ["the " * 21 + "awful", "the " * 22 + "awful"], monkeypatch, capsys)
    assert "1 of 2 lines longer than 24 tokens and cut" in said
    for tokens in ("1", "97", "100000"):
        file = folder / f"windowed{tokens}.json"
        words = ["--json", str(file), "--data.batches.evaluation_tokens", tokens]
        assert main(["test", "--ckpt_path", str(windowed), *words]) == 0
        wanted = {name: value for name, value in figures["metrics"].items() if name.startswith("test")}
        assert json.loads(file.read_text())["metrics"] == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("tokens", ["1", "97", "100000"])
def test_batches_do_not_change_figures(run: Path, tokens: str) -> None:
    file = run.parent / f"figures{tokens}.json"
    assert main(["test", "--ckpt_path", str(run), "--json", str(file), "--data.batches.evaluation_tokens", tokens]) == 0
    wanted = {name: value for name, value in results_of(run)["metrics"].items() if name.startswith("test")}
    assert json.loads(file.read_text())["metrics"] == pytest.approx(wanted, rel=1e-5)


def test_mates_do_not_change_an_answer(run: Path) -> None:
    task, _ = load_task(run / "checkpoints" / "best.ckpt")
    alone = [task.answer([line])[0].details["probabilities"] for line in LINES]
    together = [answer.details["probabilities"] for answer in task.answer(LINES)]
    backwards = [answer.details["probabilities"] for answer in task.answer(LINES[::-1])][::-1]
    for one, other, third in zip(alone, together, backwards, strict=True):
        assert other == pytest.approx(one, rel=1e-4, abs=1e-6) and third == pytest.approx(one, rel=1e-4, abs=1e-6)


# ---- other kinds of data


def test_pairs(folder: Path, monkeypatch: Any, capsys: Any) -> None:
    """Whether the second text has the same mark as the first."""

    def rows(chance: random.Random) -> tuple[str, str, str]:
        first, second = chance.choice(["fine", "awful"]), chance.choice(["fine", "awful"])
        return sentence(chance, first), sentence(chance, second), "same" if first == second else "other"

    (folder / "pairs").mkdir()
    config = write(folder / "pairs", rows, "one\ttwo\tlabel")
    words = ["--data.text", "one", "--data.second", "two", "--model.segments", "2", "--trainer.max_steps", "4"]
    run = fit(config, "run", *words, "--model.max_length", "32", "--data.limits.max_length", "32")
    lines, _ = use("predict", run, ["a fine film\tawful", "fine\t"], monkeypatch, capsys)
    assert len(lines) == 2 and set(lines) <= {"same", "other"}
    say(monkeypatch, "a\tb\nfine film\n")
    assert main(["predict", "--ckpt_path", str(run)]) == 1
    assert "line 2: must be text, tab, second text, but has 0 tabs" in capsys.readouterr().err
    task, _ = load_task(run / "checkpoints" / "best.ckpt")
    turned = [task.answer([line])[0].details["probability"] for line in ("fine\tawful film", "awful film\tfine")]
    assert turned[0] != turned[1]
    words[5] = "1"
    assert main(["fit", "--config", str(config), "--run", str(folder / "none"), *words]) == 1
    assert "`model.segments` must be 2 for pairs of texts" in capsys.readouterr().err


def test_several_labels(folder: Path, monkeypatch: Any, capsys: Any) -> None:
    def rows(chance: random.Random) -> tuple[str, str]:
        labels = [label for label in sorted(MARKS) if chance.random() < 0.5]
        return sentence(chance, *(MARKS[label] for label in labels)), ";".join(labels)

    (folder / "several").mkdir()
    words = ["--data.target.kind", "labels", "--data.target.separator", ";", "--trainer.max_steps", "120"]
    run = fit(write(folder / "several", rows), "run", *words, "--trainer.val_check_interval", "60")
    figures = results_of(run)["metrics"]
    assert figures["test/exact_match"] > 0.9 and figures["test/micro_f1"] > 0.95 and figures["test/macro_f1"] > 0.95
    assert figures["test/auroc"] > 0.95 and "have not" in results_of(run)["signatures"]["auroc"]
    lines, _ = use("predict", run, ["a fine and grey film", "awful", "the film"], monkeypatch, capsys)
    assert lines == ["good;plain", "bad", ""]
    lines, _ = use("score", run, ["awful"], monkeypatch, capsys, "--json")
    assert json.loads(lines[0])["log_probabilities"]["bad"] > math.log(0.5)


def test_numbers(folder: Path, monkeypatch: Any, capsys: Any) -> None:
    def rows(chance: random.Random) -> tuple[str, str]:
        count = chance.randint(0, 3)
        return sentence(chance, *["fine"] * count), str(1000 + 50 * count)

    (folder / "numbers").mkdir()
    words = ["--data.target.kind", "number", "--trainer.max_steps", "120", "--trainer.val_check_interval", "60"]
    run = fit(write(folder / "numbers", rows), "run", *words)
    figures = results_of(run)["metrics"]
    assert figures["test/rmse"] < 30 and figures["test/pearson"] > 0.9 and figures["test/spearman"] > 0.85
    lines, _ = use("predict", run, ["the film was long", "fine fine a fine film"], monkeypatch, capsys)
    assert 950 < float(lines[0]) < 1050 < 1100 < float(lines[1]) < 1200
    say(monkeypatch, "a\n")
    assert main(["score", "--ckpt_path", str(run)]) == 1
    assert "a number has no probability" in capsys.readouterr().err


def test_pairs_with_a_number(folder: Path, monkeypatch: Any, capsys: Any) -> None:
    """How many words of a kind two texts have together, as similarities are told by a number from 0 to 5."""

    def rows(chance: random.Random) -> tuple[str, str, str]:
        first, second = chance.randint(0, 2), chance.randint(0, 2)
        return sentence(chance, *["fine"] * first), sentence(chance, *["fine"] * second), f"{(first + second) * 1.25}"

    (folder / "similar").mkdir()
    words = ["--data.text", "one", "--data.second", "two", "--data.target.kind", "number", "--model.segments", "2"]
    words += ["--data.limits.max_length", "32", "--trainer.max_steps", "120", "--trainer.val_check_interval", "60"]
    run = fit(write(folder / "similar", rows, "one\ttwo\tlabel"), "run", *words)
    figures, rows_told = results_of(run)["metrics"], examples_of(run)
    assert figures["test/pearson"] > 0.9 and figures["test/spearman"] > 0.85 and figures["test/rmse"] < 0.8
    told, true = ([float(row[side]) for row in rows_told] for side in ("output", "reference"))
    assert np.corrcoef(told, true)[0, 1] == pytest.approx(figures["test/pearson"], abs=1e-4)
    assert all("\t" in row["input"] and "correct" not in row for row in rows_told)
    lines, _ = use("predict", run, ["the film\twas long", "fine fine film\ta fine fine train"], monkeypatch, capsys)
    assert float(lines[0]) < 1.5 < 3.5 < float(lines[1])


# ---- what is refused


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data.label", "verdict"], "train.tsv, line 1: no column 'verdict'; the columns are text, label"),
        (["--data.train", "FOLDER/one.tsv"], "the training data has only one label, 'good'"),
        (["--data.validation", "FOLDER/strange.tsv"], "strange.tsv, example 2: the label 'god' is not in the training data"),
        (["--model.position", "Learned", "--data.limits.max_length", "33"], "(33) must not be above `model.max_length` (32)"),
        (["--task.class_weights", "{gud: 2.0}"], "`task.class_weights` has 'gud', which is no label of the training data"),
        (["--task.class_weights", "{good: -1.0}"], "`task.class_weights.good` must be at least 0, but is -1.0"),
        (["--task.label_smoothing", "1"], "`task.label_smoothing` must be at least 0 and below 1, but is 1.0"),
        (["--data.target.kind", "number"], "train.tsv, example 1: "),
        (["--data.limits.stride", "15"], "`data.limits.stride` must be from 1 to 14 (`max_length` - 2), but is 15"),
        (["--data.limits.windows", "0"], "`data.limits.windows` must be at least 1, but is 0"),
        (["--data.limits.stride", "4", "--data.second", "text"], "`data.limits.stride` (4) is for single texts, but"),
        (["--model.segments", "-1"], "`model.segments` must be at least 0, but is -1"),
    ],
)
def test_bad_input_is_named(folder: Path, run: Path, words: list[str], message: str, capsys: Any) -> None:
    (folder / "one.tsv").write_text("text\tlabel\na film\tgood\nthe film\tgood\n")
    (folder / "strange.tsv").write_text("text\tlabel\na film\tgood\nthe film\tgod\n")
    given = [word.replace("FOLDER", str(folder)) for word in words]
    assert main(["fit", "--config", str(folder / "small.yaml"), "--run", str(folder / "refused"), *given]) == 1
    said = capsys.readouterr().err.splitlines()
    assert message in said[-1] and not (folder / "refused").exists()


def test_an_unknown_label_at_test_time(folder: Path, run: Path, capsys: Any) -> None:
    (folder / "other.tsv").write_text("text\tlabel\na film\tgood\nthe film\tplane\n")
    assert main(["test", "--ckpt_path", str(run), "--data.test", str(folder / "other.tsv")]) == 1
    said = capsys.readouterr().err
    assert "other.tsv, example 2: the label 'plane' is not in the training data; did you mean 'plain'?" in said
    assert "Traceback" not in said
