"""What Lightning's precisions lack: half precision throughout for our batches, and scaled half precision on a CPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from lightning.pytorch.plugins import HalfPrecision, MixedPrecision

__all__ = ["Half", "precision_keys"]

HALVES: dict[Any, Literal["bf16-true", "16-true"]] = {"bf16-true": "bf16-true", "16-true": "16-true"}


class Half(HalfPrecision):
    """Weights, gradients and optimizer state in half precision.

    Batches are left as they are, since they hold numbers of tokens; and what a network makes anew is float32 unless it says
    otherwise, so that sums and counts stay exact.
    """

    def convert_input(self, data: Any) -> Any:
        return data

    @contextmanager
    def forward_context(self) -> Iterator[None]:
        yield


def precision_keys(precision: Any, accelerator: Any) -> dict[str, Any]:
    """The trainer's keys for a precision: a plugin of ours where Lightning's own falls short, otherwise none.

    On a CPU Lightning takes bf16-mixed where 16-mixed was asked for.

    Args:
        precision: What the user gave.
        accelerator: Likewise.
    """
    if precision in HALVES:
        return {"precision": None, "plugins": [Half(HALVES[precision])]}
    on_cpu = accelerator == "cpu" or not torch.accelerator.is_available()
    if precision in (16, "16", "16-mixed") and on_cpu:
        return {"precision": None, "plugins": [MixedPrecision("16-mixed", "cpu")]}
    return {}
