"""Keys and values that grow: what is returned is what was put in, wherever the buffer stands."""

import pytest
import torch

from polyformer.nn import KeyValues


@pytest.mark.parametrize("sizes", [[1] * 40, [16, 1], [17, 1, 30], [5, 11, 1, 100]])
def test_what_was_appended_comes_back(sizes: list[int]) -> None:
    state = KeyValues()
    keys, values = torch.randn(2, sum(sizes), 3, 4), torch.randn(2, sum(sizes), 3, 4)
    for end, size in zip(torch.tensor(sizes).cumsum(0).tolist(), sizes, strict=True):
        new = slice(end - size, end)
        k, v = state.append(keys[:, new], values[:, new])
        assert torch.equal(k, keys[:, :end].transpose(1, 2)) and torch.equal(v, values[:, :end].transpose(1, 2))
    assert state.length == sum(sizes)


def test_buffers_grow_rarely() -> None:
    state, seen = KeyValues(), set()
    for _ in range(200):
        state.append(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2))
        assert state.keys is not None
        seen.add(state.keys.data_ptr() if state.keys.shape[1] < 16 else state.keys.shape[1])
    assert len(seen) <= 6


@pytest.mark.parametrize("rows", [[1, 0, 2], [2, 2, 2, 0], [1]])
def test_reordered_rows_continue_what_they_were(rows: list[int]) -> None:
    state, chosen = KeyValues(), torch.tensor(rows)
    old, new = torch.randn(3, 15, 2, 4), torch.randn(len(rows), 3, 2, 4)
    state.append(old, 2 * old)
    state.reorder(chosen)
    k, v = state.append(new, 2 * new)
    expected = torch.cat((old[chosen], new), dim=1).transpose(1, 2)
    assert torch.equal(k, expected) and torch.equal(v, 2 * expected)


def test_an_empty_state_may_be_reordered() -> None:
    state = KeyValues()
    state.reorder(torch.tensor([0, 0, 1]))
    assert state.length == 0 and state.keys is None
