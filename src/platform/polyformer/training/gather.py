"""Exact sums and lists over all ranks."""

from torch import Tensor

from polyformer.data.ranks import gather_objects

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
