"""The output layer prepared for decoding is the plain product."""

import pytest
import torch

from polyformer.nn import prepare_output


@pytest.mark.parametrize("rows", [1, 3, 64])
@pytest.mark.parametrize("shape", [(11, 8), (1000, 33)], ids=str)
def test_a_prepared_output_is_the_plain_product(rows: int, shape: tuple[int, int]) -> None:
    weight, hidden = torch.randn(shape), torch.randn(rows, 2, shape[1])[:, -1]  # not contiguous, as in decoding
    with torch.no_grad():
        prepared = prepare_output(weight)
        torch.testing.assert_close(prepared(hidden), hidden @ weight.t(), rtol=1e-5, atol=1e-5)


def test_gradients_and_other_types_take_the_plain_product() -> None:
    weight = torch.randn(5, 4, requires_grad=True)
    prepare_output(weight)(torch.randn(2, 4)).sum().backward()
    assert weight.grad is not None
    with torch.no_grad():
        half = weight.to(torch.bfloat16)
        assert prepare_output(half)(torch.ones(1, 4, dtype=torch.bfloat16)).dtype is torch.bfloat16
