"""However rows are cut into batches, the step of a masked language model is the same, and its loss that of its definition."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader

from polyformer.cli.quiet import quiet
from polyformer.data import LabelledData, MaskedBatch, MaskedTextData, batch_texts, masked_batch
from polyformer.models import EncoderOnlyOptions
from polyformer.tasks.classification import Classification, ClassificationOptions
from polyformer.tasks.masked_language_modeling import MaskedLanguageModeling
from polyformer.text import PAD, Assets, TokenizerSettings, train_tokenizer
from polyformer.training import Constant, Recipe

ASSETS = Assets(
    {"text": train_tokenizer(["abcdef"], TokenizerSettings(kind="character", min_frequency=1))}, {"next": ["no", "yes"]}
)
OPTIONS = EncoderOnlyOptions(d_model=8, num_heads=2, num_layers=1, max_length=32, dropout=0.0, segments=2)
PAIRS = [([4, 5, 6], [7], 1), ([7], [5, 5], 0), ([4] * 9, [8, 9], 1), ([5, 8], [8, 9, 4, 4, 6], 0), ([6], [4], 1)]
MASKED = [[0, 3], [1], [2, 3, 10], [4], [0, 1]]


def batch(rows: Sequence[int]) -> MaskedBatch:
    """Rows of two texts, in which the tokens of `MASKED` are to be predicted: the first one shown as it is, the others not."""
    texts = batch_texts([PAIRS[row][:2] for row in rows], list(rows))
    read, target = [], []
    for row in rows:
        ids = np.array([*PAIRS[row][0], *PAIRS[row][1]])
        is_masked = np.isin(np.arange(len(ids)), MASKED[row])
        is_hidden = np.isin(np.arange(len(ids)), MASKED[row][1:])
        read.append(np.where(is_hidden, PAD, ids))
        target.append(np.where(is_masked, ids, PAD))
    made = masked_batch(texts, read, target)
    return MaskedBatch(**{**vars(made), "follows": torch.tensor([float(PAIRS[row][2]) for row in rows])})


def make() -> MaskedLanguageModeling:
    torch.manual_seed(5)
    return MaskedLanguageModeling(ASSETS, OPTIONS)


def one_step(batches: list[list[int]]) -> dict[str, Tensor]:
    """The weights after one optimizer step of plain gradient descent over all batches."""
    quiet()
    task = make()
    task.recipe = Recipe(optimizer=lambda groups: torch.optim.SGD(groups, lr=0.5), schedule=Constant)
    trainer = Trainer(
        max_steps=1, accumulate_grad_batches=len(batches), accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(task, DataLoader([batch(rows) for rows in batches], batch_size=None))
    return {name: value.clone() for name, value in task.state_dict().items()}


def test_accumulated_batches_weigh_masked_tokens_equally() -> None:
    rows = list(range(len(PAIRS)))
    whole, start = one_step([rows]), make().state_dict()
    assert all(not torch.equal(value, start[name]) for name, value in whole.items() if value.dim() > 1)
    for cut in ([rows[:2], rows[2:]], [[row] for row in rows]):
        for name, value in one_step(cut).items():
            torch.testing.assert_close(value, whole[name], rtol=1e-4, atol=1e-6)


@torch.no_grad()
def test_a_loss_is_the_sum_over_its_rows_whatever_their_padding() -> None:
    task = make().eval()
    whole, single = task.loss(batch(range(5))), [task.loss(batch([row])) for row in range(5)]
    assert int(whole.count) == sum(map(len, MASKED))
    assert float(whole.total) == pytest.approx(sum(float(part.total) for part in single), rel=1e-5)
    for name in ("masked", "correct", "tokens", "rows", "rows_correct"):
        assert float(whole.sums[name]) == pytest.approx(sum(float(part.sums[name]) for part in single), rel=1e-5)
    assert int(whole.sums["tokens"]) == sum(len(first) + len(second) + 3 for first, second, _ in PAIRS)


@torch.no_grad()
def test_a_loss_is_that_of_its_definition() -> None:
    """Of the masked places alone; the loss of the second head once for each of them, so that both means are added."""
    task, rows = make().eval(), batch(range(5))
    assert rows.target is not None and rows.follows is not None and task.next_sentence is not None
    read = task.network(rows.tokens, rows.segment, rows.keep)
    logits = task.head(read) @ task.network.embedding.table.t()
    masked = F.cross_entropy(logits.flatten(0, 1), rows.target.flatten(), ignore_index=PAD, reduction="sum")
    each = F.binary_cross_entropy_with_logits(task.next_sentence(read[:, 0])[:, 0], rows.follows, reduction="none")
    loss = task.loss(rows)
    assert float(loss.sums["masked"]) == pytest.approx(float(masked), rel=1e-5)
    counts = torch.tensor([float(len(places)) for places in MASKED])
    assert float(loss.total) == pytest.approx(float(masked + (counts * each).sum()), rel=1e-5)


def test_the_row_of_padding_is_the_mask() -> None:
    task, rows = make().eval(), batch([2])
    assert rows.keep is None and int((rows.tokens == PAD).sum()) == 2
    task.loss(rows).total.backward()
    table = task.network.embedding.table
    assert table.grad is not None and bool((table.grad != 0).any(dim=1)[PAD])
    with torch.no_grad():
        before = task.read(rows)
        table[PAD].neg_()
        assert not torch.allclose(task.read(rows), before, atol=1e-3)


def test_a_classifier_has_the_same_network() -> None:
    own = {name: value.shape for name, value in make().state_dict().items() if name.startswith("network.")}
    options = ClassificationOptions(
        **{name: getattr(OPTIONS, name) for name in ("d_model", "num_heads", "num_layers", "segments")}
    )
    assets = Assets(ASSETS.tokenizers, {"label": ["a", "b"]})
    other = Classification(assets, options).state_dict()
    assert own == {name: value.shape for name, value in other.items() if name.startswith("network.")}


def test_the_rows_are_those_of_a_classifier(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("text\tlabel\nthe dog barks\tx\na cat\ty\n")
    masked, labelled = MaskedTextData(str(tmp_path / "a.tsv")), LabelledData(str(tmp_path / "a.tsv"))
    (one,), (other,) = masked.train_dataloader(), labelled.train_dataloader()
    whole = torch.where(one.target == PAD, one.tokens, one.target)
    assert torch.equal(whole[one.index.argsort()], other.tokens[other.index.argsort()])
