"""How fast Polyformer trains and runs a classifier, beside what a user would take instead.

    pip install . transformers
    python benchmarks/classification.py --precision float32 bf16
    python benchmarks/classification.py --precision float32 bf16 --device cuda --steps 60 --warm-up 20

Every contender builds the same small network (see `classification_work.py`), gets the very same batches of texts of like
length, and has its turn in every round, in a fresh process. Steps of warm-up are not timed; rates count real tokens, not
padding. On a GPU the clock is read when it has done its work, and the memory is the most that tensors took there. Who is not
installed is said to be missing.
"""

import argparse
import json
import sys
from typing import Any

from contest import Contest, answer_turn, hold, options

EVERYBODY = ["polyformer", "polyformer, mean", "torch.nn.TransformerEncoder", "transformers"]
CONTENDERS = {"training": EVERYBODY, "evaluation": EVERYBODY}
PACKAGES = ["torch", "transformers"]


def main() -> None:
    parser = options(__doc__, CONTENDERS)
    parser.add_argument("--tokens", type=int, default=8192, help="tokens in a batch, about")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    arguments = parser.parse_args()
    if arguments.turn:
        do_turn(json.loads(arguments.turn))
    else:
        hold(__file__, contests(arguments), CONTENDERS, PACKAGES, arguments)


def contests(arguments: argparse.Namespace) -> list[Contest]:
    """Every contest asked for."""
    found: list[Contest] = []
    how = f"on {arguments.device}, batches of about {arguments.tokens} tokens, {arguments.steps} a turn"
    common = {"tokens": arguments.tokens, "device": arguments.device}
    for precision in arguments.precision if "training" in arguments.work else []:
        job = {"work": "training", "precision": precision, **common}
        found.append((f"Classification training, {precision}, {how}", job, "tokens"))
    if "evaluation" in arguments.work:
        found.append((f"Classification evaluation, {how}", {"work": "evaluation", **common}, "tokens"))
    return found


def do_turn(job: dict[str, Any]) -> None:
    """The part of a fresh process: does the job and tells what it took."""
    import torch
    from classification_contenders import evaluate, train
    from classification_work import Sizes, sorted_batches

    torch.set_num_threads(job["threads"])
    torch.manual_seed(job["round"])
    warm_up, seed = job["warm_up"], 1 + job["round"]
    parts = [sorted_batches(count, at, job["tokens"], Sizes()) for count, at in ((warm_up, 0), (job["steps"], seed))]
    batches = [batch.to(job["device"]) for part in parts for batch in part]
    try:
        if job["work"] == "training":
            answer_turn(train(job["contender"], batches, warm_up, job["precision"]))
        else:
            answer_turn(evaluate(job["contender"], batches, warm_up))
    except ImportError as error:
        answer_turn({"missing": f"not installed: {error}"})


if __name__ == "__main__":
    sys.exit(main())
