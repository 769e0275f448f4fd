"""However examples are cut into batches, accumulated or spread over ranks, the step of a classifier is the same."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from torch.nn import functional as F
from torch.utils.data import DataLoader

from polyformer.cli.quiet import quiet
from polyformer.data import LabelledBatch, batch_texts
from polyformer.nn import Pooling
from polyformer.tasks.classification import Classification, ClassificationOptions
from polyformer.text import Assets, TokenizerSettings, train_tokenizer
from polyformer.training import Constant, Recipe, make_target

from ..training.test_exactness import same, train

ASSETS = Assets(
    {"text": train_tokenizer(["abcdef"], TokenizerSettings(kind="character", min_frequency=1))},
    {"label": ["a", "b", "c"]},
    {"counts": [60.0, 30.0, 10.0]},
)
EXAMPLES = [([[4, 5, 6]], 0), ([[7]], 1), ([[4] * 9], 2), ([[]], 0), ([[5, 5, 8, 8, 9]], 0), ([[6, 4]], 2), ([[9] * 4], 1)]
OPTIONS = ClassificationOptions(d_model=8, num_heads=2, num_layers=1, max_length=32, dropout=0.0, output_dropout=0.0)


def batch(rows: Sequence[int]) -> LabelledBatch:
    return batch_texts([EXAMPLES[row][0] for row in rows], list(rows), torch.tensor([EXAMPLES[row][1] for row in rows]))


def one_step(batches: list[list[int]]) -> dict[str, torch.Tensor]:
    """The weights after one optimizer step of plain gradient descent over all batches."""
    quiet()
    torch.manual_seed(5)
    task = Classification(ASSETS, OPTIONS, class_weights="balanced", label_smoothing=0.1)
    task.recipe = Recipe(optimizer=lambda groups: torch.optim.SGD(groups, lr=0.5), schedule=Constant)
    trainer = Trainer(
        max_steps=1, accumulate_grad_batches=len(batches), accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(task, DataLoader([batch(rows) for rows in batches], batch_size=None))
    return {name: value.clone() for name, value in task.state_dict().items()}


def test_accumulated_batches_weigh_examples_equally() -> None:
    rows = list(range(len(EXAMPLES)))
    whole = one_step([rows])
    torch.manual_seed(5)
    assert any(not torch.equal(value, whole[name]) for name, value in Classification(ASSETS, OPTIONS).state_dict().items())
    for cut in ([rows[:2], rows[2:]], [[row] for row in rows]):
        for name, value in one_step(cut).items():
            torch.testing.assert_close(value, whole[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("pooling", Pooling.__subclasses__())
def test_a_loss_is_the_sum_over_its_examples(pooling: Any) -> None:
    torch.manual_seed(5)
    options = ClassificationOptions(d_model=8, num_heads=2, num_layers=1, max_length=32, pooling=pooling)
    task = Classification(ASSETS, options, class_weights={"b": 3.0}).eval()
    with torch.no_grad():
        whole, single = task.loss(batch(range(7))), [task.loss(batch([row])) for row in range(7)]
    assert int(whole.count) == 7
    assert float(whole.total) == pytest.approx(sum(float(part.total) for part in single), rel=1e-5)
    assert int(whole.sums["tokens"]) == sum(len(texts[0]) + 2 for texts, _ in EXAMPLES)


def test_losses_are_those_of_torch() -> None:
    outputs, target = torch.randn(6, 3), torch.tensor([0, 1, 2, 2, 1, 0])
    weights = torch.tensor([100 / 180, 100 / 90, 100 / 30])
    trained, reported = make_target(ASSETS, "balanced").losses(outputs, target)
    torch.testing.assert_close(trained.sum(), F.cross_entropy(outputs, target, weights, reduction="sum"))
    torch.testing.assert_close(reported, F.cross_entropy(outputs, target, reduction="none"))
    for name, given in (("none", None), ("balanced", weights)):
        trained, reported = make_target(ASSETS, name, smoothing=0.2).losses(outputs, target)
        wanted = F.cross_entropy(outputs, target, given, label_smoothing=0.2, reduction="sum")
        torch.testing.assert_close(trained.sum(), wanted)
        torch.testing.assert_close(reported, F.cross_entropy(outputs, target, reduction="none"))
    trained, _ = make_target(Assets(numbers={"number": [10.0, 2.0]})).losses(outputs[:, :1], target.float())
    torch.testing.assert_close(trained, (outputs[:, 0] - (target - 10) / 2) ** 2)


def test_losses_of_several_labels_by_hand() -> None:
    """-w (t log p + (1 - t) log(1 - p)), t being smoothed; summed over the labels, and reported without both."""
    outputs, target = torch.randn(4, 3).double(), torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]]).double()
    several = Assets({}, {"labels": ["a", "b", "c"]}, {"counts": [4.0, 2.0, 1.0]})
    trained, reported = make_target(several, {"a": 3.0, "c": 0.5}, smoothing=0.2).losses(outputs, target)
    shares = 1 / (1 + (-outputs).exp())
    for row in range(4):
        parts = [(weight, float(target[row, label]), float(shares[row, label])) for label, weight in enumerate((3.0, 1.0, 0.5))]
        smoothed = [(weight, 0.8 * true + 0.1, share) for weight, true, share in parts]
        for losses, cases in ((trained, smoothed), (reported, [(1.0, true, share) for _, true, share in parts])):
            wanted = -sum(weight * (t * math.log(p) + (1 - t) * math.log(1 - p)) for weight, t, p in cases)
            assert float(losses[row]) == pytest.approx(wanted, rel=1e-6)
    counts = make_target(several, "balanced").weights  # type: ignore[attr-defined]
    assert counts == pytest.approx([7 / 12, 7 / 6, 7 / 3])


RANKS = """
task: {class_path: Classification, init_args: {class_weights: balanced}}
model: {d_model: 16, num_heads: 2, num_layers: 1, max_length: 64, dropout: 0.0, output_dropout: 0.0}
data:
  class_path: LibraryLines
  init_args:
    packages: [json, email, http]
    lines: 53
    tokenizer: {kind: bpe, vocab_size: 400}
    batches: {tokens: 500, evaluation_tokens: 200}
training: {optimizer: {class_path: SGD, init_args: {lr: 0.5}}, schedule: Constant}
trainer: {max_steps: 20, val_check_interval: 10, gradient_clip_val: 1.0, log_every_n_steps: 1, accelerator: cpu}
"""


def test_two_ranks_are_one(tmp_path: Path) -> None:
    """19 examples to test on."""
    (alone, figures), (together, figures_together) = train(tmp_path, 1, RANKS), train(tmp_path, 2, RANKS)
    same(alone, together, ("train/loss", "val/loss", "val/accuracy"))
    assert figures_together == pytest.approx(figures, rel=1e-6, abs=1e-7)


def test_weights_are_not_for_numbers() -> None:
    numbers = Assets(numbers={"number": [10.0, 2.0]})
    with pytest.raises(ValueError, match=r"`task\.class_weights` is for labels, but `data\.target\.kind` is number"):
        make_target(numbers, "balanced")
    with pytest.raises(ValueError, match=r"`task\.label_smoothing` is for labels"):
        make_target(numbers, smoothing=0.1)
