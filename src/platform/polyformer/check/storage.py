"""Laws about saving and loading."""

import copy
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from polyformer.check.kinds import probe_of
from polyformer.check.law import NotApplicable, Result, counted, several
from polyformer.check.subject import Subject
from polyformer.check.training import trained
from polyformer.training.schedules import Constant
from polyformer.training.task import Task

__all__ = ["resumed", "saved", "tied"]


@torch.no_grad()
def saved(subject: Subject) -> Result:
    """Saved and loaded, the model gives the same to the bit."""
    before, after = _outputs(subject, subject.task), _outputs(subject, subject.reloaded)
    gaps = [float((one.double() - other.double()).abs().max()) for one, other in zip(before, after, strict=True)]
    same = all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    return Result("pass" if same else "fail", several(len(before), "output"), max(gaps), 0.0)


def _outputs(subject: Subject, task: Task) -> list[Tensor]:
    """The network's outputs for the texts; for a network of a kind of its own, the loss of a batch."""
    probe = probe_of(getattr(task, "network", None))
    if probe is not None:
        return probe.outputs(subject.texts)
    return [task.loss(subject.batch(pool, pool.few)).total.unsqueeze(0) for pool in subject.pools]


def tied(subject: Subject) -> Result:
    """Weights that are one are one after loading."""
    groups = _shared(subject.task)
    if not groups:
        raise NotApplicable("no weights are tied")
    lost = set(groups) - set(_shared(subject.reloaded))
    return counted([f"{' and '.join(group)} are no longer one" for group in sorted(lost)], "; ".join(map(" = ".join, groups)))


def _shared(module: nn.Module) -> list[tuple[str, ...]]:
    """The names of each weight that has several."""
    names: dict[int, list[str]] = defaultdict(list)
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names[id(parameter)].append(name)
    return [tuple(group) for group in names.values() if len(group) > 1]


def resumed(subject: Subject) -> Result:
    """A training that is gone on with is the same to the bit."""
    if subject.device.type != "cpu":
        raise NotApplicable(f"kernels of {subject.device.type} may add in any order")
    pool = subject.pools[0]
    first, then = pool.batch(pool.few), pool.batch(pool.alike)
    with TemporaryDirectory() as folder:
        place = Path(folder) / "begun.ckpt"
        whole = _weights(subject, [first, then])
        _weights(subject, [first], end=place)
        again = _weights(subject, [then, then], begin=place)  # the first of two batches has been, whichever is served first
    gaps = [float((again[name].double() - value.double()).abs().max()) for name, value in whole.items() if value.numel()]
    same = all(torch.equal(again[name], value) for name, value in whole.items())
    return Result("pass" if same else "fail", "2 steps, and the second of them after loading", max(gaps), 0.0)


def _weights(subject: Subject, batches: Sequence[Any], begin: Path | None = None, end: Path | None = None) -> dict[str, Tensor]:
    """The weights after a step for each batch with the task's own optimizer and dropout.

    Args:
        subject: Whose task is trained, a copy of it.
        batches: One for each step.
        begin: A checkpoint to go on from, whose steps are not made again.
        end: Where the end is saved.
    """
    task = copy.deepcopy(subject.task).train()
    task.recipe = replace(task.recipe, schedule=Constant)
    with trained(task, batches, begin, max_steps=len(batches), accelerator="cpu") as trainer:
        if end is not None:
            trainer.save_checkpoint(end)
        return task.state_dict()
