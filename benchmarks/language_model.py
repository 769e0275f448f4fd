"""How fast Polyformer trains and runs a language model, beside what a user would take instead.

    pip install . transformers litgpt
    python benchmarks/language_model.py

Every contender builds the same small network (see `language_model_work.py`), gets the very same tokens, and has its turn
in every round, in a fresh process. Steps of warm-up are not timed. Who is not installed is said to be missing.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from contest import answer_turn, machine, play, table

TRAINING = ["polyformer", "hand-written", "transformers", "litgpt"]
WRITING = ["polyformer", "transformers"]
PACKAGES = ["torch", "transformers", "litgpt"]


def main() -> None:
    arguments = parse()
    if arguments.turn:
        do_turn(json.loads(arguments.turn))
        return
    about = machine(arguments.threads, PACKAGES)
    print("\n".join(f"{name:<11}{value}" for name, value in about.items()))
    results: list[dict[str, Any]] = []
    for title, job in jobs(arguments):
        contenders = TRAINING if job["work"] == "training" else WRITING
        turns = play(Path(__file__).resolve(), job, contenders, arguments.rounds, arguments.threads)
        lines = table(turns, "polyformer", "tokens")
        print("\n" + "\n".join([f"{title}; medians of {arguments.rounds} rounds", *lines]), flush=True)
        results.append({"title": title, "job": job, "turns": turns})
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": about, "contests": results}, indent=1))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", nargs="+", choices=["training", "writing"], default=["training", "writing"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6, help="timed steps or batches in a turn")
    parser.add_argument("--warm-up", type=int, default=2, help="steps or batches before them")
    parser.add_argument("--precision", nargs="+", choices=["float32", "bf16"], default=["float32"], help="of training")
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 16], help="texts written at once")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="where to write every turn")
    parser.add_argument("--turn", help=argparse.SUPPRESS)
    return parser.parse_args()


def jobs(arguments: argparse.Namespace) -> list[tuple[str, dict[str, Any]]]:
    """(title, job) of every contest asked for."""
    common = {"steps": arguments.steps, "warm_up": arguments.warm_up}
    found: list[tuple[str, dict[str, Any]]] = []
    for precision in arguments.precision if "training" in arguments.work else []:
        job = {**common, "work": "training", "precision": precision}
        found.append((f"Language model training, {precision}, {arguments.steps} steps a turn", job))
    for rows in arguments.rows if "writing" in arguments.work else []:
        job = {**common, "work": "writing", "rows": rows}
        found.append((f"Writing 128 tokens after 64, {rows} at once, greedily, {arguments.steps} batches a turn", job))
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
