"""Learning curves: which there are, their units, and what the thick line is where seeds were not measured alike."""

from pathlib import Path

import numpy as np
import pytest

from polyformer.experiments.comparison import compare_runs
from polyformer.experiments.curves import curves_of
from polyformer.experiments.plots import Curve, Panel, curves_figure

from .made_up import made_up


def test_labels_and_units(tmp_path: Path) -> None:
    runs = [made_up(tmp_path, f"{name}{seed}", name, seed) for name in ("Rotary", "Learned") for seed in (0, 1)]
    figure = curves_of(compare_runs(runs, tested=False)[0])
    assert figure is not None
    across = ["steps", "tokens trained on (thousands)", "training time (seconds)"]
    assert [axes.get_xlabel() for axes in figure.axes] == across * 3
    ups = ["train/loss (nats)", "val/loss (nats)", "val/bleu (points)"]
    assert [axes.get_ylabel() for axes in figure.axes] == [up for up in ups for _ in across]
    steps, tokens, seconds = figure.axes[3:6]
    assert [line.get_label() for line in steps.lines if not line.get_label().startswith("_")] == [
        "position=Rotary",
        "position=Learned",
    ]
    thick = [axes.lines[2] for axes in (steps, tokens, seconds)]  # after those of the two seeds
    assert all(line.get_ydata().tolist() == [5.0, 4.0, 3.0] for line in thick)
    assert [line.get_xdata().tolist() for line in thick] == [[10, 20, 30], [1, 2, 3], [4.5, 9, 13.5]]


def test_long_trainings_are_told_in_larger_units(tmp_path: Path) -> None:
    run = made_up(tmp_path, "long")
    (run.path / "metrics.csv").write_text("step,tokens,seconds,val/loss\n1,5e5,300,2.0\n2,2e6,1200,1.0\n")
    figure = curves_of(compare_runs([run], tested=False)[0])
    assert figure is not None
    assert [axes.get_xlabel() for axes in figure.axes[1:]] == ["tokens trained on (millions)", "training time (minutes)"]
    assert figure.axes[2].lines[-1].get_xdata().tolist() == [5, 20]


def test_what_may_not_be_ranked_is_not_drawn(tmp_path: Path) -> None:
    runs = [made_up(tmp_path, name, name, fingerprints={"validation": name, "tokenizers": {}}) for name in ("A", "B")]
    assert curves_of(compare_runs(runs, tested=False)[0]) is None


@pytest.mark.parametrize(
    ("second", "drawn"),
    [
        (([1, 2], [5, 4]), ([1, 2], [4, 3])),  # ended early
        (([2.5, 4, 6], [4, 2, 0]), ([2.5, 4], [2.75, 1])),  # between validations of the other
        (([8, 9], [6, 5]), ([], [])),  # nowhere together
    ],
)
def test_seeds_with_other_numbers_of_points(second: tuple[list[float], ...], drawn: tuple[list[float], ...]) -> None:
    first = np.array([1.0, 2.0, 3.0, 4.0]), np.array([3.0, 2.0, 1.0, 0.0])
    lines = [first, (np.array(second[0], dtype=float), np.array(second[1], dtype=float))]
    mean = curves_figure([Panel("steps", "val/loss", [Curve("both", lines)])]).axes[0].lines[-1]
    assert mean.get_label() == "both"
    assert (mean.get_xdata().tolist(), mean.get_ydata().tolist()) == drawn
