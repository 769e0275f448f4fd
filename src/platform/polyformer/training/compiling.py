"""Blocks compiled for training steps."""

from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn

from polyformer.nn import DecoderBlock, EncoderBlock

__all__ = ["Compiling"]


class Compiling(Callback):
    """Compiles what each block computes while training, once for all batch sizes and lengths.

    Blocks of one kind share what has been compiled. Evaluation and decoding run as they are: there lengths grow by one at
    each step, and much is computed once. Names of weights stay, since no module is wrapped.

    Args:
        backend: Of `torch.compile`.
    """

    def __init__(self, backend: str | Callable[..., Any] = "inductor") -> None:
        self.backend = backend
        self.blocks: list[nn.Module] = []

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.blocks = [block for block in pl_module.modules() if isinstance(block, EncoderBlock | DecoderBlock)]
        for block in self.blocks:
            plain = block.forward
            compiled = torch.compile(plain, dynamic=True, backend=self.backend)
            block.forward = where_gradients_are_wanted(compiled, plain)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for block in self.blocks:
            del block.forward  # the class's own is there again


def where_gradients_are_wanted(compiled: Callable[..., Tensor], plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function that is ``compiled`` in training steps and ``plain`` elsewhere."""

    def forward(*arguments: Any) -> Tensor:
        return (compiled if torch.is_grad_enabled() else plain)(*arguments)

    return forward
