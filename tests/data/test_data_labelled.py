"""Texts with labels: from tables and folders to batches, what is cut and left out, and what is refused."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
import torch
from pyarrow import parquet

from polyformer.data import (
    BatchSettings,
    LabelledBatch,
    LabelledData,
    LibraryLines,
    TargetSettings,
    TextLimits,
    cut_ids,
    cut_together,
)
from polyformer.text import BOS, EOS, PAD, TokenizerSettings

ROWS = [("a good film", "pos"), ("a bad film", "neg"), ("good , very good", "pos"), ("so bad", "neg"), ("the film", "pos")]


def table(file: Path, rows: list[tuple[str, ...]], columns: tuple[str, ...] = ("text", "label")) -> str:
    """The rows as a file of the kind its name says."""
    objects = [dict(zip(columns, row, strict=True)) for row in rows]
    kind = file.name.removesuffix(".gz").rpartition(".")[2]
    if kind == "parquet":
        parquet.write_table(pyarrow.Table.from_pylist(objects), file)
        return str(file)
    lines = [json.dumps(row) for row in objects]
    if kind != "jsonl":
        between, quote = ("\t", "") if kind == "tsv" else (",", '"')
        lines = [between.join(f"{quote}{field}{quote}" for field in row) for row in [columns, *rows]]
    content = "".join(f"{line}\n" for line in lines).encode()
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)
    return str(file)


def labelled(train: Any, **arguments: Any) -> LabelledData:
    tokenizer = TokenizerSettings(kind="word", min_frequency=1)
    return LabelledData(train, **{"tokenizer": tokenizer, "batches": BatchSettings(tokens=12), **arguments})


def texts_of(data: LabelledData, batches: list[LabelledBatch]) -> dict[int, tuple[str, int]]:
    """Example number -> (text, target)."""
    decode = data.assets.tokenizers["text"].decode
    columns = [(batch.index, batch.tokens, batch.target) for batch in batches]
    rows = [row for index, tokens, target in columns for row in zip(index, tokens, target, strict=True)]
    return {int(index): (decode(tokens.tolist()), int(target)) for index, tokens, target in rows}


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv", "a.parquet", "a.jsonl.gz", "a.csv.gz"])
def test_every_kind_of_table(name: str, tmp_path: Path) -> None:
    data = labelled(table(tmp_path / name, ROWS))
    batches = list(data.train_dataloader())
    assert data.assets.labels == {"label": ["neg", "pos"]} and data.assets.numbers == {"counts": [2.0, 3.0]}
    expected = {number: (text, int(label == "pos")) for number, (text, label) in enumerate(ROWS)}
    assert texts_of(data, batches) == expected
    for batch in batches:
        assert bool((batch.tokens[:, 0] == BOS).all()) and bool(((batch.tokens == EOS).sum(1) == 1).all())
        keep = batch.tokens != PAD
        assert bool(keep.all()) if batch.keep is None else torch.equal(batch.keep, keep)
        assert batch.segment is None


@pytest.mark.parametrize(("kind", "between"), [("tsv", "\t"), ("csv", ",")])
def test_columns_by_name_and_by_number(kind: str, between: str, tmp_path: Path) -> None:
    rows = [(label, "x", text.replace(",", ";")) for text, label in ROWS]
    named = labelled(table(tmp_path / f"a.{kind}", rows, ("verdict", "other", "review")), text="review", label="verdict")
    (tmp_path / f"b.{kind}").write_text("".join(between.join(row) + "\n" for row in rows))
    numbered = labelled(str(tmp_path / f"b.{kind}"), text=2, label=0)
    assert texts_of(named, list(named.train_dataloader())) == texts_of(numbered, list(numbered.train_dataloader()))


def test_folders_are_labels(tmp_path: Path) -> None:
    for number, (text, label) in enumerate(ROWS):
        (tmp_path / "all" / label).mkdir(parents=True, exist_ok=True)
        (tmp_path / "all" / label / f"{number}_7.txt").write_text(text + "\nfine")
    data = labelled(str(tmp_path / "all"), test=str(tmp_path / "all"))
    assert data.assets.labels == {"label": ["neg", "pos"]}
    found = texts_of(data, list(data.test_dataloader()))
    assert found[0] == ("a bad film fine", 0) and found[4] == ("the film fine", 1)
    before = data.contents("train")
    assert before == data.contents("train") == labelled(str(tmp_path / "all")).contents("train")
    (tmp_path / "all" / "pos" / "0_7.txt").write_text("another text")
    assert data.contents("train") != before
    (tmp_path / "all" / "unsup").mkdir()
    (tmp_path / "all" / "unsup" / "1.txt").write_text("unknown")
    chosen = labelled([str(tmp_path / "all" / label) for label in ("neg", "pos")])
    assert chosen.assets.labels == {"label": ["neg", "pos"]}
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="none: a folder without files of a known kind"):
        _ = labelled(str(tmp_path / "none")).assets
    with pytest.raises(ValueError, match=r"`data\.second` is other, but a file in a folder, as in .*neg, is a single text"):
        _ = labelled(str(tmp_path / "all"), second="other").assets


@pytest.mark.parametrize(
    ("name", "content"), [("1.txt", b"so \xff bad"), ("1.txt.gz", gzip.compress(b"so bad")[:-9])], ids=["line", "end"]
)
def test_a_damaged_file_in_a_folder_is_passed_over_as_a_whole(name: str, content: bytes, tmp_path: Path) -> None:
    for label in ("neg", "pos"):
        (tmp_path / "all" / label).mkdir(parents=True)
        (tmp_path / "all" / label / "0.txt").write_text(f"a {label} film")
    (tmp_path / "all" / "pos" / "2.txt.gz").write_bytes(gzip.compress(b"a film\nof years"))
    (tmp_path / "all" / "neg" / name).write_bytes(content)
    data = labelled(str(tmp_path / "all"), damaged="skip")
    found = texts_of(data, list(data.train_dataloader()))
    assert found == {0: ("a neg film", 0), 1: ("a pos film", 1), 2: ("a film of years", 1)}
    assert str(data.reports["train"]) == "3 examples; not read: 1 damaged file"
    with pytest.raises(ValueError, match=rf"{name}, .*; `data\.damaged: skip` goes on with the next file"):
        labelled(str(tmp_path / "all")).dataset("train")


def test_pairs(tmp_path: Path) -> None:
    rows = [("a b c d e f", "g h", "yes"), ("a", "b c", "no")]
    file = table(tmp_path / "a.tsv", rows, ("one", "two", "label"))
    data = labelled(file, text="one", second="two", limits=TextLimits(max_length=8), batches=BatchSettings(tokens=100))
    (batch,) = data.train_dataloader()
    words = data.assets.tokenizers["text"].encode
    expected = [[BOS, *words("a b c"), EOS, *words("g h"), EOS], [BOS, *words("a"), EOS, *words("b c"), EOS, PAD, PAD]]
    assert batch.tokens.tolist() == expected
    assert batch.segment.tolist() == [[0, 0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1, 0, 0]]
    assert batch.target.tolist() == [1, 0]
    assert str(data.reports["train"]) == "2 examples; cut to the limit: 1"


@pytest.mark.parametrize(("cut", "kept"), [("head", "w0 w1 w2 w3"), ("tail", "w6 w7 w8 w9"), ("both", "w0 w1 w8 w9")])
def test_long_texts_are_cut_and_counted(cut: Any, kept: str, tmp_path: Path) -> None:
    rows = [(" ".join(f"w{number}" for number in range(10)), "a"), ("w1", "b")]
    data = labelled(table(tmp_path / "a.tsv", rows), limits=TextLimits(max_length=6, cut=cut))
    assert texts_of(data, list(data.train_dataloader()))[0][0] == kept
    assert str(data.reports["train"]) == "2 examples; cut to the limit: 1"
    assert data.lengths("train").tolist() == [[6], [3]]


def test_a_text_of_100_000_words(tmp_path: Path) -> None:
    data = labelled(table(tmp_path / "a.tsv", [("so " * 100_000 + "on", "a"), ("w1", "b")]), limits=TextLimits(512, "both"))
    batches = list(data.train_dataloader())
    assert max(batch.tokens.shape[1] for batch in batches) == 512
    assert data.reports["train"].truncated == 1


@pytest.mark.parametrize("most", range(9))
@pytest.mark.parametrize("cut", ["head", "tail", "both"])
def test_cutting_keeps_as_much_as_it_may(most: int, cut: Any) -> None:
    for lengths in ([5], [4, 4], [2, 6], [6, 1], [0, 5], [3, 3, 3]):
        texts = [list(range(length)) for length in lengths]
        kept = cut_together(texts, most, cut)
        assert sum(map(len, kept)) == min(most, sum(lengths))
        assert all(short == cut_ids(text, len(short), cut) for short, text in zip(kept, texts, strict=True))
        longest = max(map(len, kept))
        assert all(short == text or len(short) >= longest - 1 for short, text in zip(kept, texts, strict=True))


def test_empty_texts_are_left_out_in_training_and_kept_in_evaluation(tmp_path: Path) -> None:
    rows = [*ROWS, ("", "pos"), ("   ", "neg")]
    file = table(tmp_path / "a.tsv", rows)
    data = labelled(file, test=file)
    assert sorted(texts_of(data, list(data.train_dataloader()))) == list(range(5))
    found = texts_of(data, list(data.test_dataloader()))
    assert found[5] == ("", 1) and found[6] == ("", 0)
    shortest = min(list(data.test_dataloader()), key=lambda batch: batch.tokens.shape[1])
    assert shortest.tokens[-1, :2].tolist() == [BOS, EOS]
    assert str(data.reports["train"]) == "5 examples; dropped: 2 with an empty field"
    assert str(data.reports["test"]) == "7 examples"


def test_a_share_is_held_out_with_its_duplicates(tmp_path: Path) -> None:
    rows = [(f"film number {number % 150}", "pos" if number % 2 else "neg") for number in range(300)]
    file = table(tmp_path / "a.tsv", rows)
    data = labelled(file, validation_share=0.2)
    train, held_out = (texts_of(data, list(data.evaluation_loader(split))) for split in ("train", "validation"))
    assert len(train) + len(held_out) == 300 and 40 <= len(held_out) <= 80
    assert not {text for text, _ in train.values()} & {text for text, _ in held_out.values()}
    again = labelled(file, validation_share=0.2)
    again.seed = 5
    assert texts_of(again, list(again.val_dataloader())) == held_out
    given = labelled(file, validation=file, validation_share=0.2)
    assert len(texts_of(given, list(given.val_dataloader()))) == 300
    with pytest.raises(ValueError, match=r"`data\.validation_share` must be above 0 and below 1, but is 1\.5"):
        labelled(file, validation_share=1.5)


def test_examples_without_a_label_are_left_out(tmp_path: Path) -> None:
    file = table(tmp_path / "a.tsv", [*ROWS, ("what film", "-"), ("which film", "")])
    data = labelled(file, test=file, target=TargetSettings(unlabelled=("", "-")))
    assert data.assets.labels == {"label": ["neg", "pos"]}
    assert len(texts_of(data, list(data.test_dataloader()))) == 5
    assert str(data.reports["test"]) == "5 examples; dropped: 2 with an empty field"


def test_several_labels(tmp_path: Path) -> None:
    rows = [("a b", "x; z"), ("c", ""), ("d e f", "y;z;z")]
    data = labelled(table(tmp_path / "a.tsv", rows), target=TargetSettings("labels", ";"), batches=BatchSettings(tokens=99))
    (batch,) = data.train_dataloader()
    assert data.assets.labels == {"labels": ["x", "y", "z"]} and data.assets.numbers == {"counts": [1.0, 1.0, 2.0]}
    assert dict(zip(batch.index.tolist(), batch.target.tolist(), strict=True)) == {0: [1, 0, 1], 1: [0, 0, 0], 2: [0, 1, 1]}


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet"])
@pytest.mark.parametrize("labels", [[["x", "a,b"], [], ["z"], ["a,b", "x", "x"]], [[3, 1], [], [2], [1, 3, 3]]])
def test_lists_of_labels(kind: str, labels: list[list[Any]], tmp_path: Path) -> None:
    """Of names, in which a comma is no separator, and of numbers; beside texts in which several are between commas."""
    rows = [{"text": f"film {at}", "label": label} for at, label in enumerate(labels)]
    if kind == "parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    else:
        rows.append({"text": "film 4", "label": "x, z" if labels[0][0] == "x" else "3,2"})
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        (tmp_path / f"a.{kind}").write_text(lines if kind == "jsonl" else json.dumps(rows))
    data = labelled(str(tmp_path / f"a.{kind}"), target=TargetSettings("labels"), batches=BatchSettings(tokens=99))
    (batch,) = data.train_dataloader()
    assert data.assets.labels["labels"] == sorted({str(label) for row in labels for label in row})
    found = [row for _, row in sorted(zip(batch.index.tolist(), batch.target.tolist(), strict=True))]
    first, last = (["a,b", "x"], "z") if labels[0][0] == "x" else (["1", "3"], "2")
    wanted = [[*first], [], [last], [*first], [first[1], last]][: len(rows)]
    assert found == [[float(name in row) for name in data.assets.labels["labels"]] for row in wanted]


@pytest.mark.parametrize("damaged", ["stop", "skip"])
def test_a_list_that_is_no_labels_is_no_damage(damaged: Any, tmp_path: Path) -> None:
    """Skipping is not offered for it; where it was asked for, such a line is left out."""
    lines = [{"text": "a", "label": "x"}, {"text": "b", "label": ["y"]}, {"text": "c", "label": "z"}]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    data = labelled(str(tmp_path / "a.jsonl"), damaged=damaged)
    if damaged == "skip":
        assert data.dataset("train").num_rows == 2 and data.reports["train"].damaged_lines == 1
        return
    message = (
        r"line 2: column 'label' holds a list, not a text or a number \(a list may be labels: `data\.target\.kind: labels`\)$"
    )
    with pytest.raises(ValueError, match=message):
        data.dataset("train")


def test_numbers(tmp_path: Path) -> None:
    rows = [("a b", "1.5"), ("c", "-0.5"), ("d e f", "2e0")]
    data = labelled(table(tmp_path / "a.tsv", rows), target=TargetSettings("number"), batches=BatchSettings(tokens=99))
    (batch,) = data.train_dataloader()
    assert dict(zip(batch.index.tolist(), batch.target.tolist(), strict=True)) == {0: 1.5, 1: -0.5, 2: 2.0}
    mean, deviation = data.assets.numbers["number"]
    assert mean == 1.0 and deviation == pytest.approx((3.5 / 3) ** 0.5)


@pytest.mark.parametrize(
    ("rows", "target", "message"),
    [
        ([("a", "pos"), ("b", "pos")], TargetSettings(), "only one label, 'pos'; a classifier needs at least two"),
        ([("a", ""), ("b", "")], TargetSettings(), "has no labels; a classifier needs at least two"),
        ([("a", "x"), ("b", "")], TargetSettings("labels"), "only one label, 'x'"),
        ([("a", "1"), ("b", "one")], TargetSettings("number"), r"a\.tsv, example 2: 'one' is no number"),
        ([("a", "1"), ("b", "nan")], TargetSettings("number"), r"a\.tsv, example 2: 'nan' is no number"),
        ([("a", "1"), ("b", "1")], TargetSettings("number"), "only one number, 1, so there is nothing to learn"),
    ],
)
def test_training_labels_that_teach_nothing(rows: Any, target: TargetSettings, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        _ = labelled(table(tmp_path / "a.tsv", rows), target=target).assets


def test_an_unknown_label_is_named_with_its_place(tmp_path: Path) -> None:
    data = labelled(table(tmp_path / "a.tsv", ROWS), test=table(tmp_path / "b.tsv", [*ROWS, ("a film", "poss")]))
    with pytest.raises(ValueError, match=r"b\.tsv, example 6: the label 'poss' is not in the .* data; did you mean 'pos'\?"):
        data.test_dataloader()
    other = labelled(table(tmp_path / "a.tsv", ROWS), test=table(tmp_path / "c.tsv", [("a film", "neutral")]))
    with pytest.raises(ValueError, match=r"c\.tsv, example 1: the label 'neutral' .*; the labels are 'neg', 'pos'"):
        other.test_dataloader()


def test_other_faults_are_named(tmp_path: Path) -> None:
    file = table(tmp_path / "a.tsv", ROWS)
    with pytest.raises(ValueError, match=r"a\.tsv, line 1: no column 'verdict'; the columns are text, label"):
        _ = labelled(file, label="verdict").assets
    with pytest.raises(ValueError, match=r"a\.jsonl, line 1: no column 'verdict'"):
        _ = labelled(table(tmp_path / "a.jsonl", ROWS), label="verdict").assets
    with pytest.raises(ValueError, match=r"`max_length` must be at least 5, but is 4"):
        TextLimits(max_length=4)
    with pytest.raises(ValueError, match=r"`data\.target\.separator` must not be empty"):
        TargetSettings("labels", "")
    numbers = labelled(table(tmp_path / "n.tsv", [("a", "1"), ("b", "2")]), target=TargetSettings("number"))
    other = labelled(file)
    other.use_assets(numbers.assets)
    with pytest.raises(ValueError, match=r"`data\.target\.kind` is class, but the model was trained for another kind"):
        other.train_dataloader()


def test_prediction_needs_no_label(tmp_path: Path) -> None:
    data = labelled(table(tmp_path / "a.tsv", ROWS))
    (batch,) = data.batches_of({"text": ["a film", "", "so very good"]})
    assert batch.target is None and sorted(batch.index.tolist()) == [0, 1, 2]


def test_lines_of_the_library() -> None:
    data = LibraryLines(packages=["json", "email"], lines=200)
    splits = {split: list(data.read(split)) for split in ("train", "validation", "test")}
    lines = [example["text"] for examples in splits.values() for example in examples]
    assert len(lines) == len(set(lines)) == 400
    assert 20 < len(splits["test"]) < 60 and 20 < len(splits["validation"]) < 60
    assert {example["label"] for example in splits["test"]} == {"json", "email"}
    assert data.assets.labels == {"label": ["email", "json"]}
    assert len(texts_of(data, list(data.test_dataloader()))) == len(splits["test"])
    with pytest.raises(ValueError, match=r"`data\.packages` has emial, which is no package in .*; did you mean email\?"):
        _ = LibraryLines(packages=["emial"]).files
