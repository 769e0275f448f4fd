"""What the ranks of a distributed run tell each other."""

from typing import Any

from torch import distributed

__all__ = ["gather_objects"]


def gather_objects(items: list[Any]) -> list[Any]:
    """The items of all ranks, joined in the order of ranks; every rank gets all of them.

    >>> gather_objects([1, 2])
    [1, 2]
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return items
    parts: list[list[Any]] = [[] for _ in range(distributed.get_world_size())]
    distributed.all_gather_object(parts, items)
    return [item for part in parts for item in part]
