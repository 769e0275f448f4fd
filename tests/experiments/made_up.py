"""Run folders as a training leaves them, without the training."""

import csv
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from polyformer.experiments.runs import Run

__all__ = ["examples_of_answers", "made_up"]

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
TASK = {"class_path": "polyformer.tasks.translation.Translation", "init_args": {"label_smoothing": 0.1}}
DATA = {"class_path": "polyformer.data.PairData", "init_args": {"train": "train.tsv", "validation": "v.tsv", "test": "t.tsv"}}


def made_up(
    folder: Path,
    name: str,
    position: str = "Rotary",
    seed: int = 0,
    metrics: dict[str, float] | None = None,
    losses: Sequence[float] = (5.0, 4.0, 3.0),
    examples: Sequence[dict[str, Any]] = (),
    settings: dict[str, Any] | None = None,
    **results: Any,
) -> Run:
    """A finished run of a translator; anything may be said otherwise."""
    path = folder / name
    path.mkdir(parents=True)
    model = {"d_model": 64, "position": {"class_path": f"polyformer.nn.{position}", "init_args": {}}}
    config = {"seed": seed, "task": TASK, "model": model, "data": DATA, "training": {"monitor": None}, **(settings or {})}
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    content = {
        "task": "Translation",
        "parameters": 1_234_567,
        "steps": 10 * len(losses),
        "tokens": 1000 * len(losses),
        "train_seconds": 12.5 + seed,
        "tokens_per_second": 2400.0,
        "peak_memory_bytes": 512_000_000,
        "metrics": metrics or {"val/loss": losses[-1], "test/loss": 2.5, "test/bleu": 30.0 + seed},
        "signatures": {"bleu": SIGNATURE},
        "data": {"test": "1,000 examples", "validation": "500 examples"},
        **results,
    }
    (path / "results.json").write_text(json.dumps(content))
    with (path / "metrics.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["step", "train/loss", "tokens", "seconds", "val/loss", "val/bleu"])
        writer.writeheader()
        for number, loss in enumerate(losses, 1):
            row = {"step": 10 * number, "tokens": 1000.0 * number, "seconds": (4.0 + seed) * number}
            writer.writerows([row | {"train/loss": loss + 0.5}, row | {"val/loss": loss, "val/bleu": 10.0 * number}])
    if examples:
        with gzip.open(path / "test.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(line) + "\n" for line in examples)
    return Run(path)


def examples_of_answers(right: Sequence[bool]) -> list[dict[str, Any]]:
    """Examples of a classifier that is right on some of them."""
    return [
        {"input": f"text {number}", "reference": "yes", "output": "yes" if one else "no", "correct": one}
        for number, one in enumerate(right)
    ]
