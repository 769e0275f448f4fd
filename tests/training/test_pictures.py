"""Pictures of any labels, without a word of warning."""

from pathlib import Path

import pytest
import torch

from polyformer.training import RunFolder
from polyformer.training.pictures import confusion_picture

NAMES = {
    "few": ["no", "yes"],
    "chinese": ["\u597d", "\u574f", "\u4e0d\u77e5\u9053"],
    "dollars": ["under $5 & over $10", "$x_", "\\frac"],
    "long": ["a very long name " * 20, "b"],
    "hundred": [f"label {number}" for number in range(100)],
}


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES.keys())
def test_a_confusion_is_drawn(names: list[str], tmp_path: Path) -> None:
    target = torch.arange(5 * len(names)) % len(names)
    figure = confusion_picture(target.roll(1), target, names)
    RunFolder(str(tmp_path)).write_pictures({"confusion": figure})
    assert (tmp_path / "pictures" / "confusion.png").stat().st_size > 5000
