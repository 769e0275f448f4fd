"""The messages of the settings parser, turned into the key, what is wrong with it and the nearest right name."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any, get_type_hints

from polyformer.errors import UsageError
from polyformer.training.names import nearest

__all__ = ["explain", "explain_group"]

TYPES = {
    "float": "a number",
    "int": "a whole number",
    "bool": "true or false",
    "list": "a list",
    "str": "a text",
    "NoneType": "null",
}
"""What a value should be, in a user's words."""

EACH_KIND = r"Errors:\n(?:\s+- Expected an? <class '\w+'>\n)+"
"""What the parser says of a value that may be of several kinds and is of none."""

WHERE = r'(?:Parser key|[Aa]rgument) "?-*([\w.]+)"?:'


def explain(error: Exception, defaults: Any, classes_for: Callable[[str], Iterable[str]]) -> UsageError:
    """An error that says what to do.

    Args:
        error: What the parser raised.
        defaults: A namespace with every key.
        classes_for: The names of the classes that the value of a key may name.
    """
    text, keys = str(error), _keys(defaults)
    if match := re.search(r"^ *- (.*`.+)$", text, re.MULTILINE):  # ours, among what other types of the value would have needed
        return UsageError(match[1])
    if match := re.search(r"unrecognized arguments: --([^\s=]+)", text):
        return UsageError(f"unknown key --{match[1]}{_within(match[1], keys) or nearest(match[1], keys)}")
    if match := re.search(r"Group '([^']+)' does not accept option '([^']+)'", text):
        return _unknown(f"{_joined(_whole(text[: match.start()]), match[1])}.{match[2]}", defaults, keys)
    where = re.search(WHERE, text)
    key = where[1] if where else ""
    if match := re.search(r"Option '([^']+)' is not accepted", text):
        return _unknown(f"{key}.{match[1]}", defaults, keys)
    if match := re.search(r"(?:Expected a dot import path string:|Unexpected import path format:) '?([\w.]+)", text):
        return UsageError(f"`{key}` is {match[1]}, but there is no such class{nearest(match[1], classes_for(key))}")
    if match := re.search(rf"{EACH_KIND}\s+Given value type: .*\n\s+Given value: (.*)", text):  # of one of several kinds
        kinds = re.findall(r"Expected an? <class '(\w+)'>", match[0])
        return UsageError(f"`{_whole(text[: match.start()])}` must be {' or '.join(map(_in_words, kinds))}, but is {match[1]}")
    if match := re.search(r"Expected an? (?:<class ')?(.+?)'?>?\. Got value: (.*?)(?:\. Got value: .*)?$", text, re.MULTILINE):
        return UsageError(f"`{_whole(text[: match.start()])}` must be {_in_words(match[1])}, but is {match[2]}")
    if match := re.search(r"Expected a path but (.+) either not accessible or invalid", text):
        return UsageError(f"`{_whole(text)}` must be the name of a class, or `class_path` and `init_args`, but is {match[1]}")
    if "Unable to load config" in text:  # a value where keys are expected
        whole = _whole(text)
        within = sorted({known.removeprefix(f"{whole}.").split(".")[0] for known in keys if known.startswith(f"{whole}.")})
        named = ", ".join(f"{whole}.{one}" for one in within)
        return UsageError(f"`{whole}` has keys of its own, and is given by them: {named}")
    if match := re.search(r"the following arguments are required: (\w+)", text):
        return UsageError(f"`{key}` needs `{match[1]}`")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return UsageError(" ".join(lines[:3])[:400])


def explain_group(given: Any) -> UsageError | None:
    """What is wrong if a key that has keys of its own was given a value; None if none was.

    Args:
        given: A namespace of what was given, with every key.
    """
    for key, value, kind in _groups(given):
        if not hasattr(value, "__dict__"):
            within, said = ", ".join(f"{key}.{part.name}" for part in fields(kind)), "null" if value is None else value
            return UsageError(f"`{key}` is {said}, but has keys of its own, and is given by them: {within}")
    return None


def _groups(namespace: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(key, value, dataclass) of every argument of a class that is a dataclass, and so has keys of its own."""
    for name, value in vars(namespace).items():
        path = getattr(value, "class_path", None)
        if path is not None and hasattr(value, "init_args"):
            module, _, kind = path.rpartition(".")
            hints = get_type_hints(getattr(import_module(module), kind).__init__)
            for key, inner in vars(value.init_args).items():
                if is_dataclass(hints.get(key)):
                    yield f"{prefix}{name}.{key}", inner, hints[key]
            yield from _groups(value.init_args, f"{prefix}{name}.")


def _joined(outer: str, name: str) -> str:
    """A key within another, which may be said with it already.

    >>> _joined("data", "batches"), _joined("data.batches", "data.batches"), _joined("", "data")
    ('data.batches', 'data.batches', 'data')
    """
    return name if not outer or name == outer or name.startswith(f"{outer}.") else f"{outer}.{name}"


def _whole(text: str) -> str:
    """The key that a message is about, from the option down to what is within it.

    >>> _whole('Parser key "data": no; Parser key "limits": no'), _whole('Parser key "a": no; Parser key "a.b": no')
    ('data.limits', 'a.b')
    """
    whole = ""
    for name in dict.fromkeys(re.findall(WHERE, text)):
        whole = _joined(whole, name)
    return whole


def _within(name: str, keys: list[str]) -> str:
    """The end of a message: which key was meant where only its last names are given.

    >>> _within("vocab_size", ["data.tokenizer.vocab_size", "model.d_model"])
    '; did you mean data.tokenizer.vocab_size?'
    """
    whole = sorted(key for key in keys if key.endswith(f".{name}"))
    return f"; did you mean {' or '.join(whole)}?" if whole else ""


def _in_words(kind: str) -> str:
    """What a value should be.

    >>> _in_words("typing.Literal['pre', 'post']"), _in_words("int")
    ('pre or post', 'a whole number')
    """
    if kind.startswith("typing.Literal["):
        *most, last = [choice.strip("'\"") for choice in kind.removeprefix("typing.Literal[").rstrip("]").split(", ")]
        return f"{', '.join(most)} or {last}" if most else last
    return TYPES.get(kind, kind)


def _unknown(key: str, defaults: Any, keys: list[str]) -> UsageError:
    """A key that the class chosen here does not have, though another may."""
    if key in keys and (owner := _owner(defaults, key)):
        return UsageError(f"unknown key {key}, which {owner[1]} has: choose it by --{owner[0]} {owner[1]}")
    return UsageError(f"unknown key {key}{nearest(key, (known for known in keys if known != key))}")


def _owner(defaults: Any, key: str) -> tuple[str, str] | None:
    """The nearest key above one whose default is a class, and the name of that class."""
    found, above, place = None, list[str](), defaults
    for name in key.split("."):
        path = getattr(place, "class_path", None)
        found = (".".join(above), str(path).rpartition(".")[2]) if path else found
        place = getattr(getattr(place, "init_args", place), name, None)
        above.append(name)
    return found


def _keys(namespace: Any, prefix: str = "") -> list[str]:
    """Every key below a namespace, dotted, as a user writes it."""
    found: list[str] = []
    for name, value in vars(namespace).items():
        path = prefix if name == "init_args" else f"{prefix}{name}."
        found += _keys(value, path) if hasattr(value, "__dict__") else [path.rstrip(".")]
    return [key for key in found if not key.endswith("class_path")] + ([prefix.rstrip(".")] if prefix else [])
