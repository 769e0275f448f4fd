"""Two ranks measure what one does, each example once: a prime number of them, and fewer than there are ranks."""

import json
from pathlib import Path

import pytest

from ..training.test_exactness import train

SENTENCES = ["we O\nsaw O\nAda B-PER\n", "from O\nNew B-LOC\nYork I-LOC\nhere O\n", "Ada B-PER\nslept O\n", "it O\nrained O\n"]
TRAINER = """
training: {optimizer: {class_path: SGD, init_args: {lr: 0.1}}, schedule: Constant}
trainer: {max_steps: 1, val_check_interval: 1, log_every_n_steps: 1, accelerator: cpu}
"""
MODEL = "model: {d_model: 16, num_heads: 2, num_layers: 1, max_length: 32, dropout: 0.0, segments: 2}\n"
FILES = "train: FOLDER/train, validation: FOLDER/many, test: FOLDER/one, tokenizer: {kind: character, min_frequency: 1}"
TASKS = {
    "Tagging": f"data: {{{FILES}, max_length: 9, batches: {{tokens: 60, evaluation_tokens: 20}}}}",
    "QuestionAnswering": f"data: {{{FILES}, max_length: 24, stride: 6, batches: {{tokens: 200, evaluation_tokens: 60}}}}",
    "MaskedLanguageModeling": f"data: {{{FILES}, max_length: 12, batches: {{tokens: 60, evaluation_tokens: 30}}}}",
}


def squad(count: int) -> str:
    """Questions on texts that are read in one window or several."""
    texts = ["the box is red" + " and so on" * (number % 3) for number in range(count)]
    answers = [[{"text": "red", "answer_start": 11}] if number % 4 else [] for number in range(count)]
    asked = [[{"id": str(number), "question": "which?", "answers": answers[number]}] for number in range(count)]
    paragraphs = [{"context": text, "qas": qas} for text, qas in zip(texts, asked, strict=True)]
    return json.dumps({"data": [{"paragraphs": paragraphs}]})


def write(folder: Path, task: str) -> None:
    for name, count in (("train", 20), ("many", 13), ("one", 1)):
        made = [SENTENCES[number % 4] for number in range(count)]
        texts = {"Tagging": "\n".join(made), "QuestionAnswering": squad(count)}
        (folder / name).write_text(texts.get(task, "".join(" ".join(sentence.split()) + "\n" for sentence in made)))


@pytest.mark.parametrize("task", TASKS)
def test_two_ranks_are_one(task: str, tmp_path: Path) -> None:
    write(tmp_path, task)
    config = f"task: {task}\n{MODEL}{TASKS[task].replace('FOLDER', str(tmp_path))}{TRAINER}"
    (_, alone), (_, together) = train(tmp_path, 1, config), train(tmp_path, 2, config)
    assert together == pytest.approx(alone, rel=1e-5, abs=1e-9)
    assert {"val/loss", "test/loss"} <= alone.keys() and len(alone) > 3
