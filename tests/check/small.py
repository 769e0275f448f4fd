"""Settings so small that all laws are judged in a moment, one for each kind of network."""

from functools import cache
from pathlib import Path

import torch

from polyformer.check import Finding, Subject, judge, of_settings
from polyformer.cli.settings import parse_settings
from polyformer.training.build import Built

__all__ = ["KINDS", "broken", "findings_of", "judged", "make", "write_config", "write_data"]

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]

MODEL = "model: {d_model: 16, num_heads: 2, max_length: 64, dropout: 0.1"
KINDS = {
    "Translation": MODEL + ", encoder_layers: 1, decoder_layers: 1}\n"
    "data: {train: FOLDER/pairs.tsv, validation: FOLDER/pairs.tsv, source: 0, target: 1, TOKENS}\n",
    "LanguageModeling": MODEL + ", num_layers: 2, position: Relative}\n"
    "data: {train: FOLDER/lines.txt, validation: FOLDER/lines.txt, window: 64, stride: 32, TOKENS}",
    "Classification": MODEL + ", num_layers: 2, position: Learned, segments: 2, ngrams: {orders: [2, 3], buckets: 50}}\n"
    "data: {train: FOLDER/labelled.tsv, validation: FOLDER/labelled.tsv, text: 0, second: 1, label: 2,\n"
    "       limits: {max_length: 64}, TOKENS}",
    "MaskedLanguageModeling": MODEL + ", num_layers: 1, segments: 2}\n"
    "data: {train: FOLDER/lines.txt, validation: FOLDER/lines.txt, max_length: 32, next_sentence: true, TOKENS}",
}
"""What follows `task: NAME`."""
TOKENS = "tokenizer: {kind: bpe, vocab_size: 300, min_frequency: 1}, batches: {tokens: 128, evaluation_tokens: 64}"


def write_data(folder: Path) -> None:
    """Files of a few dozen lines: pairs of texts, texts, and pairs with labels."""
    lines = [" ".join(WORDS[(start * step) % 12] for step in range(1, 2 + start % 9)) for start in range(1, 48)]
    (folder / "lines.txt").write_text("".join(f"{line}\n" for line in lines * 3))
    (folder / "pairs.tsv").write_text("".join(f"{line}\t{line[::-1].strip()}\n" for line in lines))
    labels = ("few" if len(line) < 20 else "many" for line in lines)
    rows = zip(lines, reversed(lines), labels, strict=True)
    (folder / "labelled.tsv").write_text("".join(f"{first}\t{second}\t{label}\n" for first, second, label in rows))


def write_config(folder: Path, task: str) -> str:
    """The settings of a task as a file."""
    file = folder / f"{task}.yaml"
    file.write_text(f"task: {task}\n" + KINDS[task].replace("FOLDER", str(folder)).replace("TOKENS", TOKENS))
    return str(file)


@cache
def build(folder: Path, task: str, *words: str) -> Built:
    """What the settings describe, words laid over them."""
    parser, settings = parse_settings(["--config", write_config(folder, task), *words])
    return parser.build(settings)


def make(folder: Path, task: str, *words: str) -> Subject:
    """A subject with fresh weights."""
    return of_settings(build(folder, task, *words), torch.device("cpu"))


def findings_of(subject: Subject) -> dict[str, Finding]:
    """What each law finds."""
    return {finding.law: finding for finding in judge(subject)}


def judged(subject: Subject) -> dict[str, str]:
    """The outcome of each law."""
    return {name: finding.result.outcome for name, finding in findings_of(subject).items()}


def broken(subject: Subject) -> set[str]:
    """The laws that are broken."""
    return {name for name, outcome in judged(subject).items() if outcome == "fail"}
