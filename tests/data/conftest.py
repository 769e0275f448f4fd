"""What tests of data share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def corpora() -> Path:
    """The folder of real corpora; tests that ask for it are skipped where it is absent."""
    default = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    folder = Path(os.environ.get("POLYFORMER_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"no corpora at {folder}; set POLYFORMER_DATA to their folder")
    return folder
