"""What all tests share: one thread and the same random numbers, whichever tests run."""

import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.default_generator.manual_seed(20170612)  # torch.manual_seed formats a traceback each time: 2 ms


@pytest.fixture(scope="session")
def corpora() -> Path:
    """The folder of real corpora; tests that ask for it are skipped where it is absent."""
    default = Path(__file__).resolve().parents[1].parent / "shared" / "data"
    folder = Path(os.environ.get("POLYFORMER_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"no corpora at {folder}; set POLYFORMER_DATA to their folder")
    return folder
