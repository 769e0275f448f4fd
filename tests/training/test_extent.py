"""Lightning's keys for a few batches, read for token batches: tried out, overfitted, and cut short, for each kind of data."""

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from polyformer.cli import main
from polyformer.cli.settings import parse_settings
from polyformer.data import WholeTraining
from polyformer.data.limited import FewBatches
from polyformer.tasks.translation import Translation
from polyformer.training import Task

from ..cli.small import SMALL, fit, metrics_of, results_of
from ..tasks.test_classification import one_label, write

LANGUAGE = """
task: LanguageModeling
model: {d_model: 16, num_heads: 2, num_layers: 1, max_length: 8}
data: {class_path: KIND, init_args: {train: [FOLDER/lines.txt], validation: FOLDER/lines.txt, test: FOLDER/lines.txt,
  window: 8, tokenizer: {kind: word, min_frequency: 1}, batches: {tokens: 32}}}
trainer: {max_steps: 6, val_check_interval: 3, log_every_n_steps: 1, accelerator: cpu}
"""
LABELS = """
task: KIND
model: {d_model: 16, num_heads: 2, num_layers: 1, max_length: 32}
data: {class_path: DATA, init_args: {train: [FOLDER/train.tsv], validation: FOLDER/held_out.tsv, test: FOLDER/held_out.tsv,
  tokenizer: {kind: word, min_frequency: 1}, batches: {tokens: 64}}}
trainer: {max_steps: 6, val_check_interval: 3, log_every_n_steps: 1, accelerator: cpu}
"""
KINDS = {
    "translation": SMALL,
    "text": LANGUAGE.replace("KIND", "TextData"),
    "stream": LANGUAGE.replace("KIND", "TextStream").replace("window: 8", "shuffle_windows: 64, window: 8"),
    "labels": LABELS.replace("KIND", "Classification").replace("DATA", "LabelledData"),
    "masked": LABELS.replace("KIND", "MaskedLanguageModeling").replace("DATA", "MaskedTextData"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = tmp_path_factory.mktemp("data")
    write(made, one_label)
    (made / "lines.txt").write_text("".join(f"a word and word {number}\n" for number in range(60)))
    return made


def served(monkeypatch: pytest.MonkeyPatch, kind: type[Task]) -> list[tuple[int, ...]]:
    """Gets the numbers of the examples of each training batch."""
    found: list[tuple[int, ...]] = []
    plain = kind.training_step

    def step(self: Task, batch: Any, batch_idx: int) -> Any:
        found.append(tuple(batch.index.tolist()))
        return plain(self, batch, batch_idx)

    monkeypatch.setattr(kind, "training_step", step)
    return found


@pytest.mark.parametrize("kind", ["translation", "stream", "masked"])
def test_a_config_is_tried_out_and_nothing_is_kept(folder: Path, tmp_path: Path, kind: str, capsys: Any) -> None:
    config = KINDS[kind].replace("FOLDER", str(folder))
    words = ["--trainer.fast_dev_run", "2", "--training.averaging.kind", "last", "--training.save_every", "1"]
    assert fit(tmp_path, *words, config=config) == 0
    said = capsys.readouterr().err
    assert all(text in said for text in ("memory of a training step: about", "val/loss", "test/loss", "nothing was kept"))
    assert not (tmp_path / "run").exists()
    assert main(["fit", "--config", str(tmp_path / "small.yaml"), "--run", str(tmp_path / "run"), "--resume", *words]) == 2


def test_a_try_is_of_so_many_batches(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches, evaluated = served(monkeypatch, Translation), []
    plain = Translation.evaluate
    monkeypatch.setattr(Translation, "evaluate", lambda *given: evaluated.append(given[2]) or plain(*given))
    assert fit(tmp_path, "--trainer.fast_dev_run", "true", "--data.batches.evaluation_tokens", "100") == 0
    assert len(batches) == 1 and evaluated == ["val", "test"]


def test_a_few_batches_are_overfitted(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = served(monkeypatch, Translation)
    words = ["--trainer.overfit_batches", "2", "--trainer.max_steps", "12", "--trainer.val_check_interval", "12"]
    assert fit(tmp_path, *words) == 0
    assert len(batches) == 12 and batches == batches[:2] * 6
    losses = [float(row["train/loss"]) for row in metrics_of(tmp_path / "run") if row["train/loss"]]
    assert losses[-1] < losses[0]
    again = ["fit", "--run", str(tmp_path / "run"), "--resume", "--trainer.max_steps", "13", "--trainer.overfit_batches", "3"]
    with pytest.raises(ValueError, match=r"overfit_batches 2' then, 'trainer\.overfit_batches 3' now"):
        main([*again, "--debug"])


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_few_batches_of_each_kind_of_data(folder: Path, tmp_path: Path, kind: str, same: bool) -> None:
    """Three epochs of two batches: the first two of the first epoch again, or the first two of each."""
    (tmp_path / "kind.yaml").write_text(KINDS[kind].replace("FOLDER", str(folder)))
    parser, settings = parse_settings(["--config", str(tmp_path / "kind.yaml")])
    data = parser.build(settings).data
    data.few, data.total_batches = FewBatches(2, "trainer.some", same), 6
    if kind == "stream":
        with pytest.raises(ValueError, match=r"`trainer\.some` is for data that has epochs, which TextStream has not"):
            data.training_loader(0, 1)
        return
    batches = [tuple(batch.index.tolist()) for batch in islice(WholeTraining(data.training_loader(0, 1), 6), 6)]
    assert (batches == batches[:2] * 3) == same and len(set(batches)) == (2 if same else 6)
    assert data.batches_per_epoch() == 2


def test_an_epoch_of_its_first_batches(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = served(monkeypatch, Translation)
    words = ["--trainer.limit_train_batches", "0.25", "--trainer.max_epochs", "3", "--trainer.val_check_interval", "1.0"]
    assert fit(tmp_path, *words, "--trainer.limit_val_batches", "1") == 0
    assert len(batches) == 9 and batches[:3] != batches[3:6]  # a quarter of 13
    assert [row["step"] for row in metrics_of(tmp_path / "run") if row["val/loss"]] == ["3", "6", "9"]
    assert "of these the first 3 in each epoch (`trainer.limit_train_batches`)" in (tmp_path / "run" / "log.txt").read_text()


def test_no_evaluations(folder: Path, tmp_path: Path) -> None:
    words = ["--trainer.limit_val_batches", "0", "--trainer.limit_test_batches", "0"]
    assert fit(tmp_path, *words) == 0
    assert results_of(tmp_path / "run")["metrics"] == {}
    with pytest.raises(ValueError, match=r"`training\.patience` needs validations, but `trainer\.limit_val_batches` is 0"):
        fit(tmp_path, *words, "--training.patience", "1", name="refused")


@pytest.mark.parametrize(("limit", "said"), [("0", "leaves none of the 13"), ("-1", "must be a number"), ("1.5", "up to 1.0")])
def test_a_limit_that_cannot_be(folder: Path, tmp_path: Path, limit: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"`trainer.limit_train_batches`.*{said}"):
        fit(tmp_path, f"--trainer.limit_train_batches={limit}")
