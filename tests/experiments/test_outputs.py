"""What a test leaves of each example, by real trainings of a second."""

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch

from polyformer.cli import main
from polyformer.experiments.comparison import compare_runs
from polyformer.experiments.runs import find_runs
from polyformer.tasks import language_modeling
from polyformer.training import documents
from polyformer.training.documents import WindowLosses, document_rows
from polyformer.training.losses import linear_cross_entropy, token_losses

from ..cli.small import fit, results_of

LANGUAGE = """
task: LanguageModeling
model: {d_model: 16, num_heads: 2, num_layers: 1, max_length: 16, dropout: 0.0}
data: {train: lines.txt, validation: lines.txt, test: lines.txt, window: 16, tokenizer: {kind: byte}, batches: {tokens: 200}}
trainer: {max_steps: 2, val_check_interval: 2, accelerator: cpu}
"""
LABELS = """
task: Classification
model: {d_model: 16, num_heads: 2, num_layers: 1, max_length: 32}
data: {train: texts.tsv, validation: texts.tsv, test: texts.tsv, text: 0, label: 1, limits: {max_length: 32},
  tokenizer: {kind: character}}
trainer: {max_steps: 2, val_check_interval: 2, accelerator: cpu}
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def lines_of(run: Path) -> list[dict[str, Any]]:
    with gzip.open(run / "test.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_translations_give_the_bleu_that_was_measured(tmp_path: Path) -> None:
    assert fit(tmp_path) == 0
    lines, results = lines_of(tmp_path / "run"), results_of(tmp_path / "run")
    assert len(lines) == 23 and all(set(line) == {"input", "reference", "output"} for line in lines)
    bleu = sacrebleu.corpus_bleu([line["output"] for line in lines], [[line["reference"] for line in lines]])
    assert bleu.score == results["metrics"]["test/bleu"]
    assert set(results["fingerprints"]) == {"train", "validation", "test", "tokenizers"}
    assert set(results["fingerprints"]["tokenizers"]) == {"source", "target"}
    before = (tmp_path / "run" / "test.jsonl.gz").read_bytes()
    assert main(["test", "--ckpt_path", str(tmp_path / "run"), "--examples", "again.jsonl.gz"]) == 0
    assert (tmp_path / "again.jsonl.gz").read_bytes() == before


def test_documents_give_the_loss_that_was_measured(tmp_path: Path) -> None:
    texts = ["a bc d", "efg " * 9, "h", "\u4f60\u597d ij", "k"]
    Path("lines.txt").write_text("".join(text.strip() + "\n" for text in texts))
    assert fit(tmp_path, config=LANGUAGE) == 0
    lines, metrics = lines_of(tmp_path / "run"), results_of(tmp_path / "run")["metrics"]
    assert [line["input"] for line in lines] == [text.strip() for text in texts]
    assert [line["bytes"] for line in lines] == [len(text.strip().encode()) + 1 for text in texts]
    assert sum(line["nats"] for line in lines) / sum(line["tokens"] for line in lines) == pytest.approx(metrics["test/loss"])


def test_documents_are_the_same_for_tokenizers_that_lose_characters(tmp_path: Path) -> None:
    """As their file has them, in bits that add up to what was measured; what is only spaces is left out."""
    texts = ["A Bc d", "efg " * 9, "   ", "\u4f60\u597d ij", *(f"line {number}" for number in range(12))]
    Path("lines.txt").write_text("".join(f"{text}\n" for text in texts))
    kinds = {"byte": "byte", "word": "word, min_frequency: 2, lowercase: true"}
    for name, kind in kinds.items():
        assert fit(tmp_path, config=LANGUAGE.replace("kind: byte", f"kind: {kind}"), name=name) == 0
        lines, metrics = lines_of(tmp_path / name), results_of(tmp_path / name)["metrics"]
        assert [line["input"] for line in lines] == [text for text in texts if text.strip()]
        bits = sum(line["nats"] for line in lines) / sum(line["bytes"] for line in lines) / math.log(2)
        assert bits == pytest.approx(metrics["test/bits_per_byte"], rel=1e-5)
    (comparison,) = compare_runs(find_runs(list(kinds)))
    assert comparison.ranked_by == "test/bits_per_byte" and comparison.verdicts[0].figures[0].what == "nats per byte"


def test_documents_whose_file_is_gone_are_kept_as_they_decode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("lines.txt").write_text("a b\n" * 12)
    asked = documents.describe_documents
    monkeypatch.setattr(language_modeling, "describe_documents", lambda *words: [Path("lines.txt").unlink(), asked(*words)][1])
    assert fit(tmp_path, config=LANGUAGE) == 0
    assert [line["input"] for line in lines_of(tmp_path / "run")] == ["a b"] * 12
    assert "cannot be read again" in (tmp_path / "run" / "log.txt").read_text()


def test_labels_give_the_accuracy_that_was_measured(tmp_path: Path) -> None:
    rows = [("good text", "yes"), ("bad text", "no"), ("fine", "yes"), ("poor", "no"), ("so so", "no")] * 3
    Path("texts.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in rows))
    assert fit(tmp_path, config=LABELS) == 0
    lines, metrics = lines_of(tmp_path / "run"), results_of(tmp_path / "run")["metrics"]
    assert [(line["input"], line["reference"]) for line in lines] == rows
    assert all(line["correct"] == (line["output"] == line["reference"]) for line in lines)
    assert sum(line["correct"] for line in lines) / len(lines) == pytest.approx(metrics["test/accuracy"])


def test_losses_of_tokens_add_up() -> None:
    hidden, weight, target = torch.randn(3, 5, 4), torch.randn(7, 4), torch.randint(1, 7, (3, 5))
    target[1, 3:] = 0
    each = token_losses(hidden, weight, target, padding=0)
    real = target != 0
    whole = linear_cross_entropy(hidden[real], weight, target[real]).negative_log_likelihood
    assert float(each.sum()) == pytest.approx(float(whole), rel=1e-5)
    assert not each[1, 3:].any()


def test_documents_are_the_same_however_windows_cut_them() -> None:
    tokens, nats = torch.tensor([5, 6, 3, 7, 8, 9, 3, 3, 4]), torch.arange(9.0)
    for size in (1, 2, 4, 9):
        windows = [WindowLosses(*pair) for pair in zip(tokens.split(size), nats.split(size), strict=True)]
        rows = document_rows(windows, end=3, describe=lambda several: [("", len(ids) + 1) for ids in several])
        assert [(row["nats"], row["tokens"]) for row in rows] == [(3.0, 3), (18.0, 4), (7.0, 1), (8.0, 1)]
