"""Exact sums and lists over all ranks."""

import torch
from torch import Tensor

from polyformer.data.ranks import gather_objects

__all__ = ["add_sums", "gather_objects", "sum_over_ranks"]


def add_sums(sums: dict[str, Tensor], more: dict[str, Tensor]) -> None:
    """Adds named scalars to ``sums``, in float64 where the device has it.

    >>> sums = {"count": torch.tensor(3.0)}
    >>> add_sums(sums, {"count": torch.tensor(2)})
    >>> float(sums["count"])
    5.0
    """
    for name, value in more.items():
        value = value.detach().to(torch.float64 if value.device.type != "mps" else torch.float32)
        sums[name] = sums[name] + value if name in sums else value


def sum_over_ranks(sums: dict[str, Tensor]) -> dict[str, float]:
    """Adds up named scalars over all ranks; a rank that saw nothing may lack names that others have.

    >>> sum_over_ranks({"count": torch.tensor(3)})
    {'count': 3.0}
    """
    totals: dict[str, float] = {}
    for part in gather_objects([{name: float(value) for name, value in sums.items()}]):
        for name, value in part.items():
            totals[name] = totals.get(name, 0.0) + value
    return totals
