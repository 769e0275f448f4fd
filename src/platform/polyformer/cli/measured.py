"""A run, measured once more: a folder of its own beside it, which `platform compare` reads as it reads runs."""

import sys
from pathlib import Path
from typing import Any

import yaml

from polyformer.errors import UsageError
from polyformer.experiments.runs import EXAMPLES, Run
from polyformer.plain import whole_file, write_json_lines
from polyformer.training.build import Built
from polyformer.training.facts import fingerprints
from polyformer.training.run import RunFolder
from polyformer.training.task import Task

__all__ = ["MeasuredRun"]

LIMITS = ("limit_val_batches", "limit_test_batches")


class MeasuredRun:
    """The folder that figures go to. The run that was trained stays as it is.

    Args:
        name: Of the new folder.
        place: The run folder that is measured.

    Raises:
        UsageError: If the folder is there already, or what is measured is no run folder.
    """

    def __init__(self, name: str, place: str) -> None:
        self.folder, self.trained = RunFolder(name), Run(Path(place))
        if not (self.trained.path / "config.yaml").is_file():
            raise UsageError(f"--run needs a run folder to measure, but --ckpt_path {place} is none")
        if self.folder.path.exists():
            raise UsageError(f"--run {name}: {self.folder.path} is there already, choose another name")

    def write(self, task: Task, built: Built, split: str) -> None:
        """Writes what was measured now, on all of a split, beside what training has cost.

        Other metrics are left out: they may be of other data, or of other options of the task.
        """
        self.folder.path.mkdir(parents=True)
        if split == "test" and (rows := task.tell()):
            write_json_lines(self.folder.path / EXAMPLES, rows)
        before = self.trained.results
        told = fingerprints(task, built.data, [split])
        self.folder.write_results(
            {
                **before,
                "task": type(task).__name__,
                "metrics": task.metrics,
                "signatures": task.signatures(),
                "fingerprints": {**before.get("fingerprints", {}), **told},
                "data": {split: str(built.data.reports[split])},
                "measured": str(self.trained.path),
            }
        )
        with whole_file(self.folder.config) as file:  # last: it makes the folder one of a run
            yaml.safe_dump(self._settings(built), file, sort_keys=False, allow_unicode=True)
        print(f"{self.folder.path}: compare it with others by platform compare", file=sys.stderr)

    def _settings(self, built: Built) -> dict[str, Any]:
        """The settings of the run, with those that it was measured with."""
        content = yaml.safe_load((self.trained.path / "config.yaml").read_text(encoding="utf-8"))
        measured = {key: built.settings[key] for key in ("task", "model", "data")}
        return {**content, **measured, "trainer": {**(content.get("trainer") or {}), **dict.fromkeys(LIMITS)}}
