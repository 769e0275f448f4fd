"""Attention in pieces is attention, however it is cut; and what is dropped forward is dropped backward."""

import pytest
import torch
from torch import Tensor

from polyformer.nn import pieces
from polyformer.nn.pieces import attention_in_pieces

from ..equivalence.cases import close

COUNT, HEADS, LENGTH, WIDTH = 3, 2, 7, 4


def plain(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, visible: Tensor | None) -> Tensor:
    logits = q @ k.transpose(-1, -2) / WIDTH**0.5
    logits = logits if bias is None else logits + bias
    if visible is None:
        return logits.softmax(-1) @ v
    return torch.nan_to_num(logits.masked_fill(~visible, -torch.inf).softmax(-1)) @ v


def tensors(bias_shape: tuple[int, ...] | None, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    shapes = [(COUNT, HEADS, LENGTH, WIDTH)] * 3 + ([] if bias_shape is None else [bias_shape])
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


MASKS = {
    "all": None,
    "padded": torch.tensor([[True] * 7, [True] * 4 + [False] * 3, [False] * 2 + [True] * 5])[:, None, None],
    "causal": torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()[None, None],
}
MASKS["blind"] = MASKS["padded"] & MASKS["causal"]


@pytest.mark.parametrize("size", [1, 4 * LENGTH * 3, 4 * LENGTH * LENGTH, 4 * LENGTH * LENGTH * HEADS, 1 << 20])
@pytest.mark.parametrize("bias", [None, (1, HEADS, LENGTH, LENGTH), (COUNT, HEADS, LENGTH, LENGTH)], ids=str)
@pytest.mark.parametrize("kind", MASKS)
def test_pieces_are_the_whole(size: int, bias: tuple[int, ...] | None, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", size)
    monkeypatch.setattr(pieces, "CAUSAL_QUERIES", 3)
    given, is_causal = tensors(bias), kind in ("causal", "blind")
    q, k, v, *added = given
    mixed = attention_in_pieces(q, k, v, *(added or [None]), MASKS[kind], is_causal, 0.0)
    expected = plain(q, k, v, *(added or [None]), MASKS[kind])
    close(mixed, expected)
    pull = torch.randn_like(mixed)
    for one, other in zip(torch.autograd.grad(mixed, given, pull), torch.autograd.grad(expected, given, pull), strict=True):
        close(one, other.nan_to_num())


@pytest.mark.parametrize("is_causal", [False, True])
def test_dropping_has_the_gradient_of_what_was_dropped(is_causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against differences of the function itself, in float64, the same weights dropped each time."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", 100)
    visible = MASKS["blind" if is_causal else "padded"]

    def attention(*given: Tensor) -> Tensor:
        torch.default_generator.manual_seed(1)
        return attention_in_pieces(*given, visible, is_causal, 0.4)

    assert torch.autograd.gradcheck(attention, tensors((1, HEADS, LENGTH, LENGTH), torch.float64), fast_mode=True)


def test_as_many_weights_are_dropped_as_asked() -> None:
    q = k = torch.zeros(4, 8, 100, 1)
    kept = attention_in_pieces(q, k, torch.ones(4, 8, 100, 1), None, None, False, 0.25)
    assert float(kept.mean()) == pytest.approx(1.0, abs=0.01)
    assert float(kept.std()) == pytest.approx((0.25 / 0.75 / 100) ** 0.5, rel=0.1)
