"""Several data modules as one: what each part gets of the batches, and what becomes of parts that mix sources themselves."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polyformer.data import BatchSettings, MaskedTextData, MixedData, PartBatch, TextTokenizerSettings, TokenBatches
from polyformer.data.mixed_plan import MixedPlan

WORDS = {"left": 60, "right": 300, "other": 90}


def masked(train: Any, tokens: int = 60) -> MaskedTextData:
    tokenizer = TextTokenizerSettings(kind="word", min_frequency=1)
    return MaskedTextData(train, max_length=8, tokenizer=tokenizer, batches=BatchSettings(tokens))


def mixed(folder: Path, seed: int = 4, **arguments: Any) -> MixedData:
    """A part of two sources, and one of a single file."""
    for name, count in WORDS.items():
        (folder / f"{name}.txt").write_text(f"{name} {name} {name}\n" * count + "left right other\n")
    sources = [{"files": str(folder / "left.txt"), "weight": 3.0}, {"files": str(folder / "right.txt")}]
    parts = {"both": masked(sources), "one": masked(str(folder / "other.txt"))}
    data = MixedData({**parts}, **arguments)
    data.seed = seed
    return data


def numbers(batches: list[PartBatch]) -> list[tuple[str, list[int]]]:
    return [(batch.part, batch.batch.index.tolist()) for batch in batches]


def test_a_part_may_mix_sources(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each batch is of one source, with that source's own texts, as often as it weighs; each example once in each pass."""
    caplog.set_level("INFO", logger="polyformer")
    data = mixed(tmp_path)
    token = {name: data.assets.tokenizers["text"].encode(name)[0] for name in WORDS}
    counts, seen = Counter[str](), Counter[tuple[str, int]]()
    for batch in data.train_dataloader():
        own = batch.batch
        whole = torch.where(own.target > 0, own.target, own.tokens)
        name = max(WORDS, key=lambda name: int((whole == token[name]).sum()))
        assert (batch.part == "one") == (name == "other")
        if batch.part == "both":
            assert bool(((own.index < WORDS["left"] + 1) == (name == "left")).all())
        counts[name] += 1
        seen.update((batch.part, number) for number in own.index.tolist())
    assert abs(counts["left"] - 3 * counts["right"]) <= 3 and len(seen) > 150
    assert max(count for (part, number), count in seen.items() if part == "one") == 1
    assert all(f"passes) of both, {tmp_path / name}.txt, " in caplog.text for name in ("left", "right"))


@pytest.mark.parametrize("stop", [1, 12, 39])
def test_a_part_that_mixes_goes_on_to_the_bit(tmp_path: Path, stop: int) -> None:
    whole = list(mixed(tmp_path).train_dataloader())
    first, second = mixed(tmp_path), mixed(tmp_path)
    loader = iter(first.train_dataloader())
    for _ in range(stop):
        next(loader)
    assert second.batches_per_epoch() == len(whole)
    second.load_state_dict(first.state_dict())
    rest = list(second.train_dataloader())
    assert numbers(rest) == numbers(whole[stop:])
    assert all(torch.equal(one.batch.tokens, other.batch.tokens) for one, other in zip(rest, whole[stop:], strict=True))


def test_ranks_share_a_part_that_mixes(tmp_path: Path) -> None:
    data = mixed(tmp_path)
    whole = numbers(list(data.training_loader(0, 1)))
    ranks = [numbers(list(mixed(tmp_path).training_loader(rank, 2))) for rank in range(2)]
    joined = [(one[0], sorted([*one[1], *other[1]])) for one, other in zip(*ranks, strict=True)]
    assert joined == [(part, sorted(index)) for part, index in whole]


# ---- shares


def parts_of(plan: MixedPlan, epoch: int) -> list[int]:
    return [int(batch[0] // 2**36) % len(plan.plans) for batch in plan.plan(epoch)]


@pytest.mark.parametrize(("shares", "wanted"), [([8.0, 2.0], [8, 2]), ([1.0, 1.0], [5, 5]), ([1.0, 9.0], [1, 9])])
@pytest.mark.parametrize("together", [1, 2])
def test_shares(shares: list[float], wanted: list[int], together: int) -> None:
    plans = [TokenBatches(np.full(count, 10), tokens=20) for count in (16, 4)]
    plan = MixedPlan(plans, shares, seed=3, together=together, names=["a", "b"])
    for epoch in range(3):
        numbers = parts_of(plan, epoch)
        assert len(numbers) == len(plan)
        assert all(abs(Counter(numbers)[part] - count) <= together for part, count in enumerate(wanted))
        assert all(len(set(numbers[begin : begin + together])) == 1 for begin in range(0, len(numbers), together))


def test_every_example_comes_once_in_each_of_its_epochs() -> None:
    """Over five epochs of the mixture the small part has been gone through often, the large one not yet twice."""
    plans = [TokenBatches(np.full(count, 10), tokens=20, seed=1) for count in (40, 6)]
    plan = MixedPlan(plans, [1.0, 1.0], seed=1, together=1, names=["a", "b"])
    seen: dict[tuple[int, int], list[int]] = {}
    for epoch in range(5):
        for batch in plan.plan(epoch):
            its_epoch, part = divmod(int(batch[0] // 2**36), 2)
            seen.setdefault((part, its_epoch), []).extend(int(number % 2**36) for number in batch)
    for (part, its_epoch), examples in seen.items():
        assert len(set(examples)) == len(examples)
        whole = (part, its_epoch + 1) in seen
        assert not whole or sorted(examples) == list(range((40, 6)[part]))
    assert max(epoch for part, epoch in seen if part == 1) > 10


def steps_of(data: MixedData) -> list[int]:
    """How many batches an epoch has of left, right and other."""
    plan = data.training_plan(1)
    assert isinstance(plan, MixedPlan)
    return plan.steps


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ({}, lambda both, one: one / (both + one)),
        ({"temperature": 2.0}, lambda both, one: one**0.5 / (both**0.5 + one**0.5)),
        ({"temperature": 1000.0}, lambda both, one: 0.5),
        ({"shares": {"both": 1.0, "one": 3.0}}, lambda both, one: 0.75),
    ],
)
def test_shares_and_temperature_reach_the_plan(tmp_path: Path, arguments: dict[str, Any], wanted: Any) -> None:
    """A part that mixes sources shares out what is its own by their weights."""
    data = mixed(tmp_path, **arguments)
    left, right, other = steps_of(data)
    both, one = (len(part.training_plan(1)) for part in data.parts.values())
    share = wanted(both, one)
    exact = [(both + one) * part for part in (0.75 * (1 - share), 0.25 * (1 - share), share)]
    assert all(abs(steps - part) <= 1 for steps, part in zip((left, right, other), exact, strict=True))


def test_a_low_temperature_leaves_the_largest(tmp_path: Path) -> None:
    """A thousand batches to the power of a thousand are more than a number can be."""
    (tmp_path / "many.txt").write_text("left right other\n" * 4000)
    parts = {"many": str(tmp_path / "many.txt"), "few": str(tmp_path / "few.txt")}
    (tmp_path / "few.txt").write_text("left right other\n" * 400)
    assert steps_of(MixedData({name: masked(path, 4) for name, path in parts.items()}, temperature=0.001))[1] == 1


def test_a_part_without_training_data_is_named(tmp_path: Path) -> None:
    parts = mixed(tmp_path).parts
    with pytest.raises(ValueError, match=r"no train data is given; add --data\.parts\.two\.train FILE"):
        MixedData({"one": parts["one"], "two": masked(None)}).train_dataloader()


def test_a_mixture_is_no_part(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`data\.parts\.two` has parts itself: name them beside the others"):
        MixedData({"two": mixed(tmp_path)})


def test_a_part_that_asks_for_another_tokenizer_is_named(tmp_path: Path) -> None:
    parts = mixed(tmp_path).parts
    parts["two"] = MaskedTextData(str(tmp_path / "other.txt"), tokenizer=TextTokenizerSettings(kind="character"))
    with pytest.raises(ValueError, match=r"`data\.parts\.two\.tokenizer\.kind` is character, but text is read by"):
        MixedData(parts).train_dataloader()


def test_other_parts_read_by_the_tokenizer_of_the_first(tmp_path: Path) -> None:
    data = mixed(tmp_path)
    fingerprints = {part.assets.tokenizers["text"].fingerprint for part in data.parts.values() if data.assets}
    assert fingerprints == {data.assets.tokenizers["text"].fingerprint}
