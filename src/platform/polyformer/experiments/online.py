"""Runs on Weights & Biases, read as if their folders lay here."""

import gzip
import json
import tempfile
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any

from polyformer.experiments.runs import EXAMPLES, Run
from polyformer.experiments.settings import flat

__all__ = ["OnlineRun"]

FACTS = ("parameters", "trained_parameters", "git", "splits", "tokenizers", "signatures", "monitor")
"""What is in the config of a run beside its settings."""
AXES = {"step", "tokens", "seconds"}
FIGURES = ("steps", "tokens", "train_seconds", "tokens_per_second", "peak_memory_bytes")


@dataclass(frozen=True)
class OnlineRun(Run):
    """A run of Polyformer's on Weights & Biases.

    Args:
        path: As `entity/project/run`.
        remote: What `wandb.Api().run(path)` gives.
    """

    remote: Any

    @property
    def name(self) -> str:
        return str(self.remote.name or self.path.name)

    @cached_property
    def _config(self) -> dict[str, Any]:
        config: dict[str, Any] = dict(self.remote.config)
        if "task" not in config:
            raise ValueError(f"wandb:{self.path}: its config has no `task`: it is no run of Polyformer's")
        return config

    @cached_property
    def settings(self) -> dict[str, Any]:
        return flat({name: value for name, value in self._config.items() if name not in FACTS})

    @cached_property
    def results(self) -> dict[str, Any]:
        """Put together from its summary and its config; nothing where it has not finished."""
        summary, config = dict(self.remote.summary_metrics), self._config
        if self.remote.state != "finished" or "train_seconds" not in summary:
            return {}
        best = {name.removeprefix("best/"): value for name, value in summary.items() if name.startswith("best/")}
        splits: dict[str, Any] = config.get("splits") or {}
        tokenizers: dict[str, Any] = config.get("tokenizers") or {}
        return {
            "task": self.settings["task"],
            **{name: config.get(name) for name in ("parameters", "trained_parameters")},
            **{name: summary.get(name) for name in FIGURES},
            "metrics": {**best, **{name: value for name, value in summary.items() if name.startswith("test/")}},
            "signatures": config.get("signatures") or {},
            "monitor": config.get("monitor"),
            "fingerprints": {
                **{split: told["fingerprint"] for split, told in splits.items()},
                "tokenizers": {role: told["fingerprint"] for role, told in tokenizers.items()},
            },
            "data": {split: told["examples"] for split, told in splits.items()},
        }

    @cached_property
    def history(self) -> list[dict[str, float]]:
        """The rows that were logged; those that a killed session had beyond the step it was resumed from are left out."""
        rows: list[dict[str, float]] = []
        for logged in self.remote.scan_history():
            row = {name: float(value) for name, value in logged.items() if _is_number(value) and not name.startswith("_")}
            if len(row) < 2 or "step" not in row:
                continue
            first = bisect_left(rows, row["step"], key=itemgetter("step"))
            if any(one["step"] > row["step"] or (one.keys() & row.keys()) - AXES for one in rows[first:]):
                del rows[first:]
            rows.append(row)
        return rows

    @cached_property
    def examples(self) -> list[dict[str, Any]]:
        for file in self.remote.files(names=[EXAMPLES]):
            with tempfile.TemporaryDirectory() as folder:
                file.download(root=folder, replace=True).close()
                with gzip.open(Path(folder, EXAMPLES), "rt", encoding="utf-8") as lines:
                    return [json.loads(line) for line in lines]
        return []

    @property
    def anew(self) -> str:
        return f"platform test of the folder of wandb:{self.path}, with --examples"

    @property
    def no_examples(self) -> str:
        return f"wandb:{self.path} has no file {EXAMPLES}, which is uploaded when a tested training ends; compare its folder"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
