"""Text that is tokenized while it is read: shares that are disjoint, the same for any number of ranks, resumed exactly."""

import threading
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polyformer.data import BatchSettings, TextBatch, TextStream, TextTokenizerSettings, WholeTraining
from polyformer.data.documents import Document, Piece
from polyformer.data.reading import Unread
from polyformer.data.stream import Place, Share, WindowStream
from polyformer.data.stream_loader import source_of
from polyformer.text import EOS, TokenizerSettings, train_tokenizer

WORDS = ["the", "cat", "dog", "sat", "ran", "on", "under", "mat", "rug", "and", "a", "big", "small", "red"]


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small parts, so that everything happens several times."""
    monkeypatch.setattr("polyformer.data.stream.CHUNK", 60)
    monkeypatch.setattr("polyformer.data.documents.PIECE", 20)


def write_files(folder: Path) -> str:
    for file, count in enumerate((30, 9, 0, 17)):
        lines = [" ".join(WORDS[(at * step + file) % 14] for step in range(1, 1 + at % 12)) for at in range(count)]
        (folder / f"{file}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(folder / "*.txt")


def stream(folder: Path, tokens: int = 36, window: int = 6, shuffle_windows: int = 8, **arguments: Any) -> TextStream:
    given = {"train": write_files(folder), **arguments}
    tokenizer = TextTokenizerSettings(kind="word", min_frequency=1)
    batches = BatchSettings(tokens, evaluation_tokens=30)
    data = TextStream(**given, window=window, shuffle_windows=shuffle_windows, tokenizer=tokenizer, batches=batches)
    data.seed = 3
    return data


def served(data: TextStream, count: int = 30, rank: int = 0, world: int = 1) -> list[TextBatch]:
    return list(islice(data.training_loader(rank, world), count))


def plain(batches: list[TextBatch]) -> list[Any]:
    return [(batch.index.tolist(), batch.tokens.tolist(), batch.target.tolist()) for batch in batches]


@pytest.mark.parametrize("empty", ["drop", "keep"])
@pytest.mark.parametrize("shuffle_windows", [1, 8, 100])
def test_it_is_all_of_the_text_in_order_but_for_the_shuffling(tmp_path: Path, shuffle_windows: int, empty: str) -> None:
    data = stream(tmp_path, tokens=6, shuffle_windows=shuffle_windows, empty=empty)
    expected = [EOS]
    for epoch in range(7):
        for file in np.random.Generator(np.random.PCG64([3, epoch])).permutation(4):
            for line in (tmp_path / f"{file}.txt").read_text().splitlines():
                if line or empty == "keep":
                    expected += [*data.text_tokenizer.encode(line), EOS]
    batches = served(data, 200)
    rows = {int(batch.index[0]): batch for batch in batches}
    assert sorted(rows) == list(range(200)) and len(expected) > 1200
    tokens = [token for number in sorted(rows) for token in rows[number].tokens[0].tolist()]
    targets = [token for number in sorted(rows) for token in rows[number].target[0].tolist()]
    assert tokens == expected[:1200] and targets == expected[1:1201]
    numbers = [int(batch.index[0]) for batch in batches]
    assert (numbers == sorted(numbers)) == (shuffle_windows == 1)
    assert all(abs(at - number) < shuffle_windows for at, number in enumerate(numbers))


@pytest.mark.parametrize("files", [[1], [30, 0, 3, 9], [4] * 8, [2] * 7])
@pytest.mark.parametrize("shares", [1, 2, 3, 8])
def test_in_an_epoch_each_document_is_in_one_share(files: list[int], shares: int) -> None:
    def read(place: str, first: int) -> Iterator[Document]:
        return ((f"{place}.{number}",) for number in range(first, files[int(place)]))

    found = Counter[tuple[int, str]]()
    tokenizer = train_tokenizer(["a"], TokenizerSettings(kind="byte"))
    for number in range(shares):
        share = WindowStream([*map(str, range(len(files)))], read, tokenizer, 4, 1, (5,), Share(number, shares))
        own = [document for place, first, step in share._files(0) for document in islice(read(place, first), 0, None, step)]
        if not own:
            with pytest.raises(ValueError, match=rf"share {number + 1} of {shares} of the training text has no document"):
                next(share._pieces(Place()))
            continue
        for numbered in share._pieces(Place()):
            if numbered.epoch == 2:
                break
            found[numbered.epoch, numbered.piece.text] += 1
    every = {f"{file}.{number}" for file, count in enumerate(files) for number in range(count)}
    for epoch in range(2):
        assert {text for at, text in found if at == epoch} <= every
    assert {text for at, text in found if at == 0} == every and set(found.values()) == {1}


def test_a_rank_tokenizes_its_own_share_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from polyformer.data import stream as module

    encode, seen = module.encode_text, list[str]()

    def watched(tokenizer: Any, pieces: list[Piece], empty: Any) -> Any:
        seen.extend(piece.text for piece in pieces)
        return encode(tokenizer, pieces, empty)

    lines = [f"{WORDS[at % 14]} {at}" for at in range(400)]
    for file in range(5):
        (tmp_path / f"long{file}").write_text("\n".join(lines[80 * file : 80 * file + 80]))
    monkeypatch.setattr(module, "encode_text", watched)
    parts = []
    for rank in range(2):
        seen.clear()
        served(stream(tmp_path, train=str(tmp_path / "long*"), shuffle_windows=2), 6, rank, 2)
        parts.append(set(seen))
    assert min(map(len, parts)) > 30 and not parts[0] & parts[1]


def test_batches_do_not_depend_on_ranks_where_the_number_of_shares_is_given(tmp_path: Path) -> None:
    whole = served(stream(tmp_path, readers=6))
    for world in (2, 3, 6):
        parts = [served(stream(tmp_path, readers=6), 30, rank, world) for rank in range(world)]
        for batch, *pieces in zip(whole, *parts, strict=True):
            assert max(map(len, pieces)) - min(map(len, pieces)) <= 1
            rows = {number: row for piece in pieces for number, row in zip(piece.index.tolist(), piece.tokens, strict=True)}
            assert torch.equal(batch.tokens, torch.stack([rows[number] for number in batch.index.tolist()]))
    numbers = [number for batch in whole for number in batch.index.tolist()]
    assert len(set(numbers)) == len(numbers)
    with pytest.raises(ValueError, match=r"`data\.readers` \(6\) must be a multiple of the number of devices \(4\)"):
        stream(tmp_path, readers=6).training_loader(0, 4)
    with pytest.raises(ValueError, match=r"a batch of 6 windows cannot be shared among 7 devices"):
        stream(tmp_path).training_loader(0, 7)


def mixed(folder: Path) -> list[dict[str, Any]]:
    write_files(folder)
    return [{"files": str(folder / "[01].txt"), "weight": 3.0}, {"files": [str(folder / "3.txt")]}]


@pytest.mark.parametrize(
    "arguments",
    [{"shuffle_windows": 1}, {}, {"shuffle_windows": 100}, {"document": "file"}, {"readers": 3}, {"train": mixed}],
)
def test_resuming_is_exact_from_every_position(tmp_path: Path, arguments: dict[str, Any]) -> None:
    given = {name: value(tmp_path) if callable(value) else value for name, value in arguments.items()}

    def fresh() -> Any:
        return stream(tmp_path, **given).training_loader(0, 1)

    expected = plain(list(islice(fresh(), 24)))
    loader, seen = fresh(), []
    for batch in islice(loader, 24):
        seen += plain([batch])
        state = loader.state_dict()
        resumed = fresh()
        resumed.load_state_dict(state)
        assert seen + plain(list(islice(resumed, 24 - len(seen)))) == expected
    assert seen == expected and max(place[1] for place in state["readers"].values()) >= 1


def test_what_two_ranks_have_saved_goes_on_with_any_number(tmp_path: Path) -> None:
    data = stream(tmp_path, readers=2)
    expected = plain(served(data, 20))
    ranks = [data.training_loader(rank, 2) for rank in range(2)]
    for loader in ranks:
        list(islice(loader, 9))
    state = {"batches": 9, "readers": {name: at for loader in ranks for name, at in loader.state_dict()["readers"].items()}}
    alone = data.training_loader(0, 1)
    alone.load_state_dict(state)
    assert plain(list(islice(alone, 11))) == expected[9:]
    again = data.training_loader(1, 2)
    again.load_state_dict(state)
    for batch, part in zip(expected[9:], plain(list(islice(again, 11))), strict=True):
        assert 2 * len(part[0]) == len(batch[0]) and set(part[0]) <= set(batch[0])


@pytest.mark.parametrize("weights", [[1.0], [0.7, 0.3], [1.0, 1.0, 14.0]])
def test_sources_come_as_often_as_they_weigh(weights: list[float]) -> None:
    counts = np.zeros(len(weights))
    for number in range(5000):
        counts[source_of(number, weights)] += 1
        assert (np.abs(counts - (number + 1) * np.array(weights) / sum(weights)) < 4).all()
    assert counts.sum() == 5000


def test_windows_of_a_mixture_are_each_of_one_source(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "left").write_text("left left\n" * 50)
    (tmp_path / "right").write_text("right right\n" * 50)
    sources = [{"files": str(tmp_path / "left"), "weight": 3}, {"files": str(tmp_path / "right"), "weight": 1}]
    caplog.set_level("INFO", logger="polyformer")
    data = stream(tmp_path, train=sources)
    left, right = (data.text_tokenizer.encode(word)[0] for word in ("left", "right"))
    rows = [set(row) - {EOS} for batch in served(data, 40) for row in batch.tokens.tolist()]
    counts = Counter(next(iter(row)) for row in rows)
    assert all(len(row) == 1 for row in rows) and abs(counts[right] - 60) <= 2 and counts[left] + counts[right] == 240
    assert f"75.00% of {tmp_path / 'left'}, 25.00% of" in caplog.text


def test_a_training_goes_on_without_an_end(tmp_path: Path) -> None:
    data = stream(tmp_path)
    data.total_batches = 50
    assert data.batches_per_epoch() is None
    training = data.train_dataloader()
    assert isinstance(training, WholeTraining) and len(training) == 50
    assert len(list(islice(training, 50))) == 50
    position = data.state_dict()["position"]
    assert position["batches"] == 50 and position["readers"]["0.0"][:2][0] == 300 and position["readers"]["0.0"][1] >= 2
    inner = stream(tmp_path).training_loader(0, 1)
    inner.limit = 2
    assert plain([*inner, *inner]) == plain(served(stream(tmp_path), 4))


def test_changed_text_is_refused(tmp_path: Path) -> None:
    data = stream(tmp_path)
    data.train_dataloader()
    state = data.state_dict()
    stream(tmp_path).load_state_dict(state)
    with pytest.raises(ValueError, match=r"\n  data\.readers: 1 then, 2 now\n  data\.shuffle_windows: 8 then, 9 now"):
        stream(tmp_path, shuffle_windows=9, readers=2).load_state_dict(state)
    changed = stream(tmp_path)
    changed.use_assets(data.assets)
    (tmp_path / "2.txt").write_text("the cat")
    with pytest.raises(ValueError, match=r"data\.content of train: .*2\.txt \(0 bytes\).*2\.txt \(7 bytes\)"):
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
    with pytest.raises(ValueError, match=r"share 1 of 1 of the training text has only 4 tokens, less than one window \(`data"):
        served(stream(tmp_path, train=str(short)))
    short.write_text("the cat sat on the mat and ran on a rug\n")
    with pytest.raises(ValueError, match=r"share 2 of 2 of the training text has no document; fewer `data\.readers`"):
        served(stream(tmp_path, train=str(short), readers=2), rank=1, world=2)
    for name in ("shuffle_windows", "readers"):
        with pytest.raises(ValueError, match=rf"`data\.{name}` must be at least 1, but is 0"):
            TextStream(**{name: 0})  # type: ignore[arg-type]


def test_a_thread_changes_nothing_and_ends(tmp_path: Path) -> None:
    expected = plain(served(stream(tmp_path)))
    threads = threading.active_count()
    data = stream(tmp_path)
    data.batches = BatchSettings(36, workers=1)
    loader = data.training_loader(0, 1)
    assert plain(list(islice(loader, 12))) == expected[:12]
    resumed = data.training_loader(0, 1)
    resumed.load_state_dict(loader.state_dict())
    batches = iter(resumed)
    assert plain(list(islice(batches, 18))) == expected[12:]
    batches.close()  # type: ignore[attr-defined]
    assert threading.active_count() == threads
    (tmp_path / "0.txt").write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"0\.txt, line 1: not UTF-8 text .*; `data\.damaged: skip` leaves out"):
        served(data)
    assert threading.active_count() == threads
    data = stream(tmp_path, train=str(tmp_path / "[013].txt"), damaged="skip")
    (tmp_path / "0.txt").write_bytes(b"\xff\n" + b"the cat sat\n" * 9)
    assert len(served(data)) == 30


@pytest.mark.parametrize("readers", [1, 2])
def test_what_a_stream_leaves_out_is_counted(tmp_path: Path, readers: int, caplog: pytest.LogCaptureFixture) -> None:
    """Each damaged line once, however often its file is read and by whom; said when training ends, and kept when it stops."""
    caplog.set_level("INFO", logger="polyformer")
    data = stream(tmp_path, damaged="skip", readers=readers)
    assert data.assets and data.loaded("train").report.unread == Unread()
    damaged = (b"\xff\n" + b"the cat sat\n" * 9) * 7
    (tmp_path / "0.txt").write_bytes(damaged)
    data.total_batches = 40
    assert len(list(islice(data.train_dataloader(), 40))) == 40
    state = data.state_dict()
    assert state["position"]["readers"]["0.0"][1] > 2  # the share's third epoch at least
    data.teardown("fit")
    assert str(data.reports["train"]).endswith("tokenized while they are read; not read: 7 damaged lines")
    assert caplog.text.count("passed over:") == 5 and caplog.messages[-1] == f"train data: {data.reports['train']}"
    other = stream(tmp_path, damaged="skip", readers=readers)
    (tmp_path / "0.txt").write_bytes(damaged)
    other.use_assets(data.assets)
    other.load_state_dict(state)
    assert other.loaded("train").report.unread == Unread(damaged_lines=7)


def test_no_more_than_a_block_is_read_ahead() -> None:
    read = 0

    def documents(place: str, first: int) -> Iterator[Document]:
        nonlocal read
        while True:  # a text without end
            read += 1
            yield ("the cat sat",)

    tokenizer = train_tokenizer(["the cat sat"], TokenizerSettings(kind="word", min_frequency=1))
    blocks = WindowStream(["x"], documents, tokenizer, window=7, block=10).blocks(Place())
    for number in range(50):
        _, windows = next(blocks)
        assert windows.shape == (10, 8)
        assert read * 4 <= (number + 2) * 70 + 30
