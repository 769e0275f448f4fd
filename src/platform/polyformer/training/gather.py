"""Exact sums and lists over all ranks."""

from typing import Any

from torch import Tensor, distributed

__all__ = ["gather_objects", "sum_over_ranks"]


def sum_over_ranks(sums: dict[str, Tensor]) -> dict[str, float]:
    """Adds up named scalars over all ranks; a rank that saw nothing may lack names that others have.

    >>> import torch
    >>> sum_over_ranks({"count": torch.tensor(3)})
    {'count': 3.0}
    """
    totals: dict[str, float] = {}
    for part in gather_objects([{name: float(value) for name, value in sums.items()}]):
        for name, value in part.items():
            totals[name] = totals.get(name, 0.0) + value
    return totals


def gather_objects(items: list[Any]) -> list[Any]:
    """The items of all ranks, joined in the order of ranks; every rank gets all of them."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return items
    parts: list[list[Any]] = [[] for _ in range(distributed.get_world_size())]
    distributed.all_gather_object(parts, items)
    return [item for part in parts for item in part]
