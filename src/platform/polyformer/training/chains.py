"""Chains: a network begins with the weights of another task's checkpoint, and reads text by its tokenizer."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyformer.data import DataModule
from polyformer.nn import Learned
from polyformer.text import Assets
from polyformer.training.checkpoints import find_checkpoint, read_checkpoint
from polyformer.training.low_rank import merge_differences
from polyformer.training.progress import log
from polyformer.training.task import Task

__all__ = ["Beginning"]

FREE = {
    "checkpointing", "dropout", "embedding_dropout", "init_from", "initialization", "max_length", "output_dropout",
    "word_dropout",
}  # fmt: skip
"""Keys of `model:` that weights do not depend on."""
OUTPUTS = ("network.target_embedding.", "network.output.")
"""What is about the tokens that a network writes."""
ROLES = ("text", "source")
"""The tokenizer of what an encoder reads, by the role it has in one task or another."""


class Beginning:
    """What a network begins with.

    Args:
        place: A checkpoint or run folder.
    """

    def __init__(self, place: str) -> None:
        self.path: Path = find_checkpoint(place)
        self.content = read_checkpoint(self.path)
        self.assets = Assets.from_dict(self.content["polyformer"]["assets"])
        self.role = next((role for role in ROLES if role in self.assets.tokenizers), None)

    def give_tokenizer(self, data: DataModule) -> None:
        """Has data read by the tokenizer of the checkpoint, since its embeddings mean nothing without it."""
        if self.role is None:
            return
        tokenizer = self.assets.tokenizers[self.role]
        data.adopt(tokenizer, self.assets.tokenizers.get("target"))
        said = "text is read by the tokenizer of %s (%s, %s tokens): the keys of data.tokenizer make none"
        log.info(said, self.path, tokenizer.kind, f"{len(tokenizer):,}")

    def give_weights(self, task: Task) -> None:
        """Copies all weights that the task has by name and shape, and reports what became of each part.

        Raises:
            ValueError: If the task reads by another tokenizer, or nothing fits.
        """
        self._check_tokenizer(task)
        for key, mine, theirs in self._differences(task):
            log.warning("`model.%s` is %s here, but %s in %s, which the weights were made for", key, mine, theirs, self.path)
        own = task.state_dict()
        given = self._meant(renamed(merge_differences(self.content["state_dict"]), own), task)
        fitting = {name for name, value in own.items() if name in given and given[name].shape == value.shape}
        if not any(own[name].dim() > 1 for name in fitting):
            raise ValueError(f"`model.init_from` {self.path}: none of its weights fits this model; {self._advice(own, given)}")
        with torch.no_grad():
            for name in reversed([name for name in own if name in fitting]):  # of tied tables the embedding is copied last
                own[name].copy_(given[name])
            for name, part in task.named_modules():
                if isinstance(part, Learned):
                    _copy_rows(own.get(f"{name}.table"), given.get(f"{name}.table"))
        log.info("begun with the weights of %s (step %d):", self.path, self.content.get("global_step", 0))
        for line in report(own, given, fitting):
            log.info("  %s", line)

    def _meant(self, given: dict[str, Any], task: Task) -> dict[str, Any]:
        """The weights that mean the same here: no output for other tokens, and none for other labels."""
        pairs = [[assets.tokenizers.get(role) for role in ("target", *ROLES)] for assets in (self.assets, task.assets)]
        theirs, mine = (next((found for found in side if found is not None), None) for side in pairs)
        if theirs is not None and mine is not None and theirs.fingerprint != mine.fingerprint:
            given = {name: value for name, value in given.items() if not name.startswith(OUTPUTS)}
        for part, count in other_labels(self.assets, task.assets):
            given = {name: value for name, value in given.items() if not is_about_labels(name, value, part, count)}
        return given

    def _check_tokenizer(self, task: Task) -> None:
        mine = next((task.assets.tokenizers[role] for role in ROLES if role in task.assets.tokenizers), None)
        if self.role is None or mine is None or mine.fingerprint == self.assets.tokenizers[self.role].fingerprint:
            return
        raise ValueError(
            f"`model.init_from` {self.path} reads text by another tokenizer than this data does: let the data take that of the "
            "checkpoint (leave `data.tokenizer` out), or train without `model.init_from`"
        )

    def _differences(self, task: Task) -> Iterator[tuple[str, Any, Any]]:
        """Keys of the network that both have, with differing values, which shapes alone do not always tell."""
        stored: dict[str, Any] = self.content["polyformer"]["settings"].get("model", {})
        for key, value in task.settings.get("model", {}).items():
            if key in stored and key not in FREE and structure(stored[key]) != structure(value):
                names = _class_name(value), _class_name(stored[key])
                yield (key, *names) if names[0] != names[1] else (key, value, stored[key])

    def _advice(self, own: dict[str, Any], given: dict[str, Any]) -> str:
        name = next((name for name in own if name in given), None)
        if name is None:
            return "it has no part of the same name"
        return f"{name} is {tuple(given[name].shape)} there and {tuple(own[name].shape)} here: set the keys of `model:` alike"


def structure(value: Any) -> Any:
    """What of a key's value decides on the network: not how much is dropped, nor whether no arguments are written out.

    >>> structure({"class_path": "LSTM", "init_args": {"dropout": 0.1}}), structure({"buckets": 9, "dropout": 0.1})
    ({'class_path': 'LSTM'}, {'buckets': 9})
    """
    if isinstance(value, list):
        return [structure(one) for one in value]
    if not isinstance(value, dict):
        return value
    kept = {key: structure(one) for key, one in value.items() if key != "dropout"}
    return {key: one for key, one in kept.items() if (key, one) != ("init_args", {})}


def other_labels(theirs: Assets, mine: Assets) -> list[tuple[str, int]]:
    """What the weights of each part are called whose labels, or mean number, differ; and how many labels it has over there.

    >>> other_labels(Assets({}, {"mood/label": ["bad", "good"]}), Assets({}, {"mood/label": ["bad", "fine", "good"]}))
    [('tasks.mood.', 2)]
    """
    sides = [{**assets.labels, **_means(assets.numbers)} for assets in (theirs, mine)]
    differing = [role for role in {**sides[0], **sides[1]} if sides[0].get(role) != sides[1].get(role)]
    return [
        ("".join(f"tasks.{part}." for part in role.split("/")[:-1]), len(theirs.labels.get(role, ()))) for role in differing
    ]


def _means(numbers: dict[str, list[float]]) -> dict[str, list[Any]]:
    """The mean and the deviation of each part that predicts a number."""
    return {role: told for role, told in numbers.items() if role.split("/")[-1] == "number"}


def is_about_labels(name: str, value: Tensor, part: str, count: int) -> bool:
    """Whether a weight of a part is that of its labels: in a layer called `output`, or with a row for each of them.

    What reads the text, what pools its vectors and what goes between is about no labels.
    """
    own = name.removeprefix(part)
    is_of_head = name.startswith(part) and not own.startswith("network.")
    return is_of_head and ("output" in own.split(".") or value.shape[:1] == (count,))


def renamed(given: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Weights by the names they have here: the encoder of a translator is the stack of an encoder alone, and the reverse.

    >>> list(renamed({"network.stack.norm.weight": 0}, {"network.encoder.norm.weight": 0}))
    ['network.encoder.norm.weight']
    """
    pairs = [("network.stack.", "network.encoder."), ("network.embedding.", "network.source_embedding.")]
    names = {}
    for name in given:
        new = name
        for alone, beside in pairs:
            for there, here in ((alone, beside), (beside, alone)):
                if name.startswith(there) and not _has(own, there) and _has(own, here):
                    new = here + name.removeprefix(there)
        names[name] = new
    return {new: given[name] for name, new in names.items()}


def _copy_rows(own: Tensor | None, given: Tensor | None) -> None:
    """Takes over the places that two tables of positions have in common, where one has more than the other."""
    if own is None or given is None or own.shape == given.shape or own.shape[1:] != given.shape[1:]:
        return
    rows = min(len(own), len(given))
    own[:rows].copy_(given[:rows])
    log.info("the first %d of %d places of a learned position are loaded", rows, len(own))


def report(own: dict[str, Tensor], given: dict[str, Tensor], fitting: set[str]) -> list[str]:
    """A line for each part: how many of its weights were loaded, are new, have another shape, or are not used here."""
    counts: dict[str, Counter[str]] = {}
    for name in [*own, *(name for name in given if name not in own)]:
        here = "of another shape" if name in given else "new"
        what = "loaded" if name in fitting else here if name in own else "not used"
        counts.setdefault(_part(name), Counter())[what] += (own[name] if name in own else given[name]).numel()
    width = max(len(part) for part in counts)
    shown = {part: ", ".join(f"{count:,} {what}" for what, count in counted.items()) for part, counted in counts.items()}
    return [f"{part:<{width}}  {what}" for part, what in shown.items()]


def _part(name: str) -> str:
    """The part of a model that a weight belongs to.

    >>> _part("network.stack.blocks.0.norm.weight"), _part("output.weight"), _part("tasks.mood.output.weight")
    ('stack', 'output', 'tasks.mood')
    """
    names = name.split(".")
    if names[0] == "tasks":
        return ".".join(names[:2])
    return names[1] if names[0] == "network" and len(names) > 1 else names[0]


def _has(weights: dict[str, Any], beginning: str) -> bool:
    return any(name.startswith(beginning) for name in weights)


def _class_name(value: Any) -> str:
    """A class as people write it, by its bare name; anything else as it is."""
    return str(value["class_path"]).rpartition(".")[2] if isinstance(value, dict) and "class_path" in value else str(value)
