"""Labels that classifiers guess together, by the script beside the benchmarks."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "guess_labels.py"


def write(path: Path, positive: list[float]) -> Path:
    """What `platform predict --json` says of texts with these probabilities of being "pos"."""
    rows = [{"text": "?", "probabilities": {"pos": value, "neg": 1.0 - value}} for value in positive]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def guess(tmp_path: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    texts, output = tmp_path / "texts.txt", tmp_path / "out.jsonl"
    texts.write_text("first\nsec\u2028ond\nthird\n电影\n", encoding="utf-8")
    command = [sys.executable, SCRIPT, texts, *words, "--output", output]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True)


def guessed(tmp_path: Path) -> dict[str, str]:
    lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").strip().split("\n")
    return {row["text"]: row["label"] for row in map(json.loads, lines)}


def test_only_sure_guesses_are_written_and_counted(tmp_path: Path) -> None:
    ran = guess(tmp_path, write(tmp_path / "one.jsonl", [0.99, 0.6, 0.4, 0.01]), "--sure", "0.8")
    assert guessed(tmp_path) == {"first": "pos", "电影": "neg"}
    assert "2 of 4 texts are sure enough (neg 1, pos 1)" in ran.stdout


def test_a_classifier_that_leans_to_one_label_is_centred(tmp_path: Path) -> None:
    guess(tmp_path, write(tmp_path / "one.jsonl", [0.999, 0.99, 0.9, 0.7]), "--sure", "0.5")
    assert guessed(tmp_path) == {"first": "pos", "sec\u2028ond": "pos", "third": "neg", "电影": "neg"}


def test_the_one_with_more_weight_decides(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.jsonl", [0.9, 0.8, 0.2, 0.1]), write(tmp_path / "b.jsonl", [0.1, 0.2, 0.8, 0.9])]
    guess(tmp_path, *files, "--weights", "1", "2", "--sure", "0.5")
    assert guessed(tmp_path) == {"first": "neg", "sec\u2028ond": "neg", "third": "pos", "电影": "pos"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--weights", "1", "2"], "--weights has 2 numbers, but there are 1 files"),
        ([], "3 guesses of ['neg', 'pos'], but there are 4"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, words: list[str], said: str) -> None:
    ran = guess(tmp_path, write(tmp_path / "one.jsonl", [0.9, 0.8, 0.2]), *words)
    assert ran.returncode == 1 and said in ran.stderr


def test_a_file_without_guesses_is_named(tmp_path: Path) -> None:
    ran = guess(tmp_path, write(tmp_path / "one.jsonl", []))
    assert ran.returncode == 1 and "one.jsonl: no guesses" in ran.stderr and "Traceback" not in ran.stderr
