"""Data in many files: in the order of their names, whatever the file system says; what cannot be read is named or counted."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from polyformer.data import (
    BatchSettings,
    ExampleData,
    LabelledData,
    MaskedTextData,
    PairData,
    PairTokenizerSettings,
    TextData,
    TextTokenizerSettings,
    read_examples,
)
from polyformer.data.lines import read_lines
from polyformer.data.reading import Reading, Unread
from polyformer.data.sources import expand

ROWS = [{"text": f"the cat number {number} sat", "label": "ab"[number % 2], "other": f"other {number}"} for number in range(40)]
SHARDS = 8


def write(path: Path, rows: list[dict[str, str]]) -> None:
    """A file of the kind that its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
        return
    table = ".jsonl" in path.name
    lines = [json.dumps(row) if table else row["text"] for row in rows]
    content = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_shards(folder: Path, kind: str) -> Path:
    """The rows in several files, which are made in another order than that of their names."""
    for number in reversed(range(SHARDS)):
        write(folder / f"part{number // 4}" / f"{number}{kind}", ROWS[number * 5 : number * 5 + 5])
    (folder / "_SUCCESS").write_text("")
    (folder / ".hidden.jsonl").write_text("{")
    return folder


WORDS = TextTokenizerSettings(kind="word", min_frequency=1)
MAKERS: dict[str, Callable[[Any], Any]] = {
    "text": lambda files: TextData(files, window=4, tokenizer=WORDS),
    "masked": lambda files: MaskedTextData(files, max_length=16, tokenizer=WORDS),
    "labelled": lambda files: LabelledData(files, tokenizer=WORDS.plain(), batches=BatchSettings(100)),
    "pairs": lambda files: PairData(files, source="text", target="other", tokenizer=PairTokenizerSettings("word", 90, 1)),
}


def contents_of(data: Any) -> Any:
    loaded = data.loaded("train")
    return loaded.rows.to_list() if isinstance(data, ExampleData) else loaded.ids.tolist()


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("kind", [".jsonl", ".jsonl.gz", ".parquet", ".txt.gz"])
def test_folders_patterns_and_lists_are_one_file(name: str, kind: str, tmp_path: Path) -> None:
    if kind == ".txt.gz" and name in ("labelled", "pairs"):
        pytest.skip("a text file has one column")
    folder = write_shards(tmp_path / "data", kind)
    write(tmp_path / f"whole{kind}", ROWS)
    expected = contents_of(MAKERS[name](str(tmp_path / f"whole{kind}")))
    every = [str(folder / f"part{number // 4}" / f"{number}{kind}") for number in range(SHARDS)]
    for files in (str(folder), str(folder / "*" / f"*{kind}"), every, [str(folder / "part0"), str(folder / "part1" / "*")]):
        data = MAKERS[name](files)
        assert contents_of(data) == expected
        assert len(data.contents("train")) == SHARDS


def test_what_a_location_stands_for(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "c.jsonl", "[x].txt"):
        (tmp_path / name).write_text("text\n")
    (tmp_path / "d.txt").mkdir()
    assert expand(str(tmp_path / "[ab].txt")) == [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]
    assert expand([str(tmp_path / "c.*"), "hub:x:train"]) == [str(tmp_path / "c.jsonl"), "hub:x:train"]
    assert expand(str(tmp_path / "[x].txt")) == [str(tmp_path / "[x].txt")]
    assert len(expand(str(tmp_path / "**" / "*.txt"))) == 3
    with pytest.raises(ValueError, match=r"e\*\.txt: no file matches this pattern"):
        expand(str(tmp_path / "e*.txt"))
    with pytest.raises(ValueError, match=r"a folder with files of several kinds, \.txt and \.jsonl; name those"):
        expand(str(tmp_path))
    with pytest.raises(ValueError, match=r"d\.txt: a folder without files of a known kind"):
        expand(str(tmp_path / "d.txt"))
    with pytest.raises(ValueError, match="the list of files is empty"):
        expand([])


def test_text_files_side_by_side_in_parts(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.de").write_text(f"ein {number}\n")
        (tmp_path / f"{number}.en").write_text(f"a {number}\n")
    columns, sides = {"source": 0, "target": 1}, [str(tmp_path / "*.de"), str(tmp_path / "*.en")]
    assert list(read_examples(sides, columns)) == [{"source": f"ein {at}", "target": f"a {at}"} for at in range(3)]
    (tmp_path / "3.en").write_text("a 3\n")
    with pytest.raises(ValueError, match=r"their numbers differ: .*\*\.de stands for 3, .*\*\.en stands for 4"):
        list(read_examples(sides, columns))


# ---- what cannot be read


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-12])


def overwrite(path: Path) -> None:
    """At the beginning, where the columns of a parquet file are."""
    content = bytearray(path.read_bytes())
    content[6:60] = bytes(54)
    path.write_bytes(content)


FAULTS: list[tuple[str, Callable[[Path], Any], str, Unread, int]] = [
    (".jsonl.gz", cut, r"3\.jsonl\.gz, after line \d+: broken \.gz file: .*", Unread(damaged_files=1), 35),
    (".parquet", cut, r"3\.parquet: not a parquet file: .*", Unread(damaged_files=1), 35),
    (".parquet", overwrite, r"3\.parquet, after row 0: broken parquet file: .*", Unread(damaged_files=1), 35),
    (".jsonl", lambda path: path.write_text(path.read_text().replace("}\n", "\n", 1)),
     r"3\.jsonl, line 1: broken JSON at column \d+: .*", Unread(damaged_lines=1), 39),
    (".jsonl", lambda path: path.write_bytes(path.read_bytes().replace(b"sat", b"\xff\xfe", 2)),
     r"3\.jsonl, line 1: not UTF-8 text \(byte \d+ of the line, 0xff\); convert the file first", Unread(damaged_lines=2), 38),
    (".jsonl", lambda path: path.write_text("[1]\n" + path.read_text()),
     r"3\.jsonl, line 1: must be an object .*", Unread(damaged_lines=1), 40),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "spoil", "said", "unread", "left"), FAULTS)
def test_damage_stops_or_is_counted(
    kind: str, spoil: Any, said: str, unread: Unread, left: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", logger="polyformer")
    folder = write_shards(tmp_path / "data", kind)
    spoil(folder / "part0" / f"3{kind}")
    with pytest.raises(ValueError, match=said + r"; `data\.damaged: skip` (leaves out what|goes on with)") as error:
        TextData(str(folder), tokenizer=WORDS).loaded("train")
    assert "\n" not in str(error.value) and caplog.text == ""
    data = TextData(str(folder), tokenizer=WORDS, damaged="skip")
    report = data.loaded("train").report
    assert Unread(report.blank_lines, report.damaged_lines, report.damaged_files) == unread
    assert left <= report.documents <= left + 4 and (unread.damaged_files or report.documents == left)
    assert f"not read: {unread.damaged_lines or unread.damaged_files} damaged" in str(report) and "passed over:" in caplog.text
    again = TextData(str(folder), tokenizer=WORDS, damaged="skip").loaded("train").report
    assert again == report  # of the cache
    pairs = PairData(str(folder), source="text", target="other", tokenizer=PairTokenizerSettings("word", 90, 1), damaged="skip")
    counted = pairs.loaded("train").report
    assert (counted.damaged_lines, counted.damaged_files) == (unread.damaged_lines, unread.damaged_files)
    assert counted.kept == report.documents


def test_a_missing_column_is_no_damage(tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "data", ".jsonl")
    with pytest.raises(ValueError, match=r"0\.jsonl, line 1: no column 'body'; the columns are text, label, other$"):
        TextData(str(folder), text="body", damaged="skip").loaded("train")
    with pytest.raises(ValueError, match=r"`data\.damaged` must be stop or skip, but is 'ignore'"):
        TextData(str(folder), damaged="ignore")  # type: ignore[arg-type]


def test_what_stands_beside_a_damaged_line_is_left_out_too(tmp_path: Path) -> None:
    (tmp_path / "a.de").write_bytes(b"eins\n\xff\ndrei\nvier\n")
    (tmp_path / "a.en.gz").write_bytes(gzip.compress(b"one\ntwo\nthree\nfour\n"))
    reading, files = Reading("skip"), [str(tmp_path / "a.de"), str(tmp_path / "a.en.gz")]
    found = [tuple(row.values()) for row in read_examples(files, {"source": 0, "target": 1}, reading)]
    assert found == [("eins", "one"), ("drei", "three"), ("vier", "four")] and reading.unread == Unread(damaged_lines=1)
    assert len(list(read_examples(files, {"source": 0, "target": 1}, reading))) == 3
    assert reading.unread == Unread(damaged_lines=1)  # counted once, however often it is read
    (tmp_path / "a.de").write_bytes(b"eins\nzwei\n")
    with pytest.raises(ValueError, match=r"line counts differ: .*a\.de has 2, .*a\.en\.gz has 4"):
        list(read_examples(files, {"source": 0, "target": 1}, Reading("skip")))


def test_readers_of_the_same_files_count_together() -> None:
    """One has read a file further than the other, which goes on in it afterwards."""
    readings = [Reading("skip"), Reading("skip")]
    for reading, last in zip(readings, (5, 9), strict=True):
        for number in range(3, last):
            reading.line("both.jsonl", number, "broken")
        reading.blank(f"{last}.jsonl", 7)
    readings[1].file("9.jsonl", "broken")
    readings[0].join(readings[1].met)
    assert readings[0].unread == Unread(blank_lines=2, damaged_lines=6, damaged_files=1)
    for number in range(5, 11):
        readings[0].line("both.jsonl", number, "broken")
    assert readings[0].unread.damaged_lines == 8


def test_a_file_that_the_system_does_not_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> Any:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "a.txt").write_text("text\n")
    monkeypatch.setattr("polyformer.data.lines.open_bytes", refuse)
    with pytest.raises(ValueError, match=r"a\.txt, after line 0: cannot be read: Permission denied$"):
        list(read_lines(tmp_path / "a.txt"))
    reading = Reading("skip")
    assert list(read_lines(tmp_path / "a.txt", reading=reading)) == [] and reading.unread == Unread(damaged_files=1)


def test_blank_lines_of_json_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row) + "\n" for row in ROWS))
    data = MAKERS["labelled"](str(tmp_path / "a.jsonl"))
    assert str(data.loaded("train").report) == "40 examples; not read: 39 blank lines"
    assert str(MAKERS["text"](str(tmp_path / "a.jsonl")).loaded("train").report).endswith("; not read: 39 blank lines")


def test_labels_are_learned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_shards(tmp_path / "data", ".jsonl")
    first = MAKERS["labelled"](str(folder))
    assert contents_of(first) and first.assets.labels == {"label": ["a", "b"]}
    monkeypatch.setattr(LabelledData, "read", lambda *_: pytest.fail("the files are read again"))
    again = MAKERS["labelled"](str(folder))
    assert contents_of(again) == contents_of(first) and again.assets.numbers == first.assets.numbers
