"""Where the time of Polyformer's translation goes, and how near it comes to what the machine can do.

    python benchmarks/profile_translation.py [--work training decoding]

Two limits are told apart: the share of time spent in matrix products, and the rate of those products themselves. The
share of the limit is what a program of nothing but matrix products at this machine's best rate would take, over what
was taken.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable

import torch
from contest import machine
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode
from translation_decoding import DECODERS
from translation_training import TRAINERS, build_trainer
from translation_work import Sizes, decoding_batches, sentence_lengths, training_batches

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "mkldnn_linear", "_scaled_dot_product_flash_attention_for_cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", nargs="+", choices=["training", "decoding"], default=["training", "decoding"])
    parser.add_argument("--contender", choices=[*TRAINERS], default="polyformer")
    parser.add_argument("--precision", choices=["float32", "bf16"], default="float32")
    parser.add_argument("--beam", nargs="+", type=int, default=[1, 5])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--top", type=int, default=22, help="operators shown")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    about = machine(arguments.threads, ["torch"])
    print("\n".join(f"{name:<11}{value}" for name, value in about.items()))
    limit = product_limit(torch.bfloat16 if arguments.precision == "bf16" else torch.float32)
    if "training" in arguments.work:
        report(f"training, {arguments.precision}", training_run(arguments), limit, arguments.top)
    for beam in arguments.beam if "decoding" in arguments.work else []:
        report(f"decoding, beam {beam}", decoding_run(arguments, beam), limit, arguments.top)


def training_run(arguments: argparse.Namespace) -> Callable[[], int]:
    """What is profiled of training: steps, after a warm-up; returns the number of target tokens."""
    lengths = sentence_lengths(29000, seed=0)
    _, step = build_trainer(arguments.contender, arguments.precision)
    for batch in training_batches(lengths, 2, seed=1):
        step(batch)
    batches = training_batches(lengths, arguments.steps, seed=2)

    def run() -> int:
        for batch in batches:
            step(batch)
        return sum(batch.target_tokens for batch in batches)

    return run


def decoding_run(arguments: argparse.Namespace, beam: int) -> Callable[[], int]:
    """What is profiled of decoding; returns the number of sentences."""
    lengths = sentence_lengths(2000, seed=0)
    decode = DECODERS[arguments.contender](Sizes(), beam)
    for batch in decoding_batches(lengths, 1, seed=1):
        decode(batch, batch.source.shape[1] + 2)
    batches = decoding_batches(lengths, arguments.steps, seed=2)

    def run() -> int:
        for batch in batches:
            decode(batch, batch.source.shape[1] + 2)
        return sum(len(batch.source) for batch in batches)

    return run


def product_limit(dtype: torch.dtype) -> float:
    """The best rate of matrix products in FLOP/s: the median over this network's shapes of the best of many runs."""
    sizes, tokens = Sizes(), 4096
    shapes = {
        "project": (tokens, sizes.d_model, 3 * sizes.d_model),
        "inner": (tokens, sizes.d_model, sizes.feed_forward),
        "outer": (tokens, sizes.feed_forward, sizes.d_model),
        "vocabulary": (tokens // 4, sizes.d_model, sizes.vocabulary),
        "weights": (sizes.feed_forward, tokens, sizes.d_model),
    }
    print(f"\nmatrix products of {dtype}, GFLOP/s:", end=" ")
    rates = []
    for name, (rows, inner, columns) in shapes.items():
        left, right = torch.randn(rows, inner, dtype=dtype), torch.randn(inner, columns, dtype=dtype)
        seconds = []
        for _ in range(15):
            begin = time.perf_counter()
            torch.mm(left, right)
            seconds.append(time.perf_counter() - begin)
        rates.append(2 * rows * inner * columns / min(seconds))
        print(f"{name} {rates[-1] / 1e9:.0f}", end=", ")
    limit = sorted(rates)[len(rates) // 2]
    print(f"median {limit / 1e9:.0f}")
    return limit


def report(title: str, run: Callable[[], int], limit: float, top: int) -> None:
    """Prints the rate, the share of the limit and the operators that take longest."""
    begin = time.perf_counter()
    count = run()
    seconds = time.perf_counter() - begin
    with FlopCounterMode(display=False) as counter:
        run()
    flops = counter.get_total_flops()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        run()
    own: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for event in profiler.key_averages():
        own[event.key] += event.self_cpu_time_total
        calls[event.key] += event.count
    total = sum(own.values())
    products = sum(value for key, value in own.items() if key.removeprefix("aten::") in PRODUCTS)
    print(f"\n{title}: {count / seconds:.1f} per second unprofiled, {flops / 1e9:.0f} GFLOP in {seconds:.2f} s")
    print(f"  share of the limit {flops / limit / seconds:.0%}; of the time, products take {products / total:.0%}")
    for key, value in own.most_common(top):
        print(f"  {value / total:6.1%} {value / 1000:9.1f} ms {calls[key]:7d} calls  {key}")


if __name__ == "__main__":
    main()
