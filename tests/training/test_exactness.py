"""However tokens are cut into batches, accumulated or spread over ranks, the step is the same."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from polyformer.better import better_side
from polyformer.cli import main
from polyformer.cli.quiet import quiet
from polyformer.data import PairBatch, PairTokenizerSettings, SpelledNumbers
from polyformer.models import EncoderDecoderOptions
from polyformer.nn import Shape
from polyformer.tasks.translation import Translation
from polyformer.training import Constant, Recipe

from ..ranks import run_on_ranks

RAGGED = [3, 11, 8, 2, 30, 5, 17]
OPTIONS = EncoderDecoderOptions(d_model=16, num_heads=2, encoder_layers=1, decoder_layers=1, dropout=0.0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = SpelledNumbers(train_count=40, evaluation_count=5, tokenizer=PairTokenizerSettings(kind="character"))
    made.dataset("train")
    return made


def batch(data: SpelledNumbers, rows: list[int]) -> PairBatch:
    return data.collate({**data.dataset("train").select_columns(["source", "target"])[rows], "index": rows})


def one_step(data: SpelledNumbers, batches: list[list[int]], clip: float | None = None) -> dict[str, torch.Tensor]:
    """The weights after one optimizer step of plain gradient descent over all batches."""
    quiet()
    torch.manual_seed(5)
    task = Translation(data.assets, OPTIONS)
    task.recipe = Recipe(optimizer=lambda groups: torch.optim.SGD(groups, lr=0.5), schedule=Constant)
    trainer = Trainer(
        max_steps=1, accumulate_grad_batches=len(batches), accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=clip,
    )  # fmt: skip
    trainer.fit(task, DataLoader([batch(data, rows) for rows in batches], batch_size=None))
    return {name: value.clone() for name, value in task.state_dict().items()}


def test_accumulated_batches_weigh_tokens_equally(data: SpelledNumbers) -> None:
    whole = one_step(data, [RAGGED])
    for cut in ([RAGGED[:2], RAGGED[2:]], [[row] for row in RAGGED]):
        parts = one_step(data, cut)
        for name, value in whole.items():
            torch.testing.assert_close(parts[name], value, rtol=1e-4, atol=1e-6)


def test_the_step_is_the_gradient_of_the_mean(data: SpelledNumbers) -> None:
    torch.manual_seed(5)
    task = Translation(data.assets, OPTIONS)
    loss = task.loss(batch(data, RAGGED))
    (loss.total / loss.count).backward()
    stepped = one_step(data, [RAGGED])
    for name, parameter in task.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(stepped[name], parameter.detach() - 0.5 * parameter.grad, rtol=1e-4, atol=1e-6)


def test_clipping_sees_the_gradient_of_the_mean(data: SpelledNumbers) -> None:
    torch.manual_seed(5)
    start = Translation(data.assets, OPTIONS).state_dict()
    moved = one_step(data, [RAGGED], clip=0.01)
    total = sum(
        float((moved[name] - start[name]).square().sum()) for name in dict(Translation(data.assets, OPTIONS).named_parameters())
    )
    assert total**0.5 == pytest.approx(0.5 * 0.01, rel=1e-3)


def test_padding_and_mates_do_not_change_a_loss(data: SpelledNumbers) -> None:
    torch.manual_seed(5)
    task = Translation(data.assets, OPTIONS).eval()
    whole = task.loss(batch(data, RAGGED))
    single = [task.loss(batch(data, [row])) for row in RAGGED]
    assert int(whole.count) == sum(int(part.count) for part in single)
    assert whole.total.item() == pytest.approx(sum(part.total.item() for part in single), rel=1e-5)


CONFIG = """
task: {class_path: Translation, init_args: {search: {max_ratio: 0.2, max_extra: 2}}}
model: {d_model: 16, num_heads: 2, encoder_layers: 1, decoder_layers: 1, dropout: 0.0}
data:
  class_path: SpelledNumbers
  init_args:
    train_count: 101
    evaluation_count: 23
    tokenizer: {kind: character}
    batches: {tokens: 600, evaluation_tokens: 200}
training: {optimizer: {class_path: SGD, init_args: {lr: 0.5}}, schedule: Constant}
trainer: {max_steps: 20, val_check_interval: 10, gradient_clip_val: 1.0, log_every_n_steps: 1, accelerator: cpu}
"""


LANGUAGE_MODEL = """
task: LanguageModeling
model: {d_model: 16, num_heads: 2, num_layers: 1, max_length: 32, dropout: 0.0}
data:
  class_path: PythonLibrary
  init_args:
    limit_megabytes: 0.1
    window: 32
    stride: 22
    tokenizer: {kind: bpe, vocab_size: 400}
    batches: {tokens: 224, evaluation_tokens: 3200}
training: {optimizer: {class_path: SGD, init_args: {lr: 0.1}}, schedule: Constant}
trainer: {max_steps: 20, val_check_interval: 10, gradient_clip_val: 1.0, log_every_n_steps: 1, accelerator: cpu}
"""
"""Seven windows a batch, shared by two ranks; 661 to validate on and 7 to test on."""


def train(folder: Path, ranks: int, config: str) -> tuple[list[dict[str, str]], dict[str, float]]:
    (folder / "ranks.yaml").write_text(config)
    run = folder / f"ranks{ranks}"
    words = ["fit", "--config", str(folder / "ranks.yaml"), "--run", str(run), "--debug"]
    if ranks == 1:
        assert main(words) == 0
    else:
        run_on_ranks(words, folder, ranks)
    with (run / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file)), json.loads((run / "results.json").read_text())["metrics"]


@pytest.mark.parametrize(
    ("config", "names"),
    [(CONFIG, ("val/bleu", "val/chrf")), (LANGUAGE_MODEL, ("val/word_perplexity", "val/bits_per_byte"))],
    ids=["translation", "language_model"],
)
def test_two_ranks_are_one(tmp_path: Path, config: str, names: tuple[str, ...]) -> None:
    """The same losses over 20 steps, and the same figures, of numbers of examples that are prime."""
    (alone, figures), (together, figures_together) = train(tmp_path, 1, config), train(tmp_path, 2, config)
    assert len(alone) == len(together) == 22
    same(alone, together, ("train/loss", "val/loss", *names))
    assert figures_together == pytest.approx(figures, rel=1e-6)


def same(alone: list[dict[str, str]], together: list[dict[str, str]], names: tuple[str, ...]) -> None:
    """Whether all rows have the same figures but for rounding."""
    for one, two in zip(alone, together, strict=True):
        for name in ("step", "tokens", *names):
            assert (one[name] == two[name] == "") or float(two[name]) == pytest.approx(float(one[name]), rel=1e-6), name


def test_a_rank_may_have_nothing_to_evaluate(tmp_path: Path) -> None:
    config = CONFIG.replace("evaluation_count: 23", "evaluation_count: 1")
    (_, alone), (_, together) = train(tmp_path, 1, config), train(tmp_path, 2, config)
    assert together == pytest.approx(alone, rel=1e-5)


class Experts(nn.Module):
    """Each token is for one of two experts; a third never has any."""

    trains_all_parameters = False

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(shape.d_model, shape.d_model) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:  # (B, L, D) -> (B, L, D)
        return torch.where(x[..., :1] > 0.0, self.experts[0](x), self.experts[1](x))


def test_experts_that_no_token_comes_to_are_no_error(tmp_path: Path) -> None:
    config = CONFIG.replace("dropout: 0.0}", f"dropout: 0.0, feed_forward: {__name__}.Experts}}").replace("20", "4")
    (alone, figures), (together, figures_together) = train(tmp_path, 1, config), train(tmp_path, 2, config)
    same(alone, together, ("train/loss", "val/loss"))
    assert figures_together == pytest.approx(figures, rel=1e-6)


@pytest.mark.parametrize(
    ("monitor", "side"),
    [("val/bits_per_byte", "min"), ("test/perplexity", "min"), ("val/bleu", "max"), ("val/error/accuracy", "max")],
)
def test_the_better_side_of_a_metric(monitor: str, side: str) -> None:
    assert better_side(monitor) == side
