"""`platform plot`: pictures of position encodings, masks and attention."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from polyformer.cli.help import PLOT
from polyformer.cli.load import load
from polyformer.cli.pictures import INDICES, TOKENS
from polyformer.cli.quiet import quiet
from polyformer.cli.settings import parse_settings
from polyformer.cli.words import option, refuse_rest
from polyformer.errors import UsageError
from polyformer.experiments.plots import (
    SUFFIXES,
    attention_figure,
    font_advice,
    fonts_for,
    masks_figure,
    positions_figure,
    save_figure,
)
from polyformer.training.attention import Attention, attention_of
from polyformer.training.names import nearest

__all__ = ["plot"]


def plot(words: list[str]) -> int:
    """Draws a picture and says where it is."""
    if {"-h", "--help"}.intersection(words):
        print(PLOT)
        return 0
    kind = words.pop(0) if words else ""
    if kind not in KINDS:
        raise UsageError(f"say what to draw: platform plot {' or '.join(KINDS)}{nearest(kind, KINDS) if kind else ''}")
    quiet()
    torch.manual_seed(0)  # for what has fresh weights
    output = Path(option(words, "--output") or f"{kind}.png")
    if output.suffix.lower() not in SUFFIXES:
        raise UsageError(f"--output {output}: its name must end in {', '.join(SUFFIXES)}")
    if not output.resolve().parent.is_dir():
        raise UsageError(f"--output {output}: there is no folder {output.parent}")
    save_figure(KINDS[kind](words), output)
    print(output)
    return 0


def _positions(words: list[str]) -> Any:
    from polyformer.cli.plot_parts import all_positions, positions_of

    length = _whole(words, "--length", INDICES)
    stacks = _stacks(words)
    return positions_figure(all_positions(length) if stacks is None else positions_of(stacks, length))


def _masks(words: list[str]) -> Any:
    from polyformer.cli.plot_parts import all_sights, sights_of

    length = _whole(words, "--length", TOKENS)
    stacks = _stacks(words)
    return masks_figure(all_sights(length)) if stacks is None else masks_figure(sights_of(stacks, length), columns=4)


def _stacks(words: list[str]) -> Any:
    """The stacks of the checkpoint or config that the words name; None where they name none."""
    from polyformer.cli.plot_parts import made_stacks, stacks_of

    named = [word.partition("=")[0] for word in words]
    if "--ckpt_path" in named and "--config" in named:
        raise UsageError("give --config or --ckpt_path, not both")
    if "--ckpt_path" in named:
        return stacks_of(load(words)[0])
    if "--config" in named:
        parser, settings = parse_settings(words)
        return made_stacks(parser.build(settings).options)
    refuse_rest(words, ["--config", "--ckpt_path", "--length", "--output"])
    return None


def _attention(words: list[str]) -> Any:
    text, target, part = (option(words, name) for name in ("--text", "--target", "--part"))
    layers, heads = option(words, "--layers"), option(words, "--heads")
    if text is None:
        raise UsageError("--text TEXT is missing: what the model reads")
    task, _ = load(words)
    attention = attention_of(task, text, target, part)
    for layer, mixer in attention.others.items():
        print(f"layer {layer} is left out: {mixer} keeps no attention weights of tokens", file=sys.stderr)
    _, missing = fonts_for([*attention.source, *attention.target])
    if missing:
        print(font_advice(missing), file=sys.stderr)
    weights, rows, columns = _chosen(attention, layers, heads)
    return attention_figure(weights, attention.source, attention.target, (rows, columns))


def _chosen(attention: Attention, layers: str | None, heads: str | None) -> tuple[Any, list[str], list[str]]:
    """The weights of the chosen layers and heads, as an array, and their names."""
    weights = attention.weights.float()
    rows = attention.layers if layers is None else _numbers("--layers", layers, attention.layers)
    weights = weights[[attention.layers.index(layer) for layer in rows]]
    names = [f"layer {layer}" for layer in rows]
    if heads == "mean":
        return weights.mean(dim=1, keepdim=True).numpy(), names, [f"mean of {weights.shape[1]} heads"]
    every = list(range(weights.shape[1]))
    columns = every if heads is None else _numbers("--heads", heads, every)
    return weights[:, columns].numpy(), names, [f"head {head}" for head in columns]


def _numbers(name: str, value: str, known: list[int]) -> list[int]:
    """The numbers in words such as 0,2 or 0-2.

    Raises:
        UsageError: For anything else, and for a number that is not known.
    """
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", value):
        raise UsageError(f"{name} must be numbers such as 0,2 or 0-2, but is {value}")
    found: list[int] = []
    for part in value.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    for number in found:
        if number not in known:
            raise UsageError(f"{name} has {number}, but must be of {', '.join(map(str, known))}")
    return found


def _whole(words: list[str], name: str, default: int) -> int:
    value = option(words, name, str(default))
    assert value is not None
    if not value.isdigit() or int(value) < 2:
        raise UsageError(f"{name} must be a whole number of at least 2, but is {value}")
    return int(value)


KINDS: dict[str, Callable[[list[str]], Any]] = {"positions": _positions, "masks": _masks, "attention": _attention}
