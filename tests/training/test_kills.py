"""Killed at random and gone on with, each task once; `python -m tests.kills` does it more often."""

import random
from pathlib import Path

import pytest

from ..kills import CASES, STEPS, survive, write_data


@pytest.mark.parametrize(("task", "ranks"), [("translation", 1), ("language_modeling", 1), ("classification", 2)])
def test_a_killed_training_goes_on_to_the_bit(task: str, ranks: int, tmp_path: Path) -> None:
    """The same examples, losses, figures and weights as without the interruption; a rank that is left ends soon."""
    write_data(tmp_path)
    config = CASES[task].replace(f"max_steps: {STEPS}, val_check_interval: 8", "max_steps: 10, val_check_interval: 4")
    survive(tmp_path, config, ranks, 1, random.Random(task))
