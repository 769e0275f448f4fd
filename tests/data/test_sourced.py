"""Pairs of texts from several sources: as often as they weigh, each pair once in each pass, on any number of ranks."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import polyformer.data.cache
from polyformer.data import BatchSettings, PairBatch, PairData, PairTokenizerSettings
from polyformer.data.mixed_plan import MixedPlan

COUNTS = {"news": 40, "web": 160}


def write(folder: Path) -> list[dict[str, Any]]:
    """Two text files side by side, and a table."""
    rows = {name: [f"{name} {number % 7} {number}" for number in range(count)] for name, count in COUNTS.items()}
    for side in ("en", "de"):
        (folder / f"news.{side}").write_text("".join(f"{row} {side}\n" for row in rows["news"]))
    (folder / "web.tsv").write_text("source\ttarget\n" + "".join(f"{row} en\t{row} de\n" for row in rows["web"]))
    return [{"files": [str(folder / "news.en"), str(folder / "news.de")], "weight": 2}, {"files": str(folder / "web.tsv")}]


def pairs(folder: Path, **arguments: Any) -> PairData:
    tokenizer = PairTokenizerSettings(vocab_size=300, min_frequency=1, dropout=0.2)
    data = PairData(write(folder), tokenizer=tokenizer, batches=BatchSettings(40), **arguments)
    data.seed = 3
    return data


def rows_of(batch: PairBatch) -> dict[int, tuple[list[int], list[int]]]:
    rows = zip(batch.index.tolist(), batch.source.tolist(), batch.target.tolist(), strict=True)
    return {index: (source, target) for index, source, target in rows}


def passes_of(plan: MixedPlan) -> list[float]:
    """How often each source is gone through in an epoch."""
    return [steps / len(own) for steps, own in zip(plan.steps, plan.plans, strict=True)]


def test_a_source_is_drawn_from_as_often_as_it_weighs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="polyformer")
    data = pairs(tmp_path)
    plan, decode = data.training_plan(1), data.assets.tokenizers["source"].decode
    assert isinstance(plan, MixedPlan) and abs(plan.steps[0] - 2 * plan.steps[1]) <= 1
    steps, seen = Counter[str](), Counter[int]()
    for batch in data.train_dataloader():
        texts = {index: [decode(row).strip() for row in pair] for index, pair in rows_of(batch).items()}
        (name,) = {source.split()[0] for source, _ in texts.values()}
        steps[name] += 1
        seen.update(list(texts))
        for index, (source, target) in texts.items():
            assert source == data.texts("train", "source_text")[index] and target == source[:-2] + "de"
    assert [steps[name] for name in COUNTS] == plan.steps
    for first, last, passes in ((0, 40, passes_of(plan)[0]), (40, 200, passes_of(plan)[1])):  # each once in each pass
        assert {seen[index] for index in range(first, last)} <= {int(passes), int(passes) + 1}
    assert data.reports["train"].kept == 200 and f"of {tmp_path}/news.en, {tmp_path}/news.de, " in caplog.text


@pytest.mark.parametrize("stop", [1, 17])
def test_resuming_is_exact(tmp_path: Path, stop: int) -> None:
    whole = list(map(rows_of, pairs(tmp_path).train_dataloader()))
    first, second = pairs(tmp_path), pairs(tmp_path)
    loader = iter(first.train_dataloader())
    for _ in range(stop):
        next(loader)
    second.load_state_dict(first.state_dict())
    assert list(map(rows_of, second.train_dataloader())) == whole[stop:]
    second.sources = second.sources[::-1]
    with pytest.raises(ValueError, match=r"data\.train weights: \[2\.0, 1\.0\] then, \[1\.0, 2\.0\] now"):
        second.load_state_dict(first.state_dict())


def test_two_ranks_have_together_what_one_has(tmp_path: Path) -> None:
    whole = [set(rows_of(batch)) for batch in pairs(tmp_path).training_loader(0, 1)]
    ranks = [[set(rows_of(batch)) for batch in pairs(tmp_path).training_loader(rank, 2)] for rank in range(2)]
    assert all(one and other and not one & other for one, other in zip(*ranks, strict=True))
    assert [one | other for one, other in zip(*ranks, strict=True)] == whole


def test_each_source_is_encoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another weight encodes nothing anew, and another file of one source leaves the others as they are."""
    before = pairs(tmp_path)
    assert len(before.dataset("train")) == 200
    written: list[str] = []
    write_rows = polyformer.data.cache._write_rows
    monkeypatch.setattr(polyformer.data.cache, "_write_rows", lambda *given: written.append(given[2]) or write_rows(*given))
    sources = [{**write(tmp_path)[0], "weight": 5}, {"files": str(tmp_path / "more.tsv")}]
    (tmp_path / "more.tsv").write_text("source\ttarget\nmore en\tmore de\n")
    data = PairData(sources, tokenizer=before.tokenizer, batches=before.batches)
    data.use_assets(before.assets)
    assert len(data.dataset("train")) == 41 and written == [f"train data, {tmp_path}/more.tsv"]


def test_validation_has_no_weights(tmp_path: Path) -> None:
    data = pairs(tmp_path, validation=str(tmp_path / "web.tsv"))
    assert sorted(index for batch in data.val_dataloader() for index in rows_of(batch)) == list(range(160))
