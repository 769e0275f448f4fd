"""What a run that is gone on with must have in common with what it was, and what may be another now."""

from pathlib import Path
from typing import Any, NamedTuple

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping

from polyformer.training.checkpoints import Checkpoints
from polyformer.training.progress import Meter
from polyformer.training.task import Task

__all__ = ["Patience", "Start", "check_resumable"]


class Start(NamedTuple):
    """What training goes on from.

    Args:
        path: The checkpoint.
        step: The step that it was saved after.
        logged: The last step up to which training had been logged.
        validated: The last step that a validation had been made after, -1 without any.
        waited: How many validations there had been without a better one.
    """

    path: Path
    step: int
    logged: int
    validated: int
    waited: int

    @classmethod
    def of(cls, path: Path, content: dict[str, Any]) -> "Start":
        """What a checkpoint says of itself."""
        states = content["callbacks"]
        logged, validated = states[Meter.__qualname__]["logged_step"], states[Checkpoints.__qualname__]["validated_step"]
        waited = (state["wait_count"] for name, state in states.items() if name.startswith(Patience.__qualname__))
        return cls(path, content["global_step"], logged, validated, next(waited, 0))


class Patience(EarlyStopping):
    """Early stopping whose patience is the one given now, also in a run that is gone on with."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({**state_dict, "patience": self.patience})

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Ends a training that had come to the end of its patience when it was saved."""
        if self.wait_count >= self.patience:
            trainer.should_stop = True


def check_resumable(task: Task, start: dict[str, Any]) -> None:
    """Refuses to go on with weights of other names or shapes, other parts trained, or the state of another optimizer.

    Raises:
        ValueError: Naming the keys that must stay as they were.
    """
    settings = start["polyformer"]["settings"]
    stored = settings.get("training") or {}
    keys = (settings.get("trainer") or {}, task.settings["trainer"])
    accumulated = [own.get("accumulate_grad_batches", 1) for own in keys]
    if accumulated[0] != accumulated[1]:
        raise ValueError(
            f"this run cannot be resumed with another `trainer.accumulate_grad_batches` ({accumulated[0]} then, "
            f"{accumulated[1]} now): steps would begin in the middle of others"
        )
    if stored.get("tuning", task.settings["training"]["tuning"]) != task.settings["training"]["tuning"]:
        raise ValueError("this run cannot be resumed with other keys under `training.tuning`, which say what is trained")
    before = {name: tuple(value.shape) for name, value in start["state_dict"].items()}
    now = {name: tuple(value.shape) for name, value in task.state_dict().items()}
    differing = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    if differing:
        name = differing[0]
        raise ValueError(
            f"this run cannot be resumed with other `model:` keys: {len(differing)} weights differ, such as {name} "
            f"({before.get(name)} then, {now.get(name)} now)"
        )
    names = [str((keys.get("optimizer") or {}).get("class_path")) for keys in (stored, task.settings["training"])]
    if names[0] != names[1]:
        raise ValueError(
            f"this run cannot be resumed with another `training.optimizer` ({names[0]} then, {names[1]} now): one cannot go on "
            "with the other's state"
        )
