"""Text that is tokenized while it is read: the same for any number of ranks, resumed exactly, never held."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch

from polyformer.data import BatchSettings, TextBatch, TextStream, TextTokenizerSettings, WholeTraining
from polyformer.data.documents import Document
from polyformer.data.stream import Place, StreamLoader, WindowStream
from polyformer.text import EOS, TokenizerSettings, train_tokenizer

WORDS = ["the", "cat", "dog", "sat", "ran", "on", "under", "mat", "rug", "and", "a", "big", "small", "red"]


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own for each test, and small parts, so that everything happens several times."""
    monkeypatch.setenv("POLYFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("polyformer.data.stream.CHUNK", 60)
    monkeypatch.setattr("polyformer.data.documents.PIECE", 20)


def write_files(folder: Path) -> str:
    for file, count in enumerate((30, 1, 0, 17)):
        lines = [" ".join(WORDS[(at * step + file) % 14] for step in range(1, 1 + at % 12)) for at in range(count)]
        (folder / f"{file}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(folder / "*.txt")


def stream(folder: Path, tokens: int = 24, window: int = 6, shuffle_windows: int = 8, **arguments: Any) -> TextStream:
    given = {"train": write_files(folder), **arguments}
    tokenizer = TextTokenizerSettings(kind="word", min_frequency=1)
    batches = BatchSettings(tokens, evaluation_tokens=30)
    data = TextStream(**given, window=window, shuffle_windows=shuffle_windows, tokenizer=tokenizer, batches=batches)
    data.seed = 3
    return data


def served(data: TextStream, rank: int = 0, world: int = 1) -> list[TextBatch]:
    return list(data.training_loader(rank, world))


def plain(batches: list[TextBatch]) -> list[Any]:
    return [(batch.index.tolist(), batch.tokens.tolist(), batch.target.tolist()) for batch in batches]


@pytest.mark.parametrize("empty", ["drop", "keep"])
@pytest.mark.parametrize("shuffle_windows", [1, 8, 20, 10_000])
def test_an_epoch_is_all_of_the_text_in_order_but_for_the_shuffling(tmp_path: Path, shuffle_windows: int, empty: str) -> None:
    data = stream(tmp_path, tokens=6, shuffle_windows=shuffle_windows, empty=empty)
    for epoch, batches in enumerate([served(data)]):
        order = np.random.Generator(np.random.PCG64([3, epoch])).permutation(4)
        expected = [EOS]
        for file in order:
            for line in (tmp_path / f"{file}.txt").read_text().splitlines():
                if line or empty == "keep":
                    expected += [*data.text_tokenizer.encode(line), EOS]
        rows = {int(batch.index[0]): batch for batch in batches}
        assert sorted(rows) == list(range((len(expected) - 1) // 6))
        tokens = [token for number in sorted(rows) for token in rows[number].tokens[0].tolist()]
        targets = [token for number in sorted(rows) for token in rows[number].target[0].tolist()]
        assert tokens == expected[: len(tokens)] and targets == expected[1 : len(tokens) + 1]
        numbers = [int(batch.index[0]) for batch in batches]
        assert (numbers == sorted(numbers)) == (shuffle_windows == 1)
        assert all(abs(at - number) < shuffle_windows for at, number in enumerate(numbers))


def test_ranks_share_each_batch(tmp_path: Path) -> None:
    whole = served(stream(tmp_path))
    for world in (2, 3):
        parts = [served(stream(tmp_path), rank, world) for rank in range(world)]
        assert {len(part) for part in parts} == {len(whole)}
        for batch, *pieces in zip(whole, *parts, strict=True):
            assert sorted(batch.index.tolist()) == sorted(number for piece in pieces for number in piece.index.tolist())
            rows = {number: row for piece in pieces for number, row in zip(piece.index.tolist(), piece.tokens, strict=True)}
            assert torch.equal(batch.tokens, torch.stack([rows[number] for number in batch.index.tolist()]))
    with pytest.raises(ValueError, match=r"a batch of 4 windows cannot be shared among 5 devices"):
        stream(tmp_path).training_loader(0, 5)


@pytest.mark.parametrize("document", ["line", "file"])
@pytest.mark.parametrize("shuffle_windows", [1, 8, 10_000])
def test_resuming_is_exact_from_every_position(tmp_path: Path, shuffle_windows: int, document: str) -> None:
    def fresh() -> StreamLoader:
        return stream(tmp_path, shuffle_windows=shuffle_windows, document=document).training_loader(0, 1)

    whole = fresh()
    expected = plain([*whole, *whole])
    per_epoch = len(plain(list(fresh())))
    assert len(expected) == 2 * per_epoch and expected[:per_epoch] != expected[per_epoch:]
    loader, seen = fresh(), []
    for _ in range(2):
        for batch in loader:
            seen += plain([batch])
            state = loader.state_dict()
            assert all(type(value) is int for value in state.values())
            resumed = fresh()
            resumed.load_state_dict(state)
            rest = plain(list(resumed))
            if len(seen) < per_epoch:
                rest += plain(list(resumed))
            assert seen + rest == expected or len(seen) == 2 * per_epoch
    assert seen == expected


def test_a_training_goes_on_over_epochs_and_an_epoch_left_early_is_over(tmp_path: Path) -> None:
    data = stream(tmp_path)
    data.total_batches = 50
    assert data.batches_per_epoch() is None
    training = data.train_dataloader()
    assert isinstance(training, WholeTraining) and len(training) == 50
    served = [batch for batch, _ in zip(training, range(50), strict=False)]
    epoch = data.state_dict()["position"]["epoch"]
    assert epoch >= 2 and len(served) == 50
    loader = stream(tmp_path).training_loader(0, 1)
    next(iter(loader))
    assert loader.state_dict()["epoch"] == 0
    next(iter(loader))
    assert loader.state_dict()["epoch"] == 1


def test_lightning_may_end_an_epoch_early(tmp_path: Path) -> None:
    data = stream(tmp_path)
    inner = data.training_loader(0, 1)
    inner.limit = 2
    assert len(list(inner)) == 2 and inner.state_dict()["epoch"] == 1
    assert len(list(inner)) == 2 and inner.state_dict()["epoch"] == 2


def test_changed_text_is_refused(tmp_path: Path) -> None:
    data = stream(tmp_path)
    data.train_dataloader()
    state = data.state_dict()
    stream(tmp_path).load_state_dict(state)
    with pytest.raises(ValueError, match=r"\n  data\.shuffle_windows: 8 then, 9 now"):
        stream(tmp_path, shuffle_windows=9).load_state_dict(state)
    changed = stream(tmp_path)
    changed.use_assets(data.assets)
    (tmp_path / "1.txt").write_text("the cat")
    with pytest.raises(ValueError, match=r"data\.content of train: .*1\.txt \(1 bytes\).*1\.txt \(7 bytes\)"):
        changed.load_state_dict(state)


def test_validation_is_an_array_and_training_is_not(tmp_path: Path) -> None:
    data = stream(tmp_path, validation=str(tmp_path / "0.txt"))
    data.prepare_data()
    data.setup("fit")
    assert str(data.reports["train"]).startswith("4 files of 0.0 MB, tokenized while they are read")
    assert data.reports["validation"].documents == 27
    assert len(list((tmp_path / "cache" / "texts").iterdir())) == 1
    assert sum(batch.words for batch in data.val_dataloader()) == data.reports["validation"].words


def test_a_tokenizer_is_made_from_the_beginning(tmp_path: Path) -> None:
    tokenizer = TextTokenizerSettings(kind="word", min_frequency=1, sample_megabytes=0.0001)
    data = TextStream(write_files(tmp_path), tokenizer=tokenizer)
    assert 100 <= sum(len(text) for text in data.sample()) < 200


def test_too_short_a_text_is_a_fault(tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_text("the cat sat\n")
    with pytest.raises(ValueError, match=r"too short for a single batch of 4 windows of 6 tokens \(`data\.batches\.tokens`"):
        served(stream(tmp_path, train=str(short)))
    with pytest.raises(ValueError, match=r"`data\.shuffle_windows` must be at least 1, but is 0"):
        TextStream(shuffle_windows=0)


class Rows:
    """What the hub gives: rows as they come."""

    features = None

    def __init__(self, first: int = 0) -> None:
        self.first = first

    def __iter__(self) -> Iterator[dict[str, str]]:
        return ({"text": f"the cat {WORDS[at % 14]}"} for at in range(self.first, 40))

    def skip(self, count: int) -> "Rows":
        return Rows(self.first + count)


def test_the_hub_is_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load_dataset(*arguments: Any, **options: Any) -> Rows:
        asked.append((arguments, options))
        return Rows()

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    data = stream(tmp_path, train="hub:some/text@small:train")
    loader = data.training_loader(0, 1)
    first = plain(list(loader))
    assert set(map(str, asked)) == {str((("some/text", "small"), {"split": "train", "streaming": True}))}
    loader = stream(tmp_path, train="hub:some/text@small:train").training_loader(0, 1)
    halfway = iter(loader)
    for _ in range(len(first) - 1):
        next(halfway)
    resumed = stream(tmp_path, train="hub:some/text@small:train").training_loader(0, 1)
    resumed.load_state_dict(loader.state_dict())
    assert plain(list(resumed)) == first[-1:]
    assert data.contents("train") == ["hub:some/text@small:train"]


def test_a_thread_changes_nothing_and_ends(tmp_path: Path) -> None:
    expected = plain(served(stream(tmp_path)))
    threads = threading.active_count()
    data = stream(tmp_path)
    data.batches = BatchSettings(24, workers=1)
    loader = data.training_loader(0, 1)
    assert plain(list(loader)) == expected
    resumed = data.training_loader(0, 1)
    resumed.load_state_dict(loader.state_dict())
    batches = iter(resumed)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert threading.active_count() == threads
    (tmp_path / "0.txt").write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"0\.txt, line 1: not UTF-8 text"):
        served(data)
    assert threading.active_count() == threads


def test_no_more_than_a_block_is_read_ahead() -> None:
    read = 0

    def documents(place: str, first: int) -> Iterator[Document]:
        nonlocal read
        while True:  # a text without end
            read += 1
            yield ("the cat sat",)

    tokenizer = train_tokenizer(["the cat sat"], TokenizerSettings(kind="word", min_frequency=1))
    blocks = WindowStream(["x"], documents, tokenizer, window=7, block=10).blocks(0, Place())
    for number in range(50):
        _, windows = next(blocks)
        assert windows.shape == (10, 8)
        assert read * 4 <= (number + 2) * 70 + 30
