"""What the documents say of the code is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EQUATIONS = (ROOT / "docs" / "equations.md").read_text(encoding="utf-8")
ROWS = re.findall(r"\| `([\w/.]+):(\d+)` \| `(.+)` \|", EQUATIONS)


@pytest.mark.parametrize(("path", "line", "code"), ROWS, ids=lambda value: value[:40])
def test_an_equation_is_on_its_line(path: str, line: str, code: str) -> None:
    file = ROOT / path if path.startswith("tasks/") else ROOT / "src" / "platform" / "polyformer" / path
    lines = file.read_text(encoding="utf-8").splitlines()
    places = [number for number, text in enumerate(lines, 1) if code in text]
    assert code in lines[int(line) - 1], f"{path}: `{code}` is now on line {places}"


def test_every_row_was_read() -> None:
    assert len(ROWS) == EQUATIONS.count("\n| ") - 1 > 20  # the header is no row
