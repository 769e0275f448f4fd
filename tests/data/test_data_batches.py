"""Batches of about N tokens, and serving them from any position on."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polyformer.data import BatchLoader, BatchSettings, TokenBatches, read_examples


def lengths(count: int = 500, columns: int = 2, seed: int = 0) -> Any:
    generator = np.random.default_rng(seed)
    target = generator.geometric(0.08, count)
    others = [np.maximum(target + generator.integers(-3, 4, count), 1) for _ in range(columns - 1)]
    return np.stack([target, *others], axis=1)


def same(left: list[Any], right: list[Any]) -> bool:
    return len(left) == len(right) and all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("columns", [1, 2, 3])
@pytest.mark.parametrize("limits", [{}, {"max_examples": 7}, {"at_least": 4}, {"shuffle": False}])
@pytest.mark.parametrize("tokens", [1, 40, 300, 10**6])
def test_every_epoch_has_each_example_once_and_the_same_length(columns: int, limits: dict[str, Any], tokens: int) -> None:
    table = lengths(columns=columns)
    batches = TokenBatches(table, tokens=tokens, **limits)
    for epoch in range(4):
        plan = batches.plan(epoch)
        assert len(plan) == len(batches)
        assert sorted(np.concatenate(plan).tolist()) == list(range(500))
        assert all(limits.get("at_least", 1) <= len(batch) <= limits.get("max_examples", 500) for batch in plan)
        assert same(plan, TokenBatches(table, tokens=tokens, **limits).plan(epoch))
        if "at_least" not in limits:
            assert max(int(table[batch, 0].sum()) for batch in plan) <= tokens + table[:, 0].max()


def test_epochs_and_seeds_differ() -> None:
    table = lengths()
    batches = TokenBatches(table, tokens=200, seed=1)
    assert not same(batches.plan(0), batches.plan(1))
    assert not same(batches.plan(0), TokenBatches(table, tokens=200, seed=2).plan(0))
    fixed = TokenBatches(table, tokens=200, shuffle=False).plan(0)
    assert same(fixed, TokenBatches(table, tokens=200, seed=9, shuffle=False).plan(5))
    longest = [int(table[batch, 0].max()) for batch in fixed]
    assert longest == sorted(longest, reverse=True) and longest[0] == table[:, 0].max()


@pytest.mark.parametrize("world", [2, 3, 5])
def test_ranks_share_each_batch_evenly(world: int) -> None:
    table = lengths()
    batches = TokenBatches(table, tokens=400, at_least=world)
    for batch in batches.plan(0):
        parts = [batches.split(batch, rank, world) for rank in range(world)]
        assert sorted(np.concatenate(parts).tolist()) == sorted(batch.tolist())
        assert min(map(len, parts)) > 0
        tokens = [int(table[part, 0].sum()) for part in parts]
        assert max(tokens) - min(tokens) <= table[batch, 0].max()
    with pytest.raises(ValueError, match="2 examples cannot be shared among 3 devices"):
        TokenBatches(table[:2], tokens=10, at_least=3)
    assert TokenBatches(table[:0], tokens=10).plan(0) == []


def test_padding_is_counted() -> None:
    batches = TokenBatches(np.array([[4, 1], [2, 3]]), tokens=100)
    assert batches.padding(0) == pytest.approx(1 - 10 / 14)
    assert batches.padding(0, column=0) == pytest.approx(1 - 6 / 8)


def test_padding_of_multi30k(corpora: Path) -> None:
    folder = corpora / "multi30k"
    files = [str(folder / "train.de.gz"), str(folder / "train.en.gz")]
    rows = list(read_examples(files, {"source": 0, "target": 1}))
    # Words stand in for subwords, of which there are a few more.
    table = np.array([[len(row["target"].split()) + 1, len(row["source"].split()) + 1] for row in rows])
    batches = TokenBatches(table, tokens=4096)
    assert batches.padding(0, column=0) < 0.03
    assert batches.padding(0, column=1) < 0.12


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match=r"`data\.batches\.tokens` must be at least 1, but is 0"):
        BatchSettings(tokens=0)
    with pytest.raises(ValueError, match=r"`data\.batches\.workers` must be at least 0, but is -1"):
        BatchSettings(workers=-1)


class Rows:
    """Row i holds i."""

    def __getitem__(self, indices: list[int]) -> dict[str, list[int]]:
        return {"value": list(indices)}


def prepare(rows: dict[str, Any], epoch: int) -> tuple[list[int], list[int], int]:
    return rows["value"], rows["index"], epoch


def loader(workers: int = 0, **arguments: Any) -> BatchLoader:
    return BatchLoader(Rows(), TokenBatches(lengths(60), tokens=100), prepare, workers=workers, **arguments)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_resuming_in_an_epoch_is_as_if_nothing_happened(workers: int) -> None:
    whole = loader()
    expected = [list(whole) for _ in range(3)]
    assert [epoch for batches in expected for _, _, epoch in batches[:1]] == [0, 1, 2]
    first = loader(workers)
    list(first)
    served = []
    for batch in first:
        served.append(batch)
        if len(served) == 4:
            break
    state = first.state_dict()
    assert state == {"epoch": 1, "batch": 4}
    second = loader(workers)
    second.load_state_dict(state)
    assert served + list(second) == expected[1]
    assert second.state_dict() == {"epoch": 2, "batch": 0}
    assert list(second) == expected[2]


def test_an_epoch_left_early_is_over() -> None:
    one = loader()
    next(iter(one))
    assert next(iter(one))[2] == 1
    limited = loader(limit=2)
    assert len(list(limited)) == 2 and limited.state_dict() == {"epoch": 1, "batch": 0}
    assert len(limited) == len(one)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_no_random_state_but_its_own_is_used() -> None:
    before = torch.get_rng_state()
    list(loader(workers=1))
    assert torch.equal(before, torch.get_rng_state())


def test_ranks_serve_the_same_steps_in_training_and_may_have_none_in_evaluation() -> None:
    table = lengths(61)
    plan = TokenBatches(table, tokens=60, at_least=3)
    parts = [list(BatchLoader(Rows(), plan, prepare, rank=rank, world=3)) for rank in range(3)]
    assert len({len(part) for part in parts}) == 1
    assert sorted(index for part in parts for _, indices, _ in part for index in indices) == list(range(61))
    plan = TokenBatches(table[:2], tokens=1, shuffle=False)
    loaders = [BatchLoader(Rows(), plan, prepare, rank=rank, world=3) for rank in range(3)]
    assert [len(each) for each in loaders] == [len(list(each)) for each in loaders] == [2, 1, 1]
    assert list(loaders[1]) == list(loaders[2]) == [None]  # for Lightning, which refuses a rank without batches
