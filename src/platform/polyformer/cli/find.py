"""`platform find`: a learning rate, or the largest batches, for a config."""

import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from polyformer.cli.help import FIND
from polyformer.cli.quiet import quiet, show_log
from polyformer.cli.settings import parse_settings
from polyformer.cli.words import option
from polyformer.errors import UsageError
from polyformer.training.finding import find_rate, find_tokens
from polyformer.training.fitting import Fitting
from polyformer.training.names import nearest
from polyformer.training.run import RunFolder

__all__ = ["find"]

LEAST_STEPS = 20


def find(words: list[str]) -> int:
    """Prints what it has found, as a key that can be given to `fit`; the exit code is 1 where it has found nothing."""
    if {"-h", "--help"}.intersection(words):
        print(FIND)
        return 0
    kind = words.pop(0) if words else ""
    if kind not in KINDS:
        raise UsageError(f"say what to find: platform find {' or '.join(KINDS)}{nearest(kind, KINDS) if kind else ''}")
    quiet()
    show_log()
    return KINDS[kind](words)


def _rate(words: list[str]) -> int:
    from polyformer.experiments.plots import SUFFIXES, rates_figure, save_figure

    low, high = (_number(words, name, default) for name, default in (("--low", 1e-6), ("--high", 1.0)))
    steps = _number(words, "--steps", 100)
    if not low < high:
        raise UsageError(f"--low must be below --high ({high:g}), but is {low:g}")
    if steps != int(steps) or steps < LEAST_STEPS:
        raise UsageError(f"--steps must be a whole number of at least {LEAST_STEPS}, but is {steps:g}")
    output = Path(option(words, "--output") or "rate.png")
    if output.suffix.lower() not in SUFFIXES or not output.resolve().parent.is_dir():
        raise UsageError(f"--output {output}: must be a picture's name ({', '.join(SUFFIXES)}) in a folder that exists")
    with tempfile.TemporaryDirectory() as folder:
        test = find_rate(_fitting(words, folder), low, high, int(steps))
    suggested, smooth = test.suggestion(), test.smooth()
    count = len(smooth)
    if smooth:
        save_figure(rates_figure(test.rates[:count], test.losses[:count], smooth, suggested), output)
        print(f"the picture is {output}", file=sys.stderr)
    if suggested is None:
        print(f"no rate from {low:g} to {high:g} lowers the loss: try others, or more --steps", file=sys.stderr)
        return 1
    bottom = test.rates[min(range(count), key=smooth.__getitem__)]
    print(f"the loss falls fastest at {suggested:.1e}, and is lowest at {bottom:.1e}: stay well below that", file=sys.stderr)
    print(f"--training.optimizer.lr {suggested:.1e}")
    return 0


def _tokens(words: list[str]) -> int:
    given = option(words, "--memory")
    memory = None if given is None else round(1e9 * _positive("--memory", given))
    with tempfile.TemporaryDirectory() as folder:
        found, told = find_tokens(_fitting(words, folder), memory)
    if not found:
        print(f"not even the smallest batch fits: it takes {told}", file=sys.stderr)
        return 1
    print(f"the largest batch takes {told}", file=sys.stderr)
    print(f"--data.batches.tokens {found}")
    return 0


def _fitting(words: list[str], folder: str) -> Fitting:
    """The training that the words describe, which leaves nothing behind."""
    parser, settings = parse_settings(words)
    settings.logger = None
    if settings.trainer.max_steps < 1 and settings.trainer.max_epochs is None:
        settings.trainer.max_steps = 1  # no length is needed here
    return Fitting(parser.build(settings), RunFolder(f"{folder}/run"))


def _number(words: list[str], name: str, default: float) -> float:
    return _positive(name, option(words, name, str(default)) or "")


def _positive(name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0.0 < number < math.inf:
        raise UsageError(f"{name} must be a number above 0, but is {value}")
    return number


KINDS: dict[str, Callable[[list[str]], int]] = {"rate": _rate, "tokens": _tokens}
