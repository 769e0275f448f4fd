"""Python's standard library as a text."""

from pathlib import Path

import pytest

from polyformer.data import PythonLibrary, TextTokenizerSettings
from polyformer.data.library import library_files


def test_each_file_is_in_one_split_and_tests_in_none() -> None:
    files = library_files()
    assert len(files) > 300 and not any("test" in path.parts or "site-packages" in path.parts for path in files)
    data = PythonLibrary()
    splits = [data.splits[split] for split in ("train", "validation", "test")]
    assert sorted(path for split in splits for path in split) == sorted(files)
    sizes = [sum(path.stat().st_size for path in split) for split in splits]
    assert all(0.03 < size / sum(sizes) < 0.07 for size in sizes[1:])


def test_all_of_it_is_text() -> None:
    assert sum(len(block) for document in PythonLibrary().documents("validation") for block in document) > 100_000


def test_a_part_of_it_is_a_corpus() -> None:
    settings = TextTokenizerSettings(kind="byte")
    data = PythonLibrary(limit_megabytes=1, window=64, tokenizer=settings)
    sizes = [data.loaded(split).report.bytes for split in ("train", "validation", "test")]
    assert 900_000 < sum(sizes) < 1_010_000 and min(sizes) > 30_000
    text = data.text_tokenizer.decode(data.loaded("validation").ids.tolist())
    assert text == "".join(path.read_bytes().decode() for path in data.splits["validation"] if path.stat().st_size)
    assert data.contents("train") == PythonLibrary(limit_megabytes=1).contents("train") != PythonLibrary().contents("train")
    assert data.train_dataloader() and data.val_dataloader()


def test_faults_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"`data\.limit_megabytes` must be above 0, but is 0"):
        PythonLibrary(limit_megabytes=0)
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    with pytest.raises(ValueError, match=r"standard library is not here as \.py files; give --data\.train FILE instead"):
        library_files()
