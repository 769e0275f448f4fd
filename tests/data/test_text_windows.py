"""Windows over a text: which tokens are in which batch, and which of them are scored."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyformer.data import BatchLoader, EvaluationPlan, EvaluationWindows, TextArray, TextReport, TrainingWindows, WindowPlan
from polyformer.text import EOS, PAD


def array_of(folder: Path, total: int) -> TextArray:
    """An array whose id at each place but the ends is the place plus 10."""
    ids = np.arange(total + 1, dtype=np.uint32) + 10
    ids[[0, -1]] = EOS
    (folder / "ids.bin").write_bytes(ids.tobytes())
    return TextArray(folder / "ids.bin", "uint32", TextReport())


@pytest.mark.parametrize(("total", "window", "tokens"), [(1, 1, 1), (9, 9, 1), (999, 7, 7), (999, 7, 60), (1003, 10, 10**6)])
def test_an_epoch_has_each_token_once_but_for_a_remainder(total: int, window: int, tokens: int) -> None:
    plan = WindowPlan(total, window, tokens=tokens, seed=1)
    assert len(plan) >= 1
    for epoch in range(5):
        batches = plan.plan(epoch)
        assert len(batches) == len(plan) and {len(batch) for batch in batches} == {plan.count}
        starts = np.concatenate(batches)
        assert starts.min() >= 0 and starts.max() < total
        places = (starts[:, None] + np.arange(window)).ravel() % total
        assert len(set(places.tolist())) == len(places) > total - window - plan.count * window
        again = WindowPlan(total, window, tokens=tokens, seed=1).plan(epoch)
        assert all(np.array_equal(a, b) for a, b in zip(batches, again, strict=True))


def test_epochs_and_seeds_cut_elsewhere() -> None:
    plan = WindowPlan(10_000, 16, tokens=64)
    offsets = {int(plan.plan(epoch)[0][0]) % 16 for epoch in range(40)}
    assert len(offsets) > 10
    other = WindowPlan(10_000, 16, tokens=64, seed=1)
    assert not np.array_equal(plan.plan(0)[0], other.plan(0)[0])
    assert len({len(WindowPlan(10_000, 16, tokens=64, seed=seed).plan(3)) for seed in range(9)}) == 1


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_ranks_share_each_batch(world: int) -> None:
    plan = WindowPlan(1000, 10, tokens=45, world=world)
    assert plan.count == 4
    assert np.array_equal(plan.plan(2)[1], WindowPlan(1000, 10, tokens=45).plan(2)[1])
    for batch in plan.plan(0):
        parts = [plan.split(batch, rank, world) for rank in range(world)]
        assert sorted(np.concatenate(parts).tolist()) == sorted(batch.tolist())
        assert max(map(len, parts)) - min(map(len, parts)) <= 1 and min(map(len, parts)) > 0


def test_windows_wrap_from_the_end_to_the_beginning(tmp_path: Path) -> None:
    windows = TrainingWindows(array_of(tmp_path, 20), 6)
    rows = windows[[0, 14, 17]]["tokens"]
    assert rows.dtype == np.int64
    assert rows.tolist() == [
        [EOS, 11, 12, 13, 14, 15, 16],
        [24, 25, 26, 27, 28, 29, EOS],
        [27, 28, 29, EOS, 11, 12, 13],
    ]


def test_faults_name_their_key() -> None:
    with pytest.raises(ValueError, match=r"has 9 tokens, which is less than one window; `data\.window` \(10\) must be less"):
        WindowPlan(9, 10, tokens=100)
    with pytest.raises(ValueError, match=r"of 2 windows cannot be shared among 3 devices; `data\.batches\.tokens` \(20\)"):
        WindowPlan(1000, 10, tokens=20, world=3)
    with pytest.raises(ValueError, match=r"has 25 tokens, 2 windows of 10 \(`data\.window`\), which cannot be shared among 3"):
        WindowPlan(25, 10, tokens=100, world=3)
    for stride in (0, 11):
        with pytest.raises(ValueError, match=rf"`data\.stride` must be between 1 and `data\.window` \(10\), but is {stride}"):
            EvaluationPlan(100, 10, stride)
    assert WindowPlan(1000, 10, tokens=100, max_examples=3).count == 3
    said = WindowPlan(1003, 10, tokens=30).describe()
    assert said == "33 batches of 3 windows of 10 tokens; 13 tokens (1.3%), others in each epoch, are left out"
    assert EvaluationPlan(100, 10, 5).describe() == "19 windows of 10 tokens, 5 apart"


@pytest.mark.parametrize("total", [1, 2, 7, 8, 9, 30, 31])
@pytest.mark.parametrize(("window", "stride"), [(1, None), (8, None), (8, 8), (8, 3), (8, 1), (100, 7)])
@pytest.mark.parametrize("tokens", [1, 20, 1000])
def test_each_token_is_scored_once(tmp_path: Path, total: int, window: int, stride: int | None, tokens: int) -> None:
    array = array_of(tmp_path, total)
    ids = array.ids.tolist()
    for world in (1, 2, 5):
        plan = EvaluationPlan(total, window, stride, tokens)
        assert len(plan) == len(plan.plan(0))
        scored: list[tuple[int, int, int]] = []
        for rank in range(world):
            loader = BatchLoader(EvaluationWindows(array, plan), plan, lambda rows, epoch: rows, rank=rank, world=world)
            assert len(loader) == len(list(loader))
            for rows in filter(None, loader):
                assert 1 <= len(rows["index"]) <= max(1, tokens // window)
                scored += list(scored_in(rows, stride or window))
        assert [(place, target) for place, target, _ in sorted(scored)] == list(enumerate(ids[1:]))
        assert all(context >= min(place, window - (stride or window)) for place, _, context in scored)


def scored_in(rows: dict[str, Any], stride: int) -> Any:
    """(place, target, inputs before it in its window) of every scored token; inputs are checked against it."""
    for tokens, targets, number in zip(rows["tokens"], rows["target"], rows["index"], strict=True):
        for column in np.flatnonzero(targets != PAD).tolist():
            place = number * stride + column
            assert tokens[column] == (place + 10 if place else EOS) and tokens[column + 1] == targets[column]
            yield place, int(targets[column]), column
        assert rows["target"].shape[1] == rows["tokens"].shape[1] - 1
