"""What is known of a run when it begins, for those who compare it with others later."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polyformer.better import better_side
from polyformer.data import DataModule
from polyformer.data.cache import key_digest
from polyformer.training.task import Task

__all__ = ["fingerprints", "git_state", "judged_by", "run_facts", "tags_of"]

GIT_SECONDS = 10.0
LONGEST_TAG = 64  # characters
SPLITS = ("train", "validation", "test")


def run_facts(task: Task, data: DataModule) -> dict[str, Any]:
    """Parameters, commit, and what tells data and tokenizers apart from others."""
    contents = {split: data.contents(split) for split in data.locations}
    digests = {split: key_digest({"contents": found}) for split, found in contents.items() if found is not None}
    return {
        "parameters": sum(parameter.numel() for parameter in task.parameters()),
        "trained_parameters": sum(parameter.numel() for parameter in task.parameters() if parameter.requires_grad),
        "git": git_state(Path.cwd()),
        "splits": {
            split: {"fingerprint": digest, "examples": str(data.reports.get(split))} for split, digest in digests.items()
        },
        "tokenizers": {
            role: {"kind": tokenizer.kind, "size": len(tokenizer), "fingerprint": tokenizer.fingerprint}
            for role, tokenizer in task.assets.tokenizers.items()
        },
        "signatures": task.signatures(),
        "monitor": list(judged_by(task, task.recipe.monitor)),
    }


def judged_by(task: Task | type[Task], metric: str | None) -> tuple[str, str]:
    """The metric that decides which checkpoint is best, and its better side.

    Args:
        task: Knows both of its own metric; a class as far as that does not follow from the data.
        metric: The one that was asked for; None: the task's own.
    """
    own, side = task.monitor
    return (own, side) if metric in (None, own) else (str(metric), better_side(str(metric)))


def fingerprints(task: Task, data: DataModule, splits: Sequence[str] = SPLITS) -> dict[str, Any]:
    """What tells each split's data apart from others, and each tokenizer: runs that are to be compared must have the same."""
    contents = {split: data.contents(split) for split in splits}
    digests = {split: key_digest({"contents": found}) for split, found in contents.items() if found is not None}
    return {**digests, "tokenizers": {role: one.fingerprint for role, one in task.assets.tokenizers.items()}}


def git_state(folder: Path) -> dict[str, Any] | None:
    """The commit of the repository that a folder is in, and whether tracked files differ from it; None outside of one.

    >>> git_state(Path("/")) is None
    True
    """
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return None
    return {"commit": commit, "changed": bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))}


def _git(folder: Path, *words: str) -> str | None:
    try:
        command = ["git", "-C", str(folder), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=GIT_SECONDS, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):  # no git, no repository, or none that answers
        return None


def tags_of(settings: dict[str, Any]) -> list[str]:
    """Task, positions, mixers and data, by which runs are found again.

    >>> data = {"class_path": "polyformer.data.PairData", "init_args": {"train": "hub:multi30k:train"}}
    >>> model = {"position": {"class_path": "polyformer.nn.rotary.Rotary"}, "positions": []}
    >>> tags_of({"task": {"class_path": "polyformer.tasks.translation.Translation"}, "model": model, "data": data})
    ['Translation', 'Rotary', 'multi30k']
    """
    model, found = settings["model"], _names(settings["task"])
    for key in ("position", "mixer"):
        found += _names(model.get(f"{key}s")) or _names(model.get(key))
    found += _names(model.get("decoder_mixers"))
    return [tag[:LONGEST_TAG] for tag in dict.fromkeys([*found, _data_name(settings["data"])])]


def _names(value: Any) -> list[str]:
    """The classes that a setting names."""
    several = value if isinstance(value, list) else [value] if value else []
    return [str(one["class_path"] if isinstance(one, dict) else one).rpartition(".")[2] for one in several]


def _data_name(data: dict[str, Any]) -> str:
    """The name of a data set of the hub, or of the folder that the training data is in; otherwise the kind of data."""
    location = (data.get("init_args") or {}).get("train")
    first = location[0] if isinstance(location, list) and location else location
    if not isinstance(first, str):
        return _names(data)[0]
    if first.startswith("hub:"):
        return first.split(":")[1].partition("@")[0]
    return Path(first).parent.name or Path(first).name
