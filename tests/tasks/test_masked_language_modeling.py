"""Masked language modelling as a user meets it: trained by the command, measured, and used on single lines."""

import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from polyformer.cli import main
from polyformer.nn import Learned
from polyformer.tasks.masked_language_modeling import MaskedLanguageModeling
from polyformer.text import BOS, EOS, KINDS, PAD, Assets, TokenizerSettings, train_tokenizer
from polyformer.training import LineError, load_task

from ..cli.small import examples_of, metrics_of, results_of
from ..cli.test_use import say
from .test_classification import fit, use
from .test_masked_language_modeling_exactness import ASSETS, OPTIONS

SMALL = """
task: MaskedLanguageModeling
model: {d_model: 32, num_heads: 2, num_layers: 1, max_length: 32, dropout: 0.0}
data:
  train: FOLDER/train.txt
  validation: FOLDER/held_out.txt
  test: FOLDER/held_out.txt
  max_length: 16
  masking: {share: 0.3}
  tokenizer: {kind: word, min_frequency: 1}
  batches: {tokens: 512, evaluation_tokens: 300}
training: {optimizer: {class_path: FusedAdamW, init_args: {lr: 0.01}}, schedule: Constant}
trainer: {max_steps: 150, val_check_interval: 75, log_every_n_steps: 20, accelerator: cpu}
"""
SCENES = [
    ("dog", "barks", "yard"), ("cat", "purrs", "house"), ("cow", "grazes", "field"), ("fish", "swims", "pond"),
    ("lion", "roars", "zoo"), ("bird", "sings", "garden"), ("horse", "gallops", "park"), ("bee", "hums", "hive"),
]  # fmt: skip
CHINESE = ["小狗汪汪叫", "小猫喵喵叫", "小鸟叽叽叫", "小鸡咯咯叫"]


def write(folder: Path, lines: Sequence[str], changes: dict[str, str] | None = None) -> Path:
    """Lines drawn from those given, and the config."""
    folder.mkdir(exist_ok=True)
    for number, (name, count) in enumerate((("train", 400), ("held_out", 150))):
        drawn = random.Random(number).choices(list(lines), k=count)
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in drawn), encoding="utf-8")
    text = SMALL.replace("FOLDER", str(folder))
    for old, new in (changes or {}).items():
        assert old in text
        text = text.replace(old, new)
    (folder / "small.yaml").write_text(text, encoding="utf-8")
    return folder / "small.yaml"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    scenes = [f"the {animal} {sound} in the {place}" for animal, sound, place in SCENES]
    return fit(write(folder / "scenes", scenes), "run")


def test_it_learns_and_is_measured(run: Path) -> None:
    """Who knows the place of each word alone has 56 % of them."""
    results = results_of(run)
    figures = results["metrics"]
    assert figures["test/accuracy"] > 0.9 and figures["test/loss"] < 0.4
    assert figures["test/perplexity"] == pytest.approx(math.exp(figures["test/loss"]))
    assert "test/next_sentence_accuracy" not in figures
    assert figures["test/loss"] == pytest.approx(figures["val/loss"], rel=1e-6)  # the same text, masked alike
    assert results["signatures"]["perplexity"] == "masked:0.3 of words|max_length:16"
    assert results["data"]["train"] == "400 examples"
    assert "<mask>" in results["try"] and "(truth: the " in (run / "log.txt").read_text()


def test_a_test_leaves_every_row(run: Path) -> None:
    lines, figures = examples_of(run), results_of(run)["metrics"]
    written = (run.parent / "held_out.txt").read_text().splitlines()
    assert 0 < len(lines) <= 150 and {line["input"] for line in lines} <= set(written)
    total = sum(line["nats"] for line in lines) / sum(line["tokens"] for line in lines)
    assert total == pytest.approx(figures["test/loss"], rel=1e-5)
    assert float([row for row in metrics_of(run) if row["train/loss"]][-1]["train/accuracy"]) > 0.5


@pytest.mark.parametrize("tokens", ["1", "97", "100000"])
def test_batches_do_not_change_figures(run: Path, tokens: str) -> None:
    file = run.parent / f"figures{tokens}.json"
    assert main(["test", "--ckpt_path", str(run), "--json", str(file), "--data.batches.evaluation_tokens", tokens]) == 0
    wanted = {name: value for name, value in results_of(run)["metrics"].items() if name.startswith("test")}
    assert json.loads(file.read_text())["metrics"] == pytest.approx(wanted, rel=1e-5)


def test_masks_are_filled(run: Path, monkeypatch: Any, capsys: Any) -> None:
    lines = ["the dog <mask> in the yard", "the <mask> purrs <mask> the house", "<mask> cow grazes in the <mask>", "a <mask>"]
    found, _ = use("predict", run, lines, monkeypatch, capsys)
    assert found[:3] == ["the dog barks in the yard", "the cat purrs in the house", "the cow grazes in the field"]
    assert found[3].startswith("a ") and len(found[3].split()) == 2
    for line, answer in zip(lines, use("predict", run, lines, monkeypatch, capsys, "--json")[0], strict=True):
        details = json.loads(answer)
        assert len(details["masks"]) == line.count("<mask>")
        for mask in details["masks"]:
            shares = [guess["probability"] for guess in mask]
            assert len(mask) == 5 and shares == sorted(shares, reverse=True) and sum(shares) <= 1.0 + 1e-6
            assert not {guess["token"].strip() for guess in mask} & {"<unk>", ""}
    backwards, _ = use("predict", run, lines[::-1], monkeypatch, capsys)
    assert backwards[::-1] == found


def test_lines_that_cannot_be_answered(run: Path, monkeypatch: Any, capsys: Any) -> None:
    say(monkeypatch, "a <mask>\nthe dog barks\n")
    assert main(["predict", "--ckpt_path", str(run)]) == 1
    message = "line 2: has nothing to predict: write <mask> where a token is to be found"
    assert message in capsys.readouterr().err
    task = MaskedLanguageModeling(ASSETS, replace(OPTIONS, position=Learned)).eval()
    assert len(task.answer(["<mask>" + "a" * 29])) == len(task.score(["a" * 30])) == 1
    for call, lines in ((task.answer, ["<mask>", "<mask>" + "a" * 30]), (task.score, ["a", "a" * 31])):
        with pytest.raises(LineError, match=r"has 33 tokens, but the model was trained with `model\.max_length` 32") as error:
            call(lines)
        assert error.value.line == 2


def test_an_empty_line_is_answered_by_an_empty_line(run: Path) -> None:
    task, _ = load_task(run / "checkpoints" / "best.ckpt")
    answers = task.answer(["", "the dog barks in the <mask>", " "])
    assert [answer.text for answer in answers[::2]] == ["", ""] and answers[1].text.startswith("the dog barks in the ")


def test_a_part_of_the_validation_is_enough_to_go_on(run: Path, folder: Path) -> None:
    words = ["--trainer.max_steps", "2", "--trainer.limit_val_batches", "1", "--data.batches.evaluation_tokens", "64"]
    assert main(["fit", "--config", str(run / "config.yaml"), "--run", str(folder / "limited"), *words, "--debug"]) == 0


def test_a_score_is_the_sum_over_tokens_masked_alone(run: Path, monkeypatch: Any, capsys: Any) -> None:
    lines = ["the dog barks in the yard", "", "the dog barks in the pond", "the"]
    scores = [json.loads(line) for line in use("score", run, lines, monkeypatch, capsys, "--json")[0]]
    task, _ = load_task(run / "checkpoints" / "best.ckpt")
    assert isinstance(task, MaskedLanguageModeling)
    for line, score in zip(lines, scores, strict=True):
        ids = [BOS, *task.tokenizer.encode(line), EOS]
        total = 0.0
        for place in range(1, len(ids) - 1):
            masked = torch.tensor([[*ids[:place], PAD, *ids[place + 1 :]]])
            with torch.no_grad():
                logits = task.head(task.network(masked)[0, place]) @ task.network.embedding.table.t()
            total += float(logits.log_softmax(-1)[ids[place]])
        if line:
            assert score["pseudo_log_likelihood"] == pytest.approx(total, rel=1e-4) and score["tokens"] == len(ids) - 2
            assert score["pseudo_perplexity"] == pytest.approx(math.exp(-total / (len(ids) - 2)), rel=1e-4)
        else:
            assert score["pseudo_log_likelihood"] is None
    assert scores[0]["pseudo_log_likelihood"] > scores[2]["pseudo_log_likelihood"] + 1.0


def test_chinese(folder: Path, monkeypatch: Any, capsys: Any) -> None:
    run = fit(write(folder / "chinese", CHINESE, {"{kind: word, min_frequency: 1}": "{kind: character}"}), "run")
    assert results_of(run)["metrics"]["test/accuracy"] > 0.9
    lines, _ = use("predict", run, ["小狗汪<mask>叫", "<mask>猫喵喵<mask>"], monkeypatch, capsys)
    assert lines == ["小狗汪汪叫", "小猫喵喵叫"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_stands_beside_masks_is_kept(kind: str) -> None:
    """Spaces, words that are not in the vocabulary, and Chinese; a token that carries a space takes the one before it."""
    settings = TokenizerSettings(kind=kind, vocab_size=330, min_frequency=1)  # type: ignore[arg-type]
    tokenizer = train_tokenizer(["so the tower, 你好吗"] * 3, settings, progress=False)
    task = MaskedLanguageModeling(Assets({"text": tokenizer}), OPTIONS).eval()
    (answer,) = task.answer(["so  the <mask>, 你<mask>吗 zyx<mask>"])
    tokens = [mask[0]["token"] for mask in answer.details["masks"]]
    space = " " if kind in ("character", "byte") else ""
    assert answer.text == f"so  the{space}{tokens[0]}, 你{tokens[1]}吗 zyx{tokens[2]}" and all(tokens)


NEXT_SENTENCE = {
    "max_length: 32, ": "max_length: 32, segments: 2, ",
    "max_length: 16": "max_length: 15\n  next_sentence: true",
    "{tokens: 512": "{tokens: 1024",
    "lr: 0.01": "lr: 0.005",
    "num_layers: 1": "num_layers: 2",
    "max_steps: 150, val_check_interval: 75": "max_steps: 80, val_check_interval: 80",
}


def test_next_sentences_are_told_apart(folder: Path) -> None:
    """Four documents, each with words of its own."""
    config = write(folder / "next", [""], NEXT_SENTENCE)
    for number, name in enumerate(("train", "held_out")):
        chance = random.Random(number)
        lines = [" ".join(chance.choices([f"{letter}{word}" for word in "xyz"], k=1000)) for letter in "abcd"]
        (config.parent / f"{name}.txt").write_text("\n".join(lines) + "\n")
    figures = results_of(fit(config, "run", "--training.monitor", "val/next_sentence_accuracy"))["metrics"]
    assert figures["test/next_sentence_accuracy"] > 0.9
    assert figures["test/loss"] < math.log(12) and figures["test/perplexity"] == pytest.approx(math.exp(figures["test/loss"]))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--model.position", "Learned", "--data.max_length", "33"],
            "`data.max_length` (33) must not be above `model.max_length` (32), "
            "which is all that the position and the mixer have room for",
        ),
        (
            ["--data.next_sentence", "true", "--model.segments", "1"],
            "`model.segments` must be 2 for `data.next_sentence`, or 0 for no segment embeddings, but is 1",
        ),
    ],
)
def test_bad_input_is_named(folder: Path, run: Path, words: list[str], message: str, capsys: Any) -> None:
    config = folder / "scenes" / "small.yaml"
    assert main(["fit", "--config", str(config), "--run", str(folder / "refused"), *words]) == 1
    assert message in capsys.readouterr().err.splitlines()[-1] and not (folder / "refused").exists()
