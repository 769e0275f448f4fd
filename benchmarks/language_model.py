"""How fast Polyformer trains and runs a language model, beside what a user would take instead.

    pip install . transformers litgpt
    python benchmarks/language_model.py

Every contender builds the same small network (see `language_model_work.py`), gets the very same tokens, and has its turn
in every round, in a fresh process. Steps of warm-up are not timed. Who is not installed is said to be missing.
"""

import argparse
import json
import sys
from typing import Any

from contest import Contest, answer_turn, hold, options

CONTENDERS = {
    "training": ["polyformer", "hand-written", "transformers", "litgpt"],
    "writing": ["polyformer", "transformers"],
}
PACKAGES = ["torch", "transformers", "litgpt"]


def main() -> None:
    parser = options(__doc__, CONTENDERS)
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 16], help="texts written at once")
    arguments = parser.parse_args()
    if arguments.turn:
        do_turn(json.loads(arguments.turn))
    else:
        hold(__file__, contests(arguments), CONTENDERS, PACKAGES, arguments)


def contests(arguments: argparse.Namespace) -> list[Contest]:
    """Every contest asked for."""
    found: list[Contest] = []
    for precision in arguments.precision if "training" in arguments.work else []:
        title = f"Language model training, {precision}, {arguments.steps} steps a turn"
        found.append((title, {"work": "training", "precision": precision}, "tokens"))
    for rows in arguments.rows if "writing" in arguments.work else []:
        title = f"Writing 128 tokens after 64, {rows} at once, greedily, {arguments.steps} batches a turn"
        found.append((title, {"work": "writing", "rows": rows}, "tokens"))
    return found


def do_turn(job: dict[str, Any]) -> None:
    """The part of a fresh process: does the job and tells what it took."""
    import torch
    from language_model_contenders import train, write
    from language_model_work import Sizes, prompts, windows

    torch.set_num_threads(job["threads"])
    torch.manual_seed(job["round"])
    sizes, count = Sizes(), job["warm_up"] + job["steps"]
    try:
        if job["work"] == "training":
            answer_turn(train(job["contender"], windows(count, job["round"], sizes), job["warm_up"], job["precision"]))
        else:
            given = [prompts(job["rows"], 64, 100 * job["round"] + number, sizes) for number in range(count)]
            answer_turn(write(job["contender"], given, 128, job["warm_up"]))
    except ImportError as error:
        answer_turn({"missing": f"not installed: {error}"})


if __name__ == "__main__":
    sys.exit(main())
