"""Shared key/value heads equal the same heads repeated, and rows that share a memory equal a memory for each."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from polyformer.nn import Context, CrossAttention, CrossContext, FullAttention, Mask, Memory, Position, Shape

from .cases import CROSSES, LAYER_POSITIONS, POSITIONS, Part, close, fits, shake

SHAPE = Shape(d_model=32, num_heads=4, max_length=32)
groups = pytest.mark.parametrize("num_kv_heads", [1, 2])


def place(part: Part) -> Position:
    position: Position = part.factory(SHAPE)
    shake(position)
    return position


def repeated(rows: Tensor, num_kv_heads: int) -> Tensor:
    """(G K, ...) rows of a projection -> (H K, ...), each head written out for every query head of its group."""
    heads = rows.unflatten(0, (num_kv_heads, -1))
    return heads.repeat_interleave(SHAPE.num_heads // num_kv_heads, dim=0).flatten(0, 1)


@groups
@pytest.mark.parametrize("position", POSITIONS, ids=str)
@torch.no_grad()
def test_grouped_heads_of_full_attention(position: Part, num_kv_heads: int) -> None:
    grouped, full = FullAttention(SHAPE, num_kv_heads), FullAttention(SHAPE)
    shake(grouped)
    sizes = [SHAPE.d_model, *[num_kv_heads * SHAPE.d_head] * 2]
    for name in ("weight", "bias"):
        q, k, v = getattr(grouped.project, name).split(sizes)
        whole = torch.cat((q, repeated(k, num_kv_heads), repeated(v, num_kv_heads)))
        getattr(full.project, name).copy_(whole)
    full.output.load_state_dict(grouped.output.state_dict())
    at, x = torch.arange(6), torch.randn(2, 6, SHAPE.d_model)
    for mask in (Mask(), Mask(causal=True), Mask(keep=torch.arange(6) < torch.tensor([[6], [4]]))):
        context = Context(mask, place(position), at, at)
        close(grouped(x, context), full(x, context))


@groups
@pytest.mark.parametrize("position", LAYER_POSITIONS, ids=str)
@torch.no_grad()
def test_grouped_heads_of_cross_attention(position: Part, num_kv_heads: int) -> None:
    grouped, full = CrossAttention(SHAPE, num_kv_heads=num_kv_heads), CrossAttention(SHAPE)
    shake(grouped)
    full.load_state_dict(
        {
            name: repeated(rows, num_kv_heads) if name.split(".")[0] in ("key", "value") else rows
            for name, rows in grouped.state_dict().items()
        }
    )
    memory = Memory(torch.randn(2, 5, SHAPE.d_model), torch.arange(5), torch.arange(5) < torch.tensor([[5], [3]]))
    x, context = torch.randn(2, 4, SHAPE.d_model), CrossContext(memory, place(position), torch.arange(4))
    close(grouped(x, context), full(x, context))
    close(grouped(x, context, grouped.start()), full(x, context))


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("position", LAYER_POSITIONS, ids=str)
@pytest.mark.parametrize("cross", CROSSES, ids=str)
@torch.no_grad()
def test_rows_that_share_a_memory(cross: Part, position: Part, cached: bool, ragged: bool) -> None:
    if not fits(cross, position):
        return
    mixer, beyond, rows = cross.factory(SHAPE), place(position), 3
    shake(mixer)
    memory = Memory(torch.randn(2, 5, SHAPE.d_model), torch.arange(5), torch.arange(5) < torch.tensor([[5], [3]]))
    if ragged:
        memory = Memory(memory.keys, torch.tensor([[0, 0, 1, 2, 3], [0, 1, 2, 3, 4]]), memory.keep)
    assert memory.keep is not None
    keys, keep = (part.repeat_interleave(rows, dim=0) for part in (memory.keys, memory.keep))
    each = Memory(keys, memory.at.repeat_interleave(rows, dim=0) if ragged else memory.at, keep)
    x, at = torch.randn(6, 4, SHAPE.d_model), torch.arange(4)
    at = at + torch.randint(5, (6, 1)) if ragged else at
    state = mixer.start() if cached else None
    for _ in range(2):  # the second time the state already holds the memory
        close(mixer(x, CrossContext(memory, beyond, at), state), mixer(x, CrossContext(each, beyond, at)))


@torch.no_grad()
def test_a_state_projects_a_memory_once() -> None:
    mixer = CrossAttention(SHAPE)
    memory = Memory(torch.randn(2, 5, SHAPE.d_model), torch.arange(5))
    context, state = CrossContext(memory, place(LAYER_POSITIONS[0]), torch.arange(1)), mixer.start()
    before = mixer(x := torch.randn(2, 1, SHAPE.d_model), context, state)
    other = replace(context, memory=Memory(memory.keys + 1.0, memory.at))
    assert torch.equal(mixer(x, other, state), before)
    assert state.projected is not None
    kept = state.projected
    state.reorder(torch.tensor([0, 0, 1, 1]))
    assert state.projected is kept and state.rows_per_memory == 2, "a beam copies no memory"
    state.reorder(torch.tensor([1, 0, 3, 2]))
    assert state.projected is kept
