"""Tagging as a user meets it, and its figures against definitions written another way."""

import gzip
import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from polyformer.cli import main
from polyformer.data import conll
from polyformer.models import EncoderOnlyOptions
from polyformer.tasks import tagging
from polyformer.tasks.tagging import BESIDE, BREAK, Tagging, TaggingData, find_spans
from polyformer.text import Assets, TokenizerSettings, train_tokenizer
from polyformer.training import load_task

from ..cli.small import examples_of, metrics_of, results_of
from .test_classification import fit, use

SMALL = """
task: Tagging
model: {d_model: 16, num_heads: 2, num_layers: 1, max_length: 64, dropout: 0.0}
data:
  train: FOLDER/train.txt
  validation: FOLDER/held_out.txt
  test: FOLDER/held_out.txt
  max_length: 12
  tokenizer: {kind: bpe, vocab_size: 600, min_frequency: 1}
  batches: {tokens: 256, evaluation_tokens: 300}
training: {optimizer: {class_path: FusedAdamW, init_args: {lr: 0.01}}, schedule: Constant}
trainer: {max_steps: 60, val_check_interval: 30, log_every_n_steps: 10, accelerator: cpu}
"""
OTHERS = ["we", "saw", "the", "train", "from", "here", "and", "slept", "while", "it", "rained", "on", "a", "bridge", "."]
NAMES = {"PER": ["Ada", "Grace Hopper", "Alan M. Turing"], "LOC": ["Paris", "New York"]}
LINES = ["Grace Hopper saw Paris .", "", "we slept", "  from New York   on 你好 😀 ", "Ada Ada"]


def sentence(chance: random.Random) -> list[tuple[str, str]]:
    """Words and labels in BIO."""
    words: list[tuple[str, str]] = []
    for _ in range(chance.randint(2, 7)):
        kind = chance.choice(["O", "O", "PER", "LOC"])
        found = chance.choice(OTHERS if kind == "O" else NAMES[kind]).split()
        words += [(word, "O" if kind == "O" else f"{'I' if place else 'B'}-{kind}") for place, word in enumerate(found)]
    return words


def written(sentences: Sequence[Sequence[tuple[str, str]]]) -> str:
    """A file in the form of CoNLL-2003, with a column of no use in the middle."""
    blocks = ["\n".join(f"{word} X {label}" for word, label in words) for words in sentences]
    return "\n\n".join(["-DOCSTART- -X- O", *blocks, ""])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = tmp_path_factory.mktemp("runs")
    for number, (name, count) in enumerate((("train", 200), ("held_out", 61))):
        chance = random.Random(number)
        (made / f"{name}.txt").write_text(written([sentence(chance) for _ in range(count)]))
    (made / "small.yaml").write_text(SMALL.replace("FOLDER", str(made)))
    return made


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    return fit(folder / "small.yaml", "run")


def task_for(labels: list[str], kind: Any = "character") -> Tagging:
    tokenizer = train_tokenizer(["abcdef"], TokenizerSettings(kind=kind, min_frequency=1))
    torch.manual_seed(5)
    options = EncoderOnlyOptions(d_model=8, num_heads=2, num_layers=1, max_length=32)
    return Tagging(Assets({"text": tokenizer}, {"labels": labels}), options).eval()


# ---- from the file to the answer


def test_it_learns_and_is_measured(run: Path) -> None:
    figures = results_of(run)["metrics"]
    assert figures["test/accuracy"] > 0.98 and figures["test/f1"] > 0.95
    assert figures["test/f1"] == pytest.approx(
        2 * figures["test/precision"] * figures["test/recall"] / (figures["test/precision"] + figures["test/recall"])
    )
    assert {"val/loss", "val/f1", "val/accuracy"} <= figures.keys()


def test_labels_come_back(run: Path, monkeypatch: Any, capsys: Any) -> None:
    lines, _ = use("predict", run, LINES, monkeypatch, capsys)
    assert lines[0] == "B-PER I-PER O B-LOC O" and lines[1] == "" and lines[4] == "B-PER B-PER"
    assert [len(line.split()) for line in lines] == [len(line.split()) for line in LINES]
    answers = [json.loads(line) for line in use("predict", run, LINES, monkeypatch, capsys, "--json")[0]]
    assert answers[0]["spans"] == [
        {"type": "PER", "text": "Grace Hopper", "begin": 0, "end": 2},
        {"type": "LOC", "text": "Paris", "begin": 3, "end": 4},
    ]
    assert answers[1]["spans"] == answers[1]["labels"] == []
    scores = [float(line) for line in use("score", run, LINES, monkeypatch, capsys)[0]]
    for answer, score in zip(answers, scores, strict=True):
        assert score == pytest.approx(math.fsum(map(math.log, answer["probabilities"])), abs=1e-4)


def test_a_test_leaves_every_sentence(run: Path, folder: Path) -> None:
    """Also those that are read in several rows."""
    lines, figures = examples_of(run), results_of(run)["metrics"]
    blocks = (folder / "held_out.txt").read_text().strip().split("\n\n")[1:]
    sentences = [[row.split() for row in block.splitlines()] for block in blocks]
    assert [line["input"] for line in lines] == [" ".join(row[0] for row in rows) for rows in sentences]
    assert [line["reference"] for line in lines] == [" ".join(row[-1] for row in rows) for rows in sentences]
    words = [pair for line in lines for pair in zip(line["reference"].split(), line["output"].split(), strict=True)]
    assert sum(true == made for true, made in words) / len(words) == pytest.approx(figures["test/accuracy"])
    assert all(line["correct"] == (line["output"] == line["reference"]) for line in lines)
    assert 0.9 < float([row for row in metrics_of(run) if row["train/loss"]][-1]["train/accuracy"]) <= 1.0


@pytest.mark.parametrize("tokens", ["1", "97", "100000"])
def test_batches_do_not_change_figures(run: Path, tokens: str) -> None:
    file = run.parent / f"figures{tokens}.json"
    assert main(["test", "--ckpt_path", str(run), "--json", str(file), "--data.batches.evaluation_tokens", tokens]) == 0
    wanted = {name: value for name, value in results_of(run)["metrics"].items() if name.startswith("test")}
    assert json.loads(file.read_text())["metrics"] == pytest.approx(wanted, rel=1e-5)


def test_mates_do_not_change_an_answer(run: Path) -> None:
    task, _ = load_task(run / "checkpoints" / "best.ckpt")
    lines = [*LINES, "Ada saw " * 20]
    alone = [task.answer([line])[0] for line in lines]
    for one, other in zip(alone, task.answer(lines), strict=True):
        assert other.text == one.text
        assert other.details["probabilities"] == pytest.approx(one.details["probabilities"], rel=1e-4)


def test_a_long_sentence_is_labelled_whole(run: Path, monkeypatch: Any, capsys: Any) -> None:
    lines, _ = use("predict", run, ["New York and " * 50], monkeypatch, capsys)
    assert lines == [" ".join(["B-LOC I-LOC O"] * 50)]


def test_parts_of_speech_in_chinese(folder: Path, monkeypatch: Any, capsys: Any) -> None:
    """CoNLL-U: no spans, words without spaces in them or with, and lines that are no words."""
    block = "# text = 我 看 書\n1\t我\t_\tPRON\n2-3\t看書\t_\t_\n2\t看\t_\tVERB\n3\t書 本\t_\tNOUN\n3.1\t_\t_\tX\n\n"
    with gzip.open(folder / "zh.conllu.gz", "wt", encoding="utf-8") as file:
        file.write(block * 30)
    files = [word for name in ("train", "validation", "test") for word in (f"--data.{name}", str(folder / "zh.conllu.gz"))]
    words = [*files, "--data.word", "1", "--data.label", "3", "--trainer.max_steps", "40"]
    run = fit(folder / "small.yaml", "chinese", *words)
    figures = results_of(run)["metrics"]
    assert figures["test/accuracy"] == 1.0 and "test/f1" not in figures
    task, _ = load_task(run / "checkpoints" / "best.ckpt")
    assert task.monitor == ("val/accuracy", "max")
    answers = [json.loads(line) for line in use("predict", run, ["我 看", "書"], monkeypatch, capsys, "--json")[0]]
    assert answers[0]["labels"] == ["PRON", "VERB"] and "spans" not in answers[0]


# ---- data


@pytest.mark.parametrize("kind", ["character", "byte", "bpe", "word"])
@pytest.mark.parametrize("max_length", [5, 9, 64])
def test_no_word_is_lost(folder: Path, kind: Any, max_length: int) -> None:
    data = TaggingData(
        str(folder / "held_out.txt"), max_length=max_length, tokenizer=TokenizerSettings(kind, 300, min_frequency=1)
    )
    names = data.assets.labels["labels"]
    labels = [names[label] for row in data.texts("train", "label") for label in row if label >= 0]
    assert labels == [label for example in data.read("train") for label in example["label"].split(" ")]
    assert max(map(len, data.texts("train", "text"))) <= max_length - 2
    assert sum(row[0] == BREAK for row in data.texts("train", "label")) == len(list(data.read("train"))) == 61
    assert all(len(row) == len(text) + 2 for row, text in zip(data.dataset("train")["label"], data.texts("train", "text")))  # noqa: B905


def test_a_span_across_two_rows_is_one() -> None:
    task = task_for(["B-X", "I-X", "O"])
    true = [[BREAK, 0, BESIDE, BESIDE], [BESIDE, 1, 1, BESIDE], [BREAK, 1, 2, BESIDE]]
    found = [[BREAK, 0, BESIDE, BESIDE], [BESIDE, 1, 2, BESIDE], [BREAK, 1, 2, BESIDE]]
    sums = {"loss": 1.0, "count": 5, "correct": 4}
    figures = task.measure(sums, list(zip(true, true, true, strict=True)), "test")
    assert figures["f1"] == figures["precision"] == figures["recall"] == 1.0
    figures = task.measure(sums, list(zip(true, found, true, strict=True)), "test")
    assert figures["f1"] == figures["precision"] == figures["recall"] == 0.5 and figures["accuracy"] == 0.8


def test_sentences_of_real_corpora(corpora: Path, tmp_path: Path) -> None:
    english = list(TaggingData(str(corpora / "conll2003" / "eng.testb.gz")).read("train"))
    assert (len(english), sum(len(example["text"].split(" ")) for example in english)) == (3453, 46435)
    assert sum(len(find_spans(example["label"].split(" "))) for example in english) == 5648  # as in the shared task's paper
    web = list(TaggingData(str(corpora / "ud-english-ewt" / "en_ewt-ud-test.conllu.gz"), word=1, label=3).read("train"))
    assert len(web) == 2077 and len({label for example in web for label in example["label"].split(" ")}) == 17


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ("I-X I-X O I-Y B-Y O I-X", []),
        ("B-X I-X O B-Y B-Y I-Y O", []),
        ("B-X I-X O B-Y O I-Y B-X I-Y", ["2 spans in the training data break its scheme, BIO"]),
        ("B-X E-X S-Y O B-X I-X E-X", []),
        ("B-X E-X S-Y O B-X I-X O I-Y S-X S-X", ["2 spans in the training data break its scheme, BIOES"]),
        ("NOUN VERB NOUN", []),
    ],
)
def test_labels_against_their_scheme_are_counted(labels: str, said: list[str], monkeypatch: Any) -> None:
    names = sorted({*labels.split(), "O"} if "-" in labels else {*labels.split()})
    rows = [[BREAK, *(names.index(label) for label in labels.split()), BESIDE]]
    heard: list[str] = []
    monkeypatch.setattr(tagging.log, "warning", lambda text, *values: heard.append(text % values))
    data: Any = type("Data", (), {"texts": lambda self, split, column: rows})()
    task_for(names).accept(data)
    assert heard == said


# ---- spans


def spans_by_definition(labels: Sequence[str]) -> list[tuple[str, int, int]]:
    """Runs of words of one type without a border inside, and with one on either side."""

    def border(place: int) -> bool:
        before, after = ["O", *labels, "O"][place : place + 2]
        return "O" in (before, after) or before[1:] != after[1:] or before[0] in "ES" or after[0] in "BS"

    ends = [(begin, end) for begin in range(len(labels)) for end in range(begin + 1, len(labels) + 1)]
    whole = [(begin, end) for begin, end in ends if not any(map(border, range(begin + 1, end)))]
    return [(labels[begin][2:], begin, end) for begin, end in whole if labels[begin] != "O" and border(begin) and border(end)]


def random_labels(seed: int) -> list[str]:
    chance = random.Random(seed)
    letters = chance.choice(["BI", "I", "BIES", "ES", "BIE"])
    every = ["O", *(f"{letter}-{kind}" for letter in letters for kind in ("PER", "LOC", "A-B"))]
    return chance.choices(every, k=chance.randint(0, 12))


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_spans_are_those_of_the_definition(first: int) -> None:
    for seed in range(first, first + 100):
        labels = random_labels(seed)
        assert find_spans(labels) == spans_by_definition(labels), labels


def test_the_letters_of_bilou() -> None:
    assert find_spans(["B-X", "I-X", "L-X", "U-X", "U-X"]) == find_spans(["B-X", "I-X", "E-X", "S-X", "S-X"])


def test_figures_are_those_of_seqeval() -> None:
    seqeval = pytest.importorskip("seqeval.metrics")
    names = sorted({"O", *(f"{letter}-{kind}" for letter in "BIES" for kind in ("PER", "LOC", "A-B"))})
    task = task_for(names)
    for seed in range(0, 300, 10):
        chance = random.Random(seed)
        true = [random_labels(seed + number) for number in range(10)]
        found = [[label if chance.random() < 0.7 else chance.choice(names) for label in labels] for labels in true]
        sides = [[[BREAK, *map(names.index, labels), BESIDE] for labels in side] for side in (true, found)]
        figures = task.measure({"loss": 1, "count": 1, "correct": 1}, list(zip(*sides, sides[0], strict=True)), "test")
        for name in ("precision", "recall", "f1"):
            wanted = getattr(seqeval, f"{name}_score")(true, found, zero_division=0)
            assert figures[name] == pytest.approx(wanted, rel=1e-12)


# ---- the loss


def test_a_loss_is_the_sum_over_words() -> None:
    task = task_for(["O", "X"])
    data = TaggingData(max_length=8)
    data.use_assets(task.assets)
    rows = data.encode({"text": ["ab cde f", "a", "bcd ef"], "label": ["O X O", "X", "O O"], "where": ["", "", ""]})
    batches = [data.collate({**{name: [rows[name][at] for at in places] for name in rows}, "index": places})
               for places in ([0, 1, 2], [0], [1], [2])]  # fmt: skip
    with torch.no_grad():
        whole, *single = [task.loss(batch) for batch in batches]
    assert int(whole.count) == 6 and int(whole.sums["tokens"]) == sum(len(tokens) + 2 for tokens in rows["text"])
    assert float(whole.total) == pytest.approx(sum(float(part.total) for part in single), rel=1e-5)
    assert float(whole.sums["correct"]) == sum(float(part.sums["correct"]) for part in single)


# ---- what is refused


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        ("a X O\nb O\n", [], "bad.txt, line 2: 2 columns, unlike lines before or too few for (0, -1)"),
        ("a X O\n\nb O\n", [], "bad.txt, line 3: 2 columns, unlike lines before or too few for (0, -1)"),
        ("a\nb\n", [], "bad.txt, line 1: 1 columns, unlike lines before or too few for (0, -1)"),
        ("a X O\n", ["--data.label", "3"], "bad.txt, line 1: 3 columns, unlike lines before or too few for (0, 3)"),
        ("a X O\nb X O\n", [], "the training data has only one label, 'O'"),
        ("\n-DOCSTART- -X- O\n\n", [], "the training data has no labels"),
        ("", [], "the training data has no labels"),
        ("a X O\nb X Q\n", ["--data.max_length", "4"], "max_length` must be at least 5, but is 4"),
    ],
)
def test_bad_files_are_named(folder: Path, content: str, words: list[str], message: str, capsys: Any) -> None:
    (folder / "bad.txt").write_text(content)
    given = ["--config", str(folder / "small.yaml"), "--run", str(folder / "refused"), "--data.train", str(folder / "bad.txt")]
    assert main(["fit", *given, *words]) == 1
    assert message in capsys.readouterr().err.splitlines()[-1] and not (folder / "refused").exists()


def test_the_first_column_of_universal_dependencies_is_no_word(tmp_path: Path) -> None:
    (tmp_path / "a.conllu").write_text("1\twe\twe\tPRON\n")
    with pytest.raises(ValueError, match=r"a\.conllu: `data\.word` is 0, but column 0 of CoNLL-U is a number; words are in 1"):
        list(TaggingData(str(tmp_path / "*.conllu")).read("train"))
    assert [row["label"] for row in TaggingData(str(tmp_path / "a.conllu"), word=1, label=3).read("train")] == ["PRON"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a X O\n\nwe X O\nParis X B-LUC\n", "other.txt, sentence at line 3: the label 'B-LUC' is not in the training data"),
        ("", "test data: no examples were found"),
    ],
)
def test_bad_test_data_is_named(folder: Path, run: Path, content: str, message: str, capsys: Any) -> None:
    (folder / "other.txt").write_text(content)
    assert main(["test", "--ckpt_path", str(run), "--data.test", str(folder / "other.txt")]) == 1
    said = capsys.readouterr().err
    assert message in said and "Traceback" not in said


def test_the_head_and_what_reads_its_files_are_short() -> None:
    head, reader = (len(Path(module.__file__).read_text().splitlines()) for module in (tagging, conll))
    assert head <= 150 and reader <= 60  # as the README says
