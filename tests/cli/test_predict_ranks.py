"""Predictions by several ranks are those of one, in the order of the lines, whoever has nothing to do."""

import random
from pathlib import Path
from typing import Any

import pytest

from polyformer.cli import main

from ..ranks import run_on_ranks
from .small import fit

LANGUAGE_MODEL = """
task: {class_path: LanguageModeling, init_args: {sampling: {temperature: 1.0, max_tokens: 6}}}
model: {d_model: 16, num_heads: 2, num_layers: 1, max_length: 16, dropout: 0.0}
data: {train: FOLDER/text.txt, window: 16, tokenizer: {kind: byte}, batches: {tokens: 64}}
trainer: {max_steps: 1, accelerator: cpu}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A language model, whose draws depend on the number of a line."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "text.txt").write_text("the cat sat on the mat\n" * 20)
    assert fit(folder, config=LANGUAGE_MODEL.replace("FOLDER", str(folder))) == 0
    return folder / "run"


def lines(folder: Path, count: int) -> Path:
    chance = random.Random(count)
    file = folder / f"{count}.txt"
    file.write_text("".join("the cat sat "[: chance.randint(1, 11)] + "\n" for _ in range(count)))
    return file


@pytest.mark.parametrize(
    ("verb", "count", "ranks"), [("predict", 23, 2), ("predict", 1, 3), ("predict", 0, 2), ("score", 7, 3)]
)
def test_every_line_has_its_answer(
    verb: str, count: int, ranks: int, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In several rounds, and with fewer lines than ranks."""
    monkeypatch.setattr("polyformer.cli.answer.AT_ONCE", 4)
    words = [verb, "--ckpt_path", str(run), "--input", str(lines(tmp_path, count)), "--device", "cpu"]
    assert main([*words, "--output", str(tmp_path / "alone")]) == 0
    run_on_ranks([*words, "--output", str(tmp_path / "together")], tmp_path, ranks, strategy=None)
    answers = (tmp_path / "alone").read_text()
    assert (tmp_path / "together").read_text() == answers and answers.count("\n") == count
    assert (tmp_path / "rank-1.txt").read_text() == ""


def test_a_fault_of_one_rank_ends_all(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyformer.cli.answer.AT_ONCE", 4)
    file = lines(tmp_path, 9)
    file.write_bytes(file.read_bytes() + b"bad \xff\n")
    words = ["predict", "--ckpt_path", str(run), "--device", "cpu"]
    with pytest.raises(AssertionError, match="line 10: not UTF-8 at byte 5"):
        run_on_ranks([*words, "--input", str(file)], tmp_path, strategy=None)
    with pytest.raises(AssertionError, match="several ranks cannot share standard input: name a file by --input FILE"):
        run_on_ranks(words, tmp_path, strategy=None)
