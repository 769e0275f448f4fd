"""The search's own selection of the largest against torch's."""

import pytest
import torch

from polyformer.decoding.beam import BLOCK, _top


@pytest.mark.parametrize("count", [1, 2, 10])
@pytest.mark.parametrize("width", [1, 9, BLOCK, 10 * BLOCK, 11 * BLOCK, 11 * BLOCK + 1, 1000, 1023])
def test_the_largest_are_torchs(width: int, count: int) -> None:
    values = torch.randn(7, width)
    values[:, width // 2 :] -= 1.0
    values[3, : width // 3] = -torch.inf
    best, places = _top(values, count)
    assert torch.equal(best, values.topk(min(count, width), dim=1).values)
    assert torch.equal(values.gather(1, places), best)
    assert all(len(set(row)) == len(row) for row in places.tolist())


def test_the_largest_may_be_the_last() -> None:
    """What does not fill a line of its own is not forgotten."""
    values = torch.zeros(1, 20 * BLOCK + 3)
    values[0, -1] = 1.0
    assert _top(values, 1)[1].item() == 20 * BLOCK + 2
