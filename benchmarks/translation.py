"""How fast Polyformer trains and decodes a translation model, beside what a user would take instead.

    pip install . transformers x-transformers ctranslate2
    python benchmarks/translation.py

Every contender builds the same small network (see `translation_work.py`), gets the very same batches, and has its turn
in every round, in a fresh process. Steps of warm-up are not timed. Who is not installed is said to be missing.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from contest import Contest, answer_turn, hold, options

CONTENDERS = {
    "training": ["polyformer", "torch.nn.Transformer", "transformers", "x-transformers"],
    "decoding": ["polyformer", "transformers", "ctranslate2", "ctranslate2-int8"],
}
PACKAGES = ["torch", "transformers", "x-transformers", "ctranslate2"]
POOL = {"training": 29000, "decoding": 2000}


def main() -> None:
    parser = options(__doc__, CONTENDERS)
    parser.add_argument("--beam", nargs="+", type=int, default=[1, 5], help="of decoding; 1 is greedy search")
    parser.add_argument("--data", type=Path, help="folder of Multi30k (train.de.gz, train.en.gz) to take lengths from")
    arguments = parser.parse_args()
    if arguments.turn:
        do_turn(json.loads(arguments.turn))
    else:
        hold(__file__, contests(arguments), CONTENDERS, PACKAGES, arguments)


def contests(arguments: argparse.Namespace) -> list[Contest]:
    """Every contest asked for."""
    data = str(arguments.data.resolve()) if arguments.data else None
    found: list[Contest] = []
    for work in arguments.work:
        if work == "training":
            for precision in arguments.precision:
                job = {"work": work, "precision": precision, "data": data}
                title = f"Translation training, {precision}, {arguments.steps} steps a turn"
                found.append((title, job, "target tokens"))
        else:
            for beam in arguments.beam:
                job = {"work": work, "beam": beam, "data": data}
                title = f"Translation decoding, {'greedy' if beam == 1 else f'beam {beam}'}, batches of 64"
                found.append((f"{title}, {arguments.steps} batches a turn", job, "sentences"))
    return found


def do_turn(job: dict[str, Any]) -> None:
    """The part of a fresh process: does the job and tells what it took."""
    import torch
    from translation_work import decoding_batches, sentence_lengths, training_batches

    torch.set_num_threads(job["threads"])
    torch.manual_seed(job["round"])
    folder = Path(job["data"]) if job["data"] else None
    lengths = sentence_lengths(POOL[job["work"]], seed=0, folder=folder)
    make = training_batches if job["work"] == "training" else decoding_batches
    batches = make(lengths, job["warm_up"], seed=1) + make(lengths, job["steps"], seed=2 + job["round"])
    try:
        if job["work"] == "training":
            from translation_training import train

            answer_turn(train(job["contender"], batches, job["warm_up"], job["precision"]))
        else:
            from translation_decoding import decode

            answer_turn(decode(job["contender"], batches, job["warm_up"], job["beam"]))
    except ImportError as error:
        answer_turn({"missing": f"not installed: {error}"})


if __name__ == "__main__":
    sys.exit(main())
