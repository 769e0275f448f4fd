"""Several sources by weights: as often as they weigh, each through its own text in turn, and resumed exactly."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from polyformer.cli.settings import parse_settings
from polyformer.data import BatchSettings, MaskedTextData, PairData, TextData, TextStream, TextTokenizerSettings, WindowPlan
from polyformer.data.sources import Source
from polyformer.data.window_mixture import MixedWindowPlan, apportioned

SOURCES = [Source("a", 3.0), Source("b", 1.0), Source("c", 0.5)]


def source_of(totals: list[int], starts: Any) -> Any:
    return np.searchsorted(np.cumsum([0, *totals]), starts, side="right") - 1


@pytest.mark.parametrize("totals", [[1000, 1000, 1000], [55, 4000, 300], [5000, 71, 10]])
@pytest.mark.parametrize("tokens", [10, 70])
def test_an_epoch_has_of_each_what_it_weighs(totals: list[int], tokens: int) -> None:
    plan = MixedWindowPlan(totals, SOURCES, 10, tokens=tokens, seed=2)
    windows, used = [total // 10 for total in totals], [list[int](), list[int](), list[int]()]
    assert len(plan) == sum(windows) // plan.count == len(plan.plan(0))
    for epoch in range(6):
        starts = plan.plan(epoch)
        found = Counter(source_of(totals, starts.ravel()).tolist())
        assert [found[number] for number in range(3)] == plan.counts
        for number in range(3):
            assert abs(found[number] - starts.size * SOURCES[number].weight / 4.5) < 1
            own = starts[source_of(totals, starts) == number] - sum(totals[:number])
            used[number] += sorted(own.tolist())
        assert np.array_equal(starts, MixedWindowPlan(totals, SOURCES, 10, tokens=tokens, seed=2).plan(epoch))
    for number in range(3):  # each text is gone through evenly, whatever its weight
        covered = np.zeros(totals[number])
        for start in used[number]:
            covered[(start + np.arange(10)) % totals[number]] += 1
        left_out = len(used[number]) / (totals[number] // 10) * (totals[number] % 10)  # a remainder, elsewhere in each pass
        assert covered.max() - covered.min() <= 3 + left_out


def test_ranks_share_each_batch() -> None:
    plan = MixedWindowPlan([1000, 300, 300], SOURCES, 10, tokens=70, world=3)
    for batch in plan.plan(1):
        parts = [plan.split(batch, rank, 3) for rank in range(3)]
        assert sorted(np.concatenate(parts).tolist()) == sorted(batch.tolist()) and min(map(len, parts)) > 0
    assert plan.describe().startswith(
        "22 batches of 7 windows of 10 tokens an epoch: 66.88% of a (1.03 passes), 22.08% of b (1.1"
    )


@pytest.mark.parametrize("total", [0, 1, 17, 1000])
def test_parts_of_a_number_differ_from_their_shares_by_less_than_one(total: int) -> None:
    for weights in ([1.0], [0.7, 0.3], [1, 1, 1], [5, 3, 1, 1]):
        parts = apportioned(total, weights)
        assert sum(parts) == total
        assert all(abs(part - total * weight / sum(weights)) < 1 for part, weight in zip(parts, weights, strict=True))


def write(folder: Path) -> list[dict[str, Any]]:
    for name, count in (("left", 60), ("right", 300)):
        (folder / name).mkdir(exist_ok=True)
        for part in range(2):
            (folder / name / f"{part}.txt").write_text("".join(f"{name} {name} {name}\n" for _ in range(count)))
    return [{"files": str(folder / "left"), "weight": 3.0}, {"files": str(folder / "right")}]


def text_data(folder: Path, **arguments: Any) -> TextData:
    tokenizer = TextTokenizerSettings(kind="word", min_frequency=1)
    data = TextData(write(folder), window=8, tokenizer=tokenizer, batches=BatchSettings(64), **arguments)
    data.seed = 4
    return data


def test_windows_are_each_of_one_source(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="polyformer")
    data = text_data(tmp_path)
    words = {data.text_tokenizer.encode(name)[0]: name for name in ("left", "right")}
    batches = list(data.train_dataloader())
    names = [{words[token] for token in row if token in words} for batch in batches for row in batch.tokens.tolist()]
    assert all(len(found) == 1 for found in names)
    counts = Counter(next(iter(found)) for found in names)
    assert counts["left"] == 3 * counts["right"] == 3 * 90
    assert data.loaded("train").report.documents == 720 and len(data.contents("train") or []) == 4
    assert f"75.00% of {tmp_path / 'left'} (4.5 passes), 25.00% of {tmp_path / 'right'} (0.3 passes)" in caplog.text


def test_another_weight_encodes_nothing_anew_but_is_another_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = text_data(tmp_path)
    data.train_dataloader()
    state = data.state_dict()
    other = text_data(tmp_path)
    other.sources = (*other.sources[:1], Source(other.sources[1].files, 2.0))
    other.use_assets(data.assets)
    monkeypatch.setattr("polyformer.data.text_array._write_ids", lambda *_: pytest.fail("encoded again"))
    assert len(list(other.train_dataloader())) > 10
    with pytest.raises(
        ValueError, match=r"data\.train weights: \[\[2, 3\.0\], \[2, 1\.0\]\] then, \[\[2, 3\.0\], \[2, 2\.0\]\] now"
    ):
        other.load_state_dict(state)


def test_resuming_is_exact(tmp_path: Path) -> None:
    whole = [batch.tokens for batch in text_data(tmp_path).train_dataloader()]
    for stop in (1, 7, len(whole) - 1):
        first, second = text_data(tmp_path), text_data(tmp_path)
        loader = iter(first.train_dataloader())
        for _ in range(stop):
            next(loader)
        second.load_state_dict(first.state_dict())
        rest = [batch.tokens for batch in second.train_dataloader()]
        assert len(rest) == len(whole) - stop and all(map(torch.equal, rest, whole[stop:]))


def test_masked_batches_are_each_of_one_source(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="polyformer")

    def data() -> MaskedTextData:
        tokenizer = TextTokenizerSettings(kind="word", min_frequency=1)
        return MaskedTextData(write(tmp_path), max_length=8, tokenizer=tokenizer, batches=BatchSettings(60))

    made = data()
    word = {name: made.assets.tokenizers["text"].encode(name)[0] for name in ("left", "right")}
    batches, counts, seen = list(made.train_dataloader()), Counter[str](), Counter[int]()
    for batch in batches:
        whole = torch.where(batch.target > 0, batch.target, batch.tokens)
        found = [name for name, token in word.items() if bool((whole == token).any())]
        assert len(found) == 1 and bool(((batch.index < 120) == (found[0] == "left")).all())
        counts[found[0]] += 1
        seen.update(batch.index.tolist())
    assert counts["left"] == 3 * counts["right"] == 45 and "75.00%, 4.5 passes" in caplog.text
    assert {seen[number] for number in range(120)} <= {4, 5} and max(seen[number] for number in range(120, 720)) == 1
    targets = [batch.target[batch.index == 0].tolist() for batch in batches if bool((batch.index == 0).any())]
    assert len({str(target) for target in targets}) > 1  # other masks in each pass of a source
    first, second = data(), data()
    loader = iter(first.train_dataloader())
    for _ in range(20):
        next(loader)
    second.load_state_dict(first.state_dict())
    rest = [batch.tokens for batch in second.train_dataloader()]
    assert len(rest) == len(batches) - 20 and all(map(torch.equal, rest, [batch.tokens for batch in batches[20:]]))


def test_sources_come_from_the_command_line(tmp_path: Path) -> None:
    given = "[{files: a.txt, weight: 0.7}, {files: [b.txt, c.txt], weight: 0.3}]"
    for task, kind in (
        ("LanguageModeling", TextData),
        ("LanguageModeling", TextStream),
        ("MaskedLanguageModeling", MaskedTextData),
        ("Translation", PairData),
    ):
        parser, settings = parse_settings(["--task", task, "--data", kind.__name__, "--data.train", given])
        again, stored = parse_settings(["--config", _stored(tmp_path, parser.plain(settings))])
        for one, found in ((parser, settings), (again, stored)):
            data = one.parser.instantiate(found).data
            assert type(data) is kind
            assert data.sources == (Source("a.txt", 0.7), Source(["b.txt", "c.txt"], 0.3))
            assert data.locations["train"] == ["a.txt", "b.txt", "c.txt"]


def _stored(folder: Path, settings: Any) -> str:
    (folder / "stored.yaml").write_text(yaml.safe_dump(settings))
    return str(folder / "stored.yaml")


@pytest.mark.parametrize("given", [["a", {"files": "b"}], [{"file": "a"}], [{"files": "a", "weights": 1}]])
def test_what_is_no_source_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match=r"`data\.train` must be files, or a list of sources with `files` and `weight`, but"):
        TextData(given)


def test_faults_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"the `weight` of a in `data\.train` must be above 0, but is 0"):
        TextData([{"files": "a", "weight": 0}])
    with pytest.raises(ValueError, match=r"the `weight` of a in `data\.train` must be a number above 0"):
        TextData([{"files": "a", "weight": None}])
    with pytest.raises(ValueError, match=r"`data\.validation_share` is not for sources with weights: give `data\.validation`"):
        TextData(write(tmp_path), validation_share=0.1)
    with pytest.raises(ValueError, match=r"b: 9 tokens are less than one window; `data\.window` \(10\) must be less"):
        MixedWindowPlan([100, 9], SOURCES[:2], 10, tokens=20)
    with pytest.raises(ValueError, match=r"b: a `weight` of 0\.001 comes to no window in an epoch: leave it out"):
        MixedWindowPlan([100, 90], [Source("a"), Source("b", 0.001)], 10, tokens=20)
    assert len(MixedWindowPlan([100], SOURCES[:1], 10, tokens=20)) == len(WindowPlan(100, 10, tokens=20))
