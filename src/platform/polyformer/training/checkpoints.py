"""Checkpoints: one file each, never half written, never a pickle of a stranger's classes."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch import Callback, LightningModule, Trainer

__all__ = ["AtomicCheckpointIO", "Checkpoints", "find_checkpoint", "read_checkpoint"]


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes under a temporary name, then renames: a killed process leaves the old file or the new one, never half."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with temporary.open("wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)


def find_checkpoint(place: str, prefer: str = "best") -> Path:
    """The checkpoint meant by a path: the file itself, or in a run folder the best one (or the last).

    Raises:
        ValueError: If there is none.
    """
    path = Path(place)
    if path.is_dir():
        folder = path / "checkpoints" if (path / "checkpoints").is_dir() else path
        order = ("best.ckpt", "last.ckpt") if prefer == "best" else ("last.ckpt",)
        for name in order:
            if (folder / name).is_file():
                return folder / name
        raise ValueError(f"{place}: this folder holds no {' or '.join(order)}")
    if not path.is_file():
        raise ValueError(f"{place}: no such checkpoint or run folder")
    return path


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint's content; only tensors and plain types are read.

    Raises:
        ValueError: If the file is damaged, holds other objects, or is no checkpoint of Polyformer.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises a different class for every kind of damage
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(f"{path}: this file cannot be read safely as a checkpoint: {reason}") from error
    if not isinstance(content, dict) or "polyformer" not in content:
        raise ValueError(f"{path}: this is no checkpoint of Polyformer")
    return content


class Checkpoints(Callback):
    """Writes `last.ckpt` after every validation, and links it as `best.ckpt` when it is the best so far.

    Args:
        folder: Where the files go.
        monitor: The metric that decides.
        mode: "min" or "max", its better side.
        save_every: Write `last.ckpt` every so many optimizer steps too; None: only after validations.
        keep: Number of best checkpoints kept; beside `best.ckpt` they are named by their step.
    """

    def __init__(self, folder: Path, monitor: str, mode: str, save_every: int | None = None, keep: int = 1) -> None:
        self.folder, self.monitor, self.mode = folder, monitor, mode
        self.save_every, self.keep = save_every, keep
        self.ranking: list[tuple[float, int]] = []
        self.best_metrics: dict[str, float] = {}
        self.draw_best: Callable[[], dict[str, Any]] = dict
        self.validated_step = -1
        self._saved_step = -1

    @property
    def best(self) -> tuple[float, int] | None:
        """(value, step) of the best checkpoint so far."""
        return self.ranking[0] if self.ranking else None

    def state_dict(self) -> dict[str, Any]:
        ranking = [list(entry) for entry in self.ranking]
        return {"ranking": ranking, "validated_step": self.validated_step, "best_metrics": self.best_metrics}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.ranking = [(value, step) for value, step in state_dict["ranking"]]
        self.validated_step, self.best_metrics = state_dict["validated_step"], state_dict["best_metrics"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._saved_step = trainer.global_step  # what a resumed run begins with is saved

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        step = trainer.global_step
        if step == trainer.max_steps:
            trainer.should_stop = True  # makes lightning validate after the last step, wherever the interval falls
        if self.save_every and step % self.save_every == 0 and step != self._saved_step and step:
            self._save(trainer, [])

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Ranks the weights just validated, and saves.

        Raises:
            ValueError: If the metric does not exist.
        """
        if trainer.state.fn != "fit" or trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        metrics: dict[str, float] = cast(Any, pl_module).metrics
        if self.monitor not in metrics:
            raise ValueError(f"`training.monitor` is {self.monitor}, but the metrics are {', '.join(sorted(metrics))}")
        step, before = trainer.global_step, list(self.ranking)
        self.validated_step = step
        self.ranking = sorted([*before, (metrics[self.monitor], step)], key=self._order)[: self.keep]
        if self.best is not None and self.best[1] == step:
            self.best_metrics, self.draw_best = metrics, cast(Any, pl_module).draw
        self._save(trainer, before)

    def is_better(self, value: float) -> bool:
        """Whether a value beats the best so far."""
        return self.best is None or self._order((value, 0)) < self._order(self.best)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Saves the end of a training that has no validation."""
        if self._saved_step != trainer.global_step and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            self._save(trainer, [])

    def _order(self, entry: tuple[float, int]) -> tuple[float, int]:
        value, step = entry
        signed = value if self.mode == "min" else -value
        return (signed if signed == signed else float("inf"), step)

    def _save(self, trainer: Trainer, before: list[tuple[float, int]]) -> None:
        last, step = self.folder / "last.ckpt", trainer.global_step
        self._saved_step = step
        trainer.save_checkpoint(last)
        if not trainer.is_global_zero or not any(entry[1] == step for entry in self.ranking) or self.validated_step != step:
            return
        if self.best is not None and self.best[1] == step:
            _link(last, self.folder / "best.ckpt")
        if self.keep > 1:
            _link(last, self.folder / f"step-{step}.ckpt")
            for _, old in before:
                if all(entry[1] != old for entry in self.ranking):
                    (self.folder / f"step-{old}.ckpt").unlink(missing_ok=True)


def _link(source: Path, target: Path) -> None:
    """Makes ``target`` the same file as ``source``, at once."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:  # a file system without hard links
        shutil.copyfile(source, temporary)
    temporary.replace(target)
