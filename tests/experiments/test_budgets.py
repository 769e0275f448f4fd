"""Budgets of a sweep: what else would end a training gives way to steps; time ends one before its length."""

from pathlib import Path

import pytest

from polyformer.cli import main
from polyformer.cli.budgets import within_budget
from polyformer.experiments.sweep import Cell

from ..cli.small import SMALL, fit, metrics_of, results_of


@pytest.fixture
def cell(tmp_path: Path) -> Cell:
    """A training that would end after a pass over its data, or after a minute."""
    (tmp_path / "short.yaml").write_text(SMALL.replace("max_steps: 10", "max_epochs: 1, max_time: 00:00:01:00"))
    return Cell("short", {"config": [str(tmp_path / "short.yaml")], "trainer.max_steps": 3})


@pytest.mark.parametrize(("budget", "steps"), [({"steps": 50.0}, "50"), ({"tokens": 18000.0}, "45")])
def test_steps_are_not_cut_short_by_passes_or_time(tmp_path: Path, cell: Cell, budget: dict[str, float], steps: str) -> None:
    words = within_budget(cell, budget).words
    assert words[2:] == ["--trainer.max_steps", steps, "--trainer.max_epochs", "-1", "--trainer.max_time", "null"]
    assert main(["fit", *words, "--trainer.val_check_interval", "50", "--run", str(tmp_path / "run"), "--debug"]) == 0
    assert results_of(tmp_path / "run")["steps"] == int(steps)


def test_time_leaves_the_length_that_schedules_need(cell: Cell) -> None:
    assert within_budget(cell, {"seconds": 90.0}).settings == {**cell.settings, "trainer.max_time": "00:00:01:30"}


def test_a_training_that_ends_by_its_time_has_all_that_others_have(tmp_path: Path) -> None:
    assert fit(tmp_path, "--trainer.max_steps", "1000000", "--trainer.max_time", "00:00:00:02") == 0
    run = tmp_path / "run"
    results = results_of(run)
    validated = [int(row["step"]) for row in metrics_of(run) if row["val/loss"]]
    assert 0 < results["steps"] < 1_000_000 and "test/bleu" in results["metrics"]
    assert validated[-1] == results["steps"] and (run / "checkpoints" / "best.ckpt").is_file()
