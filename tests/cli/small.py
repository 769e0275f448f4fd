"""A training so small that it takes a second."""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

from polyformer.cli import main

__all__ = ["SMALL", "examples_of", "fit", "metrics_of", "results_of"]

SMALL = """
task: {class_path: Translation, init_args: {search: {max_ratio: 0.2, max_extra: 2}}}
model: {d_model: 16, num_heads: 2, encoder_layers: 1, decoder_layers: 1, dropout: 0.1}
data:
  class_path: SpelledNumbers
  init_args:
    train_count: 120
    evaluation_count: 23
    tokenizer: {kind: character}
    batches: {tokens: 400, evaluation_tokens: 500}
training:
  optimizer: {class_path: FusedAdamW, init_args: {lr: 0.01}}
  schedule: {class_path: Constant, init_args: {warmup: 2}}
  save_every: 4
trainer: {max_steps: 10, val_check_interval: 5, gradient_clip_val: 1.0, log_every_n_steps: 1, accelerator: cpu}
"""


def fit(folder: Path, *words: str, config: str = SMALL, name: str = "run") -> int:
    """`platform fit` in a folder; the exit code."""
    file = folder / "small.yaml"
    file.write_text(config)
    return main(["fit", "--config", str(file), "--run", str(folder / name), *words, "--debug"])


def metrics_of(run: Path) -> list[dict[str, str]]:
    """The rows of metrics.csv, without what depends on the clock."""
    with (run / "metrics.csv").open(newline="") as file:
        return [{key: row[key] for key in row if "second" not in key} for row in csv.DictReader(file)]


def results_of(run: Path) -> dict[str, Any]:
    """results.json."""
    content: dict[str, Any] = json.loads((run / "results.json").read_text())
    return content


def examples_of(run: Path) -> list[dict[str, Any]]:
    """What a test left of each example."""
    with gzip.open(run / "test.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]
