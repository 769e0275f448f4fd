"""Recurrent networks and convolutions against torch's, and the attention of translators against the papers' formulas."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from polyformer.nn import (
    GRU,
    LSTM,
    RNN,
    Bahdanau,
    Context,
    Convolution,
    CrossContext,
    Luong,
    Mask,
    Memory,
    NoPosition,
    Shape,
)

from .copying import close, same_gradients, shake

D, BATCH, LENGTH = 6, 3, 7
AT = torch.arange(LENGTH)
LENGTHS = torch.tensor([4, 7, 1])
KEEP = torch.arange(LENGTH) < LENGTHS.unsqueeze(1)
NOWHERE = NoPosition(Shape(D, 1))

networks = pytest.mark.parametrize(("kind", "torch_kind"), [(RNN, nn.RNN), (GRU, nn.GRU), (LSTM, nn.LSTM)])
directions = pytest.mark.parametrize("causal", [False, True])


def pair(kind: type[RNN], torch_kind: Any, causal: bool) -> tuple[RNN, nn.RNNBase]:
    """A mixer and torch's module with the same weights."""
    ours = kind(Shape(D, 1, causal=causal))
    shake(ours)
    theirs: nn.RNNBase = torch_kind(D, D if causal else D // 2, batch_first=True, bidirectional=not causal)
    theirs.load_state_dict(ours.recurrent.state_dict())
    return ours, theirs


def context(causal: bool, keep: Tensor | None = None, document: Tensor | None = None) -> Context:
    return Context(Mask(causal, keep, document), NOWHERE, AT, AT)


@networks
@directions
@pytest.mark.parametrize("padded", [False, True])
def test_a_recurrent_network(kind: type[RNN], torch_kind: Any, causal: bool, padded: bool) -> None:
    ours, theirs = pair(kind, torch_kind, causal)
    x = torch.randn(BATCH, LENGTH, D, requires_grad=True)
    if padded:
        packed = pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
        expected = pad_packed_sequence(theirs(packed)[0], batch_first=True)[0]
    else:
        expected = theirs(x)[0]
    mixed = ours(x, context(causal, KEEP if padded else None))
    close(mixed, expected)
    pull = torch.randn_like(mixed)
    mine = torch.autograd.grad(mixed, [x, *ours.parameters()], pull)
    others = torch.autograd.grad(expected, [x, *theirs.parameters()], pull)
    for one, other in zip(mine, others, strict=True):
        close(one, other)


@networks
@directions
def test_packed_documents_are_read_one_by_one(kind: type[RNN], torch_kind: Any, causal: bool) -> None:
    ours, theirs = pair(kind, torch_kind, causal)
    document = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [5, 5, 5, 5, 5, 5, 5], [0, 1, 1, 2, 3, 3, 3]])
    x = torch.randn(BATCH, LENGTH, D, requires_grad=True)
    rows = []
    for row, numbers in zip(x, document, strict=True):
        sizes = numbers.unique_consecutive(return_counts=True)[1].tolist()
        rows.append(torch.cat([theirs(part.unsqueeze(0))[0][0] for part in row.split(sizes)]))
    mixed, expected = ours(x, context(causal, document=document)), torch.stack(rows)
    close(mixed, expected)
    same_gradients(mixed, expected, [x])


@directions
@pytest.mark.parametrize("kernel", [1, 3, 5, 9])
@pytest.mark.parametrize("batch", [1, BATCH])
def test_a_gated_convolution(batch: int, kernel: int, causal: bool) -> None:
    ours, theirs = Convolution(Shape(D, 1, causal=causal), kernel), nn.Conv1d(D, 2 * D, kernel)
    with torch.no_grad():
        ours.output.weight.copy_(theirs.weight.transpose(1, 2).flatten(1))
    ours.output.bias = theirs.bias
    x = torch.randn(batch, LENGTH, D, requires_grad=True)
    around = (kernel - 1, 0) if causal else (kernel // 2, kernel // 2)
    expected = nn.functional.glu(theirs(nn.functional.pad(x.transpose(1, 2), around)), dim=1).transpose(1, 2)
    mixed = ours(x, context(causal))
    close(mixed, expected)
    same_gradients(mixed, expected, [x])


def attended(score: Any, x: Tensor, memory: Memory) -> Tensor:
    """The mean of each query's memory, weighted by softmax(score), one pair of vectors after the other."""
    assert memory.keep is not None
    rows = []
    for queries, keys, kept in zip(x, memory.keys, memory.keep, strict=True):
        real = keys[kept]
        weights = [torch.stack([score(query, key) for key in real]).softmax(0) for query in queries]
        rows.append(torch.stack([each @ real for each in weights]))
    return torch.stack(rows)


def given() -> tuple[Tensor, Memory]:
    keys = torch.randn(BATCH, 5, D, requires_grad=True)
    memory = Memory(keys, torch.arange(5), torch.arange(5) < torch.tensor([[5], [3], [1]]))
    return torch.randn(BATCH, 4, D, requires_grad=True), memory


@pytest.mark.parametrize("score", ["dot", "general"])
def test_luong_is_equations_5_and_7(score: Any) -> None:
    ours, (x, memory) = Luong(Shape(D, 1), score), given()
    shake(ours)
    w = ours.key.weight if score == "general" else torch.eye(D)
    gathered = attended(lambda query, key: query @ w @ key / D**0.5, x, memory)
    expected = torch.tanh(torch.cat((gathered, x), dim=-1) @ ours.output.weight.t())
    mixed = ours(x, CrossContext(memory, NOWHERE, torch.arange(4)))
    close(mixed, expected)
    same_gradients(mixed, expected, [x, memory.keys, *ours.parameters()])


@pytest.mark.parametrize("width", [None, 9])
def test_bahdanau_is_the_alignment_model_of_the_paper(width: int | None) -> None:
    ours, (x, memory) = Bahdanau(Shape(D, 1), width), given()
    shake(ours)
    w, u, v = ours.query.weight, ours.key.weight, ours.score.weight[0]
    assert v.shape == (width or D,)
    expected = attended(lambda query, key: v @ torch.tanh(w @ query + u @ key), x, memory) @ ours.output.weight.t()
    mixed = ours(x, CrossContext(memory, NOWHERE, torch.arange(4)))
    close(mixed, expected)
    same_gradients(mixed, expected, [x, memory.keys, *ours.parameters()])
