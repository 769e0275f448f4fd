"""Language modelling as a user meets it: trained by the command, measured, continued, scored."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import polyformer.nn
from polyformer.cli import main
from polyformer.tasks.language_modeling import LanguageModeling
from polyformer.training import load_task

from ..cli.small import metrics_of, results_of
from ..cli.test_use import say
from ..ranks import run_on_ranks

SMALL = """
task: {class_path: LanguageModeling, init_args: {sampling: {max_tokens: 12}}}
model: {d_model: 16, num_heads: 2, num_layers: 1, max_length: 16, dropout: 0.1, position: Rotary}
data:
  train: TRAIN
  validation: HELD_OUT
  test: HELD_OUT
  layout: LAYOUT
  window: 16
  stride: 8
  tokenizer: {kind: bpe, vocab_size: 320}
  batches: {tokens: 128, evaluation_tokens: 112}
training: {optimizer: {class_path: FusedAdamW, init_args: {lr: 0.01}}, schedule: Constant}
trainer: {max_steps: 12, val_check_interval: 6, log_every_n_steps: 1, accelerator: cpu}
"""
LINES = ["the cat sat on the mat", "the dog  sat on the cat", "a dog and a cat", "你好 😀 the mat", "on and on and on"]


def files(folder: Path) -> tuple[Path, Path]:
    train, held_out = folder / "train.txt", folder / "held_out.txt"
    train.write_text("\n".join(LINES[number % 5] + f" {number}" for number in range(200)) + "\n")
    held_out.write_text("\n".join(LINES[number % 5] + f" of {number}" for number in range(31)) + "\n")
    return train, held_out


def config(folder: Path, layout: str = "packed") -> Path:
    train, held_out = files(folder)
    file = folder / "small.yaml"
    file.write_text(SMALL.replace("TRAIN", str(train)).replace("HELD_OUT", str(held_out)).replace("LAYOUT", layout))
    return file


@pytest.fixture(scope="module", params=["packed", "stream"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("runs")
    assert main(["fit", "--config", str(config(folder, request.param)), "--run", str(folder / "run"), "--debug"]) == 0
    return folder / "run"


def measured(run: Path, *words: str) -> dict[str, float]:
    file = run / "measured.json"
    assert main(["test", "--ckpt_path", str(run), "--json", str(file), "--debug", *words]) == 0
    return dict(json.loads(file.read_text())["metrics"])


def test_perplexity_is_independent_of_the_batch(run: Path) -> None:
    """Batches of 1, 7 and 64 windows."""
    figures = [measured(run, "--data.batches.evaluation_tokens", str(16 * count)) for count in (1, 7, 64)]
    for other in figures[1:]:
        assert other == pytest.approx(figures[0], rel=1e-5)


def test_figures_are_those_of_the_definitions(run: Path) -> None:
    """Recomputed token by token: each with the context that its window gives it."""
    figures, (task, built) = measured(run), load_task(run / "checkpoints" / "best.ckpt")
    array = torch.from_numpy(built.data.loaded("test").ids.astype("int64"))  # type: ignore[attr-defined]
    nats = 0.0
    packed = built.settings["data"]["init_args"]["layout"] == "packed"
    with torch.no_grad():
        for place in range(len(array) - 1):
            window = max(0, math.ceil((place - 15) / 8))
            seen = array[8 * window : place + 1]
            if packed and bool((seen == 3).any()):
                seen = seen[int((seen == 3).nonzero().max()) :]
            logits = task.network.logits(task.network(seen.unsqueeze(0)))[0, -1]  # type: ignore[operator, union-attr]
            nats -= float(logits.log_softmax(-1)[array[place + 1]])
    text = (run.parent / "held_out.txt").read_text()
    words, size = len(text.split()) + 31, len(text.encode())
    assert figures["test/loss"] == pytest.approx(nats / (len(array) - 1), rel=1e-5)
    assert figures["test/perplexity"] == pytest.approx(math.exp(nats / (len(array) - 1)), rel=1e-5)
    assert figures["test/word_perplexity"] == pytest.approx(math.exp(nats / words), rel=1e-4)
    assert figures["test/bits_per_byte"] == pytest.approx(nats / math.log(2) / size, rel=1e-5)


def test_results_say_how_they_were_measured(run: Path) -> None:
    results = results_of(run)
    assert "context:16|stride:8" in results["signatures"]["perplexity"]
    assert {"val/word_perplexity", "test/bits_per_byte"} <= set(results["metrics"])


def predict(run: Path, text: str, monkeypatch: pytest.MonkeyPatch, capsys: Any, *words: str) -> list[str]:
    capsys.readouterr()
    say(monkeypatch, text)
    assert main(["predict", "--ckpt_path", str(run), "--debug", *words]) == 0
    out: str = capsys.readouterr().out
    return out.split("\n")[:-1]  # not splitlines: an untrained model writes other separators too


PROMPTS = ["the cat", "", "a dog and a cat and the dog sat on the mat and on and on and on", "你好", "the  cat sat"]


@pytest.mark.parametrize("words", [["--task.sampling.temperature", "0"], ["--task.sampling.top_p", "0.9"]], ids=" ".join)
def test_a_line_is_continued_alike_in_any_company(run: Path, monkeypatch: Any, capsys: Any, words: list[str]) -> None:
    """Prompts of different length, one of them longer than the context."""
    together = predict(run, "\n".join(PROMPTS) + "\n", monkeypatch, capsys, *words)
    assert len(together) == len(PROMPTS)
    for prompt, line in zip(PROMPTS, together, strict=True):
        assert line.startswith(prompt)
    if words[0] == "--task.sampling.temperature":
        alone = [predict(run, prompt + "\n", monkeypatch, capsys, *words)[0] for prompt in PROMPTS]
        assert alone == together


def test_streaming_gives_the_same_text(run: Path, monkeypatch: Any, capsys: Any) -> None:
    for words in ([], ["--task.sampling.stop", '["sa", "on t"]', "--task.sampling.max_tokens", "40"]):
        for prompt in PROMPTS:
            whole = predict(run, prompt + "\n", monkeypatch, capsys, "--json", *words)
            streamed = "\n".join(predict(run, prompt + "\n", monkeypatch, capsys, "--stream", *words))
            assert streamed == json.loads(whole[0])["text"]


def test_stop_texts_end_a_line_and_are_no_part_of_it(run: Path, monkeypatch: Any, capsys: Any) -> None:
    words = ["--json", "--task.sampling.stop", '["a"]', "--task.sampling.max_tokens", "60"]
    answers = [json.loads(line) for line in predict(run, "the\n" * 8, monkeypatch, capsys, *words)]
    assert all("a" not in answer["continuation"] for answer in answers)
    assert "stop" in {answer["ended"] for answer in answers}


def test_samples_differ_and_repeat_with_the_seed(run: Path, monkeypatch: Any, capsys: Any) -> None:
    words = ["--json", "--task.sampling.samples", "4"]
    first, again = (predict(run, "the\nthe\n", monkeypatch, capsys, *words) for _ in range(2))
    assert first == again
    texts = [sample["text"] for line in first for sample in json.loads(line)["samples"]]
    assert len(texts) == 8 and len(set(texts)) > 4
    assert predict(run, "the\nthe\n", monkeypatch, capsys, *words, "--task.sampling.seed", "1") != first


def test_a_draft_changes_no_greedy_text(run: Path, monkeypatch: Any, capsys: Any) -> None:
    words = ["--task.sampling.temperature", "0", "--task.sampling.max_tokens", "30"]
    plain = predict(run, "\n".join(PROMPTS) + "\n", monkeypatch, capsys, *words)
    say(monkeypatch, "\n".join(PROMPTS) + "\n")
    assert main(["predict", "--ckpt_path", str(run), "--task.draft", str(run), *words]) == 0
    shown = capsys.readouterr()
    assert shown.out.split("\n")[:-1] == plain
    assert "100.0% of" in shown.err and "proposed by the draft were accepted" in shown.err


def test_a_score_is_the_sum_over_the_line(run: Path, monkeypatch: Any, capsys: Any) -> None:
    task, _ = load_task(run / "checkpoints" / "best.ckpt")
    assert isinstance(task, LanguageModeling)
    capsys.readouterr()
    say(monkeypatch, "the cat sat\n\n" + "on and " * 20 + "on\n")
    assert main(["score", "--ckpt_path", str(run), "--json"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    ids = [3, *task.tokenizer.encode("the cat sat"), 3]
    with torch.no_grad():
        each = task.network.logits(task.network(torch.tensor([ids[:-1]])))[0].log_softmax(-1)
    total = float(each.gather(1, torch.tensor(ids[1:]).unsqueeze(1)).sum())
    assert answers[0]["log_probability"] == pytest.approx(total, rel=1e-5)
    assert answers[0]["tokens"] == len(ids) - 1 and answers[0]["words"] == 4 and answers[0]["bytes"] == 12
    assert answers[1]["tokens"] == 1
    assert answers[2]["tokens"] > 16 and math.isfinite(answers[2]["log_probability"])


def test_a_stranger_to_the_tokenizer_is_no_draft(run: Path, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    words = ["fit", "--config", str(config(tmp_path)), "--run", str(tmp_path / "other"), "--data.tokenizer.vocab_size", "300"]
    assert main([*words, "--trainer.max_steps", "1"]) == 0
    say(monkeypatch, "the\n")
    assert main(["predict", "--ckpt_path", str(run), "--task.draft", str(tmp_path / "other")]) == 1
    assert "same tokenizer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("mixer", "proposals", "message"),
    [
        ("Performer", 4, "`Performer` cannot take tokens back; Convolution or FullAttention or GRU"),
        ("LSTM", 17, "`LSTM` can take back 16 tokens at most"),
    ],
)
def test_a_mixer_that_cannot_take_tokens_back_has_no_draft(run: Path, mixer: str, proposals: int, message: str) -> None:
    task, built = load_task(run / "checkpoints" / "best.ckpt")
    options = replace(built.options, mixer=getattr(polyformer.nn, mixer), position=polyformer.nn.NoPosition)
    LanguageModeling(task.assets, options, proposals=proposals)
    with pytest.raises(ValueError, match=f"`task.draft` with `task.proposals` {proposals}: {message}"):
        LanguageModeling(task.assets, options, draft=str(run), proposals=proposals)


def test_a_window_beyond_the_model_is_refused(tmp_path: Path, capsys: Any) -> None:
    assert main(["fit", "--config", str(config(tmp_path)), "--run", str(tmp_path / "run"), "--data.window", "17"]) == 1
    assert "`data.window` (17) must be the same as `model.max_length` (16)" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", ["TextData", "TextStream"])
def test_a_stopped_training_goes_on_to_the_bit(kind: str, tmp_path: Path, monkeypatch: Any) -> None:
    """Across the end of an epoch too: the text has 15 batches."""
    file = config(tmp_path)
    content = yaml.safe_load(file.read_text())
    content["data"] = {"class_path": kind, "init_args": content["data"]}
    if kind == "TextStream":
        content["data"]["init_args"]["shuffle_windows"] = 24
    file.write_text(yaml.safe_dump(content))
    words = ["fit", "--config", str(file), "--trainer.val_check_interval", "10"]
    assert main([*words, "--run", str(tmp_path / "whole"), "--trainer.max_steps", "40"]) == 0
    assert main([*words, "--run", str(tmp_path / "parted"), "--trainer.max_steps", "17"]) == 0
    resumed = ["fit", "--run", str(tmp_path / "parted"), "--resume", "--trainer.max_steps", "40"]
    assert main(resumed) == 0
    rows = [[row for row in metrics_of(tmp_path / name) if row["train/loss"]] for name in ("whole", "parted")]
    assert rows[0] == rows[1] and len(rows[0]) == 40


def test_a_stream_needs_to_know_its_length(tmp_path: Path, capsys: Any) -> None:
    words = ["fit", "--config", str(config(tmp_path)), "--run", str(tmp_path / "run"), "--data", "TextStream"]
    assert main([*words, "--trainer.max_steps", "-1", "--trainer.max_epochs", "2"]) == 1
    assert "set `trainer.max_steps`" in capsys.readouterr().err


def test_the_draws_of_a_line_follow_its_number(run: Path) -> None:
    """Not its place in a chunk of lines, nor what the others say."""
    task, _ = load_task(run / "checkpoints" / "best.ckpt")
    whole = [answer.text for answer in task.answer(["the"] * 6)]
    again, _ = load_task(run / "checkpoints" / "best.ckpt")
    parted = [answer.text for lines in (["a dog"], ["the"] * 2, ["the"] * 3) for answer in again.answer(lines)]
    assert parted[1:] == whole[1:] and len(set(whole)) > 1
    streaming, _ = load_task(run / "checkpoints" / "best.ckpt")
    assert ["".join(streaming.stream("the")) for _ in range(6)] == whole


def test_a_part_of_a_text_has_no_figures_per_word(tmp_path: Path, monkeypatch: Any) -> None:
    words = ["fit", "--config", str(config(tmp_path)), "--run", str(tmp_path / "run"), "--trainer.limit_val_batches", "2"]
    assert main([*words, "--data.test", "null"]) == 0
    assert set(results_of(tmp_path / "run")["metrics"]) == {"val/loss", "val/perplexity", "val/accuracy"}


def test_a_stop_text_may_begin_with_the_space_after_the_prompt(run: Path) -> None:
    task, _ = load_task(
        run / "checkpoints" / "best.ckpt", ["--task.sampling.stop", '[" "]', "--task.sampling.max_tokens", "60"]
    )
    for answer in task.answer(["the cat"] * 5):
        assert answer.details["ended"] != "stop" or answer.details["tokens"] < 60
        assert " " not in answer.details["continuation"]
    assert isinstance(task, LanguageModeling)
    space = task.tokenizer.encode("the cat")[-1]
    assert task._is_stopped([[3, space]], 0, [space])


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_a_stream_could_not_read_is_in_the_results(tmp_path: Path, ranks: int) -> None:
    """Over all ranks, each line once; of three files one is read by both ranks, and all are read several times."""
    train, _ = files(tmp_path)
    lines = train.read_bytes().splitlines(keepends=True)
    (tmp_path / "shards").mkdir()
    for part in range(3):
        damaged = [b"\xff" + line if at % 9 == 0 else line for at, line in enumerate(lines[60 * part : 60 * part + 54])]
        (tmp_path / "shards" / f"{part}.txt").write_bytes(b"".join(damaged))
    words = ["fit", "--config", str(config(tmp_path)), "--run", str(tmp_path / "run"), "--data", "TextStream", "--debug"]
    words += ["--data.train", str(tmp_path / "shards"), "--data.damaged", "skip", "--data.shuffle_windows", "16"]
    words += ["--trainer.max_steps", "80", "--trainer.val_check_interval", "80"]
    if ranks == 1:
        assert main(words) == 0
    else:
        run_on_ranks(words, tmp_path, ranks)
    told = results_of(tmp_path / "run")["data"]["train"]
    assert told.startswith("3 files of ") and told.endswith("; not read: 18 damaged lines")
    assert f"train data: {told}" in (tmp_path / "run" / "log.txt").read_text()
