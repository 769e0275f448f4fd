"""Labels for texts that have none, guessed by one classifier or several, for training on (Lee 2013).

    platform predict --ckpt_path runs/one --input texts.txt --output one.jsonl --json
    platform predict --ckpt_path runs/other --input texts.txt --output other.jsonl --json
    python benchmarks/guess_labels.py texts.txt one.jsonl other.jsonl --weights 1 0.5 --sure 0.8 --output guessed.jsonl

Of each classifier the log-probabilities are centred, so that no label is guessed for more texts than its share, and brought to
one spread, since they are sure of themselves in different measure; what counts is their weighted mean. Texts whose label is
not sure enough are left out. The output can be given as training data besides what has true labels: `--data.train
"[train.jsonl, guessed.jsonl]"`.

Letters: N texts, K labels.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SMALLEST = 1e-6
"""A probability is never taken for less than this."""

Array = NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path, help="a text in each line")
    parser.add_argument("guesses", type=Path, nargs="+", help="what `platform predict --json` said of them")
    parser.add_argument("--weights", type=float, nargs="+", help="of the classifiers; all 1, if not given")
    parser.add_argument("--sure", type=float, default=0.8, help="the least probability of a label that is written")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    weights = arguments.weights or [1.0] * len(arguments.guesses)
    with arguments.texts.open(
        encoding="utf-8"
    ) as file:  # lines end as those do that `platform predict` reads, at no other sign
        texts = [line.rstrip("\n") for line in file]
    read = [read_guesses(path) for path in arguments.guesses]
    if len(weights) != len(read):
        sys.exit(f"--weights has {len(weights)} numbers, but there are {len(read)} files of guesses")
    for path, (labels, logs) in zip(arguments.guesses, read, strict=True):
        if len(logs) != len(texts) or labels != read[0][0]:
            sys.exit(f"{path}: {len(logs)} guesses of {labels}, but there are {len(texts)} texts and labels {read[0][0]}")
    probabilities, labels = mixed([logs for _, logs in read], weights), read[0][0]
    best = probabilities.argmax(axis=1)  # (N,)
    counted = Counter[str]()
    with arguments.output.open("w", encoding="utf-8") as file:
        for text, row, place in zip(texts, probabilities, best, strict=True):
            if row[place] >= arguments.sure:
                counted[labels[place]] += 1
                print(json.dumps({"text": text, "label": labels[place]}, ensure_ascii=False), file=file)
    named = ", ".join(f"{label} {count:,}" for label, count in sorted(counted.items()))
    print(f"{arguments.output}: {counted.total():,} of {len(texts):,} texts are sure enough ({named})")


def read_guesses(path: Path) -> tuple[list[str], Array]:
    """The labels, and the (N, K) log-probabilities of a file."""
    with path.open(encoding="utf-8") as file:
        rows = [json.loads(line)["probabilities"] for line in file]
    if not rows:
        sys.exit(f"{path}: no guesses")
    labels = sorted(rows[0])
    return labels, np.log(np.array([[row[label] for label in labels] for row in rows]).clip(SMALLEST, 1.0))


def mixed(logs: list[Array], weights: list[float]) -> Array:
    """(N, K) probabilities from the (N, K) log-probabilities of several classifiers."""
    centred = [each - each.mean(axis=1, keepdims=True) for each in logs]
    centred = [each - np.median(each, axis=0) for each in centred]
    spreads = [each.std() for each in centred]
    scores = sum(weight * each / spread for weight, each, spread in zip(weights, centred, spreads, strict=True))
    scores = scores / sum(weights) * spreads[0]
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities: Array = powers / powers.sum(axis=1, keepdims=True)
    return probabilities


if __name__ == "__main__":
    main()
