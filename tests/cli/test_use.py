"""Using a checkpoint: validate, test, predict, score, tokenizer show; and what a stranger's checkpoint may not do."""

import gzip
import io
import json
import logging
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from polyformer.cli import main
from polyformer.training import load_task

from .small import SMALL, fit, results_of


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("runs")
    assert fit(folder, "--trainer.max_steps", "40", "--trainer.val_check_interval", "40") == 0
    return folder / "run"


def say(monkeypatch: pytest.MonkeyPatch, text: str | bytes) -> None:
    raw = text.encode() if isinstance(text, str) else text
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8"))


LINES = "forty-two\n\none hundred  five\n你好 😀\n" + "seven thousand\n" * 3


def test_one_line_in_one_line_out(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    say(monkeypatch, LINES)
    assert main(["predict", "--ckpt_path", str(run)]) == 0
    answers = capsys.readouterr().out.splitlines()
    assert len(answers) == 7
    assert answers[1] == ""
    assert answers[4] == answers[5] == answers[6] != ""


def test_files_and_json(run: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(LINES)
    words = ["predict", "--ckpt_path", str(run / "checkpoints" / "best.ckpt"), "--input", str(tmp_path / "in.txt"), "--json"]
    assert main([*words, "--output", str(tmp_path / "out"), "--task.search.n_best", "3"]) == 0
    answers = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert len(answers) == 7
    assert len(answers[0]["n_best"]) == 3
    assert answers[0]["n_best"][0]["text"] == answers[0]["text"]
    scores = [entry["score"] for entry in answers[0]["n_best"]]
    assert scores == sorted(scores, reverse=True)


def test_what_predict_says_is_what_score_scores(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    say(monkeypatch, "forty-two\nnine hundred\n")
    assert main(["predict", "--ckpt_path", str(run), "--json"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    say(monkeypatch, f"forty-two\t{answers[0]['text']}\nnine hundred\t{answers[1]['text']}\n")
    assert main(["score", "--ckpt_path", str(run), "--json"]) == 0
    scores = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for answer, score in zip(answers, scores, strict=True):
        assert math.isclose(answer["log_probability"], score["log_probability"], abs_tol=1e-3)
        assert math.isclose(score["perplexity"], math.exp(-score["log_probability"] / score["tokens"]))


def test_measuring_again_gives_the_same(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb, prefix in (("validate", "val"), ("test", "test")):
        assert main([verb, "--ckpt_path", str(run), "--json", str(tmp_path / "figures.json")]) == 0
        figures = json.loads((tmp_path / "figures.json").read_text())["metrics"]
        wanted = {name: value for name, value in results_of(run)["metrics"].items() if name.startswith(prefix)}
        assert figures == pytest.approx(wanted, rel=1e-5)
        assert f"{prefix}/bleu" in capsys.readouterr().out


@pytest.mark.parametrize("tokens", ["1", "97", "100000"])
def test_batches_do_not_change_figures(run: Path, tmp_path: Path, tokens: str) -> None:
    file = str(tmp_path / "figures.json")
    assert main(["test", "--ckpt_path", str(run), "--json", file, "--data.batches.evaluation_tokens", tokens]) == 0
    wanted = {name: value for name, value in results_of(run)["metrics"].items() if name.startswith("test")}
    assert json.loads(Path(file).read_text())["metrics"] == pytest.approx(wanted, rel=1e-5)


def test_a_line_longer_than_any_in_training_is_told(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, _ = load_task(run / "checkpoints" / "best.ckpt")
    task.settings["data"]["init_args"]["limits"] = {"max_source": 10}
    said: list[str] = []
    monkeypatch.setattr(logging.getLogger("polyformer"), "warning", lambda form, *rest: said.append(form % rest))
    assert len(task.answer(["nine", "one hundred forty-two"])) == 2
    known = "more than any text in training had (10, `data.limits.max_source`)"
    assert said == [f"'one hundred forty-two'... has 22 tokens, {known}: it may take long and go wrong"]


def test_mistakes_in_lines_are_numbered(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    say(monkeypatch, "one\teins\ntwo\n")
    assert main(["score", "--ckpt_path", str(run)]) == 1
    assert "line 2: must be source, tab, target" in capsys.readouterr().err
    say(monkeypatch, b"one\n\xff\xfe\n")
    assert main(["predict", "--ckpt_path", str(run)]) == 1
    assert "line 2: not UTF-8" in capsys.readouterr().err


def test_show_reports_the_round_trip(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    say(monkeypatch, "forty-two\n你好\n")
    assert main(["tokenizer", "show", str(run)]) == 0
    said = capsys.readouterr().out
    assert "source and target: character" in said
    assert "1 of 2 lines come back as they were (first: line 2)" in said


def test_a_checkpoint_is_plain(run: Path) -> None:
    content = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)
    assert content["polyformer"]["settings"]["task"]["class_path"].startswith("polyformer.")


@pytest.mark.parametrize("key", ["task", "position"])
@pytest.mark.parametrize(
    "name",
    [
        "subprocess.Popen",
        "polyformer.plain.to_json",  # a function of ours is no class
        "polyformer.nn.block.nn.Identity",  # a way through our modules to others
        "polyformer.nn.block.nn",
        "polyformer.nowhere.Thing",
    ],
)
def test_a_class_from_elsewhere_is_refused(run: Path, tmp_path: Path, capsys: Any, key: str, name: str) -> None:
    content = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)
    settings = content["polyformer"]["settings"]
    (settings if key == "task" else settings["model"])[key]["class_path"] = name
    torch.save(content, tmp_path / "strange.ckpt")
    assert main(["predict", "--ckpt_path", str(tmp_path / "strange.ckpt")]) == 1
    assert f"refused, since it names `{name}`" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["task", "data", "position"])
def test_a_module_named_in_place_of_a_class_is_never_imported(run: Path, tmp_path: Path, capsys: Any, key: str) -> None:
    content = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)
    settings = content["polyformer"]["settings"]
    (settings["model"] if key == "position" else settings)[key] = "antigravity.fly"
    torch.save(content, tmp_path / "strange.ckpt")
    assert main(["predict", "--ckpt_path", str(tmp_path / "strange.ckpt")]) == 1
    assert "refused" in capsys.readouterr().err
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize("word", ["--model.position", "--trainer.devices", "--training.patience", "--seed"])
def test_keys_of_training_are_refused_where_a_checkpoint_is_used(run: Path, capsys: Any, word: str) -> None:
    assert main(["test", "--ckpt_path", str(run), word, "1"]) == 2
    assert f"{word} is for training" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--model.max_length", "600"], ["--model.max_length", "600", "--model.position.scaling", "X"]]
)
def test_longer_texts_than_those_of_training_may_be_read(tmp_path: Path, capsys: Any, words: list[str]) -> None:
    keys = "position: {class_path: Rotary, init_args: {fraction: 0.5}}, mixers: [SlidingWindow, LinearAttention]"
    config = SMALL.replace("dropout: 0.1", f"dropout: 0.1, {keys}").replace("_layers: 1", "_layers: 2")
    assert fit(tmp_path, config=config) == 0
    words = [{"X": "LinearScaling"}.get(word, word) for word in words]
    words += ["--model.position.scaling.factor", "2"] if "LinearScaling" in words else []
    told = []
    for more in ([], words):
        capsys.readouterr()
        assert main(["validate", "--ckpt_path", str(tmp_path / "run"), *more]) == 0
        told.append(capsys.readouterr().out)
    assert "val/loss" in told[0] and (told[0] == told[1]) == ("LinearScaling" not in words)


@pytest.mark.parametrize(
    ("keys", "owner", "other"),
    [
        ("position: Learned", "Learned", "Sinusoidal"),
        ("mixer: Linformer, decoder_mixers: [FullAttention]", "Linformer", "SlidingWindow"),
        ("mixer: {class_path: Reformer, init_args: {bucket: 512}}", "Reformer", "SlidingWindow"),  # all in one bucket
    ],
)
def test_what_is_made_for_a_length_cannot_be_made_longer(
    tmp_path: Path, capsys: Any, keys: str, owner: str, other: str
) -> None:
    assert fit(tmp_path, "--trainer.max_steps", "1", config=SMALL.replace("dropout: 0.1", f"dropout: 0.1, {keys}")) == 0
    assert main(["validate", "--ckpt_path", str(tmp_path / "run"), "--model.max_length", "600"]) == 1
    said = capsys.readouterr().err
    assert "`model.max_length` cannot be changed" in said and f"of {owner} is" in said and f"no limit, as {other}" in said


def test_an_input_is_never_overwritten_by_the_output(run: Path, tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("six\n")
    assert main(["predict", "--ckpt_path", str(run), "--input", str(file), "--output", str(file)]) == 2
    assert "same file" in capsys.readouterr().err
    assert file.read_text() == "six\n"


def test_lines_may_be_packed_and_begin_with_a_byte_order_mark(run: Path, tmp_path: Path, capsys: Any) -> None:
    with gzip.open(tmp_path / "lines.gz", "wb") as file:
        file.write(b"\xef\xbb\xbfsix\nsix\n")
    assert main(["predict", "--ckpt_path", str(run), "--input", str(tmp_path / "lines.gz")]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == second


def test_lines_without_words_are_answered_by_nothing(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    say(monkeypatch, "   \n\n")
    assert main(["predict", "--ckpt_path", str(run)]) == 0
    assert capsys.readouterr().out == "\n\n"
    say(monkeypatch, "six\tsechs\n\n\tsechs\n")
    assert main(["score", "--ckpt_path", str(run), "--json"]) == 0
    scores = [json.loads(line)["log_probability"] for line in capsys.readouterr().out.splitlines()]
    assert scores[0] < 0 and scores[1:] == [None, None]


def test_tokenizers_are_made_of_lines_and_of_columns(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "pairs.tsv").write_text("abc\txyz\n" * 3)
    with gzip.open(tmp_path / "lines.txt.gz", "wt", encoding="utf-8") as file:
        file.write("abc xyz\n" * 3)
    train = ["tokenizer", "train", "--kind", "character", "--output", str(tmp_path / "made")]
    assert main([*train, f"--input={tmp_path / 'lines.txt.gz'}"]) == 0
    assert main(["tokenizer", "show", str(tmp_path / "made"), "--input", str(tmp_path / "lines.txt.gz")]) == 0
    assert "3 of 3 lines come back" in capsys.readouterr().out
    assert main([*train, "--input", str(tmp_path / "pairs.tsv")]) == 2
    assert "is a table: say which columns" in capsys.readouterr().err
    assert main([*train, "--columns", "0,1", "--input", str(tmp_path / "pairs.tsv")]) == 0
    assert "made: character, 10 tokens" in capsys.readouterr().out
    assert main(["tokenizer", "train", "--kind", "foo", "--output", str(tmp_path / "x"), "--input", "lines"]) == 2
    assert main(["tokenizer", "train", "--output", str(tmp_path / "no" / "x"), "--input", "lines"]) == 2
    assert "there is no folder" in capsys.readouterr().err


class Strange:
    """Something that only unpickling could build."""


@pytest.mark.parametrize("content", [Strange(), {"state_dict": {}}, None])
def test_other_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: Any) -> None:
    path = tmp_path / "other.ckpt"
    if content is None:
        path.write_bytes(b"half a checkpoint")
    else:
        torch.save(content, path)
    assert main(["predict", "--ckpt_path", str(path)]) == 1
    said = capsys.readouterr().err
    assert "other.ckpt" in said and len(said.splitlines()) <= 2


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["predict"], 2, "--ckpt_path PATH is missing"),
        (["predict", "--ckpt_path", "nowhere"], 1, "nowhere: no such checkpoint or run folder"),
        (["fti"], 2, "did you mean fit?"),
        (["tokenizer", "train", "--output", "x.json"], 2, "--input FILES are needed"),
    ],
)
def test_exit_codes(words: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == code
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["fit", "validate", "test", "predict", "score", "tokenizer", "tasks"])
def test_every_verb_has_a_short_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    said = capsys.readouterr().out
    assert f"platform {verb}" in said and len(said.splitlines()) < 30
