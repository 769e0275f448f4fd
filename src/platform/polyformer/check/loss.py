"""Laws about the loss and its gradients, on batches of the task's own data.

Letters: B examples, N places that are predicted, V vocabulary or labels.
"""

import copy
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from polyformer.check.law import NotApplicable, Result, compared, counted, several
from polyformer.check.model import training_without_dropout
from polyformer.check.pool import Pool, evaluation_pools
from polyformer.check.subject import Subject
from polyformer.check.training import trained
from polyformer.training.contract import Loss
from polyformer.training.recipe import Recipe
from polyformer.training.schedules import Constant
from polyformer.training.task import Task

__all__ = ["accumulation", "closed_form", "gradients", "metrics", "padding", "parts"]

RATE = 1.0
"""Of the step whose gradients are looked at: the larger, the less of it is lost to rounding."""
METRIC_TOLERANCE = 1e-3
"""Perplexities are exponentials of sums."""


@torch.no_grad()
def parts(subject: Subject) -> Result:
    """The loss of a batch is the sum of its parts."""
    pools = [pool for pool in subject.pools if len(pool.alike) > 1]
    if not pools:
        raise NotApplicable("no two of the examples looked at are alike in size")
    return _summed(subject, [(pool, pool.alike) for pool in pools], "of one size")


@torch.no_grad()
def padding(subject: Subject) -> Result:
    """Padding adds nothing to the loss."""
    pools = [pool for pool in subject.pools if len({pool.shapes[place] for place in pool.few}) > 1]
    if not pools:
        raise NotApplicable("all examples are of one size, so none is padded")
    return _summed(subject, [(pool, pool.few) for pool in pools], "of different sizes")


def _summed(subject: Subject, chosen: Sequence[tuple[Pool, list[int]]], what: str) -> Result:
    """Whether loss and count of examples together are the sums of those of each alone."""
    pairs = []
    for pool, places in chosen:
        together = subject.task.loss(subject.batch(pool, places))
        alone = [subject.task.loss(subject.batch(pool, [place])) for place in places]
        for take in (_total, _count):
            pairs.append((take(together), torch.stack([take(one) for one in alone]).sum()))
    return compared(pairs, f"{several(sum(len(places) for _, places in chosen), 'example')} {what}")


def _total(loss: Loss) -> Tensor:
    return loss.total.double()


def _count(loss: Loss) -> Tensor:
    return loss.count.double()


@torch.no_grad()
def closed_form(subject: Subject) -> Result:
    """The loss is minus the log-softmax of what is there."""
    batches = [subject.batch(pool, pool.few) for pool in subject.pools]
    result = compared([_plainly(subject, batch) for batch in batches], several(len(batches), "batch"))
    if result.outcome == "fail" and not type(subject.task).loss.__module__.startswith("polyformer."):
        return Result("warning", "the task's loss is its own", result.difference, result.tolerance)
    return result


def _plainly(subject: Subject, batch: Any) -> tuple[Tensor, Tensor]:
    """The loss of a batch, and what it is by a plain log-softmax, where the task shows what that needs."""
    loss, target = subject.task.loss(batch), getattr(batch, "target", None)
    outputs: Callable[[Any], Tensor] | None = getattr(subject.task, "outputs", None)
    if outputs is not None and "reported" in loss.sums and isinstance(target, Tensor) and not target.is_floating_point():
        each = outputs(batch).double().log_softmax(dim=-1)  # (B, K)
        return loss.sums["reported"].double(), -each.gather(1, target.unsqueeze(1)).sum()
    try:
        each, target = subject.probe.log_probabilities(batch)  # (N, V), (N,)
    except AttributeError:
        raise NotApplicable("the batches are of a kind of their own") from None
    smoothing = getattr(subject.task, "label_smoothing", 0.0)
    likelihood, even = each.gather(1, target.unsqueeze(1)).sum(), each.mean(dim=-1).sum()
    return loss.total.double(), -(1.0 - smoothing) * likelihood - smoothing * even


def gradients(subject: Subject) -> Result:
    """Every weight gets a gradient, and a finite one."""
    subject.task.zero_grad()
    for pool in subject.pools:
        subject.task.loss(subject.batch(pool, pool.few)).total.backward()
    trained = [(name, weight.grad) for name, weight in subject.task.named_parameters() if weight.requires_grad]
    without = [name for name, gradient in trained if gradient is None]
    zero = [name for name, gradient in trained if gradient is not None and not bool(gradient.any())]
    infinite = [name for name, gradient in trained if gradient is not None and not bool(gradient.isfinite().all())]
    subject.task.zero_grad()
    problems = [f"{name} gets none" for name in without] + [f"{name} gets one that is not finite" for name in infinite]
    if problems or not zero:
        harmless = not infinite and not subject.task.trains_all_parameters
        return counted(problems, several(len(trained), "weight"), "warning" if harmless else "fail")
    return counted([f"{name} gets nothing but zeros" for name in zero], "", "warning")


def accumulation(subject: Subject) -> Result:
    """Accumulated batches make the same step as one."""
    pairs = []
    for pool in subject.pools:
        middle = len(pool.few) // 2
        if not middle:
            continue
        whole = _step(subject, pool, [pool.few])
        accumulated = _step(subject, pool, [pool.few[:middle], pool.few[middle:]])
        pairs += [(accumulated[name], step) for name, step in whole.items()]
    if not pairs:
        raise NotApplicable("there is one example alone")
    largest = max(float(step.abs().max()) for _, step in pairs)
    scaled = [(one / largest, step / largest) for one, step in pairs]
    return compared(scaled, "2 batches, as a share of the largest step", 10.0)


def _step(subject: Subject, pool: Pool, batches: list[list[int]]) -> dict[str, Tensor]:
    """How far one optimizer step moves each weight, made by the trainer as in a training without dropout."""
    task = copy.deepcopy(subject.task)
    task.recipe = Recipe(optimizer=partial(torch.optim.SGD, lr=RATE), schedule=Constant)
    accelerator = "cpu" if subject.device.type == "cpu" else "gpu"
    keys: dict[str, Any] = {"max_steps": 1, "accumulate_grad_batches": len(batches), "accelerator": accelerator}
    before = {name: weight.detach().clone() for name, weight in task.named_parameters()}
    with training_without_dropout(task), trained(task, [pool.batch(places) for places in batches], **keys):
        return {name: before[name] - weight.detach().to(before[name].device) for name, weight in task.named_parameters()}


@torch.no_grad()
def metrics(subject: Subject) -> Result:
    """Metrics do not depend on how examples are batched."""
    pools = evaluation_pools(subject.data, "validation")
    if not pools:
        raise NotApplicable("there is no validation data")
    whole = _measured(subject, [(pool, pool.places) for pool in pools])
    single = _measured(subject, [(pool, [place]) for pool in pools for place in pool.places])
    gaps = {name: _gap(single[name], value) for name, value in whole.items()}
    worst = max(gaps, key=lambda name: gaps[name])
    what = f"{several(len(gaps), 'metric')} of {several(sum(len(pool.places) for pool in pools), 'example')}"
    holds = gaps[worst] <= METRIC_TOLERANCE
    return Result("pass" if holds else "fail", what if holds else worst, gaps[worst], METRIC_TOLERANCE)


def _gap(one: float, other: float) -> float:
    """The difference, as a share of what is larger than 1; none between two that are no numbers."""
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    gap = abs(one - other) / max(1.0, abs(other))
    return math.inf if math.isnan(gap) else gap


def _measured(subject: Subject, batches: Sequence[tuple[Pool, Sequence[int]]]) -> dict[str, float]:
    """The task's metrics over batches of validation examples."""
    task: Task = subject.task
    sums, records = dict[str, float](), list[tuple[int, Any]]()
    for pool, places in batches:
        loss, found = task.evaluate(subject.batch(pool, places), "val")
        records += found
        for name, value in {"loss": loss.total, "count": loss.count, **loss.sums}.items():
            sums[name] = sums.get(name, 0.0) + float(value)
    task.data = subject.data
    ordered = [record for _, record in sorted(records, key=lambda record: record[0])]
    return {name: float(value) for name, value in task.measure(sums, ordered, "val").items()}
