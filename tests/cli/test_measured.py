"""A run measured once more, into a folder of its own: what could not be compared can be then, and nothing of it is lost."""

from pathlib import Path
from typing import Any

import pytest

from polyformer.cli import main
from polyformer.experiments.comparison import Comparison, compare_runs
from polyformer.experiments.runs import find_runs

from .small import fit


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs with other test data; the second was tested on a part of it."""
    place = tmp_path_factory.mktemp("runs")
    short = ["--trainer.max_steps", "2", "--trainer.val_check_interval", "2"]
    assert fit(place, *short, name="one") == 0
    more = ["--data.evaluation_count", "31", "--trainer.limit_test_batches", "1", "--model.position", "Rotary"]
    assert fit(place, *short, *more, name="two") == 0
    return place


def compared(*places: Path) -> Comparison:
    (found,) = compare_runs(find_runs(list(map(str, places))))
    return found


def contents(run: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_what_was_refused_is_ranked_once_it_is_measured_alike(folder: Path, capsys: Any) -> None:
    one, two, again = (folder / name for name in ("one", "two", "again"))
    before, refused = contents(two), compared(one, two)
    assert refused.ranked_by is None and "the test data differ" in refused.refused[0].reason
    words = ["test", "--ckpt_path", str(two), "--data.evaluation_count", "23", "--run", str(again)]
    assert main(words) == 0
    assert f"{again}: compare it" in capsys.readouterr().err
    comparison = compared(one, again)
    assert comparison.ranked_by == "test/bleu" and not comparison.refused and comparison.verdicts[0].figures
    assert "model.position" in comparison.settings and contents(two) == before
    costs = {column.title: [cell.mean for cell in column.cells] for column in comparison.columns}
    assert costs["steps"] == [2, 2] and None not in costs["training time"]
    assert main(words) == 2 and "is there already" in capsys.readouterr().err


def test_validation_data_are_measured_likewise(folder: Path) -> None:
    one, again = folder / "one", folder / "validated"
    command = ["validate", "--ckpt_path", str(folder / "two"), "--data.evaluation_count", "23", "--run", str(again)]
    assert main(command) == 0
    (comparison,) = compare_runs(find_runs([str(one), str(again)]), metrics=["val/bleu"])
    assert comparison.ranked_by == "val/bleu" and not (again / "test.jsonl.gz").exists()


def test_a_checkpoint_alone_has_no_folder(folder: Path, capsys: Any) -> None:
    place = folder / "one" / "checkpoints" / "best.ckpt"
    assert main(["test", "--ckpt_path", str(place), "--run", str(folder / "other")]) == 2
    assert "--run needs a run folder to measure" in capsys.readouterr().err and not (folder / "other").exists()
