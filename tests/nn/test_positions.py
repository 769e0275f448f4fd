"""Positions that act in attention: the papers' formulas written out slowly, and what must hold for all of them."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from polyformer.models import Encoder, Placement, StackOptions
from polyformer.nn import (
    ALiBi,
    Context,
    CrossAttention,
    CrossContext,
    FullAttention,
    LinearScaling,
    Mask,
    Memory,
    NTKScaling,
    Position,
    Relative,
    Rotary,
    Shape,
    T5Bias,
    TransformerXL,
    Where,
    YaRNScaling,
    attend,
    recorded_weights,
)

from ..equivalence.cases import close, shake

HEADS, WIDTH = 4, 4
D = HEADS * WIDTH
KINDS: dict[str, Callable[[Shape], Position]] = {
    "Relative": partial(Relative, clip=3),
    "Relative with values": partial(Relative, clip=2, values=True),
    "T5Bias": partial(T5Bias, buckets=8, max_distance=6),
    "ALiBi": ALiBi,
    "TransformerXL": TransformerXL,
    "Rotary": Rotary,
    "Rotary, half": partial(Rotary, fraction=0.5, base=100.0),
    "Rotary, linear": partial(Rotary, scaling=LinearScaling(4.0)),
    "Rotary, NTK": partial(Rotary, scaling=NTKScaling(4.0)),
    "Rotary, YaRN": partial(Rotary, scaling=YaRNScaling(4.0, trained_length=32)),
}
over_kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
directions = pytest.mark.parametrize("causal", [False, True], ids=["both", "causal"])
groups = pytest.mark.parametrize("num_kv_heads", [1, 2, HEADS])


def place(kind: Callable[[Shape], Position], causal: bool = False) -> Position:
    position = kind(Shape(D, HEADS, causal=causal))
    shake(position)
    return position


def literally(
    layer: FullAttention | CrossAttention, parts: list[Tensor], position: Any, logit: Any, causal: bool, value: Any = None
) -> Tensor:
    """Attention of one text by loops over heads, queries and keys: (L, H, K) queries, (S, G, K) keys and values.

    ``logit(head, q, k, i, j)`` is what the paper says before the division by sqrt(K), ``value(i, j)`` is added to values.
    """
    q, k, v = parts
    rows = []
    for i in range(len(q)):
        heads = []
        for head in range(HEADS):
            group = head * k.shape[1] // HEADS
            seen = [j for j in range(len(k)) if j <= i or not causal]
            logits = torch.stack([logit(position, head, q[i, head], k[j, group], i, j) for j in seen]) / math.sqrt(WIDTH)
            added = [v[j, group] + (0.0 if value is None else value(position, i, j)) for j in seen]
            heads.append(logits.softmax(0) @ torch.stack(added))
        rows.append(torch.cat(heads))
    return layer.output(torch.stack(rows))


def attention(num_kv_heads: int, causal: bool) -> FullAttention:
    layer = FullAttention(Shape(D, HEADS, causal=causal), num_kv_heads)
    shake(layer)
    return layer


def projected(layer: FullAttention, x: Tensor) -> list[Tensor]:
    """Queries, keys and values of one text."""
    sizes = (HEADS, layer.num_kv_heads, layer.num_kv_heads)
    return list(layer.project(x)[0].unflatten(-1, (-1, WIDTH)).split(sizes, dim=1))


def transformer_xl(position: TransformerXL, head: int, q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
    """Section 3.3: terms (a), (b), (c) and (d), with R the sinusoids of i - j."""
    angles = [(i - j) / 10000 ** (2 * pair / D) for pair in range(D // 2)]
    waves = torch.tensor([part for angle in angles for part in (math.sin(angle), math.cos(angle))])
    r = (position.distance.weight @ waves)[head * WIDTH : (head + 1) * WIDTH]
    u, v = position.content_bias[head], position.distance_bias[head]
    return q @ k + q @ r + u @ k + v @ r


@pytest.mark.parametrize("length", [2, 6])
@groups
@directions
@torch.no_grad()
def test_transformer_xl_is_section_3_3_of_the_paper(causal: bool, num_kv_heads: int, length: int) -> None:
    """Fewer queries than features of a head, and more: the two orders of multiplying."""
    layer, position = attention(num_kv_heads, causal), place(TransformerXL, causal)
    x, at = torch.randn(1, length, D), torch.arange(length)
    expected = literally(layer, projected(layer, x), position, transformer_xl, causal)
    close(layer(x, Context(Mask(causal), position, at, at))[0], expected)


@torch.no_grad()
def test_transformer_xl_in_cross_attention_counts_forward_too() -> None:
    layer, position = CrossAttention(Shape(D, HEADS), num_kv_heads=2), place(TransformerXL)
    shake(layer)
    x, keys = torch.randn(1, 3, D), torch.randn(1, 7, D)
    parts = [part(y)[0].unflatten(-1, (-1, WIDTH)) for part, y in ((layer.query, x), (layer.key, keys), (layer.value, keys))]
    context = CrossContext(Memory(keys, torch.arange(7)), position, torch.arange(3))
    close(layer(x, context)[0], literally(layer, parts, position, transformer_xl, causal=False))


def shaw(position: Relative, head: int, q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
    """Equation 4."""
    return q @ (k + position.table[max(-position.clip, min(position.clip, j - i)) + position.clip])


def shaw_values(position: Relative, i: int, j: int) -> Tensor:
    """Equation 3."""
    return position.value_table[max(-position.clip, min(position.clip, j - i)) + position.clip]


@pytest.mark.parametrize("clip", [1, 2, 16])
@groups
@directions
@torch.no_grad()
def test_relative_values_are_equation_3_of_shaw(causal: bool, num_kv_heads: int, clip: int) -> None:
    layer, position = attention(num_kv_heads, causal), place(partial(Relative, clip=clip, values=True), causal)
    x, at = torch.randn(1, 6, D), torch.arange(6)
    expected = literally(layer, projected(layer, x), position, shaw, causal, shaw_values)
    close(layer(x, Context(Mask(causal), position, at, at))[0], expected)


def test_relative_values_are_dropped_with_their_weights() -> None:
    """A query all of whose weights are dropped gathers nothing at all."""
    position = place(partial(Relative, values=True))
    q = torch.randn(1, HEADS, 3, WIDTH)
    with recorded_weights() as weights:
        mixed = attend(q, q, q, Where(Mask(), torch.arange(3), torch.arange(3)), position, 1.0 - 1e-9)
    assert weights[0].shape == (1, HEADS, 3, 3) and bool((mixed == 0).all())


def test_the_slopes_of_alibi_are_those_of_the_paper() -> None:
    """Section 3: 1/2 ... 1/256 for 8 heads, 2^-0.5 ... 2^-8 for 16; between, every second one of twice as many."""
    eight, sixteen = [2.0**-head for head in range(1, 9)], [2.0 ** (-head / 2) for head in range(1, 17)]
    assert ALiBi(Shape(8, 8)).slopes == eight
    assert ALiBi(Shape(16, 16)).slopes == sixteen
    assert ALiBi(Shape(12, 12)).slopes == eight + sixteen[0::2][:4]
    assert ALiBi(Shape(1, 1)).slopes == [2.0**-8]
    for heads in range(1, 70):
        slopes = ALiBi(Shape(heads, heads)).slopes
        assert len(set(slopes)) == heads and all(0.0 < slope < 1.0 for slope in slopes)


@torch.no_grad()
def test_alibi_is_minus_slope_times_distance_both_ways() -> None:
    position, q = ALiBi(Shape(D, HEADS)), torch.randn(2, HEADS, 2, WIDTH)
    q_at, k_at = torch.tensor([[3, 0], [9, 4]]), torch.tensor([[0, 3, 7], [4, 5, 6]])
    for queries, keys in ((q_at, k_at), (q_at[0], k_at), (q_at, k_at[0]), (q_at[0], k_at[0])):
        bias = position.bias(q, q, queries, keys)
        rows = max(queries.dim(), keys.dim())
        assert bias.shape == (rows, HEADS, 2, 3) and bias.dtype is torch.float32
        for row in range(rows):
            for head in range(HEADS):
                far = keys.expand(2, 3)[row] - queries.expand(2, 2)[row].unsqueeze(1)
                close(bias[row, head], -(2.0 ** (-2 * head - 2)) * far.abs())


def test_the_slopes_of_alibi_are_float32_where_half_precision_is_the_default() -> None:
    at, q = torch.arange(2), torch.zeros(1, 16, 2, 1)
    torch.set_default_dtype(torch.bfloat16)
    try:
        bias = biased(ALiBi(Shape(16, 16)), q, at)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(bias[0, :, 0, 1], torch.tensor([-(2.0 ** (-head / 2)) for head in range(1, 17)]))


@directions
@over_kinds
@torch.no_grad()
def test_only_distances_count(kind: Callable[[Shape], Position], causal: bool) -> None:
    layer, position, x = attention(2, causal), place(kind, causal), torch.randn(2, 9, D)
    at, ragged = torch.arange(9), torch.tensor([[0, 0, 0, 1, 2, 3, 4, 5, 6], list(range(9))])
    for places in (at, ragged):
        here, later = (Context(Mask(causal), position, moved, moved) for moved in (places, places + 7))
        close(layer(x, here), layer(x, later))
    cross = CrossAttention(Shape(D, HEADS), num_kv_heads=2)
    here, later = (CrossContext(Memory(x, at + far), position, torch.arange(4) + far) for far in (0, 7))
    close(cross(x[:, :4], here), cross(x[:, :4], later))
    assert not torch.allclose(layer(x, Context(Mask(), position, at, at)), layer(x, Context(Mask(), position, 2 * at, 2 * at)))


@over_kinds
@torch.no_grad()
def test_packed_documents_equal_separate_ones(kind: Callable[[Shape], Position]) -> None:
    options = StackOptions(d_model=D, num_heads=HEADS, dropout=0.0, position=kind)
    stack, lengths = Encoder(options, 2, causal=True), (3, 1, 4)
    shake(stack)
    texts = [torch.randn(1, length, D) for length in lengths]
    at = torch.cat([torch.arange(length) for length in lengths]).unsqueeze(0)
    document = torch.arange(3).repeat_interleave(torch.tensor(lengths)).unsqueeze(0)
    packed = stack(torch.cat(texts, dim=1), Placement(at=at, document=document))
    close(packed, torch.cat([stack(text) for text in texts], dim=1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@over_kinds
@torch.no_grad()
def test_half_precision_far_out_is_float32_rounded(kind: Callable[[Shape], Position], dtype: torch.dtype) -> None:
    """Also where half precision is the default type, as inside a trainer with `precision: bf16-true`."""
    position, at = place(kind).to(dtype), torch.arange(30000, 30006)
    q = torch.randn(1, HEADS, 6, WIDTH).to(dtype)
    torch.set_default_dtype(dtype)
    try:
        half = applied(position, q, at)
    finally:
        torch.set_default_dtype(torch.float32)
    whole = applied(position.float(), q.float(), at)
    tolerance = 4.0 * torch.finfo(dtype).eps
    assert bool(half.isfinite().all())
    torch.testing.assert_close(half.float(), whole, rtol=tolerance, atol=tolerance * float(whole.abs().max()))


@over_kinds
def test_autocast_equals_float32_up_to_rounding(kind: Callable[[Shape], Position]) -> None:
    layer, position, x, at = attention(2, causal=True), place(kind, causal=True), torch.randn(2, 9, D), torch.arange(9)
    context = Context(Mask(causal=True), position, at, at)
    whole = layer(x, context)
    with torch.autocast("cpu", torch.bfloat16):
        half = layer(x, context)
    assert half.dtype is torch.bfloat16
    torch.testing.assert_close(half.float(), whole, rtol=0.03, atol=0.03 * float(whole.detach().abs().max()))
    half.float().sum().backward()
    assert all(part.grad is not None and bool(part.grad.isfinite().all()) for part in position.parameters())


def applied(position: Position, q: Tensor, at: Tensor) -> Tensor:
    """What the position gives: its bias, or turned queries."""
    return position.rotate(q, at) if "rotate" in position.doors() else biased(position, q, at)


def biased(position: Position, q: Tensor, at: Tensor) -> Tensor:
    bias = position.bias(q, q, at, at)
    assert bias is not None
    return bias


@pytest.mark.parametrize("kind", [T5Bias, ALiBi])
def test_rows_that_agree_share_one_bias(kind: Callable[[Shape], Position]) -> None:
    """What does not depend on the query is (1, H, L, S), whatever the batch."""
    position, q, at = place(kind), torch.randn(3, HEADS, 5, WIDTH), torch.arange(5)
    assert biased(position, q, at).shape == (1, HEADS, 5, 5)
    assert biased(position, q, at.expand(3, -1)).shape == (3, HEADS, 5, 5)
