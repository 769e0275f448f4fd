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

from contest import answer_turn, machine, play, table

TRAINING = ["polyformer", "torch.nn.Transformer", "transformers", "x-transformers"]
DECODING = ["polyformer", "transformers", "ctranslate2", "ctranslate2-int8"]
PACKAGES = ["torch", "transformers", "x-transformers", "ctranslate2"]
POOL = {"training": 29000, "decoding": 2000}


def main() -> None:
    arguments = parse()
    if arguments.turn:
        do_turn(json.loads(arguments.turn))
        return
    about = machine(arguments.threads, PACKAGES)
    print("\n".join(f"{name:<11}{value}" for name, value in about.items()))
    results: list[dict[str, Any]] = []
    for title, job, unit in jobs(arguments):
        allowed = TRAINING if job["work"] == "training" else DECODING
        contenders = [name for name in allowed if not arguments.contenders or name in arguments.contenders]
        turns = play(Path(__file__).resolve(), job, contenders, arguments.rounds, arguments.threads)
        lines = table(turns, "polyformer", unit)
        print("\n" + "\n".join([f"{title}; medians of {arguments.rounds} rounds", *lines]), flush=True)
        results.append({"title": title, "job": job, "turns": turns})
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": about, "contests": results}, indent=1))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", nargs="+", choices=["training", "decoding"], default=["training", "decoding"])
    parser.add_argument("--contenders", nargs="+", choices=sorted({*TRAINING, *DECODING}), help="all, if not given")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6, help="timed steps or batches in a turn")
    parser.add_argument("--warm-up", type=int, default=2, help="steps or batches before them")
    parser.add_argument("--precision", nargs="+", choices=["float32", "bf16"], default=["float32"], help="of training")
    parser.add_argument("--beam", nargs="+", type=int, default=[1, 5], help="of decoding; 1 is greedy search")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--data", type=Path, help="folder of Multi30k (train.de.gz, train.en.gz) to take lengths from")
    parser.add_argument("--json", type=Path, help="where to write every turn")
    parser.add_argument("--turn", help=argparse.SUPPRESS)
    return parser.parse_args()


def jobs(arguments: argparse.Namespace) -> list[tuple[str, dict[str, Any], str]]:
    """(title, job, unit) of every contest asked for."""
    common = {"steps": arguments.steps, "warm_up": arguments.warm_up}
    common["data"] = str(arguments.data.resolve()) if arguments.data else None
    found: list[tuple[str, dict[str, Any], str]] = []
    for work in arguments.work:
        if work == "training":
            for precision in arguments.precision:
                job = {**common, "work": work, "precision": precision}
                title = f"Translation training, {precision}, {arguments.steps} steps a turn"
                found.append((title, job, "target tokens"))
        else:
            for beam in arguments.beam:
                job = {**common, "work": work, "beam": beam}
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
