"""Running text from files to windows, and resuming it."""

import gzip
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polyformer.data import BatchSettings, TextBatch, TextData, TextTokenizerSettings, WholeTraining, batch_windows
from polyformer.text import EOS, PAD, TokenizerSettings, train_tokenizer

WORDS = ["the", "cat", "dog", "sat", "ran", "on", "under", "mat", "rug", "and", "a", "big", "small", "red"]


def write_text(folder: Path, count: int = 80) -> str:
    lines = [" ".join(WORDS[(at * step) % 14] for step in range(1, 2 + at % 9)) for at in range(count)]
    (folder / "a.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(folder / "a.txt")


def text_data(folder: Path, tokens: int = 40, window: int = 8, **arguments: Any) -> TextData:
    path = write_text(folder)
    given = {"train": path, "validation": path, "test": path, **arguments}
    tokenizer = TextTokenizerSettings(kind="word", min_frequency=1)
    return TextData(**given, window=window, tokenizer=tokenizer, batches=BatchSettings(tokens, evaluation_tokens=30))


def slow_documents(inputs: list[int]) -> tuple[list[int], list[int]]:
    at, document, place, number = [], [], 0, 0
    for column, token in enumerate(inputs):
        if token == EOS:
            place, number = 0, number + 1
        elif column:
            place += 1
        at.append(place)
        document.append(number)
    return at, document


@pytest.mark.parametrize("share", [0.0, 0.2, 0.9, 1.0])
def test_documents_are_told_apart(share: float) -> None:
    generator = np.random.default_rng(0)
    tokens = np.where(generator.random((20, 31)) < share, EOS, generator.integers(4, 9, (20, 31)))
    batch = batch_windows({"tokens": tokens, "index": list(range(20))}, "packed")
    assert torch.equal(batch.tokens, torch.from_numpy(tokens[:, :-1])) and batch.at is not None and batch.document is not None
    assert torch.equal(batch.target, torch.from_numpy(tokens[:, 1:]))
    for inputs, at, document in zip(batch.tokens, batch.at, batch.document, strict=True):
        assert (at.tolist(), document.tolist()) == slow_documents(inputs.tolist())
    stream = batch_windows({"tokens": tokens, "index": [0] * 20}, "stream")
    assert stream.at is stream.document is None and torch.equal(stream.tokens, batch.tokens)


def test_a_batch_moves_as_a_whole() -> None:
    rows = {"tokens": np.array([[EOS, 5, 6]]), "index": [0]}
    batch = replace(batch_windows(rows, "packed"), words=3, bytes=9).to("meta")
    tensors = (batch.tokens, batch.target, batch.at, batch.document, batch.index)
    assert all(tensor is not None and tensor.device.type == "meta" for tensor in tensors)
    assert (len(batch), batch.words, batch.bytes) == (1, 3, 9)
    assert batch_windows(rows, "stream").to("meta").document is None


@pytest.mark.parametrize("workers", [0, 2])
def test_training_batches_are_windows_of_the_text(tmp_path: Path, workers: int) -> None:
    data = text_data(tmp_path)
    data.batches = BatchSettings(40, workers=workers)
    data.prepare_data()
    data.setup("fit")
    ids = data.loaded("train").ids.tolist()
    circle = ids[:-1] * 2
    loader = data.train_dataloader()
    batches = list(loader)
    assert len(batches) == data.batches_per_epoch() == (len(ids) - 1) // 8 // 5
    for batch in batches:
        assert isinstance(batch, TextBatch) and batch.tokens.shape == batch.target.shape == (5, 8)
        assert batch.tokens.dtype == batch.target.dtype == torch.int64 and batch.words == batch.bytes == 0
        for start, inputs, targets in zip(batch.index.tolist(), batch.tokens.tolist(), batch.target.tolist(), strict=True):
            assert inputs == circle[start : start + 8] and targets == circle[start + 1 : start + 9]
    assert not torch.equal(next(iter(loader)).index, batches[0].index)


@pytest.mark.parametrize("stride", [None, 3])
@pytest.mark.parametrize("layout", ["packed", "stream"])
def test_evaluation_scores_each_token_once_and_counts_once(tmp_path: Path, stride: int | None, layout: str) -> None:
    data = text_data(tmp_path, stride=stride, layout=layout)
    array = data.loaded("validation")
    batches = list(data.val_dataloader())
    targets = torch.cat([batch.target.flatten() for batch in batches])
    assert targets[targets != PAD].tolist() == array.ids[1:].tolist()
    assert [batch.words for batch in batches] == [array.report.words] + [0] * (len(batches) - 1)
    assert sum(batch.bytes for batch in batches) == array.report.bytes
    assert [number for batch in batches for number in batch.index.tolist()] == list(range(sum(map(len, batches))))
    assert (batches[0].document is None) == (layout == "stream")


def test_what_is_read_from_every_format_is_the_same(tmp_path: Path) -> None:
    lines = Path(write_text(tmp_path)).read_text().splitlines()
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"body": line}) + "\n" for line in lines))
    (tmp_path / "b.json").write_text(json.dumps([{"body": line} for line in lines]))
    (tmp_path / "c.csv").write_text("id,body\n" + "".join(f"{at},{line}\n" for at, line in enumerate(lines)))
    for at, half in enumerate((lines[:30], lines[30:])):
        with gzip.open(tmp_path / f"shard{at}.jsonl.gz", "wt") as file:
            file.write("".join(json.dumps({"body": line}) + "\n" for line in half))
    expected = text_data(tmp_path).loaded("train").ids.tolist()
    locations = ["a.jsonl", "b.json", "c.csv", "shard*.jsonl.gz", ["shard0.jsonl.gz", "shard1.jsonl.gz"]]
    for names in locations:
        paths = [str(tmp_path / name) for name in ([names] if isinstance(names, str) else names)]
        data = text_data(tmp_path, train=paths if len(paths) > 1 else paths[0], text="body")
        assert data.loaded("train").ids.tolist() == expected
        assert len(data.contents("train") or []) == (2 if "shard" in paths[0] else 1)


def test_windows_are_cut_anew_without_encoding_anew(tmp_path: Path, cache: Path) -> None:
    paths = {
        data.loaded("train").path
        for data in (
            text_data(tmp_path),
            text_data(tmp_path, window=5, stride=2, layout="stream"),
            text_data(tmp_path, processes=1),
            text_data(tmp_path, validation=None),
        )
    }
    assert len(paths) == 1
    assert text_data(tmp_path, empty="keep").loaded("train").path not in paths
    assert text_data(tmp_path, document="file").loaded("train").path not in paths
    (tmp_path / "a.txt").write_text("the cat sat\n" * 9)
    changed = TextData(str(tmp_path / "a.txt"), tokenizer=TextTokenizerSettings(kind="word", min_frequency=1))
    assert changed.loaded("train").path not in paths and changed.reports["train"].tokens == 36


def test_held_out_text_is_not_trained_on(tmp_path: Path) -> None:
    path = write_text(tmp_path)
    whole = text_data(tmp_path).loaded("train").report
    lines = TextData(path, validation_share=0.25, window=8, tokenizer=TextTokenizerSettings(kind="word", min_frequency=1))
    assert (lines.loaded("train").report.documents, lines.loaded("validation").report.documents) == (60, 20)
    assert lines.reports["train"].tokens + lines.reports["validation"].tokens == whole.tokens
    assert lines.val_dataloader() and lines.contents("test") is None
    characters = TextTokenizerSettings(kind="character", min_frequency=1)
    one = TextData(path, document="file", validation_share=0.1, window=8, tokenizer=characters)
    text = Path(path).read_text()
    cut = int(len(text) * 0.9)
    decode = one.text_tokenizer.decode
    assert decode(one.loaded("train").ids.tolist()) == text[:cut]
    assert decode(one.loaded("validation").ids.tolist()) == text[cut:]
    given = TextData(path, path, validation_share=0.25, tokenizer=characters)
    assert given.loaded("train").path == given.loaded("validation").path


def test_a_long_text_is_sampled_for_the_tokenizer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="polyformer")
    path = write_text(tmp_path, 400)
    small = TextTokenizerSettings(kind="word", min_frequency=1, sample_megabytes=0.001)
    data = TextData(path, tokenizer=small)
    assert len(data.text_tokenizer) <= 4 + len(WORDS)
    assert "made from 0.0 of the 0.0 MB of training text (data.tokenizer.sample_megabytes: 0.001)" in caplog.text
    assert sum(len(text) for text in data.sample()) <= 1000
    caplog.clear()
    _ = TextData(path, tokenizer=TextTokenizerSettings(kind="word", min_frequency=1)).assets
    assert caplog.text == ""
    train_tokenizer(["a b"], TokenizerSettings(kind="word", min_frequency=1)).save(tmp_path / "t.json")
    assert len(TextData(path, tokenizer=TextTokenizerSettings(path=str(tmp_path / "t.json"))).text_tokenizer) == 6


def test_chinese_text(tmp_path: Path) -> None:
    (tmp_path / "zh.txt").write_text(
        "\u732b\u5750\u5728\u57ab\u5b50\u4e0a\u3002\n\u72d7\u8dd1\u4e86\u3002\n" * 9, encoding="utf-8"
    )
    tokenizer = TextTokenizerSettings(vocab_size=300, min_frequency=1)
    data = TextData(str(tmp_path / "zh.txt"), window=4, tokenizer=tokenizer)
    report = data.loaded("train").report
    assert report.documents == 18 and report.words == 36 and report.bytes == 9 * (22 + 13) and report.unknown == 0
    assert data.text_tokenizer.decode(data.loaded("train").ids.tolist()[:5]).startswith("\u732b")


def served(data: TextData) -> list[list[int]]:
    loader = data.train_dataloader()
    assert not isinstance(loader, WholeTraining)
    return [batch.index.tolist() for batch in loader]


def test_resuming_in_an_epoch_is_as_if_nothing_happened(tmp_path: Path) -> None:
    data = text_data(tmp_path)
    data.seed = 5
    first, second = served(data), served(data)
    assert first != second and len(first) == len(second) > 4
    for stop in range(1, len(first)):
        interrupted = text_data(tmp_path)
        interrupted.seed = 5
        loader = iter(interrupted.train_dataloader())
        assert [next(loader).index.tolist() for _ in range(stop)] == first[:stop]
        resumed = text_data(tmp_path)
        resumed.seed = 5
        resumed.load_state_dict(interrupted.state_dict())
        assert served(resumed) == first[stop:] and served(resumed) == second


def test_changed_text_is_refused(tmp_path: Path) -> None:
    data = text_data(tmp_path)
    data.train_dataloader()
    state = data.state_dict()
    text_data(tmp_path, stride=2).load_state_dict(state)
    with pytest.raises(
        ValueError, match=r"cannot be .*\n  data\.layout: 'packed' then, 'stream' now\n  data\.window: 8 then, 9 now"
    ):
        text_data(tmp_path, window=9, layout="stream").load_state_dict(state)
    changed = text_data(tmp_path)
    changed.use_assets(data.assets)
    (tmp_path / "a.txt").write_text("the cat\n" * 60)
    with pytest.raises(ValueError, match=r"data\.content of train: \["):
        changed.load_state_dict(state)


def test_user_faults_are_named(tmp_path: Path) -> None:
    settings = TextTokenizerSettings(kind="byte")
    with pytest.raises(ValueError, match=r"no test data is given; add --data\.test FILE"):
        TextData(write_text(tmp_path), tokenizer=settings).test_dataloader()
    with pytest.raises(ValueError, match=r"no train data is given; add --data\.train FILE"):
        _ = TextData(tokenizer=settings).assets
    assert TextData(tokenizer=settings).val_dataloader() == []
    for name, value in [("window", 0), ("stride", 300), ("stride", 0), ("validation_share", 1.0), ("processes", 0)]:
        with pytest.raises(ValueError, match=rf"`data\.{name}` must be .*, but is {value}"):
            TextData(**{name: value})
    with pytest.raises(ValueError, match=r"tokenizer `sample_megabytes` must be above 0, but is 0"):
        TextTokenizerSettings(sample_megabytes=0)
    empty, one = tmp_path / "empty.txt", tmp_path / "one.txt"
    empty.write_text("")
    one.write_text("x")
    with pytest.raises(ValueError, match="train data: there is no text in it"):
        TextData(str(empty), tokenizer=settings).loaded("train")
    short = TextData(str(one), str(one), tokenizer=settings, window=8)
    with pytest.raises(ValueError, match=r"has 2 tokens, which is less than one window; `data\.window` \(8\) must be less"):
        short.train_dataloader()
    (batch,) = short.val_dataloader()
    assert batch.target.tolist() == [[*short.text_tokenizer.encode("x"), EOS]] and batch.tokens[0, 0] == EOS


def test_the_same_bytes_are_another_text_in_a_file_of_another_form(tmp_path: Path) -> None:
    content = json.dumps({"text": "a cat"}).encode() + b"\n"
    packed = gzip.compress(content)
    files = {"a.txt": content, "a.jsonl": content, "b.txt.gz": packed, "b.jsonl.gz": packed}
    words = {}
    for name, held in files.items():
        (tmp_path / name).write_bytes(held)
        data = TextData(str(tmp_path / name), tokenizer=TextTokenizerSettings(kind="word", min_frequency=1))
        words[name] = data.text_tokenizer.decode([one for one in data.loaded("train").ids.tolist() if one != EOS])
    assert words == {name: "a cat" if "jsonl" in name else '{"text": "a cat"}' for name in files}
    contents = [TextData(str(tmp_path / name)).contents("train") for name in ("a.txt", "a.jsonl")]
    assert contents[0] == contents[1]  # by which runs are compared and gone on with
