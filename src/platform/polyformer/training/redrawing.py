"""Random features that are drawn anew while a network trains."""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from polyformer.nn import Performer

__all__ = ["Redrawing"]


class Redrawing(Callback):
    """Draws the features of Performers anew every so many steps, as each of them says (Choromanski et al. 2021, section 4.3).

    What is drawn follows from the seed, the step and the number of the Performer, so that all ranks draw the same, and a
    resumed run what it would have drawn. Performers in frozen parts keep theirs.

    Args:
        seed: The run's.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.performers: list[Performer] = []

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.performers = [module for module in pl_module.modules() if isinstance(module, Performer)]

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Draws before the first step with the new features, and the same again in each further batch of that step."""
        step = trainer.global_step
        for number, performer in enumerate(self.performers):
            every = performer.redraw_every
            if every is not None and step > 0 and step % every == 0 and performer.training:
                seed = hash((self.seed, step, number)) & 0x7FFF_FFFF_FFFF_FFFF
                performer.redraw(torch.Generator().manual_seed(seed))
