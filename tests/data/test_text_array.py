"""Corpora as arrays of ids: counted as papers do, made once, and never half done."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from polyformer.data import TextArray, TextData, TextReport, TextTokenizerSettings, encoded_text
from polyformer.data.documents import Piece
from polyformer.text import EOS, Tokenizer, TokenizerSettings, train_tokenizer


def tokenizer_of(text: str = "a b c d") -> Tokenizer:
    return train_tokenizer([text], TokenizerSettings(kind="word", vocab_size=2**18, min_frequency=1), progress=False)


class Source:
    """Documents that are counted when read."""

    def __init__(self, *texts: str, fail: bool = False) -> None:
        self.texts, self.fail, self.reads = texts, fail, 0

    def __iter__(self) -> Iterator[Piece]:
        self.reads += 1
        yield from map(Piece, self.texts)
        if self.fail:
            raise KeyboardInterrupt

    def array(self, tokenizer: Tokenizer | None = None, key: str = "k") -> TextArray:
        return encoded_text(self, tokenizer or tokenizer_of(), {"key": key}, "train data")


def test_an_array_begins_with_an_end_and_has_one_after_each_document() -> None:
    tokenizer = tokenizer_of()
    source = Source("a b", " ", "d c a", "z")
    array = source.array(tokenizer)
    assert array.ids.tolist() == [EOS, *tokenizer.encode("a b"), EOS, *tokenizer.encode("d c a"), EOS, 1, EOS]
    assert array.report == TextReport(documents=3, tokens=9, words=9, bytes=12, unknown=1, empty_dropped=1)
    assert str(array.report) == "3 documents, 9 tokens, 9 words, 12 bytes, 1 unknown; dropped: 1 empty"
    assert len(array) == 10 and array.dtype == "uint16" and isinstance(array.ids, np.memmap)
    again = source.array(tokenizer)
    assert again.report == array.report and again.path == array.path and source.reads == 1


def test_what_it_was_made_from_is_the_key() -> None:
    source = Source("a b")
    paths = {source.array().path, source.array(key="other").path, source.array(tokenizer_of("a b c")).path}
    assert len(paths) == source.reads == 3


def test_a_large_vocabulary_takes_four_bytes() -> None:
    tokenizer = tokenizer_of(" ".join(map(str, range(70_000))))
    array = Source("69999 12").array(tokenizer)
    assert array.dtype == "uint32" and array.ids.tolist() == [EOS, *tokenizer.encode("69999 12"), EOS]
    assert array.ids.max() > 2**16


def test_no_text_is_a_fault() -> None:
    with pytest.raises(ValueError, match="train data: there is no text in it"):
        Source().array()
    with pytest.raises(ValueError, match=r"train data: no text is left \(0 documents, .*; dropped: 2 empty\)"):
        Source("", " ").array()


def test_a_broken_off_write_is_never_loaded(cache: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        Source("a", fail=True).array()
    assert list((cache / "texts").iterdir()) == []
    assert Source("a").array().report.documents == 1


CODE = """
import os, signal
from polyformer.data import encoded_text
from polyformer.data.documents import Piece
from polyformer.text import Tokenizer
def pieces():
    for number in range(200):
        if number == 190:
            os.kill(os.getpid(), signal.SIGKILL)
        yield Piece("a b " * 10_000)
if __name__ == "__main__":
    encoded_text(pieces(), Tokenizer.load("TOKENIZER"), {"key": "k"}, "train data", processes=1)
"""


def test_a_killed_process_leaves_nothing_that_is_loaded(cache: Path, tmp_path: Path) -> None:
    tokenizer_of().save(tmp_path / "t.json")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src" / "platform")}
    code = CODE.replace("TOKENIZER", str(tmp_path / "t.json"))
    killed = subprocess.run([sys.executable, "-c", code], env=environment, check=False, capture_output=True)
    assert killed.returncode < 0, killed.stderr
    (left,) = (cache / "texts").iterdir()
    assert left.name.startswith(".") and (left / "ids.bin").stat().st_size > 1000
    assert Source("a").array().report.documents == 1


def test_the_key_is_written_beside(cache: Path) -> None:
    array = Source("a").array()
    assert json.loads((array.path.parent / "key.json").read_text())["key"] == {"key": "k"}


PTB = ("ptb", "ptb.{}.txt.gz", ("train", "valid", "test"), "drop")
WIKITEXT = ("wikitext-2", "wiki.{}.tokens.gz", ("train", "valid", "test"), "keep")


@pytest.mark.parametrize(
    ("corpus", "tokens", "vocabulary"),
    [(PTB, (929_589, 73_760, 82_430), 10_000), (WIKITEXT, (2_088_628, 217_646, 245_569), 33_278)],
    ids=["ptb", "wikitext-2"],
)
def test_corpora_have_the_tokens_that_papers_count(corpora: Path, corpus, tokens, vocabulary) -> None:  # type: ignore[no-untyped-def]
    folder, name, splits, empty = corpus
    files = [str(corpora / folder / name.format(split)) for split in splits]
    settings = TextTokenizerSettings(kind="word", vocab_size=50_000, min_frequency=1)
    data = TextData(*files, layout="stream", empty=empty, tokenizer=settings)
    reports = [data.loaded(split).report for split in ("train", "validation", "test")]
    assert tuple(report.tokens for report in reports) == tuple(report.words for report in reports) == tokens
    assert len(data.text_tokenizer) == vocabulary - 1 + 3  # those of the text with <unk> and <eos>, and <pad>, <bos>
    if folder == "ptb":
        assert [report.bytes for report in reports] == [5_101_618, 399_782, 449_945]
        assert [report.unknown for report in reports] == [45_020, 3_485, 4_794]
