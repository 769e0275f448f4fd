"""Checkpoints: one file each, never half written, read only if undamaged, never a pickle of a stranger's classes."""

import logging
import math
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch import Callback, LightningModule, Trainer

from polyformer.plain import whole_file

__all__ = ["AtomicCheckpointIO", "Checkpoints", "find_checkpoint", "newest_checkpoint", "read_checkpoint"]

log = logging.getLogger("polyformer")


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes under a temporary name, then renames: a killed process leaves the old file or the new one, never half."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with whole_file(Path(path), "wb") as file:
            torch.save(checkpoint, file)


def find_checkpoint(place: str, prefer: str = "best") -> Path:
    """The checkpoint meant by a path: the file itself, or in a run folder the best one (or the last).

    Raises:
        ValueError: If there is none.
    """
    path = Path(place)
    if path.is_dir():
        folder = path / "checkpoints" if (path / "checkpoints").is_dir() else path
        order = ("best.ckpt", "last.ckpt") if prefer == "best" else ("last.ckpt",)
        for name in order:
            if (folder / name).is_file():
                return folder / name
        raise ValueError(f"{place}: this folder holds no {' or '.join(order)}")
    if not path.is_file():
        raise ValueError(f"{place}: no such checkpoint or run folder")
    return path


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint's content; only tensors and plain types are read.

    Its checksums are compared first, which torch does not: a flipped bit in a weight would go unnoticed.

    Raises:
        ValueError: If the file is damaged, holds other objects, or is no checkpoint of Polyformer.
    """
    try:
        if zipfile.is_zipfile(path):  # of anything else torch says what is wrong
            with zipfile.ZipFile(path) as file:
                damaged = file.testzip()
            if damaged is not None:
                raise ValueError(f"damaged, the checksum of {damaged} is another")
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises a different class for every kind of damage
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(f"{path}: this file cannot be read safely as a checkpoint: {reason}") from error
    if not isinstance(content, dict) or "polyformer" not in content:
        raise ValueError(f"{path}: this is no checkpoint of Polyformer")
    return content


def newest_checkpoint(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The checkpoint that training goes on from: `last.ckpt`, or the newest other one where that is damaged or missing.

    Returns:
        Where it is and what it holds; None where there is no checkpoint at all.

    Raises:
        ValueError: If all are damaged.
    """
    last, problem, found = folder / "last.ckpt", "", None
    for path in [last, *sorted(set(folder.glob("*.ckpt")) - {last})]:
        try:
            content = read_checkpoint(path) if path.is_file() else {}
        except ValueError as error:
            problem, content = problem or str(error), {}
        if "optimizer_states" in content and (found is None or content["global_step"] > found[1]["global_step"]):
            found = path, content
        if found is not None and found[0] == last:
            return found
    if found is not None:
        log.warning("%s; going on from %s, step %d", problem or f"{last} is missing", found[0].name, found[1]["global_step"])
    elif problem:
        raise ValueError(problem)
    return found


class Checkpoints(Callback):
    """Writes `last.ckpt` after every validation, and links it as `best.ckpt` when it is the best so far.

    What was `last.ckpt` before is kept as `previous.ckpt`: damage to a file is damage to all its links.

    Args:
        folder: Where the files go.
        monitor: The metric that decides.
        mode: "min" or "max", its better side.
        save_every: Write `last.ckpt` every so many optimizer steps too; None: only after validations.
        keep: Number of best checkpoints kept; beside `best.ckpt` they are named by their step.
        keep_every: Keep what is saved at every so many steps for good, as `kept-STEP.ckpt`; None: nothing.
    """

    def __init__(
        self,
        folder: Path,
        monitor: str,
        mode: str,
        save_every: int | None = None,
        keep: int = 1,
        keep_every: int | None = None,
    ) -> None:
        self.folder, self.monitor, self.mode = folder, monitor, mode
        self.save_every, self.keep, self.keep_every = save_every, keep, keep_every
        self.ranking: list[tuple[float, float, int]] = []  # (value, validation loss, step), the best first
        self.ranked_metrics: dict[int, dict[str, float]] = {}  # of each step in the ranking
        self.best_metrics: dict[str, float] = {}
        self.draw_best: Callable[[], dict[str, Any]] = dict
        self.validated_step = -1
        self._saved_step = -1

    @property
    def best(self) -> tuple[float, int] | None:
        """(value, step) of the best checkpoint so far."""
        return (self.ranking[0][0], self.ranking[0][2]) if self.ranking else None

    def state_dict(self) -> dict[str, Any]:
        ranking = [list(entry) for entry in self.ranking]
        return {"ranking": ranking, "validated_step": self.validated_step, "metrics": self.ranked_metrics}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.validated_step, self.ranked_metrics = state_dict["validated_step"], state_dict["metrics"]
        self._rank([(value, loss, step) for value, loss, step in state_dict["ranking"]])

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Makes files and ranking agree: a run may have died between writing `last.ckpt` and the rest, or lost its best."""
        self._saved_step = trainer.global_step  # what a resumed run begins with is saved
        if trainer.ckpt_path is None:
            return
        begun, step = Path(trainer.ckpt_path), trainer.global_step
        lost = [ranked for _, _, ranked in self.ranking if ranked != step and not self._is_kept(ranked)]
        trainer.strategy.barrier()  # no rank looks at files that the first one links and unlinks
        if lost:
            best = None if self.best is None else self.best[1]
            names = ["best.ckpt" if ranked == best else f"step-{ranked}.ckpt" for ranked in lost]
            self._rank([entry for entry in self.ranking if entry[2] not in lost])
            instead = f"step {self.best[1]} is the best" if self.best else "the best validation from now on takes its place"
            log.warning("%s is damaged or missing: %s", ", ".join(names), instead)
        if trainer.is_global_zero:
            if begun != self.folder / "last.ckpt":  # which is damaged, and must not become `previous.ckpt`
                _link(begun, self.folder / "last.ckpt")
            self._link_ranked(begun, step)
            if lost and self.best is not None and self.best[1] != step:
                _link(self._ranked_file(self.best[1]), self.folder / "best.ckpt")
            self._unlink_unranked()

    def lacks_validation(self, trainer: Trainer) -> bool:
        """Whether a resumed run was saved after a step and before the validation that comes after it."""
        batches, every = trainer.global_step * trainer.accumulate_grad_batches, trainer.val_check_batch
        return bool(batches and every and batches % every == 0) and self.validated_step != trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        step = trainer.global_step
        if step == trainer.max_steps:
            trainer.should_stop = True  # makes lightning validate after the last step, wherever the interval falls
        elif step and any(every and step % every == 0 for every in (self.save_every, self.keep_every)):
            self.save(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Ranks the weights just validated, and saves.

        Raises:
            ValueError: If the metric does not exist.
        """
        if trainer.state.fn != "fit" or trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        metrics: dict[str, float] = cast(Any, pl_module).metrics
        if self.monitor not in metrics:
            raise ValueError(f"`training.monitor` is {self.monitor}, but the metrics are {', '.join(sorted(metrics))}")
        step = trainer.global_step
        self.validated_step = step
        entry = metrics[self.monitor], metrics.get("val/loss", math.inf), step
        self.ranked_metrics[step] = metrics
        self._rank([*self.ranking, entry])
        if self.best is not None and self.best[1] == step:
            self.draw_best = cast(Any, pl_module).draw
        self._save(trainer)

    def is_better(self, value: float) -> bool:
        """Whether a value beats the best so far."""
        return self.best is None or self._signed(value) < self._signed(self.best[0])

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Saves the end of a training that has no validation."""
        self.save(trainer)

    def save(self, trainer: Trainer) -> None:
        """Writes `last.ckpt` unless the present step has been saved; all ranks must call it."""
        if self._saved_step != trainer.global_step and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            self._save(trainer)

    def _rank(self, entries: list[tuple[float, float, int]]) -> None:
        """Keeps the best of the entries."""
        self.ranking = sorted(entries, key=self._order)[: self.keep]
        self.ranked_metrics = {step: self.ranked_metrics[step] for *_, step in self.ranking}
        self.best_metrics = self.ranked_metrics[self.best[1]] if self.best is not None else {}

    def _order(self, entry: tuple[float, float, int]) -> tuple[float, float, int]:
        """Of the same value the lower loss is the better one, as before anything is translated right; then the earlier step."""
        value, loss, step = entry
        return self._signed(value), math.inf if math.isnan(loss) else loss, step

    def _signed(self, value: float) -> float:
        """Lower is better."""
        return math.inf if math.isnan(value) else value if self.mode == "min" else -value

    def _save(self, trainer: Trainer) -> None:
        last, step = self.folder / "last.ckpt", trainer.global_step
        if trainer.is_global_zero and last.exists():
            _link(last, self.folder / "previous.ckpt")
        trainer.save_checkpoint(last)
        self._saved_step = step
        if trainer.is_global_zero and self.keep_every and step % self.keep_every == 0:
            _link(last, self.folder / f"kept-{step}.ckpt")
        if trainer.is_global_zero and self.validated_step == step:
            self._link_ranked(last, step)
            self._unlink_unranked()

    def _link_ranked(self, source: Path, step: int) -> None:
        """Links the checkpoint of a step under the names that its rank gives it."""
        if self.best is not None and self.best[1] == step:
            _link(source, self.folder / "best.ckpt")
        if self.keep > 1 and any(ranked == step for *_, ranked in self.ranking):
            _link(source, self._ranked_file(step))

    def _ranked_file(self, step: int) -> Path:
        """Where one of several best checkpoints is."""
        return self.folder / f"step-{step}.ckpt"

    def _is_kept(self, step: int) -> bool:
        """Whether the checkpoint of a step in the ranking is there and can be read."""
        is_best = self.best is not None and self.best[1] == step
        return _is_sound(self._ranked_file(step)) or (is_best and _is_sound(self.folder / "best.ckpt"))

    def _unlink_unranked(self) -> None:
        ranked = {f"step-{step}.ckpt" for *_, step in self.ranking}
        for path in self.folder.glob("step-*.ckpt"):
            if path.name not in ranked:
                path.unlink()


def _is_sound(path: Path) -> bool:
    """Whether a checkpoint is there and can be read."""
    try:
        return bool(read_checkpoint(path))
    except ValueError:
        return False


def _link(source: Path, target: Path) -> None:
    """Makes ``target`` the same file as ``source``, at once."""
    temporary = target.with_name(f".{target.name}.part")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:  # a file system without hard links
        shutil.copyfile(source, temporary)
    temporary.replace(target)
    temporary.unlink(missing_ok=True)  # which is still there where both were the same file
