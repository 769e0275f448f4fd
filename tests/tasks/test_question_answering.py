"""Question answering as a user meets it, its windows and characters, and SQuAD's figures on cases made by hand."""

import gzip
import json
import random
import re
import string
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import pytest
import torch
import yaml

from polyformer.cli import main
from polyformer.data import squad
from polyformer.models import EncoderOnlyOptions
from polyformer.tasks import question_answering
from polyformer.tasks.question_answering import QuestionAnswering, QuestionData
from polyformer.text import Assets, TokenizerSettings, train_tokenizer
from polyformer.training import load_task

from ..cli.small import examples_of, results_of
from ..cli.test_use import say
from .test_classification import fit, use

SMALL = """
task: QuestionAnswering
model: {d_model: 16, num_heads: 2, num_layers: 1, max_length: 32, dropout: 0.0, segments: 2}
data:
  train: FOLDER/train.json
  validation: FOLDER/held_out.json
  test: FOLDER/held_out.json
  max_length: 24
  stride: 8
  tokenizer: {kind: word, min_frequency: 1}
  batches: {tokens: 512, evaluation_tokens: 600}
training: {optimizer: {class_path: FusedAdamW, init_args: {lr: 0.01}}, schedule: Constant}
trainer: {max_steps: 80, val_check_interval: 40, log_every_n_steps: 10, accelerator: cpu}
"""
OTHERS = ["we", "saw", "the", "train", "from", "here", "and", "slept", "while", "it", "rained", "on", "a", "bridge", "."]
COLOURS = ["red", "white", "light green"]
TEXTS = {
    "spaces": "  One,  two\t(three)\n\nfour — five.  ",
    "chinese": "北京是中国的首都,人口2189万。 上海 很大。",
    "mixed": "Zoë's café cost €5 (1980s); naïve 😀👍🏽 or नमस्ते दुनिया?",
    "unknown": "Ünknown wörds ☃ and ЩУКА",
    "empty": "",
}

Question = tuple[str, str, list[tuple[str, int]]]


def squad_file(path: Path, questions: Sequence[Question], version: str = "v2.0") -> Path:
    """Questions as (text, question, answers with their places) in a file of SQuAD's form; .gz if the name says so."""
    asked = [
        {
            "context": text,
            "qas": [
                {
                    "id": f"q{number}",
                    "question": question,
                    "answers": [{"text": answer, "answer_start": begin} for answer, begin in answers],
                    **({"is_impossible": not answers} if version == "v2.0" else {}),
                }
            ],
        }
        for number, (text, question, answers) in enumerate(questions)
    ]
    content = json.dumps({"version": version, "data": [{"title": "t", "paragraphs": asked}]}, indent=1).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def question(chance: random.Random) -> Question:
    """A text of 3 to 60 words, in which one colour stands or none."""
    words = chance.choices(OTHERS, k=chance.randint(3, 60))
    colour = chance.choice([*COLOURS, ""])
    if colour:
        words.insert(chance.randint(0, len(words)), colour)
    text = " ".join(words)
    return text, "which colour ?", [(colour, text.index(colour))] if colour else []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = tmp_path_factory.mktemp("runs")
    for number, (name, count) in enumerate((("train", 150), ("held_out", 41))):
        chance = random.Random(number)
        squad_file(made / f"{name}.json", [question(chance) for _ in range(count)])
    (made / "small.yaml").write_text(SMALL.replace("FOLDER", str(made)))
    return made


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    return fit(folder / "small.yaml", "run")


def data_for(kind: Any = "character", lowercase: bool = False, **options: Any) -> QuestionData:
    data = QuestionData(**options)
    settings = TokenizerSettings(kind, 400, min_frequency=1, lowercase=lowercase)
    data.use_assets(Assets({"text": train_tokenizer([text for name, text in TEXTS.items() if name != "unknown"], settings)}))
    return data


def rows_of(data: QuestionData, *questions: Question) -> dict[str, list[Any]]:
    texts, asked, answers = (list(column) for column in zip(*questions, strict=True))
    return data.encode({"text": asked, "second": texts, "label": answers})


LONG = "we saw the train and " * 12 + "light green " + "here it rained on a bridge " * 12
LINES = [f"which colour ?\t{LONG}", "", "which colour ?\ta  red bridge", "which colour ?\tit rained .", "which colour ?\t"]


# ---- from the file to the answer


def test_it_learns_and_is_measured(run: Path) -> None:
    results = results_of(run)
    assert results["metrics"]["test/exact_match"] > 90 and results["metrics"]["test/f1"] > 90
    assert results["signatures"]["f1"] == "squad:lower|no_punctuation|no_articles"


def test_a_test_leaves_every_question(run: Path) -> None:
    lines, figures = examples_of(run), results_of(run)["metrics"]
    assert len(lines) == 41 and all(line["input"].startswith("which colour ?\t") for line in lines)
    assert 100 * sum(line["correct"] for line in lines) / len(lines) == pytest.approx(figures["test/exact_match"])
    assert {line["reference"] for line in lines} == {*COLOURS, ""}
    assert all(line["correct"] == (line["output"] == line["reference"]) for line in lines)


def test_questions_of_evaluation_are_read_once(folder: Path) -> None:
    (folder / "copy.json").write_bytes((folder / "held_out.json").read_bytes())
    data = QuestionData(str(folder / "train.json"), str(folder / "copy.json"))
    questions = list(data.read("validation"))
    (folder / "copy.json").unlink()
    assert list(data.read("validation")) == questions and len(questions) == 41
    assert len(list(data.read("train"))) == 150


def test_answers_are_parts_of_their_texts(run: Path, monkeypatch: Any, capsys: Any) -> None:
    lines, _ = use("predict", run, LINES, monkeypatch, capsys)
    assert lines == ["light green", "", "red", "", ""]
    for line, raw in zip(LINES, use("predict", run, LINES, monkeypatch, capsys, "--json")[0], strict=True):
        answer, text = json.loads(raw), line.partition("\t")[2]
        assert text[answer["begin"] : answer["end"]] == answer["text"]
        assert (answer["score"] or -1) > 0 if answer["text"] else (answer["score"] or -1) <= 0
        assert 0 <= answer["probability"] <= 1.0001


def test_a_line_without_a_tab(run: Path, monkeypatch: Any, capsys: Any) -> None:
    say(monkeypatch, "a\tb\n\nwhich colour\n")
    assert main(["predict", "--ckpt_path", str(run)]) == 1
    assert "line 3: must be question, tab, text, but has no tab" in capsys.readouterr().err


@pytest.mark.parametrize("tokens", ["1", "97", "100000"])
def test_batches_do_not_change_figures(run: Path, tokens: str) -> None:
    """The windows of a question are in several batches or in one."""
    file = run.parent / f"figures{tokens}.json"
    assert main(["test", "--ckpt_path", str(run), "--json", str(file), "--data.batches.evaluation_tokens", tokens]) == 0
    wanted = {name: value for name, value in results_of(run)["metrics"].items() if name.startswith("test")}
    assert json.loads(file.read_text())["metrics"] == pytest.approx(wanted, rel=1e-5)


def test_a_part_of_the_validation_gives_a_loss_alone(run: Path, folder: Path) -> None:
    words = ["--trainer.max_steps", "2", "--trainer.limit_val_batches", "1", "--data.batches.evaluation_tokens", "64"]
    words += ["--trainer.limit_test_batches", "1", "--training.monitor", "val/loss"]
    assert main(["fit", "--config", str(run / "config.yaml"), "--run", str(folder / "limited"), *words, "--debug"]) == 0
    assert set(results_of(folder / "limited")["metrics"]) == {"val/loss", "test/loss"}


def test_it_is_a_part_of_several_tasks(run: Path, folder: Path) -> None:
    settings = yaml.safe_load((run / "config.yaml").read_text())
    task, data = settings["task"], settings["data"]
    settings["task"] = {"class_path": "MultiTask", "init_args": {"tasks": {"asked": task}}}
    settings["data"] = {"class_path": "MixedData", "init_args": {"parts": {"asked": data}}}
    (folder / "several.yaml").write_text(yaml.safe_dump(settings))
    words = ["--config", str(folder / "several.yaml"), "--run", str(folder / "several"), "--trainer.max_steps", "2"]
    assert main(["fit", *words, "--debug"]) == 0
    assert "test/asked/f1" in results_of(folder / "several")["metrics"]


def test_mates_do_not_change_an_answer(run: Path) -> None:
    task, _ = load_task(run / "checkpoints" / "best.ckpt")
    alone = [task.answer([line])[0] for line in LINES]
    for one, other in zip(alone, task.answer(LINES), strict=True):
        assert other.text == one.text
        assert other.details == pytest.approx(one.details, rel=1e-4, abs=1e-5)


def test_chinese_where_every_question_has_an_answer(folder: Path, monkeypatch: Any, capsys: Any) -> None:
    """Texts without spaces, in a packed file of SQuAD 1.1; then even a text without the answer gets one."""
    texts = ["北京很大。", "我爱北京和书。", "今天我看见北京了"]
    questions: list[Question] = [(text, "哪个城市?", [("北京", text.index("北京"))]) for text in texts]
    file = str(squad_file(folder / "zh.json.gz", questions * 10, "1.1"))
    words = [word for name in ("train", "validation", "test") for word in (f"--data.{name}", file)]
    run = fit(folder / "small.yaml", "chinese", *words, "--trainer.max_steps", "40")
    assert results_of(run)["metrics"]["test/exact_match"] == 100.0
    lines, _ = use("predict", run, ["哪个城市?\t书和北京了", "哪个城市?\t今天"], monkeypatch, capsys)
    assert lines[0] == "北京" and lines[1] in "今天" and lines[1]


# ---- characters and windows


@pytest.mark.parametrize("kind", ["bpe", "byte_bpe", "unigram", "wordpiece", "word", "word_punctuation", "character", "byte"])
@pytest.mark.parametrize("name", TEXTS)
def test_tokens_know_their_characters(kind: Any, name: str) -> None:
    text = TEXTS[name]
    for lowercase in (False, True):
        places = [(begin, end) for _, begin, end in data_for(kind, lowercase).cut(text)]
        assert places == sorted(places)
        covered = {place for begin, end in places for place in range(begin, end)}
        assert covered == {place for place, character in enumerate(text) if not character.isspace()}
        assert all(end <= other or (begin, end) == (other, last) for (begin, end), (other, last) in pairwise(places))


@pytest.mark.parametrize("answer", ["首都", "2189", "北", "上海 很"])
@pytest.mark.parametrize("stride", [1, 4, 10])
def test_an_answer_is_found_again_in_its_windows(answer: str, stride: int) -> None:
    text = TEXTS["chinese"] * 3
    start = text.rindex(answer)
    data = data_for(max_length=24, stride=stride)
    rows = rows_of(data, (text, "什么?", [(answer, start)]))
    held = [(places[first][0], places[last][1]) for places, (first, last) in zip(rows["places"], rows["label"]) if first]  # noqa: B905
    assert held and set(held) == {(start, start + len(answer))}
    for question_ids, window in zip(rows["text"], rows["second"], strict=True):
        assert len(question_ids) + len(window) + 3 <= 24
    tokens = [token for token, *_ in data.cut(text)]
    for first, window in zip(rows["first"], rows["second"], strict=True):
        assert window == tokens[first : first + len(window)]
    assert {at for first, window in zip(rows["first"], rows["second"]) for at in range(first, first + len(window))} == {  # noqa: B905
        *range(len(tokens))
    }
    assert rows["first"] == [stride * number for number in range(len(rows["first"]))]


def test_an_answer_that_is_cut_off_is_none() -> None:
    """As in Devlin et al. 2019; and of a question that fills more than half of a row, only the beginning is read."""
    data = data_for(max_length=13, stride=5)
    rows = rows_of(data, ("a b c d e f g h i j k l", "1 2 3 4 5 6 7 8", [("a b c", 0)]), ("a b", "c", []))
    assert rows["label"] == [[7, 9], [0, 0], [0, 0], [0, 0]] and rows["first"] == [0, 5, 10, 0]
    assert [len(ids) for ids in rows["text"]] == [5, 5, 5, 1]


def test_answers_of_real_corpora(corpora: Path) -> None:
    for language in ("en", "de"):
        data = data_for(max_length=3000, stride=1000)
        examples = list(QuestionData(str(corpora / "xquad" / f"xquad.{language}.json.gz")).read("train"))
        assert len(examples) == 1190
        same = 0
        for example in examples[::10]:
            rows = rows_of(data, (example["second"], "?", example["label"]))
            (answer, _), (first, last) = example["label"][0], rows["label"][0]
            found = example["second"][rows["places"][0][first][0] : rows["places"][0][last][1]]
            assert answer.strip() in found
            same += found == answer
        assert same > 110  # of 119; the others begin or end inside a word


# ---- figures


def words_by_definition(text: str) -> list[str]:
    """Lower case, without punctuation, articles and superfluous space: appendix of Rajpurkar et al. 2016."""
    letters = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", letters).split()


def figures_by_definition(found: Sequence[str], true: Sequence[Sequence[str]]) -> tuple[float, float]:
    """Exact match and F1 as SQuAD 2.0 defines them, in percent."""
    exact = f1 = 0.0
    for answer, references in zip(found, true, strict=True):
        given, wanted = words_by_definition(answer), [words for words in map(words_by_definition, references) if words] or [[]]
        exact += max(given == words for words in wanted)
        scores = []
        for words in wanted:
            same = sum((Counter(given) & Counter(words)).values())
            precision, recall = same / len(given or "1"), same / len(words or "1")
            both = 2 * precision * recall / (precision + recall) if same else 0.0
            scores.append(both if given and words else float(given == words))
        f1 += max(scores)
    return 100 * exact / len(found), 100 * f1 / len(found)


CASES: list[tuple[str, list[str], float, float]] = [
    ("the Denver Broncos!", ["Denver Broncos"], 1, 1),
    ("Broncos", ["Denver Broncos", "The Denver Broncos"], 0, 2 / 3),
    ("in 1980", ["1980", "the year 1980", "1980s"], 0, 2 / 3),
    ("red red blue", ["red blue blue"], 0, 2 / 3),
    ("U.S.A.", ["USA"], 1, 1),
    ("", [], 1, 1),
    ("", ["Denver"], 0, 0),
    ("Denver", [], 0, 0),
    ("a", ["an"], 1, 1),
    ("北京", ["北京"], 1, 1),
]


@pytest.mark.parametrize(
    "chosen", [*([case] for case in CASES), CASES], ids=lambda cases: cases[0][0] if len(cases) == 1 else "all"
)
def test_figures_are_those_of_squad(chosen: list[Any]) -> None:
    """Through `measure`: each answer is a text of its own, all of which is pointed at, after a window without an answer."""
    tokenizer = train_tokenizer(["abc"], TokenizerSettings(kind="character", min_frequency=1))
    task = QuestionAnswering(
        Assets({"text": tokenizer}, numbers={"unanswered": [1.0]}), EncoderOnlyOptions(d_model=8, num_heads=2)
    )
    rows, records = {"first": [], "places": []}, []  # type: ignore[var-annotated]
    for answer, *_ in chosen:
        for first, odds in ((0, -2.0), (4, 1.0 if answer else -1.0)):
            rows["first"].append(first)
            rows["places"].append([(0, 0), (0, len(answer))])
            records.append((odds, 0.5, 1, 1))
    examples = [{"second": answer, "label": [(text, 0) for text in references]} for answer, references, *_ in chosen]
    windows = datasets.Dataset.from_dict(rows)
    task.data = SimpleNamespace(read=lambda name: iter(examples), dataset=lambda name: windows)
    figures = task.measure({"loss": 3.0, "count": 2.0}, records, "val")
    wanted = [100 * sum(case[place] for case in chosen) / len(chosen) for place in (2, 3)]
    assert [figures["exact_match"], figures["f1"]] == pytest.approx(wanted, rel=1e-5)
    defined = figures_by_definition([case[0] for case in chosen], [case[1] for case in chosen])
    assert list(defined) == pytest.approx(wanted, rel=1e-5) and figures["loss"] == 1.5


# ---- the best span


@pytest.mark.parametrize("longest", [1, 2, 30])
def test_the_best_span_is_the_best_of_all(longest: int) -> None:
    """Begin before end, not longer than allowed, inside the text; by trying every pair."""
    data = data_for(max_length=24, stride=4)
    torch.manual_seed(longest)
    task = QuestionAnswering(data.assets, EncoderOnlyOptions(d_model=8, num_heads=2, num_layers=1, segments=2), longest).eval()
    questions: list[Question] = [("北京是中国的", "ab", []), ("a", "", []), ("one two 三", "七", [])]
    rows = rows_of(data, *questions)
    batch = data.collate({**rows, "index": list(range(len(rows["text"])))})
    with torch.no_grad():
        _, records = task.evaluate(batch, "test")
        outputs = task._read(batch)[1]
    for (index, (odds, share, first, last)), scores in zip(records, outputs.tolist(), strict=True):
        begins = len(rows["text"][index]) + 2
        inside = range(begins, begins + len(rows["second"][index]))
        pairs = {(b, e): scores[b][0] + scores[e][1] for b in inside for e in inside if b <= e < b + longest}
        best = max(pairs, key=lambda pair: pairs[pair])
        assert (first, last) == best
        assert odds == pytest.approx(pairs[best] - sum(scores[0]), abs=1e-5)
        assert torch.tensor(share).log().item() == pytest.approx(pairs[best], abs=1e-4)


# ---- what is refused


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        ("", [], "bad.json: not JSON as that of SQuAD: JSONDecodeError Expecting value: line 1 column 1"),
        ("{}", [], "bad.json: not JSON as that of SQuAD: KeyError 'data'"),
        ("[1]", [], "bad.json: not JSON as that of SQuAD: TypeError"),
        ('{"data": []}', [], "no text to train a tokenizer on"),
        ("MISPLACED", [], "bad.json, question q0: an answer is not where `answer_start` says"),
        ('{"data": []}', ["--data.stride", "11"], "`data.stride` must be from 1 to 10, half of `data.max_length`, but is 11"),
        ('{"data": []}', ["--data.stride", "0"], "`data.stride` must be from 1 to 10"),
    ],
)
def test_bad_files_are_named(folder: Path, content: str, words: list[str], message: str, capsys: Any) -> None:
    file = folder / "bad.json"
    if content == "MISPLACED":
        squad_file(file, [("a red bridge", "which colour ?", [("red", 3)])])
    else:
        file.write_text(content)
    given = ["--config", str(folder / "small.yaml"), "--run", str(folder / "refused"), "--data.train", str(file)]
    assert main(["fit", *given, *words]) == 1
    assert message in capsys.readouterr().err.splitlines()[-1] and not (folder / "refused").exists()


def test_the_head_and_what_reads_its_files_are_short() -> None:
    head, reader = (len(Path(module.__file__).read_text().splitlines()) for module in (question_answering, squad))
    assert head <= 150 and reader <= 60  # as the README says
