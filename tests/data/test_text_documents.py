"""Documents: finding files, reading them in blocks, and cutting them where no token is."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from polyformer.data.documents import Document, Piece, cut, evenly, hold_out, plain_size, read_blocks, read_documents
from polyformer.data.encoding import TextReport, chunks_of, encode_pieces, encode_text
from polyformer.text import EOS, KINDS, Tokenizer, TokenizerSettings, train_tokenizer

TEXT = (
    "The cat  sat on the mat, and\tthe dog (a big one!) ran.\n\n  Indented  lines\r\nend. It's 3.14 "
    "\u00e9t\u00e9 e\u0301 <eos> <unk> \u4f60\u597d \u4e16\u754c abc\n\u732b\u5750\u5728\u57ab\u5b50\u4e0a\n"
    "\u3053\u3093\u306b\u3061\u306f x\u00a0y \U0001f600 \U0001f468\u200d\U0001f469 z \n"
)


def tokenizer_of(kind: str) -> Tokenizer:
    return train_tokenizer([TEXT] * 3, TokenizerSettings(kind=kind, vocab_size=420, min_frequency=2), progress=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("longest", [1, 10, 37])
def test_a_cut_document_has_the_tokens_of_the_whole(kind: str, longest: int) -> None:
    tokenizer = tokenizer_of(kind)
    text = TEXT * 3
    whole, report = encode_text(tokenizer, [Piece(text)])
    assert whole.tolist() == [*tokenizer.encode(text), EOS]
    for size in (1, 5, 50, 1000):
        pieces = list(cut([text[at : at + size] for at in range(0, len(text), size)], longest))
        assert "".join(piece.text for piece in pieces) == text and len(pieces) > 8
        assert [piece.begins for piece in pieces] == [True] + [False] * (len(pieces) - 1)
        assert [piece.ends for piece in pieces] == [False] * (len(pieces) - 1) + [True]
        ids, cut_report = encode_text(tokenizer, pieces)
        assert ids.tolist() == whole.tolist() and cut_report == report
    assert report.words == len(text.split()) + 1 and report.bytes == len(text.encode()) + 1


def test_reports_add_up_whatever_the_chunks() -> None:
    tokenizer = tokenizer_of("word")
    pieces = [Piece(text) for text in ("the cat", "", " ", "zebra \u4f60", "<unk> <unk>")]
    ids, report = encode_text(tokenizer, pieces)
    assert report == TextReport(documents=3, tokens=9, words=9, bytes=30, unknown=4, empty_dropped=2)
    assert ids.tolist().count(EOS) == 3
    parts = [encode_text(tokenizer, [piece]) for piece in pieces]
    assert sum((part for _, part in parts), TextReport()) == report
    kept, report = encode_text(tokenizer, pieces, "keep")
    assert kept.tolist().count(EOS) == report.documents == 5 and report.empty_dropped == 0 and report.tokens == 11
    assert encode_text(tokenizer, [])[0].tolist() == []


def test_processes_change_nothing() -> None:
    tokenizer = tokenizer_of("bpe")
    pieces = [piece for number in range(300) for piece in cut([f"{number} {TEXT * (number % 4)}"], 200)]
    alone = list(encode_pieces(pieces, tokenizer, processes=1))
    pooled = list(encode_pieces(pieces, tokenizer, processes=2, pool_from=0))
    assert [ids.tolist() for ids, _ in alone] == [ids.tolist() for ids, _ in pooled]
    assert [report for _, report in alone] == [report for _, report in pooled]


@pytest.mark.parametrize("processes", [1, 2])
def test_no_more_than_a_few_chunks_are_held(processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    read = written = 0

    def pieces() -> Iterator[Piece]:
        nonlocal read
        for _ in range(400):
            read += 1
            yield Piece("the cat sat on the mat " * 1000)

    for _, report in encode_pieces(pieces(), tokenizer_of("word"), processes=processes, pool_from=0):
        written += report.documents
        assert read - written <= (2 * processes + 1) * 46  # pieces in a chunk
    assert read == written == 400


def test_chunks_are_bounded() -> None:
    sizes = [len(chunk) for chunk in chunks_of([Piece("a" * 10)] * 100, characters=300)]
    assert sizes == [10] * 10
    assert list(chunks_of([])) == []


def test_the_size_of_plain_files_is_known(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text\n")
    assert plain_size([str(tmp_path / "a.txt")] * 2) == 10
    assert plain_size(["a.txt.gz"]) is plain_size(["a.jsonl"]) is plain_size(["hub:a:b"]) is None


def test_files_are_read_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\n\n three")
    assert ["".join(document) for document in read_documents(str(path), "text", "line")] == ["one", "two", "", " three"]
    assert ["".join(document) for document in read_documents(str(path), "text", "file")] == ["one\r\ntwo\n\n three"]
    monkeypatch.setattr("polyformer.data.documents.BLOCK", 4)
    assert list(read_blocks(path)) == ["one\r\n", "two\n", "\n three", ""]


def test_faults_name_file_and_place(tmp_path: Path) -> None:
    broken, table = tmp_path / "broken.txt", tmp_path / "table.jsonl"
    broken.write_bytes(b"fine\nbad \xff\n")
    table.write_text('{"body": "x"}\n')
    for kind in ("line", "file"):
        with pytest.raises(ValueError, match=r"broken\.txt, line 2: not UTF-8 text \(byte 5 of the line, 0xff\)"):
            ["".join(document) for document in read_documents(str(broken), "text", kind)]  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"table\.jsonl, line 1: no column 'text'; the columns are body"):
        list(read_documents(str(table), "text", "line"))
    assert list(read_documents(str(table), "body", "line")) == [("x",)]


def test_a_sample_is_taken_evenly_and_is_bounded() -> None:
    texts = [f"{number:04}" for number in range(1000)]
    kept, total = evenly(texts, most=400)
    assert total == 4000 and 50 <= len(kept) <= 100
    steps = {int(b) - int(a) for a, b in pairwise(kept)}
    assert len(steps) == 1 and int(kept[-1]) > 950
    assert evenly(texts, most=4000) == (texts, 4000)
    assert evenly(["\u4f60\u597d", "a"], most=1) == (["\u4f60\u597d"], 7)
    assert evenly([], most=1) == ([], 0)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.999])
def test_the_last_share_is_held_out(share: float) -> None:
    def many() -> Iterator[Document]:
        return (iter([f"{number}", "!"]) for number in range(1000))

    def one() -> Iterator[Document]:
        yield iter(["abc", "", "d" * 994, "xyz"])

    def read(documents: Iterator[Document]) -> list[str]:
        return ["".join(document) for document in documents]

    first, last = read(hold_out(many, share, last=False)), read(hold_out(many, share, last=True))
    assert first + last == read(many()) and len(first) == int(1000 * (1 - share) + 1e-9)
    first, last = read(hold_out(one, share, last=False)), read(hold_out(one, share, last=True))
    assert first[0] + last[0] == read(one())[0] and len(first[0]) == int(1000 * (1 - share) + 1e-9)
    with pytest.raises(ValueError, match=r"`data\.validation_share` \(0\.9\) of 2 documents leaves none for training"):
        read(hold_out(lambda: iter([["a"], ["b"]]), 0.9, last=False))
