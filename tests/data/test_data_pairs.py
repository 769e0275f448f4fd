"""Pairs from files to batches, and resuming them under Lightning."""

from pathlib import Path
from typing import Any

import lightning
import pytest
import torch

from polyformer.data import BatchSettings, Limits, PairBatch, PairData, PairTokenizerSettings
from polyformer.text import BOS, EOS, PAD

WORDS = ["the", "cat", "dog", "sat", "ran", "on", "under", "mat", "rug", "and", "a", "big", "small", "red"]


def write_pairs(folder: Path, count: int = 60) -> list[str]:
    sentences = [" ".join(WORDS[(at * step) % 14] for step in range(1, 2 + at % 9)) for at in range(count)]
    (folder / "a.en").write_text("".join(f"{text}\n" for text in sentences), encoding="utf-8")
    (folder / "a.de").write_text("".join(f"{text.upper()}!\n" for text in sentences), encoding="utf-8")
    return [str(folder / "a.en"), str(folder / "a.de")]


def pairs(folder: Path, tokens: int = 60, dropout: float = 0.0, joint: bool = True, **arguments: Any) -> PairData:
    files = write_pairs(folder)
    tokenizer = PairTokenizerSettings(vocab_size=320, min_frequency=1, joint=joint, dropout=dropout)
    return PairData(files, files, files, tokenizer=tokenizer, batches=BatchSettings(tokens=tokens), **arguments)


def test_batches_hold_the_pairs(tmp_path: Path) -> None:
    data = pairs(tmp_path)
    data.prepare_data()
    data.setup("fit")
    tokenizer, seen = data.assets.tokenizers["target"], []
    for batch in data.train_dataloader():
        seen += batch.index.tolist()
        assert batch.source_text == () and batch.source.dtype == torch.int64
        assert bool((batch.target[:, 0] == BOS).all())
        assert bool(((batch.source == EOS).sum(1) == 1).all()) and bool(((batch.target == EOS).sum(1) == 1).all())
        keep = batch.source != PAD
        assert bool(keep.all()) if batch.source_keep is None else torch.equal(batch.source_keep, keep)
        for row, index in zip(batch.target.tolist(), batch.index.tolist(), strict=True):
            assert tokenizer.decode(row) == data.texts("train", "target_text")[index]
    assert sorted(seen) == list(range(60))
    assert data.assets.tokenizers["source"] is tokenizer
    assert data.reports["train"].kept == 60


def test_evaluation_has_the_untouched_texts(tmp_path: Path) -> None:
    data = pairs(tmp_path, limits=Limits(max_source=3, max_target=3))
    batches = list(data.test_dataloader())
    assert sorted(index for batch in batches for index in batch.index.tolist()) == list(range(60))
    assert all(batch.target.shape[1] <= 4 and batch.source.shape[1] <= 3 for batch in batches)
    references = {index: text for batch in batches for index, text in zip(batch.index.tolist(), batch.target_text, strict=True)}
    assert [references[at] for at in range(60)] == Path(data.locations["test"][1]).read_text().splitlines()  # type: ignore[index]
    data.dataset("train")
    assert data.reports["test"].truncated > 0 and data.reports["test"].long_dropped == 0
    assert data.reports["train"].long_dropped == data.reports["test"].truncated


def test_prediction_needs_no_target(tmp_path: Path) -> None:
    data = pairs(tmp_path, joint=False)
    data.use_assets(data.make_assets())
    (batch,) = data.batches_of({"source": ["the cat", "", "the big cat sat"]})
    assert batch.index.tolist()[0] == 2 or batch.source_text[0] == "the big cat sat"
    assert batch.target.tolist() == [[BOS, EOS]] * 3
    assert data.assets.tokenizers["source"] is not data.assets.tokenizers["target"]
    assert list(data.batches_of({"source": []})) == []


def test_a_batch_moves_as_a_whole() -> None:
    one = torch.ones(1, 2, dtype=torch.int64)
    batch = PairBatch(one, one.bool(), one, one[0], ["x"], ["y"]).to("meta")
    tensors = (batch.source, batch.source_keep, batch.target, batch.index)
    assert all(tensor is not None and tensor.device.type == "meta" for tensor in tensors)
    assert batch.target_text == ["y"]
    assert PairBatch(one, None, one, one[0]).to("meta").source_keep is None


def test_subword_dropout_is_for_training_only_and_follows_from_the_epoch(tmp_path: Path) -> None:
    data = pairs(tmp_path, dropout=0.5)
    loader = data.train_dataloader()
    first, second = list(loader), list(loader)
    again = list(pairs(tmp_path, dropout=0.5).train_dataloader())
    assert all(torch.equal(a.source, b.source) and torch.equal(a.target, b.target) for a, b in zip(first, again, strict=True))
    rows = [
        {index: row.tolist() for batch in epoch for index, row in zip(batch.index.tolist(), batch.source, strict=True)}
        for epoch in (first, second)
    ]
    assert sum([x for x in rows[0][at] if x] != [x for x in rows[1][at] if x] for at in range(60)) > 20
    tokenizer = data.assets.tokenizers["source"]
    assert all(tokenizer.decode(row) == data.texts("train", "source_text")[at] for at, row in rows[0].items())
    plain, dropped = pairs(tmp_path), pairs(tmp_path, dropout=0.5)
    for a, b in zip(plain.val_dataloader(), dropped.val_dataloader(), strict=True):
        assert torch.equal(a.source, b.source)


class Recorder(lightning.LightningModule):
    """Learns nothing, remembers which examples it saw, and stops with an error where told."""

    def __init__(self, stop_at: int | None = None) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.seen: list[list[int]] = []
        self.stop_at = stop_at

    def training_step(self, batch: PairBatch, number: int) -> torch.Tensor:
        if len(self.seen) == self.stop_at:
            raise KeyboardInterrupt
        self.seen.append(batch.index.tolist())
        return self.weight.sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        assert self.trainer.estimated_stepping_batches > 0  # loads the data early, which once lost the position
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(
    folder: Path, data: PairData, stop_at: int | None = None, resume: str | None = None, limit: int | None = None
) -> list[list[int]]:
    checkpoints = lightning.pytorch.callbacks.ModelCheckpoint(folder / "c", every_n_train_steps=1, save_last=True)
    trainer = lightning.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        callbacks=[checkpoints],
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_train_batches=limit,
    )
    model = Recorder(stop_at)
    try:
        trainer.fit(model, data, ckpt_path=resume, weights_only=True)
    except SystemExit:
        assert stop_at is not None
    return model.seen


@pytest.mark.filterwarnings("ignore::UserWarning:lightning", "ignore:.*LeafSpec.*", "ignore:.*TreeSpec.*")
@pytest.mark.parametrize(("stop_at", "limit"), [(4, None), (3, 2), (2, 2)])
def test_lightning_resumes_in_the_middle_of_an_epoch(tmp_path: Path, stop_at: int, limit: int | None) -> None:
    whole = fit(tmp_path / "whole", pairs(tmp_path), limit=limit)
    before = fit(tmp_path / "cut", pairs(tmp_path), stop_at, limit=limit)
    after = fit(tmp_path / "cut", pairs(tmp_path), resume=str(tmp_path / "cut" / "c" / "last.ckpt"), limit=limit)
    assert before + after == whole


def test_changed_training_data_is_refused(tmp_path: Path) -> None:
    data = pairs(tmp_path)
    data.train_dataloader()
    state = data.state_dict()
    pairs(tmp_path).load_state_dict(state)
    other = pairs(tmp_path, tokens=50, limits=Limits(max_source=9))
    with pytest.raises(
        ValueError,
        match=r"cannot be .*\n  data\.batches\.tokens: 60 then, 50 now\n  data\.limits\.max_source: 256 then, 9 now",
    ):
        other.load_state_dict(state)
    changed = pairs(tmp_path)
    (tmp_path / "a.de").write_text("x\n" * 60)
    with pytest.raises(ValueError, match=r"data\.content of train: "):
        changed.load_state_dict(state)


def test_a_new_run_begins_anew_and_a_restored_one_where_it_stopped(tmp_path: Path) -> None:
    data = pairs(tmp_path)
    data.setup("fit")
    first = [batch.index.tolist() for batch in data.train_dataloader()]
    state = data.state_dict()
    assert state["position"] == {"epoch": 1, "batch": 0}
    second = [batch.index.tolist() for batch in data.train_dataloader()]  # loaders may be asked for again each epoch
    assert first != second
    data.load_state_dict(state)
    assert [batch.index.tolist() for batch in data.train_dataloader()] == second
    data.setup("fit")
    assert [batch.index.tolist() for batch in data.train_dataloader()] == first


def test_a_file_may_vanish_while_training(tmp_path: Path) -> None:
    data = pairs(tmp_path)
    data.train_dataloader()
    (tmp_path / "a.en").unlink()
    assert data.state_dict()["settings"]["batches.tokens"] == 60


def test_user_faults_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no test data is given; add --data\.test FILE"):
        PairData(write_pairs(tmp_path)).test_dataloader()
    assert PairData(None).val_dataloader() == []
    with pytest.raises(ValueError, match=r"no train data is given; add --data\.train FILE"):
        _ = PairData(None).assets
    with pytest.raises(ValueError, match=r"`data\.limits\.max_source` must be at least 2 .*, but is 1"):
        Limits(max_source=1)
    with pytest.raises(ValueError, match=r"`dropout` must be at least 0 and below 1, but is 1.0"):
        PairTokenizerSettings(dropout=1.0)
    with pytest.raises(ValueError, match="give `target_path` as well"):
        PairTokenizerSettings(path="x.json", joint=False)


def test_the_same_bytes_are_other_pairs_in_a_file_of_another_form(tmp_path: Path) -> None:
    texts = {}
    for name in ("a.tsv", "a.csv"):
        (tmp_path / name).write_text("x,y\tu,v\nb,c\td,e\n")
        data = PairData(str(tmp_path / name), source=0, target=1, tokenizer=PairTokenizerSettings(kind="word", min_frequency=1))
        texts[name] = list(data.texts("train", "target_text"))
    assert texts == {"a.tsv": ["u,v", "d,e"], "a.csv": ["y\tu", "c\td"]}
