"""The cache: nothing done twice, nothing old used, nothing half done."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from polyformer.data import ColumnLimits, EncodedDataset, Report, apply_limits, cached_tokenizer, encoded_dataset
from polyformer.data.cache import cache_folder, file_digest
from polyformer.text import TokenizerSettings

TEXTS = ["a bc", "", "def g h", "i" * 50]


class Source:
    """Examples that are counted when read."""

    def __init__(self, texts: list[str] = TEXTS, fail_at: int | None = None) -> None:
        self.texts, self.fail_at, self.reads = texts, fail_at, 0

    def examples(self) -> Iterator[dict[str, str]]:
        self.reads += 1
        for at, text in enumerate(self.texts):
            if at == self.fail_at:
                raise KeyboardInterrupt
            yield {"text": text}

    def encoded(self, limits: ColumnLimits = ColumnLimits(), key: str = "k") -> EncodedDataset:  # noqa: B008
        return encoded_dataset(self.examples, encode, limits, {"key": key}, "train data")


def encode(rows: dict[str, list[str]]) -> dict[str, list[object]]:
    return {"ids": [list(text.encode()) for text in rows["text"]], "text": list(rows["text"])}


def test_the_second_time_is_read_from_the_cache(cache: Path) -> None:
    source = Source()
    first, second = source.encoded(), source.encoded()
    assert source.reads == 1 and cache_folder() == cache
    assert first.rows["text"][:] == second.rows["text"][:] == TEXTS
    assert second.rows[2]["ids"] == list(b"def g h") and second.rows[1]["ids"] == []
    assert first.report == second.report == Report(kept=4)
    source.encoded(key="other")
    source.encoded(ColumnLimits({"ids": 5}))
    assert source.reads == 3


def test_many_chunks_are_one_data_set() -> None:
    texts = ["", ""] + [f"text {number}" for number in range(2500)]
    assert Source(texts).encoded().rows["text"][:] == texts


def test_limits_are_counted_and_the_counts_are_cached() -> None:
    source = Source()
    for _ in range(2):
        encoded = source.encoded(ColumnLimits({"ids": 5}))
        assert encoded.rows["text"][:] == ["a bc"]
        assert encoded.report == Report(kept=1, empty_dropped=1, long_dropped=2)
    assert str(encoded.report) == "1 examples; dropped: 1 with an empty field, 2 too long"
    cut = source.encoded(ColumnLimits({"ids": 5}, too_long="truncate", empty="keep"))
    assert str(cut.report) == "4 examples; cut to the limit: 2"
    assert [len(ids) for ids in cut.rows["ids"]] == [4, 0, 5, 5]
    assert apply_limits({"ids": [[1, 2]]}, ColumnLimits({"ids": None}))[1] == Report(kept=1)


def test_a_broken_off_write_is_never_loaded(cache: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        Source(fail_at=2).encoded()
    assert list((cache / "datasets").iterdir()) == []
    # What a killed process leaves has another name, and is not looked at.
    (cache / "datasets" / ".abc-killed").mkdir()
    assert len(Source().encoded().rows) == 4


def test_whoever_is_slower_takes_what_is_there(cache: Path) -> None:
    source, other = Source(), Source()

    def examples() -> Iterator[dict[str, str]]:
        other.encoded()
        return source.examples()

    encoded = encoded_dataset(examples, encode, ColumnLimits(), {"key": "k"}, "train data")
    assert len(encoded.rows) == 4 and len(list((cache / "datasets").iterdir())) == 1


CODE = """
import os, signal, sys
from polyformer.data import ColumnLimits, encoded_dataset
def examples():
    for number in range(3000):
        if number == 2500:
            os.kill(os.getpid(), signal.SIGKILL)
        yield {"text": str(number)}
encoded_dataset(examples, lambda rows: {"ids": [[1] for _ in rows["text"]]}, ColumnLimits(), {"key": "k"}, "x")
"""


def test_a_killed_process_leaves_nothing_that_is_loaded(cache: Path) -> None:
    path = str(Path(__file__).resolve().parents[2] / "src" / "platform")
    killed = subprocess.run([sys.executable, "-c", CODE], env={**os.environ, "PYTHONPATH": path}, check=False)
    assert killed.returncode < 0 and len(list((cache / "datasets").iterdir())) == 1
    assert len(Source().encoded().rows) == 4


def test_no_examples_is_a_fault() -> None:
    with pytest.raises(ValueError, match="train data: no examples were found"):
        Source([]).encoded()
    with pytest.raises(ValueError, match=r"train data: no examples are left \(0 examples; dropped: 2 with an empty field\)"):
        Source(["", ""]).encoded(ColumnLimits({"ids": 3}))


def test_a_changed_file_has_another_digest(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    first = file_digest(path)
    note = next((cache / "digests").iterdir())
    note.write_text(json.dumps({**json.loads(note.read_text()), "digest": "remembered"}))
    assert file_digest(path) == "remembered"
    note.write_text("{")
    assert file_digest(path) == first
    path.write_text("two")
    os.utime(path, ns=(1, 1))
    assert file_digest(path) != first
    with pytest.raises(ValueError, match=r"b\.txt: no such file"):
        file_digest(tmp_path / "b.txt")
    monkeypatch.delenv("POLYFORMER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/polyformer")


def test_tokenizers_are_trained_once(tmp_path: Path) -> None:
    reads = []

    def texts() -> list[str]:
        reads.append(1)
        return ["a b c"] * 3

    settings = TokenizerSettings(kind="character")
    first = cached_tokenizer(texts, settings, {"key": 1})
    assert cached_tokenizer(texts, settings, {"key": 1}).fingerprint == first.fingerprint and len(reads) == 1
    cached_tokenizer(texts, settings, {"key": 2})
    cached_tokenizer(texts, TokenizerSettings(kind="byte"), {"key": 1})
    assert len(reads) == 3
    first.save(tmp_path / "t.json")
    assert cached_tokenizer(texts, TokenizerSettings(path=str(tmp_path / "t.json")), {}).fingerprint == first.fingerprint
