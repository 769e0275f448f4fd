"""What all tests share: one thread, one cache, and the same random numbers, whichever tests run."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start, which would be in each other's way


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.default_generator.manual_seed(20170612)  # torch.manual_seed formats a traceback each time: 2 ms


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One cache for all tests of a process, never the user's; by content, so that tests do not see each other in it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POLYFORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def corpora() -> Path:
    """The folder of real corpora; tests that ask for it are skipped where it is absent."""
    default = Path(__file__).resolve().parents[1].parent / "shared" / "data"
    folder = Path(os.environ.get("POLYFORMER_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"no corpora at {folder}; set POLYFORMER_DATA to their folder")
    return folder
