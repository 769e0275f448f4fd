"""How time and memory grow with the length of a text, for every mixer: one layer, one text, forward and backward, on the CPU.

    python benchmarks/mixers.py --chart docs/pictures/mixers.png
    python benchmarks/mixers.py --causal --position T5Bias --mixers FullAttention SlidingWindow --lengths 8192

Every measurement has a fresh process, which keeps freed memory as a training does. A step is what the layer takes, without
embeddings and loss; its seconds are the median of the steps after a warm-up, its memory the peak beyond what the process held
before the first step. Before a length is tried, its time and memory are foretold from the lengths before it, as if they grew
as they did last; what would take more than --seconds or --gigabytes is left out and said. Mixers have their defaults but for
--window. Without dropout and with a position that has no bias, full attention runs in a kernel whose memory does not grow
with the square of the length; otherwise it does.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

from contest import Turn, machine, peak_megabytes

LENGTHS = [512, 1024, 2048, 4096, 8192, 16384]
SMALLEST = 0.1  # megabytes; less than this cannot be told from nothing


def main() -> None:
    arguments = options()
    about = machine(arguments.threads, ["torch"])
    print("\n".join(f"{name:<11}{value}" for name, value in about.items()))
    names = arguments.mixers or mixer_names()
    keys = ("d_model", "heads", "window", "dropout", "position", "causal", "steps", "warm_up", "threads")
    job = {name: getattr(arguments, name) for name in keys}
    turns: dict[str, dict[int, Turn]] = {name: {} for name in names}
    for length in arguments.lengths:
        for name in names:
            turns[name][length] = measure(name, length, turns[name], job, arguments)
        if arguments.json:
            arguments.json.write_text(json.dumps({"machine": about, "job": job, "turns": turns}, indent=1))
    for key, unit in (("seconds", "seconds a step"), ("extra", "MB at the peak")):
        print("\n" + "\n".join(table(turns, arguments.lengths, key, unit)))
    print("\n" + "\n".join(left_out(turns)))
    if arguments.chart:
        draw(turns, job, arguments.threads, arguments.chart)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--mixers", nargs="+", help="all of Polyformer's, if not given")
    parser.add_argument("--position", default="NoPosition", help="a class of polyformer.nn")
    parser.add_argument("--causal", action="store_true", help="as in a decoder, not as in an encoder")
    parser.add_argument("--d-model", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--window", type=int, default=256, help="of SlidingWindow")
    parser.add_argument("--dropout", type=float, default=0.0, help="of attention weights")
    parser.add_argument("--steps", type=int, default=3, help="timed steps")
    parser.add_argument("--warm-up", type=int, default=1, help="steps before them")
    parser.add_argument("--rounds", type=int, default=1, help="processes for each measurement, of which the median counts")
    parser.add_argument("--seconds", type=float, default=20.0, help="the most that a step may take")
    parser.add_argument("--gigabytes", type=float, default=8.0, help="the most that a step may hold")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="where to write all figures")
    parser.add_argument("--chart", type=Path, help="where to draw them: .png, .svg or .pdf")
    return parser.parse_args()


def mixer_names() -> list[str]:
    import polyformer.nn
    from polyformer.nn.mixer import public_subclasses

    return [kind.__name__ for kind in public_subclasses(polyformer.nn.Mixer) if kind.__name__ in polyformer.nn.__all__]


def measure(name: str, length: int, before: dict[int, Turn], job: dict[str, Any], arguments: argparse.Namespace) -> Turn:
    """The medians of a mixer at a length, or why there are none."""
    failed = next((turn for turn in before.values() if "missing" in turn), None)
    if failed is not None:
        return failed
    for key, most, unit in (("seconds", arguments.seconds, "s"), ("extra", 1024 * arguments.gigabytes, "MB")):
        needed = foretold([*before], [turn[key] for turn in before.values()], length)
        if needed > most:
            return {"missing": f"from {length:,} tokens on left out: about {needed:,.0f} {unit} a step"}
    rounds = [fresh({**job, "contender": name, "length": length, "round": number}) for number in range(arguments.rounds)]
    found = next((turn for turn in rounds if "missing" in turn), None)
    if found is None:
        found = {key: median(turn[key] for turn in rounds) for key in ("seconds", "extra")}
    print(f"  {name}, {length:,} tokens: {found}", file=sys.stderr, flush=True)
    return found


def fresh(job: dict[str, Any]) -> Turn:
    """What :func:`do_turn` says in a process of its own, begun by one that has loaded all that it needs and done nothing."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["polyformer.nn", "polyformer.training.memory"])
    with ProcessPoolExecutor(1, context) as processes:
        try:
            return processes.submit(do_turn, job).result()
        except BrokenProcessPool:
            return {"missing": f"from {job['length']:,} tokens on left out: the process was killed"}


def foretold(lengths: Sequence[int], values: Sequence[float], length: int) -> float:
    """What a value will be at a length, if it goes on growing by the power by which it grew last; by the square at first.

    >>> foretold([], [], 512), foretold([64], [1.0], 128), foretold([64, 128], [1.0, 2.0], 512)
    (0.0, 4.0, 8.0)
    """
    if not values:
        return 0.0
    power = 2.0
    if len(values) > 1:
        power = math.log(values[-1] / values[-2]) / math.log(lengths[-1] / lengths[-2])
    return values[-1] * (length / lengths[-1]) ** min(max(power, 1.0), 2.0)


def do_turn(job: dict[str, Any]) -> Turn:
    """The part of a fresh process: what steps of one layer take."""
    import torch

    import polyformer.nn
    from polyformer.nn import Context, Mask, Shape, check_fit
    from polyformer.training.memory import keep_freed_memory

    keep_freed_memory()
    torch.set_num_threads(job["threads"])
    torch.manual_seed(job["round"])
    shape = Shape(job["d_model"], job["heads"], job["length"], job["causal"], job["dropout"])
    own = {"window": job["window"]} if job["contender"] == "SlidingWindow" else {}
    try:
        mixer, position = getattr(polyformer.nn, job["contender"])(shape, **own), getattr(polyformer.nn, job["position"])(shape)
        check_fit(type(mixer), type(position), job["causal"])
    except ValueError as error:
        return {"missing": str(error)}
    at = torch.arange(job["length"])
    context = Context(Mask(causal=job["causal"]), position, at, at)
    x = torch.randn(1, job["length"], job["d_model"], requires_grad=True)
    base, seconds = peak_megabytes(), []
    for _ in range(job["warm_up"] + job["steps"]):
        begin = time.perf_counter()
        mixer(x, context).square().mean().backward()
        seconds.append(time.perf_counter() - begin)
        for tensor in (x, *mixer.parameters(), *position.parameters()):
            tensor.grad = None
    return {"seconds": median(seconds[job["warm_up"] :]), "extra": max(peak_megabytes() - base, SMALLEST)}


def table(turns: dict[str, dict[int, Turn]], lengths: Sequence[int], key: str, unit: str) -> list[str]:
    """A line for each mixer, a column for each length."""
    lines = [f"{unit:<18}" + "".join(f"{length:>10,}" for length in lengths)]
    for name, measured in turns.items():
        cells = [f"{measured[length][key]:>10.3g}" if key in measured[length] else f"{'-':>10}" for length in lengths]
        lines.append(f"{name:<18}" + "".join(cells))
    return lines


def left_out(turns: dict[str, dict[int, Turn]]) -> list[str]:
    """Why figures are missing, a line for each mixer."""
    reasons = {name: {turn["missing"] for turn in measured.values() if "missing" in turn} for name, measured in turns.items()}
    return [f"{name}: {reason}" for name, several in reasons.items() for reason in several]


def draw(turns: dict[str, dict[int, Turn]], job: dict[str, Any], threads: int, path: Path) -> None:
    from polyformer.experiments.plots import Growth, growth_figure, save_figure

    growths = []
    for name, measured in turns.items():
        lengths = [length for length, turn in measured.items() if "seconds" in turn]
        seconds, megabytes = ([measured[length][key] for length in lengths] for key in ("seconds", "extra"))
        growths += [Growth(name, lengths, seconds, megabytes)] if lengths else []
    direction = "causal" if job["causal"] else "both directions"
    how = f"d_model {job['d_model']}, {job['heads']} heads, {direction}, {job['position']}, dropout {job['dropout']:g}, "
    how += f"window {job['window']}, {threads} threads"
    save_figure(growth_figure(growths, f"one layer, forward and backward: {how}"), path)


if __name__ == "__main__":
    sys.exit(main())
