"""Parts of a network by the names that users give them, such as `embedding`, `encoder.0-3` or `output`."""

import re

from torch import nn

from polyformer.training.names import nearest

__all__ = ["find_parts"]

LAYERS = re.compile(r"(?P<stack>.+)\.(?P<first>\d+)(-(?P<last>\d+))?")


def find_parts(task: nn.Module, name: str, key: str) -> dict[str, nn.Module]:
    """The modules of a task that a name stands for, by their full names.

    Args:
        task: The task, whose `network` is searched first.
        name: A part (`embedding`, `stack`, `output`), one layer or several of a stack (`encoder.0`, `encoder.0-3`), or what
            such a part is called wherever it occurs (`feed_forward`, `project`). An encoder alone may be called `encoder`.
        key: The user's key, for errors.

    Raises:
        ValueError: If there is none, with what there is.
    """
    layers = LAYERS.fullmatch(name)
    if layers is not None:
        found = find_parts(task, layers["stack"], key)
        return {full: block for stack in found for full, block in _layers(task, stack, layers, key).items()}
    modules = dict(task.named_modules(remove_duplicate=False))  # a tied part has several names
    aliases = [name, "stack"] if name == "encoder" else [name]
    for full in [f"{place}{alias}" for alias in aliases for place in ("network.", "")]:
        if full in modules:
            return {full: modules[full]}
    everywhere = {full: module for full, module in modules.items() if full.rpartition(".")[2] == name}
    if not name.isdigit() and everywhere:
        return everywhere
    parts = [child for module in (modules.get("network", nn.Module()), task) for child, _ in module.named_children()]
    known = ", ".join(dict.fromkeys(part for part in parts if part != "network"))
    raise ValueError(f"`{key}` has {name}, but this model has no such part{nearest(name, parts)}; its parts are {known}")


def _layers(task: nn.Module, stack: str, layers: re.Match[str], key: str) -> dict[str, nn.Module]:
    """The blocks of a stack from the first number to the last."""
    blocks = getattr(task.get_submodule(stack), "blocks", None)
    if not isinstance(blocks, nn.ModuleList):
        raise ValueError(f"`{key}` has {layers[0]}, but {layers['stack']} has no layers")
    first = int(layers["first"])
    last = first if layers["last"] is None else int(layers["last"])
    if not first <= last < len(blocks):
        raise ValueError(f"`{key}` has {layers[0]}, but the layers of {layers['stack']} are 0-{len(blocks) - 1}")
    return {f"{stack}.blocks.{number}": blocks[number] for number in range(first, last + 1)}
