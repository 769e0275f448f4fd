"""Precisions on a CPU: each trains and is kept; gradients are unscaled before they are clipped; an overflow skips a step."""

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.plugins import MixedPrecision
from torch.utils.data import DataLoader

from polyformer.cli import main
from polyformer.cli.quiet import quiet
from polyformer.data import PairTokenizerSettings, SpelledNumbers
from polyformer.models import EncoderDecoderOptions
from polyformer.tasks.translation import Translation
from polyformer.training import Constant, Recipe
from polyformer.training.averaging import MovingMean

from ..cli.small import SMALL, fit, metrics_of

OPTIONS = EncoderDecoderOptions(d_model=16, num_heads=2, encoder_layers=1, decoder_layers=1, dropout=0.0)
SHORT = ("--trainer.max_steps", "4", "--trainer.val_check_interval", "4", "--data.evaluation_count", "3")


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed", "bf16-true"])
def test_each_precision_trains_averages_and_answers(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--trainer.precision", precision, "--training.averaging.kind", "ema", "--training.averaging.decay", "0.9", *SHORT)
    assert fit(tmp_path, *words, config=SMALL.replace("dropout: 0.1", "dropout: 0.0")) == 0
    losses = [float(row["train/loss"]) for row in metrics_of(tmp_path / "run") if row["train/loss"]]
    assert losses == pytest.approx([4.2334, 3.9898, 3.5383, 3.3452], rel=0.02)  # those of 32-true
    content = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    kept = content["current_model_state"]
    assert {value.dtype for value in kept.values()} == {torch.bfloat16 if precision == "bf16-true" else torch.float32}
    means = {value.dtype for value in content["state_dict"].values()}
    assert means == {torch.float32}  # a mean moves by less than bfloat16 can say
    assert ("MixedPrecision" in content) == (precision == "16-mixed")  # the scale, for who resumes
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"four hundred and two\n"), encoding="utf-8"))
    capsys.readouterr()
    assert main(["predict", "--ckpt_path", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out


class Watching(Callback):
    """Keeps what the weights and the mean were after each step."""

    def __init__(self, mean: MovingMean) -> None:
        self.mean, self.weights, self.means = mean, list[torch.Tensor](), list[torch.Tensor]()

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        assert self.mean._average_model is not None
        self.weights.append(torch.nn.utils.parameters_to_vector(pl_module.parameters()).detach().clone())
        self.means.append(torch.nn.utils.parameters_to_vector(self.mean._average_model.module.parameters()).detach().clone())


def steps(scale: float | None, count: int, fused: bool = False) -> tuple[Watching, Translation, torch.Tensor]:
    """Steps clipped to a norm of 0.01, in 16-mixed from a scale on, or in float32; and the weights before."""
    quiet()
    torch.manual_seed(5)
    data = SpelledNumbers(train_count=40, evaluation_count=5, tokenizer=PairTokenizerSettings(kind="character"))
    rows = data.dataset("train").select_columns(["source", "target"])[[3, 11, 8, 2]]
    batch = data.collate({**rows, "index": [3, 11, 8, 2]})
    task = Translation(data.assets, OPTIONS)
    task.recipe = Recipe(optimizer=lambda groups: torch.optim.SGD(groups, lr=0.5, fused=fused), schedule=Constant)
    before = torch.nn.utils.parameters_to_vector(task.parameters()).detach().clone()
    scaler = None if scale is None else torch.amp.GradScaler("cpu", init_scale=scale, backoff_factor=2.0**-40)
    mean = MovingMean(0.9)
    watching = Watching(mean)
    Trainer(
        max_steps=count, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, gradient_clip_val=0.01, callbacks=[mean, watching],
        plugins=[] if scaler is None else [MixedPrecision("16-mixed", "cpu", scaler)],
    ).fit(task, DataLoader([batch] * count, batch_size=None))  # fmt: skip
    return watching, task, before


@pytest.mark.parametrize("scale", [1.0, 2.0**10, 2.0**16])
def test_clipping_sees_unscaled_gradients(scale: float) -> None:
    """Whatever the scale, the step is as long as the learning rate and the norm allow, and goes where float32 goes."""
    (half, _, before), (whole, _, _) = steps(scale, 1), steps(None, 1)
    moved, expected = half.weights[0] - before, whole.weights[0] - before
    assert float(moved.norm()) == pytest.approx(0.5 * 0.01, rel=1e-3)
    assert float((moved - expected).norm() / expected.norm()) < 0.02


def test_a_step_that_overflows_is_skipped_and_the_next_one_counts_its_own_tokens() -> None:
    watching, task, before = steps(2.0**60, 3)
    assert torch.equal(watching.weights[0], before) and torch.equal(watching.means[0], before)
    assert task.trainer.global_step == 3  # the batch is used up, as the schedule knows
    assert float((watching.weights[1] - before).norm()) == pytest.approx(0.5 * 0.01, rel=1e-3)
    (whole, _, _) = steps(None, 1)
    difference = (watching.weights[1] - before) - (whole.weights[0] - before)
    assert float(difference.norm()) < 0.02 * 0.5 * 0.01
    assert torch.allclose(watching.means[1], torch.lerp(before, watching.weights[1], 0.1), atol=1e-7)


def test_deterministic_training_gives_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # lightning would set it for good
    words = ("--trainer.deterministic", "true", "--model.position", "Relative", *SHORT)
    try:
        assert fit(tmp_path, *words, name="one") == 0
        assert torch.are_deterministic_algorithms_enabled()
        assert fit(tmp_path, *words, name="two") == 0
    finally:
        torch.use_deterministic_algorithms(False)
    one, two = (torch.load(tmp_path / run / "checkpoints" / "last.ckpt", weights_only=True) for run in ("one", "two"))
    assert all(torch.equal(value, two["state_dict"][name]) for name, value in one["state_dict"].items())
    assert metrics_of(tmp_path / "one") == metrics_of(tmp_path / "two")
