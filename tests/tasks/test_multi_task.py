"""Several tasks on one encoder: mixed as asked, each trained and measured as alone, the heads that rest left alone."""

import json
import random
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from polyformer.cli import main
from polyformer.experiments.comparison import compare_runs
from polyformer.experiments.runs import Run
from polyformer.training import load_task, read_checkpoint

from ..cli.small import examples_of, metrics_of, results_of
from ..training.test_exactness import train
from .test_classification import MARKS, one_label, sentence, use, write

CONFIG = """
task: {class_path: MultiTask, init_args: {tasks: {mood: Classification, count: Classification}}}
model: {d_model: 16, num_heads: 2, num_layers: 1, max_length: 32, dropout: 0.0, pooling: MeanMax}
data:
  class_path: MixedData
  init_args:
    parts:
      mood:
        class_path: LabelledData
        init_args: &mood
          train: FOLDER/mood/train.tsv
          validation: FOLDER/mood/held_out.tsv
          test: FOLDER/mood/held_out.tsv
          limits: {max_length: 16, cut: both}
          tokenizer: {kind: word, min_frequency: 1}
          batches: {tokens: 256, evaluation_tokens: 300}
      count:
        class_path: LabelledData
        init_args:
          <<: *mood
          train: FOLDER/count/train.tsv
          validation: FOLDER/count/held_out.tsv
          test: FOLDER/count/held_out.tsv
          target: {kind: number}
training: {optimizer: {class_path: FusedAdamW, init_args: {lr: 0.01, weight_decay: 0.1}}, schedule: Constant}
trainer: {max_steps: 160, val_check_interval: 80, log_every_n_steps: 20, accelerator: cpu}
"""


def numbers(chance: random.Random) -> tuple[str, str]:
    count = chance.randint(0, 3)
    return sentence(chance, *["fine"] * count), str(count)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = tmp_path_factory.mktemp("runs")
    for name, rows in (("mood", one_label), ("count", numbers)):
        (made / name).mkdir()
        write(made / name, rows)
    (made / "both.yaml").write_text(CONFIG.replace("FOLDER", str(made)))
    return made


def fit(folder: Path, name: str, *words: str) -> Path:
    assert main(["fit", "--config", str(folder / "both.yaml"), "--run", str(folder / name), *words, "--debug"]) == 0
    return folder / name


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    return fit(folder, "run")


def test_both_are_learnt_and_measured(run: Path) -> None:
    results = results_of(run)
    figures = results["metrics"]
    assert figures["test/mood/accuracy"] > 0.95 and figures["test/count/pearson"] > 0.9
    assert figures["test/loss"] == pytest.approx((figures["test/mood/loss"] + figures["test/count/loss"]) / 2)
    assert results["signatures"]["mood/texts"] == "max_length:16|cut:both"
    assert (run / "pictures" / "mood_confusion.png").is_file()
    state = read_checkpoint(run / "checkpoints" / "last.ckpt")["state_dict"]
    assert any(name.startswith("network.") for name in state) and not any(".network." in name for name in state)


def test_a_test_leaves_the_examples_of_each_part(run: Path) -> None:
    lines, figures = examples_of(run), results_of(run)["metrics"]
    mood = [line for line in lines if line["part"] == "mood"]
    assert 0 < len(mood) < len(lines) and not any("correct" in line for line in lines if line["part"] == "count")
    assert sum(line["correct"] for line in mood) / len(mood) == pytest.approx(figures["test/mood/accuracy"])
    logged = [row for row in metrics_of(run) if row["train/loss"]][-1]
    assert 0.9 < float(logged["train/mood/accuracy"]) <= 1.0 and "train/count/accuracy" not in logged
    (verdict,) = compare_runs([Run(run), Run(run)])[0].verdicts
    assert [figure.what for figure in verdict.figures] == ["mood: share right"] and verdict.figures[0].p == 1.0


def test_lines_are_answered_by_all_or_by_one(run: Path, monkeypatch: Any, capsys: Any) -> None:
    lines = ["a fine film", "", "awful men on a train"]
    answers, said = use("predict", run, lines, monkeypatch, capsys)
    assert answers[0].startswith("mood: good\tcount: ") and "mood: 1 of 3 lines without any text" in said
    alone, _ = use("predict", run, lines, monkeypatch, capsys, "--task.use", "mood")
    assert [line.split("\t")[0].removeprefix("mood: ") for line in answers] == alone
    (first, *_), _ = use("predict", run, lines, monkeypatch, capsys, "--json")
    assert set(json.loads(first)["mood"]["probabilities"]) == set(MARKS)


@pytest.mark.parametrize("tokens", ["1", "100000"])
def test_batches_do_not_change_figures(folder: Path, run: Path, tokens: str) -> None:
    words = [f"--data.parts.{name}.init_args.batches.evaluation_tokens={tokens}" for name in ("mood", "count")]
    file = folder / f"figures{tokens}.json"
    assert main(["test", "--ckpt_path", str(run), "--json", str(file), *words]) == 0
    wanted = {name: value for name, value in results_of(run)["metrics"].items() if name.startswith("test")}
    assert json.loads(file.read_text())["metrics"] == pytest.approx(wanted, rel=1e-4)


def test_a_part_alone_is_what_it_is_in_a_mixture(folder: Path) -> None:
    """With one part the losses are those of the task itself: the same batches, the same steps."""
    words = ["--trainer.max_steps", "12", "--trainer.log_every_n_steps", "1", "--trainer.val_check_interval", "12"]
    text = (folder / "both.yaml").read_text().replace("mood: Classification, count: Classification", "mood: Classification")
    (folder / "one.yaml").write_text(text[: text.index("      count:")] + text[text.index("training:") :])
    assert main(["fit", "--config", str(folder / "one.yaml"), "--run", str(folder / "one"), *words, "--debug"]) == 0
    task, _ = load_task(folder / "one" / "checkpoints" / "best.ckpt")
    assert set(metrics_of(folder / "one")[-1]) >= {"val/loss", "val/mood/accuracy"}
    losses = [float(row["train/loss"]) for row in metrics_of(folder / "one") if row["train/loss"]]
    assert sum(losses[-3:]) < sum(losses[:3])
    answers = task.answer(["a fine film"])
    assert answers[0].text.startswith("mood: ")


@pytest.mark.parametrize("accumulated", ["1", "2"])
def test_a_killed_run_goes_on_to_the_bit(folder: Path, accumulated: str) -> None:
    words = ["--trainer.val_check_interval", "5", "--model.dropout", "0.1", "--trainer.log_every_n_steps", "1"]
    words += ["--trainer.accumulate_grad_batches", accumulated]
    whole = fit(folder, f"whole{accumulated}", *words, "--trainer.max_steps", "12")
    parted = fit(folder, f"parted{accumulated}", *words, "--trainer.max_steps", "7")
    assert main(["fit", "--run", str(parted), "--resume", "--trainer.max_steps", "12", "--debug"]) == 0
    ends = [read_checkpoint(run / "checkpoints" / "last.ckpt")["state_dict"] for run in (whole, parted)]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    other = ["--trainer.accumulate_grad_batches", "3", "--trainer.max_steps", "13"]
    assert main(["fit", "--run", str(parted), "--resume", *other]) == 1  # batches would be in another order


def test_a_head_rests_while_another_is_trained(folder: Path) -> None:
    """With one step only one head has moved, weight decay included, and only its optimizer state exists."""
    before = fit(folder, "still", "--trainer.max_steps", "1", "--training.optimizer.init_args.lr", "0")
    after = fit(folder, "moved", "--trainer.max_steps", "1")
    states = [read_checkpoint(run / "checkpoints" / "last.ckpt")["state_dict"] for run in (before, after)]
    moved = {
        name.split(".")[1]
        for name in states[0]
        if name.startswith("tasks.") and not torch.equal(states[0][name], states[1][name])
    }
    assert len(moved) == 1


def test_a_weight_scales_the_loss_of_a_part(folder: Path, run: Path) -> None:
    """What is reported of the part stays as it is; the loss of all is the weighted mean."""
    tasks = [load_task(run / "checkpoints" / "best.ckpt", words)[0] for words in ([], ["--task.weights", "{mood: 3.0}"])]
    data = load_task(run / "checkpoints" / "best.ckpt")[1].data
    for batch in islice(data.train_dataloader(), 6):
        with torch.no_grad():
            plain, weighted = (task.loss(batch) for task in tasks)
        factor = 3.0 if batch.part == "mood" else 1.0
        assert float(weighted.total) == pytest.approx(factor * float(plain.total)) and weighted.count == plain.count
        assert all(float(weighted.sums[name]) == pytest.approx(float(value)) for name, value in plain.sums.items())
    sums = {"mood/loss": 4.0, "mood/count": 2.0, "mood/correct": 1.0, "count/loss": 3.0, "count/count": 3.0}
    assert tasks[0].trained(sums)["loss"] == 1.5 and tasks[1].trained(sums)["loss"] == (3.0 * 2.0 + 1.0) / 4.0


TAGGED = """
      names:
        class_path: TaggingData
        init_args:
          train: FOLDER/names.txt
          validation: FOLDER/names.txt
          test: FOLDER/names.txt
          max_length: 12
          tokenizer: {kind: word, min_frequency: 1}
          batches: {tokens: 256, evaluation_tokens: 300}
"""


def test_tagging_is_a_part(folder: Path, monkeypatch: Any, capsys: Any) -> None:
    """Its sentences are read by the tokenizer of the other part; answers and examples come with the part's name."""
    chance, lines = random.Random(3), list[str]()
    for _ in range(80):
        lines += [*(f"{word} O" for word in sentence(chance).split()), "grey B-COLOUR", "fine I-COLOUR", ""]
    (folder / "names.txt").write_text("\n".join(lines))
    text = (folder / "both.yaml").read_text().replace("count: Classification", "names: Tagging")
    parts = text[: text.index("      count:")] + TAGGED.replace("FOLDER", str(folder)).removeprefix("\n")
    (folder / "tagged.yaml").write_text(parts + text[text.index("training:") :])
    run = folder / "tagged"
    assert main(["fit", "--config", str(folder / "tagged.yaml"), "--run", str(run), "--debug"]) == 0
    figures, told = results_of(run)["metrics"], examples_of(run)
    assert figures["test/names/f1"] > 0.9 and figures["test/mood/accuracy"] > 0.9
    right = [line["correct"] for line in told if line["part"] == "names"]
    assert len(right) == 80 and sum(right) > 60
    lines, _ = use("predict", run, ["the film", "we saw a grey fine"], monkeypatch, capsys, "--task.use", "names")
    assert lines == ["O O", "O O O B-COLOUR I-COLOUR"]
    (line,), _ = use("predict", run, ["a long film"], monkeypatch, capsys)
    assert line.startswith("mood: ") and line.endswith("\tnames: O O O")


def test_two_ranks_train_as_one(folder: Path) -> None:
    """Heads that rest give no gradient on any rank, and no rank waits for one."""
    text = (folder / "both.yaml").read_text().replace("{class_path: FusedAdamW, init_args: {lr: 0.01, weight_decay: 0.1}}", SGD)
    text = text.replace("dropout: 0.0,", "dropout: 0.0, output_dropout: 0.0,")
    text = text.replace("max_steps: 160, val_check_interval: 80, log_every_n_steps: 20", "max_steps: 6, log_every_n_steps: 1")
    (alone, figures), (together, figures_together) = train(folder, 1, text), train(folder, 2, text)
    known = {name: value for name, value in figures.items() if value is not None}  # a correlation may be undefined
    assert {name: figures_together[name] for name in known} == pytest.approx(known, rel=1e-4)
    for one, two in zip(alone, together, strict=True):
        for name in ("step", "tokens", "train/loss", "val/loss", "val/mood/loss", "val/count/rmse"):
            assert (one[name] == two[name] == "") or float(two[name]) == pytest.approx(float(one[name]), rel=1e-5), name


SGD = "{class_path: SGD, init_args: {lr: 0.02}}"


def test_a_part_may_have_no_test_data(folder: Path) -> None:
    text = (folder / "both.yaml").read_text()
    text = text.replace(f"test: {folder}/count/held_out.tsv", "test: null")
    (folder / "half.yaml").write_text(text)
    words = ["--trainer.max_steps", "2", "--task.use", "count", "--trainer.limit_val_batches", "1"]
    assert main(["fit", "--config", str(folder / "half.yaml"), "--run", str(folder / "half"), *words, "--debug"]) == 0
    assert {name for name in results_of(folder / "half")["metrics"] if name.startswith("test/count")} == set()


def test_a_checkpoint_cannot_have_a_module_imported(run: Path, tmp_path: Path, capsys: Any) -> None:
    content = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)
    content["polyformer"]["settings"]["task"]["init_args"]["tasks"]["mood"] = "antigravity"
    torch.save(content, tmp_path / "changed.ckpt")
    assert main(["predict", "--ckpt_path", str(tmp_path / "changed.ckpt")]) == 1
    assert "refused, since its `task.tasks` are not classes with their options" in capsys.readouterr().err


# ---- what is refused


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data.temperature", "0"], "`data.temperature` must be above 0, but is 0.0"),
        (["--data.shares", "{mood: 1}"], "`data.shares` must give a number above 0 for each of mood, count, but is"),
        (["--data.shares", "{mood: 1, count: 2}", "--data.temperature", "2"], "`data.shares` and `data.temperature` both say"),
        (["--task.weights", "{mood: 0}"], "`task.weights.mood` must be above 0, but is 0.0"),
        (["--task.weights", "{moo: 1}"], "`task.weights` has moo, but `task.tasks` has mood, count"),
        (["--task.use", "nobody"], "`task.use` has nobody, but `task.tasks` has mood, count"),
        (
            ["--task.tasks", "{mood: Classification}"],
            "`task.tasks` (mood) and `data.parts` (mood, count) must have the same names",
        ),
        (["--task.tasks", "{mood: Classification, count: Translation}"], "`task.tasks.count`"),
    ],
)
def test_mistakes_are_named(folder: Path, words: list[str], message: str, capsys: Any) -> None:
    assert main(["fit", "--config", str(folder / "both.yaml"), "--run", str(folder / "refused"), *words]) == 1
    assert message in capsys.readouterr().err.splitlines()[-1]
