"""The base of every task: what a subclass must say, and everything it inherits.

A task is a LightningModule. A subclass names its options and its data, builds its network, and says what its loss is, what
it measures, and how it answers a user's line of text; optimizer, schedule, exact weighting, logging and checkpoints come
from here.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.optim import Optimizer

from polyformer.data import DataModule
from polyformer.models import StackOptions
from polyformer.text import Assets
from polyformer.training.contract import Answer, Loss, shortened
from polyformer.training.gather import add_sums, gather_objects, sum_over_ranks
from polyformer.training.recipe import Recipe, parameter_groups
from polyformer.training.schedules import Horizon

__all__ = ["Task"]

log = logging.getLogger("polyformer")

GRADIENT_SCALE = 4096.0
"""Losses are summed over tokens; this power of two keeps their gradients in the range of half precision, and cancels."""


class Task(LightningModule):
    """Base of all tasks.

    Args:
        assets: Tokenizers and labels, which go into the checkpoint.
        options: What the user chose under `model:`.
    """

    model_class: ClassVar[type[StackOptions]]
    """Dataclass of the options under `model:`."""

    data_class: ClassVar[type[DataModule]]
    """Class of the options under `data:`."""

    monitor: tuple[str, Literal["min", "max"]] = ("val/loss", "min")
    """The metric that decides which checkpoint is best, and its better side."""

    trains_all_parameters: ClassVar[bool] = True
    """Whether every step trains every parameter, which lets ranks reduce gradients without asking for each.

    A module within a task may say False too, as one with experts does.
    """

    def __init__(self, assets: Assets, options: StackOptions) -> None:
        super().__init__()
        self.assets, self.options = assets, options
        self.recipe = Recipe()
        self.settings: dict[str, Any] = {}
        self.tokens_seen = 0
        self.learning_rate = 0.0
        self.metrics: dict[str, float] = {}
        self.shown: list[str] = []
        self.sampled: list[dict[str, Any]] = []
        self.example = ""
        self.draw: Callable[[], dict[str, Any]] = dict
        self.tell: Callable[[], list[dict[str, Any]]] = list
        self.data: Any = None  # what is being measured, for tasks that need more of it than records
        self._given_options: list[dict[str, Any]] = []
        self.served: list[tuple[Any, dict[str, Tensor]]] = []  # the batches of the step being made, and what they came to
        self._train_sums: dict[str, Tensor] = {}
        self._sums: dict[str, Tensor] = {}
        self._records: list[tuple[int, Any]] = []

    @property
    def leaves_parameters_out(self) -> bool:
        """Whether a step may leave parameters without a gradient, of the task or of a module within it."""
        return any(not getattr(module, "trains_all_parameters", True) for module in self.modules())

    # ---- what a subclass says

    @classmethod
    def check(cls, options: Any, data: Any, training: bool) -> None:
        """Refuses options of model and data that do not go together.

        Args:
            options: What `model:` says.
            data: What `data:` says.
            training: Whether a model is to be trained with them, or used.

        Raises:
            ValueError: Naming both keys; from here, for texts that are longer than the position can tell.
        """
        limits: Any = getattr(data, "text_limits", None)
        limit = None if limits is None else options.limit(causal=False)
        if limit is not None and limits.max_length > limit:
            raise ValueError(
                f"the data's `max_length` ({limits.max_length}) must not be above `model.max_length` ({limit}), which is "
                "all that the position and the mixer have room for"
            )

    def accept(self, data: Any) -> None:
        """Looks at the loaded data before training. Raises ValueError for what the network cannot take, naming the keys."""

    def loss(self, batch: Any) -> Loss:
        """The loss of a batch."""
        raise NotImplementedError

    def evaluate(self, batch: Any, split: str) -> tuple[Loss, list[tuple[int, Any]]]:
        """The loss of a batch, and a record for each of its examples as (example number, what :meth:`measure` needs)."""
        return self.loss(batch), []

    def measure(self, sums: dict[str, float], records: list[Any], split: str) -> dict[str, float]:
        """Metrics of a whole split.

        Args:
            sums: "loss", "count" and the other sums of :class:`Loss`, over all batches and ranks.
            records: Those of :meth:`evaluate`, over all ranks, in the order of the examples, each example once.
            split: "val" or "test".
        """
        return {"loss": sums["loss"] / sums["count"]}

    def trained(self, sums: dict[str, float]) -> dict[str, float]:
        """What is logged of training, from the sums of the steps since it was last; the accuracy where "correct" is summed."""
        shares = {"accuracy": sums["correct"] / sums["count"]} if "correct" in sums else {}
        return {"loss": sums["loss"] / sums["count"], **shares}

    def signatures(self) -> dict[str, str]:
        """How metrics were computed, where their name does not say it all."""
        return {}

    def samples(self, records: list[Any]) -> list[str]:
        """A few lines that show a person what the model does now."""
        return []

    def sample_rows(self, records: list[Any]) -> list[dict[str, Any]]:
        """The same examples at each validation as rows of a table, such as source, reference, output and score.

        Where there are none, the lines of :meth:`samples` are kept as one text.
        """
        return []

    def example_rows(self, records: list[Any]) -> list[dict[str, Any]]:
        """Every example of a test, by which models are compared: "input", "reference", "output", and whether it is "correct".

        Of running text, for each document "input", "nats", "tokens" and "bytes". Of inputs only the beginning is kept.
        """
        return []

    def pictures(self, records: list[Any]) -> dict[str, Any]:
        """Figures of matplotlib's that show a person how the model does, by name; drawn when training has ended."""
        return {}

    def try_line(self, records: list[Any]) -> str:
        """A line that a user may try `platform predict` on."""
        return ""

    def answer(self, lines: Sequence[str]) -> list[Answer]:
        """What `platform predict` prints for each line."""
        raise NotImplementedError

    def stream(self, line: str) -> Iterator[str]:
        """The answer to one line in pieces, as they come: what `platform predict --stream` prints."""
        raise ValueError(f"{type(self).__name__} answers at once: leave --stream out")

    def skip(self, lines: int) -> None:
        """Passes over lines that another rank answers, where an answer depends on the number of its line."""

    def score(self, lines: Sequence[str]) -> list[Answer]:
        """What `platform score` prints for each line."""
        raise ValueError(f"{type(self).__name__} scores no lines; `platform predict` answers them")

    def remarks(self) -> list[str]:
        """What a user should know of the answers given so far, printed to standard error at the end."""
        return []

    # ---- training

    def on_train_start(self) -> None:
        """Lets the options given now win over those of the optimizer state in a checkpoint that training resumes from."""
        scheduler = self.lr_schedulers()
        assert isinstance(scheduler, torch.optim.lr_scheduler.LambdaLR)
        for group, given in zip(scheduler.optimizer.param_groups, self._given_options, strict=True):
            group.update(given)
        scheduler.base_lrs = [options["initial_lr"] for options in self._given_options]
        for group, base, factor in zip(scheduler.optimizer.param_groups, scheduler.base_lrs, scheduler.lr_lambdas, strict=True):
            group["lr"] = base * factor(scheduler.last_epoch)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Seeds every batch from the run's seed, its own number and the rank: a resumed run drops what it would have.

        The number is counted from the steps made, since Lightning's begins anew when a finished run goes on.
        """
        seed, accumulated = int(self.settings.get("seed", 0)), self.trainer.accumulate_grad_batches
        number = self.trainer.global_step * accumulated + batch_idx % accumulated
        torch.manual_seed(hash((seed, number, self.global_rank)) & 0x7FFF_FFFF_FFFF_FFFF)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = self.loss(batch)
        sums = {"loss": loss.total, "count": loss.count, **loss.sums}
        self.served.append((batch, {name: value.detach() for name, value in sums.items()}))
        return loss.total / GRADIENT_SCALE

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Turns gradients of sums into gradients of the mean over all tokens of the step, whatever batch or rank had them.

        Lightning has divided by the number of accumulated batches, and DDP by the number of ranks.
        """
        group = optimizer.param_groups[0]
        self.learning_rate = float(group["lr"]) / group.get("rate", 1.0)  # after the step the scheduler sets the next one
        served, self.served = [sums for _, sums in self.served], []
        if not served:
            return  # the step is skipped
        total = torch.stack([sums["count"] for sums in served]).sum().float()
        if self.trainer.world_size > 1:
            torch.distributed.all_reduce(total)
        factor = GRADIENT_SCALE * self.trainer.accumulate_grad_batches * self.trainer.world_size / total
        for parameter in self.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(factor)
        for sums in served:
            add_sums(self._train_sums, sums)

    def configure_optimizers(self) -> Any:
        optimizer = self.recipe.optimizer(parameter_groups(self, self.recipe.decayed, self.recipe.tuning.layer_decay))
        for group in optimizer.param_groups:
            group["lr"] *= group["rate"]
        steps = self.trainer.max_steps if self.trainer.max_steps > 0 else None
        schedule = self.recipe.schedule(Horizon(steps, self.options.d_model))
        if steps is not None and schedule.warmup > steps:
            log.warning("the warm-up is %d steps, but the training only %d: the rate never peaks", schedule.warmup, steps)
        # A plain function, since the scheduler would put an object's attributes into the checkpoint.
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: schedule(step))
        self._given_options = [{name: group[name] for name in group if name != "params"} for group in optimizer.param_groups]
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def take_train_sums(self) -> dict[str, float]:
        """The training sums since this was last called, over all ranks; their tokens join those seen."""
        sums, self._train_sums = sum_over_ranks(self._train_sums), {}
        self.tokens_seen += _tokens(sums)
        return sums

    def tokens_so_far(self) -> int:
        """Tokens trained on, those not logged yet included; to be asked on all ranks."""
        return self.tokens_seen + _tokens(sum_over_ranks(self._train_sums))

    # ---- evaluation

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self._evaluate(batch, "val")

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self._evaluate(batch, "test")

    def on_validation_epoch_end(self) -> None:
        self._finish("val")

    def on_test_epoch_end(self) -> None:
        self._finish("test")

    def _evaluate(self, batch: Any, split: str) -> None:
        if batch is None:
            return  # there were fewer batches than ranks
        loss, records = self.evaluate(batch, split)
        add_sums(self._sums, {"loss": loss.total, "count": loss.count, **loss.sums})
        self._records += records

    def _finish(self, split: str) -> None:
        sums, self._sums = sum_over_ranks(self._sums), {}
        gathered, self._records = gather_objects(self._records), []
        records = [record for _, record in sorted(gathered, key=lambda pair: pair[0])]
        if not sums.get("count"):
            raise ValueError(f"the {split} split has no examples")
        self.data = self.trainer.datamodule  # type: ignore[attr-defined]
        metrics = self.measure(sums, records, split)
        self.metrics = {f"{split}/{name}": float(value) for name, value in metrics.items()}
        self.log_dict(self.metrics, logger=False)  # for lightning's callbacks, which round to float32
        self.shown, self.example = self.samples(records), self.try_line(records)
        self.sampled = self.sample_rows(records) or ([{"output": "\n".join(self.shown)}] if self.shown else [])
        self.draw, self.tell = partial(self.pictures, records), lambda: shortened(self.example_rows(records))

    # ---- checkpoints

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """All that use needs beside the weights, in plain types; and the sums not logged yet, which resuming goes on with."""
        checkpoint["polyformer"] = {"settings": self.settings, "assets": self.assets.to_dict()}
        checkpoint["progress"] = {"tokens": self.tokens_seen, "sums": sum_over_ranks(self._train_sums)}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        progress = checkpoint["progress"]
        self.tokens_seen = progress["tokens"]
        if self.global_rank == 0:
            self._train_sums = {name: torch.tensor(value, dtype=torch.float64) for name, value in progress["sums"].items()}


def _tokens(sums: dict[str, float]) -> int:
    """The tokens that sums are over: those of the sum "tokens" where a loss counts something else."""
    return int(sums.get("tokens", sums.get("count", 0)))
