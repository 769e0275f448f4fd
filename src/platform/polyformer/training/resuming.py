"""What a run that is gone on with must have in common with what it was, and what may be another now."""

from pathlib import Path
from typing import Any, NamedTuple

from lightning.pytorch.callbacks import EarlyStopping

from polyformer.training.task import Task

__all__ = ["Patience", "Start", "check_resumable"]


class Start(NamedTuple):
    """What training goes on from.

    Args:
        path: The checkpoint.
        step: The step that it was saved after.
    """

    path: Path
    step: int


class Patience(EarlyStopping):
    """Early stopping whose patience is the one given now, also in a run that is gone on with."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({**state_dict, "patience": self.patience})


def check_resumable(task: Task, start: dict[str, Any]) -> None:
    """Refuses to go on with weights of other names or shapes, other parts trained, or the state of another optimizer.

    Raises:
        ValueError: Naming the keys that must stay as they were.
    """
    stored = start["polyformer"]["settings"].get("training") or {}
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
