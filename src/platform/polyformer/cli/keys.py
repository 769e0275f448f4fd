"""`platform fit --keys`: every key of a config, with the value it has there and what it is for."""

import importlib
import re
import textwrap
from collections.abc import Iterator
from inspect import signature
from typing import Any

import yaml
from jsonargparse import ArgumentParser, Namespace

from polyformer.nn import CrossMixer, Mixer, Pooling, Position
from polyformer.training import Schedule, Task
from polyformer.training.build import all_subclasses

__all__ = ["describe_keys"]

WIDTH = 120
SWAPPED = (CrossMixer, Mixer, Pooling, Position, Schedule, Task)
"""Kinds of which any class will do, so that the others are named."""
NOT_OURS = ("help", "config", "print_config", "print_shtab")


def describe_keys(parser: ArgumentParser, settings: Namespace, prefix: str = "") -> Iterator[str]:
    """The lines to print: each key, its value, and what it is for; keys of a chosen class follow the key that chose it.

    Args:
        parser: Has the arguments.
        settings: What it made of a config.
        prefix: What stands before each key.
    """
    for action in parser._actions:
        value = settings.get(action.dest)
        is_group = isinstance(value, Namespace) and "class_path" not in value  # each of its members is a key
        if action.dest in NOT_OURS or action.dest.endswith(".help") or is_group:
            continue
        yield f"{prefix}{action.dest} = {_written(value)}"
        about = " ".join(filter(None, [_sentence(action.help), _choices(action.metavar), _siblings(value)]))
        if about:
            yield textwrap.fill(about, WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
        for number, chosen in enumerate(value if isinstance(value, list) else [value]):
            place = f".{number}" if isinstance(value, list) else ""
            if isinstance(chosen, Namespace) and chosen.get("init_args"):
                yield from describe_keys(_parser_of(chosen), chosen.init_args, f"{prefix}{action.dest}{place}.")


def _parser_of(chosen: Namespace) -> ArgumentParser:
    """Has those arguments of a chosen class that a user may give."""
    kind, parser = _class(chosen), ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(kind, skip=set(signature(kind).parameters) - set(vars(chosen.init_args)), fail_untyped=False)
    return parser


def _class(chosen: Namespace) -> type:
    module, _, name = chosen.class_path.rpartition(".")
    found: type = getattr(importlib.import_module(module), name)
    return found


def _written(value: Any) -> str:
    """A value as one writes it: classes by their names."""
    if isinstance(value, Namespace):
        return str(value.get("class_path")).rpartition(".")[2]
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return yaml.safe_dump(value, default_flow_style=True, width=10**6).partition("\n")[0]


def _sentence(text: str | None) -> str:
    words = re.sub(r":\w+:`", "`", " ".join((text or "").split())).replace("``", "`")
    return f"{words[0].upper()}{words[1:].removesuffix('.')}." if words else ""


def _choices(metavar: Any) -> str:
    names = metavar.strip("{}").split(",") if isinstance(metavar, str) and metavar.startswith("{") else []
    return "" if "true" in names or not names else f"One of {', '.join(names)}."


def _siblings(value: Any) -> str:
    """The other classes that could stand in its place."""
    if not isinstance(value, Namespace):
        return ""
    chosen = _class(value)
    kinds = [kind for base in SWAPPED if issubclass(chosen, base) for kind in all_subclasses(base)]
    names = sorted({kind.__name__ for kind in kinds if kind is not chosen and not kind.__name__.startswith("_")})
    return f"Also: {', '.join(names)}." if names else ""
