"""One training from beginning to end: the trainer, the best checkpoint, the test, the results."""

import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from jsonargparse import Namespace
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import DDPStrategy

from polyformer.better import better_side
from polyformer.plain import write_json_lines
from polyformer.training.averaging import CheckpointMean, MovingMean, StepMean
from polyformer.training.build import Built
from polyformer.training.chains import Beginning
from polyformer.training.checkpoints import AtomicCheckpointIO, Checkpoints, read_checkpoint
from polyformer.training.facts import fingerprints
from polyformer.training.freezing import GradualUnfreezing, freeze, frozen_parts
from polyformer.training.low_rank import add_differences
from polyformer.training.memory import keep_freed_memory, peak_memory
from polyformer.training.progress import Meter, log
from polyformer.training.redrawing import Redrawing
from polyformer.training.resuming import Patience, check_resumable
from polyformer.training.run import MetricsFile, RunFolder
from polyformer.training.task import Task
from polyformer.training.trackers import make_trackers
from polyformer.training.tracking import Trackers, Tracking

__all__ = ["Fitting", "make_trainer"]


def make_trainer(settings: Namespace | None, **ours: Any) -> Trainer:
    """Lightning's trainer with the user's keys and without the parts that Polyformer has its own of."""
    keys = {} if settings is None else dict(vars(settings))
    fixed = {
        "enable_checkpointing": False,
        "enable_model_summary": False,
        "enable_progress_bar": False,
        "logger": False,
        "num_sanity_val_steps": 0,
        "use_distributed_sampler": False,
    }
    return Trainer(**{**keys, **fixed, **ours})


class Fitting:
    """A training that has been described completely.

    Args:
        built: The objects that the settings describe.
        run: Where everything goes.
        draw: Figures of a trained task by name, beside its own; made where the run is tracked.

    Raises:
        ValueError: For a seed below 0, and for a tracker that is not installed.
    """

    def __init__(self, built: Built, run: RunFolder, draw: Callable[[Task], dict[str, Any]] | None = None) -> None:
        self.built, self.run, self.keys, self.draw = built, run, built.trainer, draw
        self.trackers = Trackers(make_trackers(built.settings), run)
        self.data, self.recipe, self.seed = built.data, built.recipe, int(built.settings["seed"])
        if self.seed < 0:
            raise ValueError(f"`seed` must be at least 0, but is {self.seed}")
        self.data.seed = self.seed

    def fit(self, resume: bool, on_start: Callable[[], None] | None = None) -> dict[str, Any]:
        """Trains, tests the best checkpoint where test data is given, and writes `results.json`.

        Args:
            resume: Go on from `last.ckpt`; where there is none yet, from the beginning.
            on_start: Called when everything has been accepted and the first step is about to be made.

        Returns:
            What `results.json` holds.
        """
        keep_freed_memory()
        task, start = self._accepted(resume)
        monitor = self.recipe.monitor or task.monitor[0]
        mode = task.monitor[1] if monitor == task.monitor[0] else better_side(monitor)
        checkpoints = Checkpoints(self.run.checkpoints, monitor, mode, self.recipe.save_every, self.recipe.keep)
        meter = Meter(self.keys.log_every_n_steps or 50)
        metrics_file = MetricsFile(self.run.path / "metrics.csv")
        steps = self._steps()
        averaging = self._averaging(monitor, mode, steps)
        started = LambdaCallback(on_train_start=lambda *_: on_start() if on_start is not None else None)
        tuning = [*self._tune(task), Redrawing(self.seed)]
        callbacks = [started, meter, *tuning, *averaging, *self._patience(monitor, mode), checkpoints]
        callbacks.append(Tracking(self.trackers, checkpoints, self.built.settings))
        trainer = self._trainer(steps, [metrics_file, self.trackers], callbacks)
        if start is not None:
            metrics_file.resume(start["global_step"])
            log.info("resuming from step %d", start["global_step"])
        if isinstance(trainer.strategy, DDPStrategy):
            trainer.strategy._ddp_kwargs.setdefault("find_unused_parameters", not task.trains_all_parameters)
        log.info("%s, %s steps", count_parameters(task), f"{trainer.max_steps:,}")
        with self.trackers:
            trainer.fit(task, datamodule=self.data, ckpt_path=None if start is None else self._last, weights_only=True)
            if trainer.fast_dev_run:  # type: ignore[attr-defined]
                return {"metrics": {}}
            return self._finish(trainer, task, meter, averaging, checkpoints)

    @property
    def _last(self) -> Path:
        return self.run.checkpoints / "last.ckpt"

    def _accepted(self, resume: bool) -> tuple[Task, dict[str, Any] | None]:
        """The task as training begins with it, and the checkpoint that training goes on from; mistakes are said soon."""
        torch.manual_seed(self.seed)
        make_trainer(Namespace(**{**vars(self.keys), "max_steps": 1, "max_epochs": -1, "val_check_interval": None}))
        self._check_validation()  # as above: before hours of work on data
        start = read_checkpoint(self._last) if resume and self._last.exists() else None
        place = self.built.options.init_from
        beginning = None if place is None else Beginning(place if start is None else str(self._last))
        if beginning is not None:
            beginning.give_tokenizer(self.data)
        self.data.prepare_data()
        task = self.built.make_task(self.data.assets)
        task.accept(self.data)
        if beginning is not None and start is None:
            beginning.give_weights(task)
        if self.recipe.tuning.low_rank.rank:
            add_differences(task, self.recipe.tuning.low_rank)
        if start is not None:
            check_resumable(task, start)
        return task, start

    def _tune(self, task: Task) -> list[Callback]:
        """Freezes the parts that are not to be trained, for good or until a callback thaws them."""
        tuning = self.recipe.tuning
        parts = frozen_parts(task, tuning.freeze)
        if tuning.unfreeze_every is not None:
            return [GradualUnfreezing(parts, tuning.unfreeze_every)]
        freeze(parts)
        if not any(parameter.requires_grad for parameter in task.parameters()):
            raise ValueError(f"`training.tuning.freeze` ({', '.join(tuning.freeze)}) leaves nothing to train")
        return []

    def _check_validation(self) -> None:
        """Refuses what needs validations where there is no validation data."""
        if self.data.contents("validation") is not None:
            return
        needs = {"training.patience": self.recipe.patience is not None,
                 "training.averaging.kind": self.recipe.averaging.kind in ("last", "best")}  # fmt: skip
        for key in (key for key, needed in needs.items() if needed):
            raise ValueError(f"`{key}` needs validations, but no validation data is given; add --data.validation FILE")

    def _steps(self) -> int:
        """The length of the training in optimizer steps.

        Raises:
            ValueError: If it is not given.
        """
        keys, per_epoch = self.keys, self.data.batches_per_epoch()
        given = [keys.max_steps] if keys.max_steps > 0 else []
        if keys.max_epochs is not None and keys.max_epochs > 0 and per_epoch is not None:
            given.append(max(1, int(keys.max_epochs * per_epoch / keys.accumulate_grad_batches)))
        if not given:
            way = "" if per_epoch is None else " or `trainer.max_epochs`"
            raise ValueError(f"how long to train is not given: set `trainer.max_steps`{way}")
        return min(given)

    def _trainer(self, steps: int, loggers: list[Logger], callbacks: list[Callback]) -> Trainer:
        """One Lightning epoch is the whole training, so that the end of a pass over the data means nothing to it."""
        accumulated, per_epoch = int(self.keys.accumulate_grad_batches), self.data.batches_per_epoch()
        self.data.total_batches = steps * accumulated
        keys = Namespace(**{**vars(self.keys), "max_steps": steps, "max_epochs": -1})
        every = keys.val_check_interval  # in optimizer steps, as everything here; or a share of a pass over the data
        if every is None or isinstance(every, float):
            whole = steps if per_epoch is None else per_epoch / accumulated
            every = max(1, round((every or 1.0) * whole))
        keys.val_check_interval = min(every, steps) * accumulated
        return make_trainer(
            keys,
            logger=loggers,
            callbacks=callbacks,
            plugins=[AtomicCheckpointIO()],
            default_root_dir=self.run.path,
        )

    def _averaging(self, monitor: str, mode: str, steps: int) -> list[Callback]:
        averaging = self.recipe.averaging
        if averaging.kind == "swa":
            return [StepMean(max(1, round(averaging.start * steps)))]
        if averaging.kind == "ema":
            return [MovingMean(decay=averaging.decay)]
        if averaging.kind == "none":
            return []
        return [CheckpointMean(self.run.checkpoints, averaging.kind, averaging.count, monitor, mode)]

    def _patience(self, monitor: str, mode: str) -> list[Callback]:
        if self.recipe.patience is None:
            return []
        return [Patience(monitor, mode=mode, patience=self.recipe.patience, check_finite=False, check_on_train_epoch_end=False)]

    def _finish(
        self, trainer: Trainer, task: Task, meter: Meter, averaging: list[Callback], checkpoints: Checkpoints
    ) -> dict[str, Any]:
        """Averages where that was asked for, tests the best checkpoint, and writes what has come out."""
        means = [callback for callback in averaging if isinstance(callback, CheckpointMean)]
        for mean in means:
            self._try_mean(trainer, task, mean, checkpoints)
        results = self._results(task, trainer, meter, {**checkpoints.best_metrics, **self._test(trainer, task)})
        if trainer.is_global_zero:
            is_tested = self.data.contents("test") is not None
            if is_tested and (rows := task.tell()):
                write_json_lines(self.run.path / "test.jsonl.gz", rows)
            self.run.write_results(results)
            figures = task.draw() if is_tested else checkpoints.draw_best()
            if self.trackers.is_wanted and self.draw is not None:
                figures |= self.draw(task.eval())
            pictures = self.run.write_pictures(figures)
            self.trackers.each(lambda tracker: tracker.finish(results, pictures))
            for mean in means:
                mean.clean()
        return results

    def _try_mean(self, trainer: Trainer, task: Task, averaging: CheckpointMean, checkpoints: Checkpoints) -> None:
        """Validates the mean of the kept weights; it becomes the best checkpoint only if it is better."""
        if not averaging.kept:
            return
        task.load_state_dict(averaging.mean({name for name, _ in task.named_buffers()}))
        trainer.validate(task, datamodule=self.data, verbose=False)
        better = checkpoints.is_better(task.metrics[checkpoints.monitor])
        log.info("mean of the %s %d: %s", averaging.kind, len(averaging.kept), "kept as best" if better else "not better")
        if better:
            checkpoints.best_metrics, checkpoints.draw_best = task.metrics, task.draw
            trainer.save_checkpoint(self.run.checkpoints / "best.ckpt")

    def _test(self, trainer: Trainer, task: Task) -> dict[str, float]:
        """The metrics of the best checkpoint on the test data; none where there is no test data.

        Without validation it is the last one, in which averaged weights stand as the weights.
        """
        best = self.run.checkpoints / "best.ckpt"
        best = best if best.exists() else self.run.checkpoints / "last.ckpt"
        task.load_state_dict(read_checkpoint(best)["state_dict"])
        if self.data.contents("test") is None:
            return {}
        log.info("testing %s", best.name)
        trainer.test(task, datamodule=self.data, verbose=False)
        return task.metrics

    def _results(self, task: Task, trainer: Trainer, meter: Meter, metrics: dict[str, float]) -> dict[str, Any]:
        seconds = meter.elapsed()
        return {
            "task": type(task).__name__,
            "model": type(task.network).__name__,
            "parameters": sum(parameter.numel() for parameter in task.parameters()),
            "trained_parameters": sum(parameter.numel() for parameter in task.parameters() if parameter.requires_grad),
            "steps": trainer.global_step,
            "tokens": task.tokens_seen,
            "train_seconds": round(seconds, 3),
            "tokens_per_second": round(task.tokens_seen / seconds, 1) if seconds else None,
            "peak_memory_bytes": peak_memory(),
            "seed": self.seed,
            "versions": {name: version(name) for name in ("polyformer", "torch", "lightning")}
            | {"python": platform.python_version()},
            "metrics": metrics,
            "signatures": task.signatures(),
            "fingerprints": fingerprints(task, self.data),
            "data": {split: str(report) for split, report in self.data.reports.items()},
            "try": task.example,
        }


def count_parameters(task: Task) -> str:
    """The number of parameters, and how many of them are trained where not all are."""
    counts = {is_trained: 0 for is_trained in (True, False)}
    for parameter in task.parameters():
        counts[parameter.requires_grad] += parameter.numel()
    trained = f" ({counts[True]:,} trained)" if counts[False] else ""
    return f"{sum(counts.values()):,} parameters{trained}"
