"""`platform fit` from the command line: what it leaves, how it resumes, what it refuses."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from polyformer.cli import main
from polyformer.tasks.translation import Translation

from .small import SMALL, fit, metrics_of, results_of


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    assert fit(folder) == 0
    return folder / "run"


def test_a_run_leaves_nothing_in_the_environment(whole: Path) -> None:
    assert "POLYFORMER_RUN" not in os.environ


def test_a_run_leaves_what_is_promised(whole: Path) -> None:
    for name in ("config.yaml", "checkpoints/best.ckpt", "checkpoints/last.ckpt", "metrics.csv", "log.txt", "results.json"):
        assert (whole / name).is_file(), name
    results = results_of(whole)
    wanted = {"task", "model", "parameters", "steps", "train_seconds", "tokens_per_second", "peak_memory_bytes", "seed"}
    assert wanted | {"versions", "metrics", "signatures"} <= set(results)
    assert {"val/loss", "val/perplexity", "val/bleu", "val/chrf", "val/exact_match", "test/bleu"} <= set(results["metrics"])
    assert "tok:13a" in results["signatures"]["bleu"]
    assert results["steps"] == 10
    assert not [path.name for path in (whole / "checkpoints").iterdir() if path.name.startswith(".")]


def test_the_stored_config_runs_again_as_it_is(whole: Path, tmp_path: Path) -> None:
    assert main(["fit", "--config", str(whole / "config.yaml"), "--run", str(tmp_path / "again"), "--debug"]) == 0
    assert metrics_of(tmp_path / "again") == metrics_of(whole)


def test_learning_happens(whole: Path) -> None:
    losses = [float(row["train/loss"]) for row in metrics_of(whole) if row["train/loss"]]
    assert len(losses) == 10
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.parametrize("killed_at", [5, 6, 9])
@pytest.mark.parametrize("extra", [(), ("--trainer.accumulate_grad_batches", "2"), ("--training.averaging.kind", "ema")])
def test_a_killed_run_goes_on_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: int, extra: tuple[str, ...]
) -> None:
    """The same batches, losses, metrics and weights as without the interruption."""
    assert fit(tmp_path, *extra, name="whole") == 0
    step, seen = Translation.training_step, []

    def dying(self: Translation, batch: Any, batch_idx: int) -> torch.Tensor:
        if batch_idx == killed_at and not seen:
            seen.append(batch_idx)
            raise ConnectionError("killed")
        return step(self, batch, batch_idx)

    monkeypatch.setattr(Translation, "training_step", dying)
    with pytest.raises(ConnectionError):
        fit(tmp_path, *extra, name="killed")
    assert main(["fit", "--run", str(tmp_path / "killed"), "--resume", "--debug"]) == 0
    assert metrics_of(tmp_path / "killed") == metrics_of(tmp_path / "whole")
    ends = [torch.load(tmp_path / name / "checkpoints" / "last.ckpt", weights_only=True) for name in ("killed", "whole")]
    for name, value in ends[0]["state_dict"].items():
        assert torch.equal(value, ends[1]["state_dict"][name]), name


def test_a_finished_run_that_goes_on_is_a_longer_run(tmp_path: Path, whole: Path) -> None:
    assert fit(tmp_path, "--trainer.max_steps", "5") == 0
    assert main(["fit", "--run", str(tmp_path / "run"), "--resume", "--trainer.max_steps", "10", "--debug"]) == 0
    assert metrics_of(tmp_path / "run") == metrics_of(whole)


@pytest.mark.parametrize("place", ["pre", "post"])
@pytest.mark.parametrize("position", ["Sinusoidal", "Learned", "Relative", "Rotary", "NoPosition"])
def test_positions_by_one_word(tmp_path: Path, position: str, place: str) -> None:
    """The same config trains, decodes, and is found again in the checkpoint."""
    words = ["--model.position", position, "--model.norm_place", place, "--trainer.max_steps", "3"]
    assert fit(tmp_path, *words, "--trainer.val_check_interval", "3") == 0
    (tmp_path / "lines").write_text("forty-two\nsix\n")
    use = [
        "predict",
        "--ckpt_path",
        str(tmp_path / "run"),
        "--input",
        str(tmp_path / "lines"),
        "--output",
        str(tmp_path / "out"),
    ]
    assert main([*use, "--debug"]) == 0
    assert len((tmp_path / "out").read_text().splitlines()) == 2
    stored = torch.load(tmp_path / "run" / "checkpoints" / "best.ckpt", weights_only=True)["polyformer"]["settings"]
    assert stored["model"]["position"]["class_path"].endswith(f".{position}")


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
def test_half_precision_learns_the_same(tmp_path: Path, whole: Path, precision: str) -> None:
    assert fit(tmp_path, "--trainer.precision", precision) == 0
    half, single = (
        [float(row["train/loss"]) for row in metrics_of(run) if row["train/loss"]] for run in (tmp_path / "run", whole)
    )
    assert half == pytest.approx(single, rel=0.03)
    assert half != single


def test_what_became_of_the_examples_is_said(tmp_path: Path) -> None:
    lines = ["a b\tc d", "\tempty", "e f\tg", " ".join("word" * 3 for _ in range(30)) + "\ttoo long", "h\ti"]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n")
    table = str(tmp_path / "pairs.tsv")
    config = SMALL.replace("SpelledNumbers", "PairData").replace("train_count: 120", f"train: {table}")
    config = config.replace("evaluation_count: 23", "source: 0\n    target: 1\n    limits: {max_source: 20}")
    assert fit(tmp_path, "--trainer.max_steps", "1", config=config) == 0
    said = (tmp_path / "run" / "log.txt").read_text()
    assert "train data: 3 examples; dropped: 1 with an empty field, 1 too long" in said
    assert results_of(tmp_path / "run")["data"]["train"] == "3 examples; dropped: 1 with an empty field, 1 too long"


def test_a_text_longer_than_the_positions_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--model.position",
        "Learned",
        "--model.max_length",
        "100",
        "--trainer.max_steps",
        "1",
        "--trainer.val_check_interval",
        "1",
    ]
    assert fit(tmp_path, *words) == 0
    (tmp_path / "lines").write_text("forty-two\n" + "seven " * 40 + "\n")
    assert main(["predict", "--ckpt_path", str(tmp_path / "run"), "--input", str(tmp_path / "lines")]) == 1
    assert "line 2: has 241 tokens, but the model was trained with `model.max_length` 100" in capsys.readouterr().err


def test_an_existing_run_is_refused_with_the_ways_out(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = whole.parent / "small.yaml"
    assert main(["fit", "--config", str(config), "--run", str(whole)]) == 1
    said = capsys.readouterr().err
    assert "exists already" in said and "--resume" in said and "another `--run`" in said


def test_a_mistake_leaves_the_name_free(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    words = ["fit", "--config", str(tmp_path / "small.yaml"), "--run", str(tmp_path / "run")]
    assert main([*words, "--model.num_heads", "3"]) == 1
    assert "`num_heads` must divide `d_model` (16), but is 3" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_mistake_removes_nothing_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("precious")
    with pytest.raises(ValueError, match="num_heads"):
        fit(tmp_path, "--model.num_heads", "3")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]


def test_resume_takes_a_key_from_the_command_line_but_no_other_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(tmp_path, "--trainer.max_steps", "4") == 0
    run = ["fit", "--run", str(tmp_path / "run"), "--resume"]
    for refused, message in (
        (["--data.batches.tokens", "300"], "data.batches.tokens: 400 then, 300 now"),
        (["--model.d_model", "32"], "cannot be resumed with other `model:` keys"),
        (["--model.num_heads", "3"], "`num_heads` must divide"),
        (["--training.optimizer", "SGD"], "cannot be resumed with another `training.optimizer`"),
    ):
        assert main([*run, *refused]) == 1
        assert message in capsys.readouterr().err
    assert main([*run, "--trainer.max_steps", "6", "--training.optimizer.lr", "0.5"]) == 0  # the stored config is as it was
    rates = [row["train/learning_rate"] for row in metrics_of(tmp_path / "run") if row["train/learning_rate"]]
    assert len(rates) == 6 and float(rates[-1]) == 0.5


def test_a_length_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"set `trainer\.max_steps` or `trainer\.max_epochs`"):
        fit(tmp_path, config=SMALL.replace("max_steps: 10, ", ""))


def test_epochs_are_counted_in_steps(tmp_path: Path) -> None:
    assert fit(tmp_path, "--trainer.max_epochs", "2", config=SMALL.replace("max_steps: 10, ", "")) == 0
    assert results_of(tmp_path / "run")["steps"] == 2 * 13


def test_patience_ends_a_training(tmp_path: Path) -> None:
    words = ["--training.patience", "1", "--training.optimizer.lr", "0.0", "--trainer.val_check_interval", "2"]
    assert fit(tmp_path, *words) == 0
    assert results_of(tmp_path / "run")["steps"] == 4


def test_patience_is_the_one_given_now(tmp_path: Path) -> None:
    words = ["--training.patience", "1", "--training.optimizer.lr", "0.0", "--trainer.val_check_interval", "1"]
    assert fit(tmp_path, *words) == 0
    assert results_of(tmp_path / "run")["steps"] == 2
    assert main(["fit", "--run", str(tmp_path / "run"), "--resume", "--training.patience", "3", "--debug"]) == 0
    assert results_of(tmp_path / "run")["steps"] == 4


@pytest.mark.parametrize(
    "words", [["--training.patience", "1"], ["--training.averaging.kind", "best"]], ids=lambda words: words[0]
)
def test_what_needs_validations_says_so_where_there_are_none(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "pairs.tsv").write_text("a b\tc d\n" * 9)
    data = f"data: {{train: {tmp_path / 'pairs.tsv'}, source: 0, target: 1}}\ntraining:"
    config = SMALL[: SMALL.index("data:")] + data + SMALL.partition("training:")[2]
    with pytest.raises(ValueError, match=f"`{words[0][2:]}` needs validations"):
        fit(tmp_path, *words, config=config)


def test_a_training_that_was_only_saved_can_be_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Translation.training_step

    def dying(self: Translation, batch: Any, batch_idx: int) -> torch.Tensor:
        if batch_idx == 5:
            raise KeyboardInterrupt
        return step(self, batch, batch_idx)

    monkeypatch.setattr(Translation, "training_step", dying)
    words = ["--trainer.log_every_n_steps", "50", "--trainer.val_check_interval", "10"]
    with pytest.raises(SystemExit):  # how lightning ends after an interrupt
        fit(tmp_path, *words)
    monkeypatch.undo()
    assert main(["fit", "--run", str(tmp_path / "run"), "--resume", "--debug"]) == 0
    assert results_of(tmp_path / "run")["steps"] == 10


@pytest.mark.parametrize(
    ("interval", "said"), [("5", "step 2: the loss is nan"), ("1", "step 1: weights are no numbers any more, or beyond")]
)
def test_a_training_that_diverges_stops_and_saves_nothing(tmp_path: Path, interval: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"{said}.*lower `training.optimizer.lr`"):
        fit(tmp_path, "--training.optimizer.lr", "1e30", "--trainer.val_check_interval", interval)
    assert not list((tmp_path / "run").rglob("*.ckpt"))


def test_a_training_that_diverges_unwatched_ends_well(tmp_path: Path) -> None:
    assert fit(tmp_path, "--training.optimizer.lr", "1e30", "--training.watch", "off") == 0
    assert "the loss is nan" in (tmp_path / "run" / "log.txt").read_text()
    assert "NaN" not in (tmp_path / "run" / "results.json").read_text()


def test_a_text_beyond_the_positions_is_named_before_training(tmp_path: Path) -> None:
    words = ["--model.position", "Learned", "--model.max_length", "30"]
    with pytest.raises(ValueError, match=r"the longest target of the train data has .* tokens, but `model.max_length` is 30"):
        fit(tmp_path, *words)


def test_a_finished_run_says_how_to_go_on(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    assert main(["fit", "--run", str(tmp_path / "run"), "--resume"]) == 0
    said = (tmp_path / "run" / "log.txt").read_text()
    assert "has come to its end; to go on with it, raise --trainer.max_steps above 10" in said


def test_bleu_of_chinese_needs_its_tokenizer(tmp_path: Path) -> None:
    words = ["--data.language", "chinese", "--trainer.max_steps", "2", "--trainer.val_check_interval", "1"]
    for tokenizer, warnings in (("13a", 1), ("zh", 0)):
        assert fit(tmp_path, *words, "--task.bleu_tokenizer", tokenizer, name=tokenizer) == 0
        assert (tmp_path / tokenizer / "log.txt").read_text().count("set it to zh for Chinese") == warnings
