"""Settings of runs as flat keys, and which of them differ."""

import json
from collections.abc import Sequence
from typing import Any

__all__ = ["differing", "flat", "identity", "in_words"]

CLASS, ARGUMENTS = "class_path", "init_args"


def flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Nested settings as dotted keys; a class is its bare name, and its arguments stand under its key.

    >>> flat({"model": {"d_model": 16, "position": {"class_path": "polyformer.nn.Rotary", "init_args": {"base": 500}}}})
    {'model.d_model': 16, 'model.position': 'Rotary', 'model.position.base': 500}
    """
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict) and CLASS in value:
            found[name] = str(value[CLASS]).rpartition(".")[2]
            value = value.get(ARGUMENTS) or {}
        if isinstance(value, dict):
            found |= {f"{name}.{key}": inner for key, inner in flat(value).items()}
        else:
            found[name] = value
    return found


def differing(several: Sequence[dict[str, Any]], ignored: Sequence[str] = ()) -> list[str]:
    """The keys of flat settings that tell them apart, in the order of the keys.

    Where a class differs, its arguments are named only if they differ among those that chose the same class: what follows
    from the class is no difference of its own.

    Args:
        several: Flat settings.
        ignored: Keys that are left out, and all beneath them.

    >>> differing([{"position": "Rotary", "position.base": 1}, {"position": "Learned"}])
    ['position']
    >>> differing([{"position": "Rotary", "position.base": 1}, {"position": "Rotary", "position.base": 2}])
    ['position.base']
    """
    keys = list(dict.fromkeys(key for settings in several for key in settings))
    found: list[str] = []
    for key in keys:
        if any(key == name or key.startswith(f"{name}.") for name in ignored):
            continue
        above = [name for name in found if key.startswith(f"{name}.")]
        groups: dict[str, set[str]] = {}
        for settings in several:
            chosen = in_words([settings.get(name) for name in above])
            groups.setdefault(chosen, set()).add(identity(settings.get(key)) if key in settings else "absent")
        if any(len(values) > 1 for values in groups.values()):
            found.append(key)
    return found


def identity(value: Any) -> str:
    """What is the same for values that mean the same: Weights & Biases keeps 0.0 as 0.

    >>> identity([1.0, "a"]) == identity([1, "a"]), identity(1) == identity(True)
    (True, False)
    """
    return json.dumps(_whole(value), ensure_ascii=False, sort_keys=True)


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _whole(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_whole(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def in_words(value: Any) -> str:
    """A value as a command line would have it.

    >>> in_words("Rotary"), in_words(None), in_words([1, 2]), in_words(0.001)
    ('Rotary', 'null', '[1, 2]', '0.001')
    """
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
