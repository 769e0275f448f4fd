"""The three tasks in each precision, compiled and not: tokens a second, share of the device's peak, memory.

    python benchmarks/precisions.py                                            # on a GPU, the quickstarts
    python benchmarks/precisions.py --accelerator cpu --precisions 32-true --compile false --steps 60
    python benchmarks/precisions.py --configs configs/language_modeling/gpt2_small.yaml --words "--data.train web/*.jsonl.gz"

Each training is a process of its own by `platform fit`, as a user starts it. Tokens a second are the median of its records but
the first third, in which kernels are chosen and compiled. The share of the peak is model-FLOPs utilisation (Chowdhery et al.
2022, appendix B): products of a forward and a backward pass over a batch, as torch counts them, times batches a second, over
what the device's maker promises for the precision, or over `--peak`; padding counts as work in it, recomputing does too.
"""

import argparse
import csv
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from contest import machine
from lightning.fabric.utilities.throughput import get_available_flops
from torch.utils.flop_counter import FlopCounterMode

from polyformer.cli.quiet import quiet
from polyformer.cli.settings import parse_settings
from polyformer.training.fitting import Fitting
from polyformer.training.run import RunFolder

QUICK = [f"configs/{task}/quickstart.yaml" for task in ("translation", "language_modeling", "classification")]
START = "import sys; from polyformer.cli import main; sys.exit(main())"
TYPES = {"32-true": torch.float32, "bf16-mixed": torch.bfloat16, "bf16-true": torch.bfloat16, "16-mixed": torch.float16}


def main() -> None:
    arguments = options()
    print("\n".join(f"{name:<11}{value}" for name, value in machine(torch.get_num_threads(), ["torch", "lightning"]).items()))
    print("| config | precision | compiled | tokens/s | share of the peak | peak memory MB | last training loss |")
    print("|---|---|---|---:|---:|---:|---:|")
    for config in arguments.configs:
        flops = flops_per_token(config, arguments.words)
        for precision in arguments.precisions:
            for is_compiled in arguments.compile:
                found = trained(config, precision, is_compiled, arguments)
                print(row(config, precision, is_compiled, found, flops, peak(precision, arguments)), flush=True)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configs", nargs="+", default=QUICK)
    parser.add_argument("--words", type=shlex.split, default=[], help="added to each command, in one string")
    parser.add_argument("--accelerator", choices=["gpu", "cpu"], default="gpu")
    parser.add_argument("--precisions", nargs="+", choices=[*TYPES], default=["32-true", "bf16-mixed", "16-mixed"])
    parser.add_argument("--compile", nargs="+", choices=["false", "true"], default=["false", "true"])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--peak", type=float, help="of the device in TFLOP/s, where the table of Lightning does not have it")
    return parser.parse_args()


def flops_per_token(config: str, words: list[str]) -> float:
    """FLOPs of matrix products, forward and backward, for each token of a training batch, counted on the CPU."""
    quiet()
    parser, settings = parse_settings(["--config", config, *words])
    with tempfile.TemporaryDirectory() as folder:
        fitting = Fitting(parser.build(settings), RunFolder(f"{folder}/run"))
        task, _ = fitting.fresh()
        fitting.data.setup("fit")
        batch = next(iter(fitting.data.train_dataloader()))
        with FlopCounterMode(display=False) as counter:
            loss = task.train().loss(batch)
            loss.total.backward()
    return float(counter.get_total_flops()) / float(loss.sums.get("tokens", loss.count))


def trained(config: str, precision: str, is_compiled: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """What a training leaves: the rows of its metrics, and its results."""
    with tempfile.TemporaryDirectory() as folder:
        run, steps = Path(folder, "run"), str(arguments.steps)
        command = [sys.executable, "-c", START, "fit", "--config", config, "--run", str(run), *arguments.words]
        command += ["--trainer.max_steps", steps, "--trainer.val_check_interval", steps, "--trainer.log_every_n_steps", "5"]
        command += ["--trainer.limit_val_batches", "1", "--trainer.limit_test_batches", "0", "--trainer.precision", precision]
        command += ["--trainer.accelerator", arguments.accelerator, "--trainer.devices", "1", "--training.compile", is_compiled]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return {"error": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "ended without a word"}
        with (run / "metrics.csv").open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["train/loss"]]
        return {"rows": rows, "results": json.loads((run / "results.json").read_text())}


def peak(precision: str, arguments: argparse.Namespace) -> float | None:
    """What the device could do, in FLOP/s; None where nobody knows."""
    if arguments.peak is not None or arguments.accelerator == "cpu":
        return None if arguments.peak is None else float(arguments.peak) * 1e12
    known = get_available_flops(torch.device("cuda", 0), TYPES[precision])
    return None if known is None else float(known)


def row(config: str, precision: str, is_compiled: str, found: dict[str, Any], flops: float, limit: float | None) -> str:
    """A line of the table."""
    begin = f"| {Path(config).parent.name}/{Path(config).stem} | {precision} | {'yes' if is_compiled == 'true' else 'no'} |"
    if "error" in found:
        return f"{begin} {found['error']} | | | |"
    rows, results = found["rows"], found["results"]
    rate = statistics.median(float(one["train/tokens_per_second"]) for one in rows[len(rows) // 3 :])
    share = "not known" if limit is None else f"{rate * flops / limit:.1%}"
    memory, loss = results["peak_memory_bytes"] / 1e6, float(rows[-1]["train/loss"])
    return f"{begin} {rate:,.0f} | {share} | {memory:,.0f} | {loss:.4f} |"


if __name__ == "__main__":
    main()
