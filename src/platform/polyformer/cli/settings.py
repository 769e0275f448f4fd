"""From the words of a command line to complete settings."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from polyformer.errors import UsageError
from polyformer.shipped import shipped, shipped_names
from polyformer.training.names import nearest

if TYPE_CHECKING:
    from jsonargparse import Namespace

    from polyformer.training.build import TaskParser

__all__ = ["named_task", "parse_settings", "read_config"]


def parse_settings(words: list[str]) -> "tuple[TaskParser, Namespace]":
    """The parser of the task that the words and their config files name, and the complete settings.

    Raises:
        UsageError: For a missing file, a broken one, an unknown key or a value that does not fit.
    """
    name = named_task(words)
    from polyformer.training.build import TaskParser, task_class  # once there is something to parse: it takes seconds

    try:
        parser = TaskParser(task_class(name))
    except ValueError as error:
        raise UsageError(str(error)) from None
    return parser, parser.parse([_found(word, before) for word, before in zip(words, ["", *words], strict=False)])


def _found(word: str, before: str) -> str:
    """A word of the command line; the file of a config by its path."""
    if word.startswith("--config="):
        return f"--config={shipped(word.removeprefix('--config='))}"
    return shipped(word) if before == "--config" else word


def named_task(words: list[str]) -> str:
    """The task that the words or their config files name.

    Raises:
        UsageError: If there is none, or a file is missing or broken.
    """
    name: str | None = None
    for place, word in enumerate(words):
        key, equals, value = word.partition("=")
        if not equals:
            value = words[place + 1] if place + 1 < len(words) else ""
        if key == "--config":
            name = _name_of(read_config(value).get("task")) or name
        elif key == "--task":
            name = value
    if name is None:
        raise UsageError(
            "no task is given: use --config FILE with a `task:` in it, or --task NAME; `platform tasks` lists them"
        )
    return name


def _name_of(task: Any) -> str | None:
    return task.get("class_path") if isinstance(task, dict) else task


def read_config(path: str, keys: str = "`task:` and `model:`") -> dict[str, Any]:
    """A YAML file, also one of those that come with Polyformer.

    Args:
        path: Where it is.
        keys: Some that it may hold, for errors.

    Raises:
        UsageError: If it is missing, broken, or no mapping of keys.
    """
    file = Path(shipped(path))
    if not path or not file.is_file():
        near = sorted(str(other) for other in file.parent.glob("*.yaml")) if file.parent.is_dir() else []
        hint = f"; there are {', '.join(near)}" if near else nearest(path, shipped_names())
        raise UsageError(f"{path or '--config'}: no such file{hint}")
    try:
        text = file.read_text(encoding="utf-8")
        content, twice = yaml.safe_load(text), _key_that_stands_twice(yaml.compose(text, yaml.SafeLoader))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        place = getattr(error, "problem_mark", None)
        line = f":{place.line + 1}" if place else ""
        raise UsageError(f"{path}{line}: not valid YAML: {getattr(error, 'problem', error)}") from None
    if twice:
        raise UsageError(f"{path}{twice}: leave one of them out, since the first would be ignored")
    if not isinstance(content, dict):
        raise UsageError(f"{path}: must hold keys such as {keys}")
    return content


def _key_that_stands_twice(node: yaml.Node | None) -> str:
    """Line and name of a key that a mapping has twice, of which YAML takes the last; empty where there is none."""
    if not isinstance(node, yaml.CollectionNode):
        return ""
    parts = [part for pair in node.value for part in (pair if isinstance(pair, tuple) else (pair,))]
    keys = [key for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []
    seen: set[str] = set()
    for key in keys:
        if str(key.value) in seen:
            return f":{key.start_mark.line + 1}: the key `{key.value}` stands there twice"
        seen.add(str(key.value))
    return next((found for part in parts if (found := _key_that_stands_twice(part))), "")
