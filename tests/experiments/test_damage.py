"""Files of run folders that a killed training, a full disk or a broken copy left damaged."""

import gzip
from pathlib import Path

import pytest

from polyformer.cli import main
from polyformer.experiments.runs import Run

from .made_up import examples_of_answers, made_up


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return made_up(tmp_path, "run", examples=examples_of_answers([True, False]))


@pytest.mark.parametrize("begun", ["40,1e-", "40,1.2", "40"])
def test_half_a_last_line_of_metrics_is_left_out(run: Run, begun: str) -> None:
    whole = run.history
    with (run.path / "metrics.csv").open("a") as file:
        file.write(begun)
    assert Run(run.path).history == whole and whole[-1]["step"] == 30.0


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("metrics.csv", b"step,val/loss\r\n1,2.0\r\n2,1e-\r\n", "line 3 has '1e-' for `val/loss`; remove that line"),
        ("metrics.csv", b"step,val/loss\r\n,2.0\r\n", "line 2 has no `step`; remove that line"),
        ("results.json", b"[1]", "it must be keys and values, but there is [1]; leave this run out, or remove the file"),
        ("results.json", b'{"metrics": [1]}', "`metrics` must be keys and values, but there is [1]; leave"),
        ("results.json", b'{"task": "\xff"}', "byte 10 is not UTF-8; leave this run out, or remove the file"),
        ("results.json", b"", "Expecting value"),
        ("config.yaml", b"[1]", "it must be keys and values, but there is [1]; leave this run out"),
        ("config.yaml", b"seed: 0\nmodel: {", "in line 2; leave this run out"),
        ("config.yaml", b"seed: \xff", "byte 6 is not UTF-8; leave this run out"),
    ],
)
def test_a_damaged_file_is_named(run: Run, capsys: pytest.CaptureFixture[str], name: str, content: bytes, said: str) -> None:
    (run.path / name).write_bytes(content)
    assert main(["compare", str(run.path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"platform: {run.path / name}: not readable as ") and said in line


@pytest.mark.parametrize("damage", ["end", "middle", "head", "text", "list"])
def test_damaged_examples_are_named_with_the_command_that_writes_them_anew(run: Run, damage: str) -> None:
    file = run.path / "test.jsonl.gz"
    packed = file.read_bytes()
    damaged = {
        "end": packed[:-9],
        "middle": packed[:25] + b"\xff" * 9 + packed[34:],
        "head": b"text",
        "text": gzip.compress(b"\xff\n"),
        "list": gzip.compress(b"[1]\n"),
    }
    file.write_bytes(damaged[damage])
    with pytest.raises(ValueError, match=r"not readable as lines of JSON: .*; write it anew: platform test --ckpt_path"):
        _ = Run(run.path).examples
