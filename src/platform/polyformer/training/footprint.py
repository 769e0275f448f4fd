"""How much memory a training step takes, told before the first one."""

import logging
import sys
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from polyformer.data import DataModule, TextStream
from polyformer.data.text_batch import batch_windows
from polyformer.data.windows import windows_in_batch
from polyformer.training.losses import CHUNK_BYTES
from polyformer.training.memory import device_memory, peak_memory
from polyformer.training.recipe import parameter_groups
from polyformer.training.sharding import FullySharded
from polyformer.training.task import Task

__all__ = ["Footprint", "MemoryEstimate", "footprint_of", "measured_activations", "sample_batches", "whole_batch"]

log = logging.getLogger("polyformer")

LOOKED_AT = 2000
"""Batches among which the largest is looked for."""
LONGEST = 3e11
"""Operations of a forward pass that a processor does in a few seconds; more would keep a user waiting."""
LOGITS = 3
"""Copies of a chunk of logits: as they are, in float32, and their softmax."""
PROXY = 8


@dataclass(frozen=True)
class Activations:
    """What a forward pass keeps for the backward pass, and what it needs for a while beside that, in bytes.

    Args:
        fixed: Of both, whatever the batch.
        kept: For each place of the batch, padding included.
        beside: Likewise, for a while.
        most: As much as the places need for a while at most, since logits are made in chunks.
    """

    fixed: float
    kept: float
    beside: float
    most: float

    def of(self, places: int) -> int:
        """Of a batch of so many places."""
        return round(self.fixed + self.kept * places + min(self.beside * places, self.most))


@dataclass(frozen=True)
class Footprint:
    """Bytes that a step needs at its peak, which is when the backward pass begins: the last gradients are still there.

    >>> str(Footprint(parameters=4_000_000, gradients=4_000_000, optimizer=8_000_000, averages=0, activations=100_000_000))
    'about 116 MB: parameters 4 MB, gradients 4 MB, optimizer state 8 MB, activations 100 MB'
    """

    parameters: int
    gradients: int
    optimizer: int
    averages: int
    activations: int | None

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.optimizer + self.averages + (self.activations or 0)

    def __str__(self) -> str:
        shown = {"parameters": self.parameters, "gradients": self.gradients, "optimizer state": self.optimizer}
        shown |= {"averaged weights": self.averages} if self.averages else {}
        parts = [f"{name} {in_words(value)}" for name, value in shown.items()]
        parts.append("activations unknown" if self.activations is None else f"activations {in_words(self.activations)}")
        return f"about {in_words(self.total)}: {', '.join(parts)}"


class MemoryEstimate(Callback):
    """Says what a step needs and what there is, and warns where that will not be enough."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The first rank measures for all; shards are not measured, since no rank can make a step alone."""
        if not trainer.is_global_zero or isinstance(trainer.strategy, FullySharded):
            return
        data: DataModule = cast(Any, trainer).datamodule
        rows = sample_batches(data, trainer.world_size)
        task, activations = cast(Task, pl_module), None
        if is_quick(task, rows):
            activations = measured_activations(task, rows, trainer).of(rows.places)
        needed = footprint_of(task, trainer, activations)
        there, batches = device_memory(pl_module.device), data.batches
        log.info("memory of a training step: %s; of %s", needed, in_words(there))
        held = peak_memory() - needed.parameters if pl_module.device.type == "cpu" else 0  # by libraries and data
        if needed.total + held > there:
            log.warning(
                "this will probably not fit: lower `data.batches.tokens` (%d), and raise `trainer.accumulate_grad_batches` for "
                "the same result; `platform find tokens` looks for what fits",
                batches.tokens,
            )


def footprint_of(task: Task, trainer: Trainer, activations: int | None) -> Footprint:
    """What a step needs that keeps so much for its backward pass."""
    trained = sum(size_of(parameter) for parameter in task.parameters() if parameter.requires_grad)
    weights = sum(map(size_of, [*task.parameters(), *task.buffers()]))
    return Footprint(
        parameters=weights,
        gradients=2 * trained if isinstance(trainer.strategy, DDPStrategy) else trained,  # DDP reduces a copy
        optimizer=optimizer_bytes(task),
        averages=weights if task.recipe.averaging.kind in ("ema", "swa") else 0,
        activations=activations,
    )


@dataclass(frozen=True)
class Rows:
    """The first rows of the largest batch of a rank.

    Args:
        batches: One row; and two, where there are as many.
        sizes: The places of each of these.
        places: Those of the whole batch.
    """

    batches: list[Any]
    sizes: list[int]
    places: int


def sample_batches(data: DataModule, world: int, counts: tuple[int, ...] = (1, 2)) -> Rows:
    """Looks for the batch with the most places among the first of an epoch, and makes its first rows.

    Args:
        data: Of a text that is read as a stream nothing is read: ids are drawn.
        world: How many ranks share a batch.
        counts: How many rows; those beyond what the batch has are left out.
    """
    if isinstance(data, TextStream):
        size = -(-windows_in_batch(data.batches.tokens, data.window, data.batches.max_examples, world) // world)
        drawn = np.random.default_rng(0).integers(len(data.text_tokenizer), size=(size, data.window + 1))
        few = sorted({min(count, size) for count in counts})
        batches = [batch_windows({"tokens": drawn[:count], "index": range(count)}, data.layout) for count in few]
        return Rows(batches, [count * data.window for count in few], size * data.window)
    plan, source = data.used_plan(world), data.training_source()
    batch = plan.split(max(plan.plan(0)[:LOOKED_AT], key=plan.places), 0, world)
    chosen = [batch[:count] for count in sorted({min(count, len(batch)) for count in counts})]
    batches = [data.prepare_training({**source[rows.tolist()], "index": rows.tolist()}, 0) for rows in chosen]
    return Rows(batches, [plan.places(rows) for rows in chosen], plan.places(batch))


def whole_batch(data: DataModule) -> Any:
    """The batch with the most places, for one device."""
    return sample_batches(data, 1, (sys.maxsize,)).batches[0]


def is_quick(task: Task, rows: Rows) -> bool:
    """Whether measuring keeps nobody waiting."""
    work = 2.0 * sum(parameter.numel() for parameter in task.parameters()) * sum(rows.sizes)
    return task.device.type != "cpu" or work <= LONGEST


def measured_activations(task: Task, rows: Rows, trainer: Trainer) -> Activations:
    """Runs one row forward, and two, and draws the line through what they need."""
    measured = [forward_bytes(task, batch.to(task.device), trainer) for batch in rows.batches]
    most = LOGITS * CHUNK_BYTES.get(task.device.type, 1 << 30)
    first, last, more = measured[0], measured[-1], rows.sizes[-1] - rows.sizes[0]
    if not more:
        return Activations(0.0, first[0] / rows.sizes[0], first[1] / rows.sizes[0], most)
    kept, beside = (max(0.0, (last[at] - first[at]) / more) for at in (0, 1))
    fixed = sum(last) - (kept + beside) * rows.sizes[-1]
    return Activations(max(0.0, fixed), kept, beside, most)


class LiveBytes(TorchDispatchMode):
    """Adds up the storages that are made while it is entered, as long as they live.

    Args:
        own: Those that were there before.
    """

    def __init__(self, own: Iterable[Tensor]) -> None:
        super().__init__()
        self.live, self.peak = 0, 0
        self._own = {tensor.untyped_storage()._cdata for tensor in own}
        self._made: dict[int, Any] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._add(tensor.untyped_storage())
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._own or key in self._made:
            return
        self._made[key] = weakref.ref(storage, lambda _: self._drop(key, size))
        self.live += size
        self.peak = max(self.peak, self.live)

    def _drop(self, key: int, size: int) -> None:
        self.live -= size
        del self._made[key]


def forward_bytes(task: Task, batch: Any, trainer: Trainer) -> tuple[int, int]:
    """What is kept when the forward pass of a batch is over, and how much more there was at its peak."""
    devices = [] if task.device.type == "cpu" else [task.device]
    random = torch.random.fork_rng(devices, device_type="cuda" if not devices else task.device.type)
    counted = LiveBytes([*task.parameters(), *task.buffers()])
    with random, trainer.precision_plugin.forward_context(), counted:
        loss = task.loss(batch)
    kept = counted.live
    assert loss.total.requires_grad  # and keeps until here all that its gradient needs
    return kept, counted.peak - kept


def optimizer_bytes(task: Task) -> int:
    """What the optimizer keeps of all parameters, found by a step on small ones of the same kinds."""
    recipe = task.recipe
    groups = parameter_groups(task, recipe.decayed, recipe.tuning.layer_decay)
    pairs: list[tuple[nn.Parameter, nn.Parameter]] = []
    for group in groups:
        proxies = [proxy_of(parameter) for parameter in group["params"]]
        pairs += zip(group["params"], proxies, strict=True)
        group["params"] = proxies
    optimizer = recipe.optimizer(groups)
    optimizer.step(lambda: 0.0)
    total = 0.0
    for parameter, small in pairs:
        held = sum(size_of(value) for value in optimizer.state[small].values() if isinstance(value, Tensor) and value.dim())
        total += held * parameter.numel() / small.numel()
    return round(total)


def proxy_of(parameter: nn.Parameter) -> nn.Parameter:
    """A small parameter of the same number of dimensions and type, with a gradient."""
    small = nn.Parameter(torch.zeros([min(PROXY, size) for size in parameter.shape], dtype=parameter.dtype))
    small.grad = torch.zeros_like(small)
    return small


def size_of(tensor: Tensor) -> int:
    """Bytes of a tensor."""
    return tensor.numel() * tensor.element_size()


def in_words(size: int) -> str:
    """Bytes as a person reads them.

    >>> in_words(123_456), in_words(2_500_000_000)
    ('0.1 MB', '2.5 GB')
    """
    if size < 1e9:
        return f"{size / 1e6:.{1 if size < 1e6 else 0}f} MB"
    return f"{size / 1e9:.1f} GB"
