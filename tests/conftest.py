"""What all tests share: one thread and the same random numbers, whichever tests run."""

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.default_generator.manual_seed(20170612)  # torch.manual_seed formats a traceback each time: 2 ms
