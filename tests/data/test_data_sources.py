"""Reading examples: every format, and what is said when it does not work."""

import csv
import gzip
import json
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from polyformer.data import LabelledData, TargetSettings, read_examples
from polyformer.data.conll import read_sentences
from polyformer.data.reading import Reading
from polyformer.data.squad import read_squad

PAIR = {"source": "de", "target": "en"}
NUMBERED: dict[str, str | int] = {"source": 0, "target": "1"}
ROWS = [("ein \u201eHund\u201c", 'a "dog"'), ("", "x, y"), ("a\u2028b\x85c\x0bd\re", " spaces  kept ")]
EXAMPLES = [{"source": source, "target": target} for source, target in ROWS]


def write(path: Path, content: str | bytes) -> str:
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_aligned_files(tmp_path: Path, ending: str, line_end: str) -> None:
    paths = [
        write(tmp_path / f"a.{side}{ending}", "\ufeff" + "".join(row[at] + line_end for row in ROWS))
        for at, side in enumerate(("de", "en"))
    ]
    assert list(read_examples(paths, PAIR)) == EXAMPLES
    assert [row["x"] for row in read_examples(paths[0], {"x": "any"})] == [row[0] for row in ROWS]


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("header", [True, False])
def test_tables_by_name_or_number(tmp_path: Path, ending: str, header: bool) -> None:
    columns = PAIR if header else NUMBERED
    tsv = ("de\ten\n" if header else "") + "".join(f"{source}\t{target}\n" for source, target in ROWS)
    assert list(read_examples(write(tmp_path / f"a.tsv{ending}", tsv), columns)) == EXAMPLES
    quoted = ("de,en\r\n" if header else "") + "".join(
        ",".join('"' + field.replace('"', '""') + '"' if set(field) & set('",') else field for field in row) + "\r\n"
        for row in ROWS
    )
    assert list(read_examples(write(tmp_path / f"a.csv{ending}", quoted), columns)) == EXAMPLES


def test_csv_is_what_the_standard_library_writes(tmp_path: Path) -> None:
    rows = [("two\nlines, and a comma", 'a "quote"'), ('""', '"\n"'), ("plain", "")]
    with (tmp_path / "a.csv").open("w", newline="", encoding="utf-8") as handle:
        csv.writer(handle).writerows([("de", "en"), *rows])
    read = list(read_examples(str(tmp_path / "a.csv"), PAIR))
    assert [(row["source"], row["target"]) for row in read] == rows


def test_long_quoted_fields_are_read_once(tmp_path: Path) -> None:
    lines = ["a line with words in it, and a comma"] * 20_000
    rest = "\n".join(lines)
    whole = write(tmp_path / "a.csv", f'de,en\n"{rest}",x\n')
    broken = write(tmp_path / "b.csv", f'de,en\nx,"{rest}\n')
    begin = time.process_time()
    assert list(read_examples(whole, PAIR)) == [{"source": rest, "target": "x"}]
    with pytest.raises(ValueError, match=r'b\.csv, line 2: a quote \("\) opens here and is never closed'):
        list(read_examples(broken, PAIR))
    assert time.process_time() - begin < 10.0  # where each line begins anew, minutes


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_json_and_parquet(tmp_path: Path, ending: str) -> None:
    objects = [{"translation": {"de": source, "en": target}} for source, target in ROWS]
    columns = {"source": "translation.de", "target": "translation.en"}
    jsonl = write(tmp_path / f"a.jsonl{ending}", "".join(json.dumps(row) + "\n" for row in objects))
    whole = write(tmp_path / f"a.json{ending}", json.dumps(objects, indent=1))
    pyarrow.parquet.write_table(pa.Table.from_pylist(objects), tmp_path / "b.parquet")
    parquet = write(tmp_path / f"a.parquet{ending}", (tmp_path / "b.parquet").read_bytes())
    for path in (jsonl, whole, parquet):
        assert list(read_examples(path, columns)) == EXAMPLES


def test_numbers_and_nulls_become_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"a": 3, "b": null, "c": true, "d": 0.5, "e.f": "x"}\n\n')
    assert list(read_examples(path, {key: key for key in ("a", "b", "c", "d", "e.f")})) == [
        {"a": "3", "b": "", "c": "true", "d": "0.5", "e.f": "x"}
    ]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.tsv", "de\tfr\n", r"a\.tsv, line 1: no column 'en'; the columns are de, fr"),
        ("a.tsv", "de\ten\nx\ty\nx\n", r"a\.tsv, line 3: 2 fields are needed, but there are 1"),
        ("a.csv", 'de,en\n"a\nb",c\nx\n', r"a\.csv, line 4: 2 fields are needed, but there are 1"),
        ("a.csv", 'de,en\n"a"b,c\n', r'a\.csv, line 2: a quote \("\) opens here and is never closed'),
        ("a.csv", 'de,en\na,"b\n', r'a\.csv, line 2: a quote \("\) opens here and is never closed'),
        ("a.jsonl", '{"de": "x", "en": "y"}\n{"de": \n', r"a\.jsonl, line 2: broken JSON at column"),
        ("a.jsonl", '{"de": "x"}\n', r"a\.jsonl, line 1: no column 'en'; the columns are de"),
        ("a.jsonl", "[1]\n", r"a\.jsonl, line 1: must be an object with the column 'de', but is a list"),
        ("a.jsonl", '{"de": ["x"], "en": "y"}\n', r"column 'de' holds a list, not a text or a number"),
        ("a.jsonl", '{"de": "\\ud800", "en": "y"}\n', r"line 1: column 'de' has half a surrogate pair"),
        ("a.json", '{"de": "x"}', r"a\.json: a \.json file must hold one list of objects"),
        ("a.json", "[\n{]", r"a\.json: broken JSON at column 2 \(line 2\)"),
        ("a.parquet", "text", r"a\.parquet: not a parquet file"),
        ("a.jsonl", '{"de": NaN, "en": "y"}\n', r"line 1: column 'de' holds NaN, which is neither a text nor a number"),
        ("a.tsv.gz", b"", r"a\.tsv\.gz: is empty; its first line must name the columns"),
        ("a.csv", "\n\n", r"a\.csv: is empty; its first line must name the columns"),
        ("a.json", " \n", r"a\.json: is empty"),
        ("a.tsv", "de\ten\tde\n", r"a\.tsv, line 1: 2 columns have the name 'de'; rename all but one"),
        ("a.csv", "de;en\nx;y\n", r"no column 'de'; the columns are de;en; they must lie between commas, but here it is ';'"),
        ("a.txt", "x\n", r"a\.txt: one text file cannot hold source, target; give one file for each"),
    ],
)
def test_broken_tables_are_named(tmp_path: Path, name: str, content: str | bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        list(read_examples(write(tmp_path / name, content), PAIR))


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
def test_blank_lines_of_tables_are_counted(tmp_path: Path, name: str) -> None:
    mark = "," if name == "a.csv" else "\t"
    path = write(tmp_path / name, f"\nde{mark}en{mark}de2\na{mark}b{mark}c\n\n \na{mark}{mark}\n\n")
    reading = Reading()
    read = list(read_examples(path, PAIR, reading))
    assert read == [{"source": "a", "target": "b"}, {"source": "a", "target": ""}] and reading.unread.blank_lines == 3
    one = write(tmp_path / name, "de\nx\n\ny\n")
    assert [row["x"] for row in read_examples(one, {"x": "de"})] == ["x", "", "y"]


def test_numbers_beyond_the_row(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"line 2: at least 2 fields are needed, but there are 1"):
        list(read_examples(write(tmp_path / "a.tsv", "x\ty\nx\n"), NUMBERED))


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "train.de", b"good\nbad \xff byte\n")
    short = write(tmp_path / "train.en", "one\ntwo\nthree\n")
    with pytest.raises(ValueError, match=r"train\.de, line 2: not UTF-8 text \(byte 5 of the line, 0xff\)"):
        list(read_examples([path, short], PAIR))
    write(tmp_path / "train.de", "one\n")
    with pytest.raises(ValueError, match=r"line counts differ: .*train\.de has 1, .*train\.en has 3"):
        list(read_examples([path, short], PAIR))
    with pytest.raises(ValueError, match=r"trian\.de: no such file; did you mean .*train\.de\?"):
        list(read_examples([str(tmp_path / "trian.de"), short], PAIR))
    with pytest.raises(ValueError, match=r"no such file; there is no folder .*absent"):
        list(read_examples(str(tmp_path / "absent" / "a.tsv"), PAIR))
    with pytest.raises(ValueError, match=r"a folder without files of a known kind \(\.tsv, .*\.txt, each also \.gz\)"):
        list(read_examples(str(tmp_path), {"x": 0}))
    with pytest.raises(ValueError, match=r"3 files \(.*\) for 2 columns \(source, target\)"):
        list(read_examples([path, short, short], PAIR))
    with pytest.raises(ValueError, match="the list of files is empty"):
        list(read_examples([], PAIR))
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"line\n" * 1000)[:30])
    with pytest.raises(ValueError, match=r"cut\.gz, after line \d+: broken \.gz file"):
        list(read_examples(str(tmp_path / "cut.gz"), {"x": 0}))


def test_the_hub_failing_points_to_files(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    def fail(*_: object, **__: object) -> None:
        raise ConnectionError("no route to host\nsecond line")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(
        ValueError,
        match=r"hub:wmt14@de-en:train: cannot be loaded: no route to host\nLocal files work too: --data.train",
    ):
        list(read_examples("hub:wmt14@de-en:train", PAIR))
    with pytest.raises(ValueError, match="must be hub:NAME:SPLIT"):
        list(read_examples("hub:imdb", PAIR))


def test_the_hub_gives_nested_columns_and_class_names(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    asked = []
    kinds = datasets.Features({"t": {"de": datasets.Value("string")}, "label": datasets.ClassLabel(names=["neg", "pos"])})
    made = datasets.Dataset.from_list([{"t": {"de": "x"}, "label": 1}], features=kinds)

    def load(name: str, config: str | None, split: str, streaming: bool, revision: str | None = None) -> datasets.Dataset:
        asked.append((name, config, split, revision))
        if name == "a/script" and revision is None:
            raise RuntimeError("Dataset scripts are no longer supported, but found script.py")
        return made

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert list(read_examples("hub:a/b@c:train[:10%]", {"text": "t.de", "label": "label"})) == [{"text": "x", "label": "pos"}]
    assert asked == [("a/b", "c", "train[:10%]", None)]
    assert len(list(read_examples("hub:a/script:train", {"text": "t.de"}))) == 1
    assert asked[1:] == [("a/script", None, "train", None), ("a/script", None, "train", "refs/convert/parquet")]


def test_the_hub_gives_lists_of_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    names = datasets.ClassLabel(names=["joy", "fear"])
    kinds = datasets.Features({"text": datasets.Value("string"), "labels": datasets.Sequence(names)})
    rows = [{"text": "a", "labels": [1, 0]}, {"text": "b", "labels": []}, {"text": "c", "labels": [1]}]
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: datasets.Dataset.from_list(rows, features=kinds))
    data = LabelledData("hub:a/b:train", label="labels", target=TargetSettings("labels"))
    (batch,) = data.evaluation_loader("train")
    assert data.assets.labels["labels"] == ["fear", "joy"]
    assert dict(zip(batch.index.tolist(), batch.target.tolist(), strict=True)) == {0: [1, 1], 1: [0, 0], 2: [1, 0]}
    with pytest.raises(ValueError, match=r"hub:a/b:train, row 1: column 'labels' holds a list, not a text or a number"):
        list(read_examples("hub:a/b:train", {"label": "labels"}))


def test_the_hub_leaves_out_what_has_no_label(monkeypatch: pytest.MonkeyPatch) -> None:
    """-1 stands for none, as in SNLI and in the test splits of GLUE."""
    import datasets

    kinds = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])})
    rows = [{"text": "a film", "label": at % 3 - 1} for at in range(9)]
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: datasets.Dataset.from_list(rows, features=kinds))
    data = LabelledData("hub:a/b:train", target=TargetSettings(unlabelled=("-1",)))
    assert data.assets.labels["label"] == ["neg", "pos"] and data.assets.numbers["counts"] == [3.0, 3.0]
    assert str(data.loaded("train").report) == "6 examples; dropped: 3 with an empty field"


def test_comments_of_conll_are_no_words(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", "#begin document (a); part 000\n\n# O\n1 O\n\n# id one\nAda B\n# O\n")
    assert [row["text"] for row in read_sentences(path, 0, -1)] == ["# 1", "Ada #"]
    path = write(tmp_path / "b.conll", "# O\n\nwe O\n")
    assert [row["text"] for row in read_sentences(path, 0, -1)] == ["#", "we"]
    path = write(tmp_path / "c.conll", "we O\rsaw O\r")
    with pytest.raises(ValueError, match=r"c\.conll, line 1: has a lone carriage return \(\\r\) inside; let lines end with"):
        list(read_sentences(path, 0, -1))


def test_an_answer_does_not_begin_before_the_text(tmp_path: Path) -> None:
    question = {"id": "q", "question": "who", "answers": [{"text": "Ada", "answer_start": -3}]}
    whole = {"data": [{"paragraphs": [{"context": "by Ada", "qas": [question]}]}]}
    path = write(tmp_path / "a.json", json.dumps(whole))
    with pytest.raises(ValueError, match="question q: an answer is not where `answer_start` says"):
        list(read_squad(path, strict=True))
