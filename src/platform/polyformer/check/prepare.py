"""From settings or a checkpoint to a subject: reading the data, or making do without it."""

from typing import Any

import torch

from polyformer.check.pool import is_here, parts_of, training_pools
from polyformer.check.subject import Reading, Subject, shake
from polyformer.data import DataModule
from polyformer.text import SPECIALS, Assets, TokenizerSettings, train_tokenizer
from polyformer.training.build import Built
from polyformer.training.chains import Beginning
from polyformer.training.task import Task

__all__ = ["of_checkpoint", "of_settings"]

MADE_UP_SIZE = 1000
"""Tokens of a vocabulary where nothing says how many there are."""


def of_settings(built: Built, device: torch.device) -> Subject:
    """A task with fresh weights that have been shaken.

    Raises:
        ValueError: For data that the network cannot take; and where the data is not to be had, for a task that cannot be made
            without it.
    """
    torch.manual_seed(int(built.settings["seed"]))
    reading = _read(built)
    assets = built.data.assets if reading.data is not None else made_up_assets(built.data)
    try:
        task = built.make_task(assets)
    except (KeyError, ValueError) as error:
        if reading.data is not None:
            raise
        reason = reading.missing or reading.broken
        raise ValueError(f"{reason}\nwithout its data this task cannot be made: {type(error).__name__} {error}") from error
    if reading.data is not None:
        task.accept(reading.data)
    shake(task)
    return Subject(task.to(device), reading, "fresh weights, shaken")


def of_checkpoint(task: Task, built: Built, place: str, device: torch.device) -> Subject:
    """A trained task.

    Args:
        task: As it was loaded.
        built: What its settings describe.
        place: Where it was loaded from.
        device: Where it is to be judged.
    """
    torch.manual_seed(int(built.settings["seed"]))
    return Subject(task.to(device), _read(built), f"the weights of {place}")


def _read(built: Built) -> Reading:
    """The training data, encoded as for a training, or why there is none."""
    data = built.data
    data.seed = int(built.settings["seed"])
    try:
        if built.options.init_from is not None:
            Beginning(built.options.init_from).give_tokenizer(data)
        assert data.assets
        for part in parts_of(data).values():
            part.loaded("train")
            part.seed = data.seed
        return Reading(data, training_pools(data))
    except (OSError, ValueError) as error:
        told = str(error).partition("\n")[0]
        if all(map(is_here, parts_of(data).values())) and built.options.init_from is None:
            return Reading(broken=told)
        return Reading(missing=told)


def made_up_assets(data: DataModule) -> Assets:
    """A tokenizer of as many tokens as the settings ask for, and two labels wherever there are any."""
    parts = parts_of(data)
    settings: Any = getattr(next(iter(parts.values())), "tokenizer", None)
    size = settings.vocab_size if isinstance(settings, TokenizerSettings) else MADE_UP_SIZE
    words = [f"word{number}" for number in range(size - len(SPECIALS))]
    kind = TokenizerSettings(kind="word", vocab_size=size, min_frequency=1)
    tokenizer = train_tokenizer(words, kind, progress=False)
    labels = {f"{name}/label" if name else "label": ["no", "yes"] for name in parts}
    return Assets(dict.fromkeys(("source", "target", "text"), tokenizer), labels)
