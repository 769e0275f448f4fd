"""One training from beginning to end: the trainer, the best checkpoint, the test, the results."""

import json
from collections.abc import Callable
from typing import Any

import torch
from jsonargparse import Namespace
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import DDPStrategy

from polyformer.data.cache import cache_folder, key_digest
from polyformer.data.turns import one_before_others
from polyformer.plain import write_json_lines
from polyformer.training.averaging import CheckpointMean, MovingMean, StepMean
from polyformer.training.build import Built
from polyformer.training.chains import Beginning
from polyformer.training.checkpoints import AtomicCheckpointIO, Checkpoints, newest_checkpoint, read_checkpoint
from polyformer.training.compiling import Compiling
from polyformer.training.extent import check_validation, few_batches, has_split, said_of_end, steps_of, trainer_keys
from polyformer.training.facts import judged_by
from polyformer.training.footprint import MemoryEstimate
from polyformer.training.freezing import GradualUnfreezing, freeze, frozen_parts
from polyformer.training.interrupt import Interruption, Signals
from polyformer.training.lost_ranks import LostRanks
from polyformer.training.low_rank import add_differences
from polyformer.training.memory import keep_freed_memory
from polyformer.training.precisions import precision_keys
from polyformer.training.progress import Meter, log
from polyformer.training.redrawing import Redrawing
from polyformer.training.results import count_parameters, results_of
from polyformer.training.resuming import Patience, Start, check_resumable
from polyformer.training.run import MetricsFile, RunFolder
from polyformer.training.sharding import FullySharded, check_sharded, load_weights
from polyformer.training.task import Task
from polyformer.training.trackers import make_trackers
from polyformer.training.tracking import Trackers, Tracking
from polyformer.training.watching import Watch

__all__ = ["Fitting", "make_trainer"]


def make_trainer(settings: Namespace | None, **ours: Any) -> Trainer:
    """Lightning's trainer with the user's keys and without the parts that Polyformer has its own of.

    Its FSDP is replaced by ours, and so are some of its precisions.
    """
    keys = {} if settings is None else dict(vars(settings))
    fixed = {
        "enable_checkpointing": False,
        "enable_model_summary": False,
        "enable_progress_bar": False,
        "logger": False,
        "num_sanity_val_steps": 0,
        "use_distributed_sampler": False,
    }
    given = {**keys, **fixed, **ours}
    if given.get("strategy") == "fsdp":
        given["strategy"] = FullySharded()
    changed = precision_keys(given.get("precision"), given.get("accelerator"))
    return Trainer(**{**given, **changed, "plugins": [*given.get("plugins", []), *changed.get("plugins", [])]})


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
        self.known: dict[str, Any] = {}  # results of a run that had come to its end
        self.devices = 1  # on all nodes; known once the keys of the trainer have been accepted
        if self.seed < 0:
            raise ValueError(f"`seed` must be at least 0, but is {self.seed}")
        self.data.seed, self.data.few = self.seed, few_batches(self.keys)

    def fit(self, resume: bool, on_start: Callable[[], None] | None = None, signals: Signals | None = None) -> dict[str, Any]:
        """Trains, tests the best checkpoint where test data is given, and writes `results.json`.

        Args:
            resume: Go on from the newest checkpoint; where there is none yet, from the beginning.
            on_start: Called when everything has been accepted and the first step is about to be made.
            signals: What may end the training.

        Returns:
            What `results.json` holds.
        """
        keep_freed_memory()
        task, start = self._accepted(resume)
        recipe = self.recipe
        monitor, mode = judged_by(task, recipe.monitor)
        checkpoints = Checkpoints(self.run.checkpoints, monitor, mode, recipe.save_every, recipe.keep, recipe.keep_every)
        meter = Meter(self.keys.log_every_n_steps or 50)
        metrics_file = MetricsFile(self.run.path / "metrics.csv")
        steps = steps_of(self.keys, self.data, self.devices)
        is_complete = start is not None and self._is_complete(start, steps)
        if start is not None and not is_complete:
            metrics_file.resume(start.step if start.step >= steps else start.logged, start.validated)
        averaging = self._averaging(monitor, mode, steps)
        started = LambdaCallback(on_train_start=lambda *_: on_start() if on_start is not None else None)
        tuning = [*self._tune(task), Redrawing(self.seed), *([Compiling()] if self.recipe.compile else [])]
        callbacks = [started, *self._watch(meter), *tuning, *averaging, *self._patience(monitor, mode), checkpoints]
        callbacks += [] if is_complete else [Tracking(self.trackers, checkpoints, self.built.settings)]
        lost = LostRanks(f"platform fit --run {self.run.name} --resume")
        callbacks += [lost, Interruption(signals or Signals(), checkpoints)]
        trainer = self._trainer(steps, [] if is_complete else [metrics_file, self.trackers], callbacks)
        if isinstance(trainer.strategy, DDPStrategy):
            trainer.strategy._ddp_kwargs.setdefault("find_unused_parameters", task.leaves_parameters_out)
            trainer.strategy._ddp_kwargs.setdefault("broadcast_buffers", False)  # alike everywhere; ranks evaluate more or less
        log.info("%s, %s steps%s", count_parameters(task), f"{trainer.max_steps:,}", said_of_end(self.keys, steps))
        with self.trackers, lost.guard():
            trainer.fit(task, datamodule=self.data, ckpt_path=None if start is None else start.path, weights_only=True)
            if self.keys.fast_dev_run:
                return {"metrics": {**task.metrics, **self._test(trainer, task, "the weights as they are")}}
            return self.known if is_complete else self._finish(trainer, task, meter, averaging, checkpoints)

    def _accepted(self, resume: bool) -> tuple[Task, Start | None]:
        """The task as training begins with it, and what training goes on from; mistakes are said soon."""
        torch.manual_seed(self.seed)
        if self.keys.strategy in ("fsdp", "fsdp_cpu_offload"):
            check_sharded(self.built.settings, self.built.task)
        trainer = make_trainer(Namespace(**{**vars(self.keys), "max_steps": 1, "max_epochs": -1, "val_check_interval": None}))
        self.devices = trainer.num_devices * trainer.num_nodes
        with one_before_others(cache_folder() / "locks" / key_digest({"data": self.built.settings["data"]})):
            return self._prepared(resume)

    def fresh(self) -> tuple[Task, list[Callback]]:
        """The task as a new training begins with it, and what changes it meanwhile."""
        task, _ = self._accepted(resume=False)
        return task, [*self._tune(task), Redrawing(self.seed)]

    def _prepared(self, resume: bool) -> tuple[Task, Start | None]:
        """What :meth:`_accepted` gives, once all that can be said without the data has been said."""
        check_validation(self.data, self.keys, self.recipe)  # before hours of work on data
        found = newest_checkpoint(self.run.checkpoints) if resume else None
        place = self.built.options.init_from
        beginning = None if place is None else Beginning(place if found is None else str(found[0]))
        if beginning is not None:
            beginning.give_tokenizer(self.data)
        self.data.prepare_data()
        task = self.built.make_task(self.data.assets)
        task.accept(self.data)
        if beginning is not None and found is None:
            beginning.give_weights(task)
        if self.recipe.tuning.low_rank.rank:
            add_differences(task, self.recipe.tuning.low_rank)
        if found is None:
            return task, None
        check_resumable(task, found[1])
        return task, Start.of(*found)

    def _is_complete(self, start: Start, steps: int) -> bool:
        """Whether a run has come to its end, with all that was to be measured; says where it goes on."""
        is_over = start.step >= steps or (self.recipe.patience is not None and start.waited >= self.recipe.patience)
        _say_start(start.step, steps, is_over)
        file = self.run.path / "results.json"
        before: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if is_over and file.exists() else {}
        self.known = before if before.get("steps") == start.step else {}
        is_tested = any(name.startswith("test/") for name in self.known.get("metrics", {}))
        return bool(self.known) and (is_tested or not has_split(self.data, self.keys, "test"))

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

    def _trainer(self, steps: int, loggers: list[Logger], callbacks: list[Callback]) -> Trainer:
        """One Lightning epoch is the whole training, so that the end of a pass over the data means nothing to it."""
        self.data.total_batches = steps * int(self.keys.accumulate_grad_batches)
        return make_trainer(
            trainer_keys(self.keys, self.data, steps, self.devices),
            logger=loggers,
            callbacks=callbacks,
            plugins=[AtomicCheckpointIO()],
            default_root_dir=self.run.path,
        )

    def _watch(self, meter: Meter) -> list[Callback]:
        """What is said of the training before it, and looked at while it is on; all of that before it is logged."""
        action = self.recipe.watch
        watch = [] if action == "off" else [Watch(action, self.run.path / "faults.jsonl", meter.every)]
        return [MemoryEstimate(), *watch, meter]

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
        validated = self.known.get("metrics", checkpoints.best_metrics)  # of a mean of weights, which no checkpoint tells
        metrics = {**validated, **self._test(trainer, task, self._load_best(trainer, task))}
        results = results_of(task, self.data, trainer, meter, metrics, (checkpoints.monitor, checkpoints.mode))
        if trainer.is_global_zero:
            is_tested = has_split(self.data, self.keys, "test")
            if is_tested and (rows := task.tell()):
                write_json_lines(self.run.path / "test.jsonl.gz", rows)
            self.run.write_results(results)
            pictures = self.run.write_pictures(self._figures(task, is_tested, checkpoints))
            self.trackers.each(lambda tracker: tracker.finish(results, pictures))
            for mean in means:
                mean.clean()
        return results

    def _figures(self, task: Task, is_tested: bool, checkpoints: Checkpoints) -> dict[str, Any]:
        """Figures by name. Whatever goes wrong with one of another's making costs no results."""
        try:
            figures = task.draw() if is_tested else checkpoints.draw_best()
            return figures if not self.trackers.is_wanted or self.draw is None else figures | self.draw(task.eval())
        except Exception as error:
            log.warning("no pictures were drawn: %s: %s", type(error).__name__, error)
            return {}

    def _try_mean(self, trainer: Trainer, task: Task, averaging: CheckpointMean, checkpoints: Checkpoints) -> None:
        """Validates the mean of the kept weights; it becomes the best checkpoint only if it is better."""
        if not averaging.kept:
            return
        load_weights(trainer, task, averaging.mean({name for name, _ in task.named_buffers()}))
        trainer.validate(task, datamodule=self.data, verbose=False)
        better = checkpoints.is_better(task.metrics[checkpoints.monitor])
        log.info("mean of the %s %d: %s", averaging.kind, len(averaging.kept), "kept as best" if better else "not better")
        if better:
            checkpoints.best_metrics, checkpoints.draw_best = task.metrics, task.draw
            trainer.save_checkpoint(self.run.checkpoints / "best.ckpt", weights_only=True)  # nothing to go on from

    def _load_best(self, trainer: Trainer, task: Task) -> str:
        """Takes the weights of the best checkpoint, and gives its name.

        Without validation it is the last one, in which averaged weights stand as the weights.
        """
        best = self.run.checkpoints / "best.ckpt"
        best = best if best.exists() else self.run.checkpoints / "last.ckpt"
        load_weights(trainer, task, read_checkpoint(best)["state_dict"])
        return best.name

    def _test(self, trainer: Trainer, task: Task, name: str) -> dict[str, float]:
        """The metrics on the test data; none where none of it is to be used."""
        if not has_split(self.data, self.keys, "test"):
            return {}
        log.info("testing %s", name)
        trainer.test(task, datamodule=self.data, verbose=False)
        return task.metrics


def _say_start(step: int, steps: int, is_over: bool) -> None:
    """Says where a training goes on, or that nothing is left of it."""
    log.info("resuming from step %d", step)
    if is_over:
        key, value = ("trainer.max_steps", step) if step >= steps else ("training.patience", "what it was")
        log.info("this training has come to its end; to go on with it, raise --%s above %s", key, value)
