"""How long a training is, which batches it has, and when it is validated: Lightning's keys, read for token batches.

One Lightning epoch is the whole training here, so what Lightning would count in epochs is counted in passes over the data.
"""

from typing import Any

from jsonargparse import Namespace

from polyformer.data import DataModule
from polyformer.data.limited import FewBatches
from polyformer.training.recipe import Recipe

__all__ = ["check_validation", "few_batches", "has_split", "said_of_end", "steps_of", "trainer_keys"]


def few_batches(keys: Namespace) -> FewBatches | None:
    """Which training batches are used; None: all of them.

    >>> few_batches(Namespace(overfit_batches=2, limit_train_batches=None))
    FewBatches(limit=2, key='trainer.overfit_batches', same=True)

    Raises:
        ValueError: For a number below 0, and for a share above 1.
    """
    same = bool(keys.overfit_batches)
    name, limit = ("overfit_batches", keys.overfit_batches) if same else ("limit_train_batches", keys.limit_train_batches)
    if limit is None:
        return None
    if limit < 0 or (isinstance(limit, float) and limit > 1.0):
        raise ValueError(f"`trainer.{name}` must be a number of batches, or a share of them up to 1.0, but is {limit}")
    return FewBatches(limit, f"trainer.{name}", same)


def has_split(data: DataModule, keys: Namespace, split: str) -> bool:
    """Whether there is data of a split, and any of it is to be used."""
    limit = getattr(keys, {"validation": "limit_val_batches", "test": "limit_test_batches"}[split])
    return data.contents(split) is not None and limit != 0


def check_validation(data: DataModule, keys: Namespace, recipe: Recipe) -> None:
    """Refuses what needs validations where there are none.

    Raises:
        ValueError: Naming the key that needs them.
    """
    if has_split(data, keys, "validation"):
        return
    needs = {"training.patience": recipe.patience is not None,
             "training.averaging.kind": recipe.averaging.kind in ("last", "best")}  # fmt: skip
    for key in (key for key, needed in needs.items() if needed):
        if keys.limit_val_batches == 0:
            raise ValueError(f"`{key}` needs validations, but `trainer.limit_val_batches` is 0")
        raise ValueError(f"`{key}` needs validations, but no validation data is given; add --data.validation FILE")


def steps_of(keys: Namespace, data: DataModule, devices: int = 1) -> int:
    """The length of a training in optimizer steps.

    Raises:
        ValueError: If it is not given.
    """
    per_epoch = data.batches_per_epoch(devices)
    given = [keys.max_steps] if keys.max_steps > 0 else []
    if keys.max_epochs is not None and keys.max_epochs > 0 and per_epoch is not None:
        given.append(max(1, int(keys.max_epochs * per_epoch / keys.accumulate_grad_batches)))
    if keys.fast_dev_run:
        given.append(int(keys.fast_dev_run))
    if not given:
        way = "" if per_epoch is None else " or `trainer.max_epochs`"
        raise ValueError(f"how long to train is not given: set `trainer.max_steps`{way}")
    return min(given)


def said_of_end(keys: Namespace, steps: int) -> str:
    """Which of two lengths that were given ends a training first; nothing where one was given.

    >>> said_of_end(Namespace(max_steps=30, max_epochs=3, fast_dev_run=False), 6)
    ': `trainer.max_epochs` 3 ends it before `trainer.max_steps` 30'
    """
    if keys.max_steps <= steps or keys.max_epochs is None or keys.fast_dev_run:
        return ""
    return f": `trainer.max_epochs` {keys.max_epochs:g} ends it before `trainer.max_steps` {keys.max_steps:,}"


def trainer_keys(keys: Namespace, data: DataModule, steps: int, devices: int = 1) -> Namespace:
    """What Lightning is told, so that the end of a pass over the data means nothing to it.

    Raises:
        ValueError: For a value that makes no sense.
    """
    accumulated, per_epoch = int(keys.accumulate_grad_batches), data.batches_per_epoch(devices)
    overfits = bool(keys.overfit_batches)
    every: Any = keys.val_check_interval  # in optimizer steps, as everything here; or a share of a pass over the data
    if every is not None and not every > 0:
        raise ValueError(f"`trainer.val_check_interval` must be a number of steps, or a share of a pass, but is {every}")
    if keys.gradient_clip_val is not None and not keys.gradient_clip_val >= 0:
        raise ValueError(
            f"`trainer.gradient_clip_val` must be at least 0, where gradients stay as they are, but is {keys.gradient_clip_val}"
        )
    if every is None or isinstance(every, float):
        whole = steps if per_epoch is None or overfits else per_epoch / accumulated
        every = max(1, round((every or 1.0) * whole))
    ours = {
        "max_steps": steps,
        "max_epochs": -1,
        "val_check_interval": min(every, steps) * accumulated,
        "overfit_batches": 0.0,  # the data module serves those few alone, as those of the next key
        "limit_train_batches": None,
        "limit_val_batches": keys.overfit_batches if overfits else keys.limit_val_batches,
    }
    return Namespace(**{**vars(keys), **ours})
