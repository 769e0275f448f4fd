"""What the tests of data share."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own for each test, which may look at what is in it."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("POLYFORMER_CACHE", str(folder))
    return folder
