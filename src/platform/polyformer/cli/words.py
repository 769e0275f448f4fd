"""Taking a verb's own options out of its words."""

from polyformer.errors import UsageError
from polyformer.training.names import nearest

__all__ = ["flag", "option", "refuse_rest"]


def option(words: list[str], name: str, default: str | None = None) -> str | None:
    """Takes `--name VALUE` or `--name=VALUE` out of the words.

    Raises:
        UsageError: If the value is missing.

    >>> words = ["--run", "first", "--seed", "1"]
    >>> option(words, "--run"), words
    ('first', ['--seed', '1'])
    """
    for place, word in enumerate(words):
        if word == name:
            if place + 1 == len(words):
                raise UsageError(f"{name} needs a value")
            value = words[place + 1]
            del words[place : place + 2]
            return value
        if word.startswith(f"{name}="):
            del words[place]
            return word[len(name) + 1 :]
    return default


def flag(words: list[str], name: str) -> bool:
    """Takes `--name` out of the words; whether it was there."""
    present = name in words
    words[:] = [word for word in words if word != name]
    return present


def refuse_rest(words: list[str], known: list[str]) -> None:
    """Raises UsageError if words are left over."""
    if words:
        raise UsageError(f"unknown option {words[0]}{nearest(words[0], known)}")
