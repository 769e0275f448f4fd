"""How much faster a language model writes with a draft, on models that a user has trained.

    platform fit --config configs/language_modeling/quickstart.yaml --run target --model.d_model 384 --model.num_layers 6
    platform fit --config configs/language_modeling/quickstart.yaml --run draft
    python benchmarks/speculative.py --target runs/target --draft runs/draft

Prompts are pieces of the run's own validation text. Plain and speculative writing take turns, so that a
noisy machine slows both; the ratio of each round is within it, and the median is printed.
"""

import argparse
import time
from collections.abc import Iterator
from statistics import median

import torch

from polyformer.decoding import Sampling, Speculation, Symbols, generate
from polyformer.tasks.language_modeling import LanguageModeling
from polyformer.text import BOS, EOS, PAD, UNK
from polyformer.training import find_checkpoint, keep_freed_memory, load_task

NEVER = (PAD, UNK, BOS, EOS)  # every text is as long as the others
PROMPT_TOKENS = 16


def main() -> None:
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    keep_freed_memory()
    target, draft = (load(place) for place in (arguments.target, arguments.draft))
    sizes = [sum(parameter.numel() for parameter in task.parameters()) for task in (target, draft)]
    print(f"target {sizes[0]:,} parameters, draft {sizes[1]:,}; {arguments.threads} threads")
    symbols = Symbols(begin=EOS, end=EOS, never=NEVER)
    for temperature in arguments.temperature:
        sampling = Sampling(temperature=temperature, max_tokens=arguments.tokens)
        for proposals in arguments.proposals:
            speculation = Speculation(lambda: (target.network.start(), draft.network.start()), sampling, symbols, proposals)
            rounds = [compare(target, speculation, prompt) for prompt in prompts(target, arguments)]
            plain, faster = (median(seconds[side] for seconds in rounds) for side in (0, 1))
            ratio = median(seconds[0] / seconds[1] for seconds in rounds)
            print(
                f"temperature {temperature:g}, {proposals} proposals: {ratio:.2f} x as fast "
                f"({arguments.tokens / plain:.0f} and {arguments.tokens / faster:.0f} tokens/s), "
                f"{speculation.counts.rate:.1%} accepted"
            )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True, help="run folder or checkpoint")
    parser.add_argument("--draft", required=True, help="run folder or checkpoint of a smaller model, same tokenizer")
    parser.add_argument("--temperature", nargs="+", type=float, default=[0.0, 1.0])
    parser.add_argument("--proposals", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--tokens", type=int, default=100, help="tokens written after each prompt")
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def load(place: str) -> LanguageModeling:
    task, _ = load_task(find_checkpoint(place))
    assert isinstance(task, LanguageModeling), f"{place} is no language model"
    return task


def prompts(task: LanguageModeling, arguments: argparse.Namespace) -> Iterator[list[int]]:
    """Pieces of the validation text, spread evenly over it."""
    _, built = load_task(find_checkpoint(arguments.target))
    array = built.data.loaded("validation").ids  # type: ignore[attr-defined]
    step = len(array) // (arguments.prompts + 1)
    for number in range(arguments.prompts):
        yield [EOS, *array[number * step :][:PROMPT_TOKENS].tolist()]


@torch.no_grad()
def compare(target: LanguageModeling, speculation: Speculation, prompt: list[int]) -> tuple[float, float]:
    """Seconds of plain and of speculative writing after one prompt; greedy texts must be the same."""
    begin = time.perf_counter()
    plain = generate(
        target.network.start(), torch.tensor([prompt]), speculation.sampling, speculation.symbols, [(0, 0)], lambda *_: False
    )
    expected = [written.token for written in plain]
    middle = time.perf_counter()
    written = list(speculation.write(prompt))
    end = time.perf_counter()
    assert speculation.sampling.temperature or written == expected
    return middle - begin, end - middle


if __name__ == "__main__":
    main()
