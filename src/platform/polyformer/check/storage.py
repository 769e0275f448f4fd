"""Laws about saving and loading."""

from collections import defaultdict

import torch
from torch import Tensor, nn

from polyformer.check.kinds import probe_of
from polyformer.check.law import NotApplicable, Result, counted, several
from polyformer.check.subject import Subject
from polyformer.training.task import Task

__all__ = ["saved", "tied"]


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
