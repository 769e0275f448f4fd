"""Means of weights: of all steps from a point on, or of several validations.

Buffers are never averaged, but are those of the newest weights: the mean of two draws of random features is no draw.
"""

from pathlib import Path
from typing import Any, Literal, cast

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import WeightAveraging
from torch import Tensor

from polyformer.plain import whole_file

__all__ = ["CheckpointMean", "MovingMean", "StepMean"]


class _InPlaceOfWeights(WeightAveraging):
    """The mean stands in for the weights until a validation is over, its samples included, and in what is saved."""

    _stands_in = False

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_validation_epoch_start(trainer, pl_module)
        self._stands_in = self._average_model is not None

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Nothing yet: the task shows what it writes after this."""

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._give_back(pl_module)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Gives the weights back that a validation was about to: what is saved after this is as ever."""
        self._give_back(pl_module)

    def _give_back(self, pl_module: LightningModule) -> None:
        if self._stands_in:
            self._swap_models(pl_module)
            self._stands_in = False

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Nothing: the last checkpoint, which is saved after this, holds weights and mean."""


class MovingMean(_InPlaceOfWeights):
    """An exponential moving average of the weights after every step; of weights that stay, it is those to the bit.

    Args:
        decay: What is left of the average at each step.
    """

    def __init__(self, decay: float) -> None:
        super().__init__(use_buffers=False, avg_fn=lambda mean, now, _: towards(mean, now, 1.0 - decay))


class StepMean(_InPlaceOfWeights):
    """The plain mean of the weights after every step from ``first`` on (Izmailov et al. 2018); before, the weights themselves.

    Args:
        first: The step, counted from 1.
    """

    def __init__(self, first: int) -> None:
        super().__init__(use_buffers=False, avg_fn=lambda mean, now, count: towards(mean, now, 1.0 / (int(count) + 1)))
        self.first = first

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *rest: Any) -> None:
        assert self._average_model is not None
        if self._latest_update_step < trainer.global_step <= self.first:
            self._average_model.n_averaged.zero_()  # so that the mean becomes the weights of this step
        super().on_train_batch_end(trainer, pl_module, *rest)


def towards(mean: Tensor, now: Tensor, share: float) -> Tensor:
    """A mean moved towards the weights of now; float32, as it is from the start, where weights are in half precision."""
    return torch.lerp(mean, now.to(mean.dtype), share) if mean.is_floating_point() else now


class CheckpointMean(Callback):
    """Keeps the weights of the last or the best validations, to be averaged when training ends.

    Args:
        folder: Where they are kept meanwhile.
        kind: Which validations.
        count: How many.
        monitor: The metric that says which is better.
        mode: "min" or "max", its better side.
    """

    def __init__(self, folder: Path, kind: Literal["last", "best"], count: int, monitor: str, mode: str) -> None:
        if count < 1:
            raise ValueError(f"`training.averaging.count` must be at least 1, but is {count}")
        self.folder, self.kind, self.count = folder, kind, count
        self.monitor, self.sign = monitor, 1.0 if mode == "min" else -1.0
        self.kept: list[tuple[float, int]] = []

    def state_dict(self) -> dict[str, Any]:
        return {"kept": [list(entry) for entry in self.kept]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        known = [(value, step) for value, step in state_dict["kept"]]
        self.kept = [(value, step) for value, step in known if self._file(step).exists()]  # cleaned when a run was complete

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        metrics: dict[str, float] = cast(Any, pl_module).metrics
        if trainer.state.fn != "fit" or trainer.fast_dev_run or self.monitor not in metrics:  # type: ignore[attr-defined]
            return
        entry = (self.sign * metrics[self.monitor], trainer.global_step)
        order = sorted([*self.kept, entry], key=lambda kept: -kept[1] if self.kind == "last" else kept)
        dropped, self.kept = order[self.count :], order[: self.count]
        whole = trainer.strategy.lightning_module_state_dict() if entry in self.kept else {}  # of all ranks' shards
        if not trainer.is_global_zero:
            return
        if whole:
            with whole_file(self._file(entry[1]), "wb") as file:
                torch.save({name: value.detach().cpu() for name, value in whole.items()}, file)
        for _, step in dropped:
            self._file(step).unlink(missing_ok=True)

    def mean(self, buffers: set[str]) -> dict[str, Tensor]:
        """The mean weights, by name; the files are removed by :meth:`clean`.

        Args:
            buffers: Names of those that are no weights.
        """
        total: dict[str, Tensor] = {}
        for _, step in sorted(self.kept, key=lambda entry: entry[1]):
            weights = torch.load(self._file(step), weights_only=True)
            for name, value in weights.items():
                total[name] = total[name] + value.double() if name in total and name not in buffers else value.double()
        return {name: value if name in buffers else value / len(self.kept) for name, value in total.items()}

    def clean(self) -> None:
        """Removes the files."""
        for _, step in self.kept:
            self._file(step).unlink(missing_ok=True)

    def _file(self, step: int) -> Path:
        return self.folder / f".weights-{step}.pt"
