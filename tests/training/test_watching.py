"""Steps whose loss or gradients are no numbers: the training stops and names them, or skips them and nothing of them stays."""

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.utils.data import DataLoader

from polyformer.cli import main
from polyformer.cli.quiet import quiet
from polyformer.data import LabelledBatch, PairTokenizerSettings, SpelledNumbers
from polyformer.models import EncoderDecoderOptions
from polyformer.tasks.translation import Translation
from polyformer.training import Linear, Loss, Recipe, watching
from polyformer.training.averaging import MovingMean
from polyformer.training.fitting import make_trainer
from polyformer.training.watching import Course, Sketch, Watch

from ..cli.small import SMALL, fit, results_of
from ..ranks import run_on_ranks

BAD = 6
"""The step at fault, counted from 1."""
OPTIONS = EncoderDecoderOptions(d_model=16, num_heads=2, encoder_layers=1, decoder_layers=1, dropout=0.0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = SpelledNumbers(train_count=40, evaluation_count=5, tokenizer=PairTokenizerSettings(kind="character"))
    made.dataset("train")
    return made


class Spoilt(Translation):
    """A task whose loss, or whose gradients alone, are no numbers in some steps; notes what each step begins with."""

    kind, steps = "none", (BAD,)

    def loss(self, batch: Any) -> Loss:
        whole, step = super().loss(batch), self.trainer.global_step + 1
        optimizer = self.trainer.optimizers[0]
        moments = [value for state in optimizer.state.values() for value in state.values()]
        self.found = getattr(self, "found", {})
        self.found[step] = [value.detach().clone() for value in [*self.parameters(), *moments]]
        self.found["rate", step] = optimizer.param_groups[0]["lr"]
        return spoil(self, whole, self.kind) if step in self.steps else whole


def spoil(task: Translation, whole: Loss, kind: str) -> Loss:
    weight = next(task.parameters())
    wrong: Any = {"none": 0.0, "loss": math.nan, "gradients": (weight - weight).sqrt().sum(), "large": 1e3 * whole.total}[kind]
    return Loss(whole.total + wrong, whole.count, whole.sums)


def train(
    data: SpelledNumbers,
    kind: str,
    watch: Watch,
    *more: Callback,
    steps: tuple[int, ...] = (BAD,),
    length: int = 10,
    **keys: Any,
) -> Spoilt:
    """So many steps on batches of four examples."""
    quiet()
    torch.manual_seed(5)
    rows = data.dataset("train").select_columns(["source", "target"])
    numbers = [[(4 * at + place) % 40 for place in range(4)] for at in range(length * keys.get("accumulate_grad_batches", 1))]
    batches = [data.collate({**rows[few], "index": few}) for few in numbers]
    task = Spoilt(data.assets, OPTIONS)
    task.kind, task.steps, task.recipe = kind, steps, Recipe(schedule=Linear)
    trainer = make_trainer(None, max_steps=length, accelerator="cpu", callbacks=[watch, *more], **keys)
    trainer.fit(task, DataLoader(batches, batch_size=None))
    return task


@pytest.mark.parametrize("keys", [{}, {"accumulate_grad_batches": 2}, {"precision": "16-mixed"}], ids=str)
def test_nothing_of_a_skipped_step_stays(data: SpelledNumbers, tmp_path: Path, keys: dict[str, Any]) -> None:
    watch, mean = Watch("skip", tmp_path / "faults.jsonl", every=50), MovingMean(0.9)
    whole, task = train(data, "none", Watch("stop", tmp_path / "none", 50), **keys), train(data, "loss", watch, mean, **keys)
    assert watch.skipped == 1 and watch.streak == 0
    for before, after in ((BAD, BAD + 1), (BAD - 1, BAD)):
        same = all(torch.equal(*pair) for pair in zip(task.found[before], task.found[after], strict=True))
        assert same == (before == BAD)
    assert all(task.found["rate", step] == whole.found["rate", step] for step in range(1, 11))
    rows = [json.loads(line) for line in (tmp_path / "faults.jsonl").read_text().splitlines()]
    lost = [row["example"] for row in rows]
    assert len(lost) == len(set(lost)) == 4 * keys.get("accumulate_grad_batches", 1) and all(row["text"] for row in rows)
    sums, others = task.take_train_sums(), whole.take_train_sums()
    assert math.isfinite(sums["loss"])
    assert others["count"] - sums["count"] == sum(len(data.dataset("train")[number]["target"]) + 1 for number in lost)
    assert mean._average_model is not None and all(map(is_finite, mean._average_model.parameters()))


@pytest.mark.parametrize(("kind", "said"), [("loss", "the loss is nan"), ("gradients", "the norm of the gradients is nan")])
def test_the_training_stops_before_the_step(data: SpelledNumbers, tmp_path: Path, kind: str, said: str) -> None:
    with pytest.raises(ValueError, match=rf"^step 6: {said}, in a batch of 4 training examples, such as number 20 \('.*lower"):
        train(data, kind, Watch("stop", tmp_path / "faults.jsonl", every=50))


def test_overflow_in_half_precision_is_no_fault(data: SpelledNumbers, tmp_path: Path) -> None:
    """The scaler leaves such steps out, as it should; they stop the training once there is no scale left."""
    train(data, "gradients", Watch("stop", tmp_path / "faults.jsonl", every=50), precision="16-mixed")
    with pytest.raises(ValueError, match=r"^step 3\d: the norm of the gradients is nan.*32-true"):
        every = tuple(range(1, 50))
        train(data, "gradients", Watch("stop", tmp_path / "faults", 50), steps=every, length=49, precision="16-mixed")


def test_many_skipped_steps_in_a_row_stop_it(data: SpelledNumbers, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^step 10: .*so do the 9 steps before it: no single batch is at fault"):
        train(data, "loss", Watch("skip", tmp_path / "faults.jsonl", 50), steps=tuple(range(1, 20)), length=19)


class Saver(Callback):
    """Saves after the fourth step and after the eighth."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if trainer.global_step % 4 == 0:
            trainer.save_checkpoint(self.folder / f"{trainer.global_step}.ckpt", weights_only=False)


def test_a_device_that_is_not_waited_for_saves_nothing_wrong(
    data: SpelledNumbers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked every three steps, and before saving: the step is named though another came after it."""
    monkeypatch.setattr(watching, "WITHOUT_WAITING", ())
    with pytest.raises(ValueError, match=r"^step 7: the loss is nan, in a batch of 4 training examples, such as number 24"):
        train(data, "loss", Watch("stop", tmp_path / "faults.jsonl", every=3), Saver(tmp_path), steps=(7,))
    assert [path.name for path in tmp_path.glob("*.ckpt")] == ["4.ckpt"]
    state = torch.load(tmp_path / "4.ckpt", weights_only=True)["callbacks"]["Watch"]
    assert state["course"]["steps"] == 4


def test_an_exploded_loss_stops_it(data: SpelledNumbers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "BLOCK", 2)
    with pytest.raises(ValueError, match=r"^step 10: the loss has exploded: it was .* in the beginning.* such as number 36"):
        train(data, "large", Watch("skip", tmp_path / "faults.jsonl", 50), steps=(5, 6, 7, 8, 9, 10))
    rows = [json.loads(line) for line in (tmp_path / "faults.jsonl").read_text().splitlines()]
    assert [(row["step"], row["example"]) for row in rows] == [(10, number) for number in (36, 37, 38, 39)]


def test_a_text_in_windows_is_told_by_its_first() -> None:
    """Of three texts the second has two windows."""
    tokens = torch.arange(8).reshape(4, 2)
    batch = LabelledBatch(tokens, None, None, None, torch.tensor([5, 7, 9]), torch.tensor([1, 2, 1]))
    sketch = Sketch.of(batch, torch.tensor(math.nan))
    assert sketch.index is not None and sketch.index.tolist() == [5, 7, 9]
    assert sketch.tokens is not None and sketch.tokens[:, 0].tolist() == [0, 2, 6]


def test_what_works_has_not_exploded() -> None:
    """Noise, outliers, a loss that has nearly vanished, a while of something harder."""
    chance, course = random.Random(0), Course()
    for step in range(20_000):
        usual = 9.0 * math.exp(-step / 2000) + 1e-4
        loss = usual * chance.lognormvariate(0.0, 1.0) * (1000.0 if step % 997 == 0 else 1.0)
        assert not course.add(loss + (20.0 if 9000 < step < 9100 else 0.0), 1.0)


def in_training(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    """Spoils a step of Translation itself, on one rank."""
    plain = Translation.loss

    def loss(self: Translation, batch: Any) -> Loss:
        is_bad = self.training and self.trainer.global_step + 1 == BAD and self.global_rank == rank
        return spoil(self, plain(self, batch), "loss" if is_bad else "none")

    monkeypatch.setattr(Translation, "loss", loss)


def test_a_run_that_stopped_goes_on_without_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data: SpelledNumbers
) -> None:
    in_training(monkeypatch, rank=0)
    with pytest.raises(ValueError, match="step 6: the loss is nan"):
        fit(tmp_path)
    assert "step 6: the loss is nan" in (tmp_path / "run" / "log.txt").read_text()
    content = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert content["global_step"] == 5 and all(map(is_finite, content["state_dict"].values()))
    assert main(["fit", "--run", str(tmp_path / "run"), "--resume", "--training.watch", "skip"]) == 0
    assert "skipped, 1 so far" in capsys.readouterr().err
    assert results_of(tmp_path / "run")["skipped_steps"] == 1 and results_of(tmp_path / "run")["steps"] == 10


@pytest.mark.parametrize("action", ["skip", "stop"])
def test_ranks_act_together(data: SpelledNumbers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    """Only the second rank sees the fault. Would the first one make the step, its weights would be no numbers."""
    in_training(monkeypatch, rank=1)
    (tmp_path / "small.yaml").write_text(SMALL)
    words = ["--training.watch", action, "--trainer.accumulate_grad_batches", "2", "--training.save_every", "null"]
    words = ["fit", "--config", str(tmp_path / "small.yaml"), "--run", str(tmp_path / "run"), *words, "--debug"]
    if action == "stop":
        with pytest.raises(AssertionError, match="step 6: the loss is nan"):
            run_on_ranks(words, tmp_path)
        content = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
        assert content["global_step"] == 5 and all(map(is_finite, content["state_dict"].values()))
        return
    run_on_ranks(words, tmp_path)
    results = results_of(tmp_path / "run")
    assert results["skipped_steps"] == 1 and math.isfinite(results["metrics"]["val/loss"])
    assert (tmp_path / "rank-0.txt").read_text().count("step 6: the loss is nan") == 1


def is_finite(value: Tensor) -> bool:
    return bool(value.isfinite().all())
