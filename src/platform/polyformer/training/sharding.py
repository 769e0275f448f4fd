"""Weights, gradients and optimizer state in shards, one on each rank (ZeRO stage 3, Rajbhandari et al. 2020; FSDP2 of torch).

Lightning's own FSDP strategy runs on GPUs only and cannot clip gradients by their norm; this one is the part of it that
Polyformer needs, on torch's `fully_shard`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from polyformer.nn import DecoderBlock, EncoderBlock
from polyformer.training.optimizers import MuonAdamW
from polyformer.training.task import Task

__all__ = ["FullySharded", "check_sharded", "load_weights"]


def check_sharded(settings: Mapping[str, Any], task: type[Task]) -> None:
    """Refuses what needs whole weights where no rank has them.

    Args:
        settings: The run's.
        task: What is trained.

    Raises:
        ValueError: Naming the key to change.
    """
    training = settings["training"]
    if settings["trainer"]["strategy"] != "fsdp":
        raise ValueError("`trainer.strategy` must be fsdp for shards, but is fsdp_cpu_offload")
    if not hasattr(FSDPModule, "reset_iter_state"):
        raise ValueError(f"`trainer.strategy` fsdp needs torch 2.13 or later, but this is {torch.__version__}")
    if not task.trains_all_parameters:
        raise ValueError(f"`trainer.strategy` fsdp needs a task whose steps train all weights, unlike {task.__name__}: use ddp")
    if (kind := training["averaging"]["kind"]) in ("ema", "swa"):
        raise ValueError(
            f"`training.averaging.kind` {kind} keeps whole weights on every rank, which `trainer.strategy` fsdp avoids: use "
            "last or best"
        )
    if training["optimizer"]["class_path"].endswith(f".{MuonAdamW.__name__}"):
        raise ValueError(
            "`training.optimizer` MuonAdamW makes whole matrices orthogonal, which no rank has under `trainer.strategy` fsdp: "
            "use FusedAdamW"
        )


class Root(nn.Module):
    """A task's parts under their own names, as the unit that holds what is in no block.

    Args:
        task: The task, whose own class is left alone.
    """

    def __init__(self, task: nn.Module) -> None:
        super().__init__()
        for name, part in task.named_children():
            self.add_module(name, part)

    def forward(self, step: Callable[..., Tensor], *arguments: Any) -> Tensor:
        """A training step, within which the weights of this unit are whole."""
        return step(*arguments)


class FullySharded(DDPStrategy):
    """`trainer.strategy: fsdp`: each rank keeps a part of every weight, of its gradient and of its optimizer state.

    The weights of a block are whole only while it runs, all others during a training step. For evaluations all of them are
    whole on every rank, since ranks write texts of different lengths and would wait for each other at different places.
    Gradients are means over ranks, as DDP's. Checkpoints are those of any other strategy: one file with whole tensors.
    """

    strategy_name = "fsdp"

    def __init__(self) -> None:
        super().__init__()
        self.units: list[FSDPModule] = []

    @property
    def root(self) -> FSDPModule | None:
        """The unit of everything outside of blocks; None until training begins."""
        return self.units[-1] if self.units else None

    def setup(self, trainer: Trainer) -> None:
        """Shards the weights when training begins; a task that is only evaluated stays whole on every rank."""
        if self.root is None and trainer.state.fn != TrainerFn.FITTING:
            super().setup(trainer)
        assert self.accelerator is not None and self.lightning_module is not None
        if self.root is None and trainer.state.fn == TrainerFn.FITTING:
            self.accelerator.setup(trainer)
            self.precision_plugin.convert_module(self.lightning_module)
            mesh = init_device_mesh(self.root_device.type, (self.world_size,))
            self.units = shard(self.lightning_module, mesh)
            self.lightning_module.to(self.root_device)  # what is not in shards
            self.setup_optimizers(trainer)
            self.setup_precision_plugin()

    def training_step(self, *arguments: Any, **_: Any) -> Any:
        assert isinstance(self.root, Root) and self.lightning_module is not None
        with self.precision_plugin.train_step_context():
            return self.root(self.lightning_module.training_step, *arguments)

    def teardown(self) -> None:
        """Leaves the shards where they are, since tests come after training."""
        assert self.cluster_environment is not None and self.accelerator is not None
        self.cluster_environment.teardown()
        self.precision_plugin.teardown()
        self.accelerator.teardown()

    # ---- whole weights

    def gather(self) -> None:
        """Makes all weights whole on every rank, until :meth:`release`; all ranks must call it."""
        with torch.inference_mode(False):
            for unit in self.units:
                unit.set_reshard_after_forward(False, recurse=False)
                unit.unshard()

    def release(self) -> None:
        """Drops all but this rank's shards."""
        if self.root is not None:
            self.root.reset_iter_state()
            for unit in self.units:
                unit.set_reshard_after_forward(unit is not self.root, recurse=False)

    def on_validation_start(self) -> None:
        self.gather()

    def on_validation_end(self) -> None:
        self.release()

    def on_test_start(self) -> None:
        self.gather()

    # ---- checkpoints

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """The whole weights, on the first rank; all ranks must call it."""
        assert self.lightning_module is not None
        return self._whole(self.lightning_module.state_dict(keep_vars=True))

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """The whole state, on the first rank, as an optimizer of whole weights has it; all ranks must call it."""
        inner = optimizer.optimizer if isinstance(optimizer, LightningOptimizer) else optimizer
        content = inner.state_dict()
        return {**content, "state": {number: self._whole(state) for number, state in content["state"].items()}}

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, content in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            numbers = [number for group in content["param_groups"] for number in group["params"]]
            parameters = dict(zip(numbers, (each for group in optimizer.param_groups for each in group["params"]), strict=True))
            state = {
                number: {name: _like(value, parameters[number]) for name, value in values.items()}
                for number, values in content["state"].items()
            }
            optimizer.load_state_dict({**content, "state": state})

    def _whole(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values with shards put together and brought to the processor; of tied weights, one tensor. Empty on other ranks."""
        gathered: dict[int, Any] = {}
        with torch.inference_mode(False), torch.no_grad():
            for value in values.values():
                if isinstance(value, DTensor) and id(value) not in gathered:
                    whole = value.full_tensor()
                    gathered[id(value)] = whole.cpu() if self.is_global_zero else None
        if not self.is_global_zero:
            return {}
        return {name: gathered.get(id(value), _detached(value)) for name, value in values.items()}


def shard(task: nn.Module, mesh: DeviceMesh) -> list[FSDPModule]:
    """Shards a task's weights over a mesh, block by block; the units, the last of which holds what is in no block."""
    units: list[FSDPModule] = []
    for block in [module for module in task.modules() if isinstance(module, EncoderBlock | DecoderBlock)]:
        units.append(fully_shard(block, mesh=mesh))
    units.append(fully_shard(Root(task), mesh=mesh))
    for unit in units:
        unit.set_force_sum_reduction_for_comms(mesh.device_type == "cpu")  # gloo has no means
    return units


def load_weights(trainer: Trainer, task: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Puts weights into a task, whose own are whole on every rank after it; all ranks must call it."""
    strategy = trainer.strategy
    if not isinstance(strategy, FullySharded) or strategy.root is None:
        task.load_state_dict(weights)
        return
    strategy.release()
    own = task.state_dict()
    task.load_state_dict({name: _like(value, own[name]) if name in own else value for name, value in weights.items()})
    strategy.gather()


def _like(value: Any, other: Any) -> Any:
    """A whole tensor sharded as another of its shape is; anything else as it is."""
    if not (isinstance(value, Tensor) and isinstance(other, DTensor) and value.shape == other.shape):
        return value
    there = value.to(other.device)
    return distribute_tensor(there, other.device_mesh, other.placements, src_data_rank=None)  # every rank has read it


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value
