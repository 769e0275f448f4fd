"""StarRating as a user meets it: trained by the command, measured, and used on single lines."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from polyformer.cli import main
from polyformer.training import load_task

CONFIG = Path("configs", "star_rating", "quickstart.yaml")
SMALL = "--model.num_layers 1 --training.optimizer.lr 0.01 --trainer.max_steps 200 --trainer.val_check_interval 200"
CHANCE = 0.4  # the most frequent rating has a smaller share
LINES = ["the food was good", "", "the staff was not superb and the bed was awful", "the pool was nice 😀"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A small head, trained in a few seconds."""
    folder = tmp_path_factory.mktemp("star_rating")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(next(place for place in Path(__file__).parents if (place / CONFIG).is_file()))
        patch.setenv("POLYFORMER_CACHE", str(folder / "cache"))
        words = ["--config", str(CONFIG), "--run", str(folder / "run"), "--trainer.accelerator", "cpu", *SMALL.split()]
        assert main(["fit", *words, "--debug"]) == 0
        yield folder / "run"


def test_it_learns(run: Path) -> None:
    metrics = json.loads((run / "results.json").read_text())["metrics"]
    assert metrics["test/accuracy"] > CHANCE + 0.3
    assert metrics["test/mean_absolute_error"] < 0.5


@pytest.mark.parametrize("tokens", ["1", "97", "100000"])
def test_batches_do_not_change_figures(run: Path, tokens: str) -> None:
    figures = run.parent / f"figures{tokens}.json"
    assert main(["test", "--ckpt_path", str(run), "--json", str(figures), "--data.batches.evaluation_tokens", tokens]) == 0
    metrics = json.loads((run / "results.json").read_text())["metrics"]
    wanted = {name: value for name, value in metrics.items() if name.startswith("test/")}
    assert json.loads(figures.read_text())["metrics"] == pytest.approx(wanted, rel=1e-4)


def test_every_line_is_answered(run: Path) -> None:
    given, answers = run.parent / "lines.txt", run.parent / "answers.txt"
    given.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    assert main(["predict", "--ckpt_path", str(run), "--input", str(given), "--output", str(answers)]) == 0
    lines = answers.read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(LINES) and set(lines) <= set("12345")
    assert int(lines[0]) > int(lines[2])


def test_an_answer_does_not_depend_on_other_lines(run: Path) -> None:
    task, _ = load_task(run / "checkpoints" / "best.ckpt")
    alone = [task.answer([line])[0].details["above"] for line in LINES]
    together = [answer.details["above"] for answer in task.answer(LINES)]
    for one, other in zip(alone, together, strict=True):
        assert other == pytest.approx(one, rel=1e-4, abs=1e-6)
