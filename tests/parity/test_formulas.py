"""Positions, feed-forwards and norms against the papers' formulas, written out once more and slowly."""

import math
from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from polyformer.nn import (
    Context,
    FeedForward,
    FullAttention,
    Learned,
    Mask,
    Relative,
    Shape,
    Sinusoidal,
    SwiGLU,
    TokenEmbedding,
    make_norm,
)

from .copying import close, same_gradients, shake


def test_sinusoids_of_the_first_place() -> None:
    """sin 1, cos 1, sin 0.01, cos 0.01."""
    encoded = Sinusoidal(Shape(4, 1)).embed(torch.zeros(1, 1, 4), torch.tensor([1]))[0, 0]
    assert [round(value, 4) for value in encoded.tolist()] == [0.8415, 0.5403, 0.0100, 0.9999]


@pytest.mark.parametrize("d_model", [1, 2, 7, 16, 33])
def test_sinusoids_are_the_formula_of_the_paper(d_model: int) -> None:
    at = torch.tensor([[0, 1, 2, 50], [3, 3, 511, 5000]])
    x = torch.randn(2, 4, d_model)
    added = (Sinusoidal(Shape(d_model, 1)).embed(x, at) - x).tolist()
    for row, places in enumerate(at.tolist()):
        for column, place in enumerate(places):
            for feature in range(d_model):
                angle = place / 10000 ** (2 * (feature // 2) / d_model)
                expected = math.sin(angle) if feature % 2 == 0 else math.cos(angle)
                assert added[row][column][feature] == pytest.approx(expected, abs=5e-4 if place == 5000 else 1e-4)


def test_learned_positions_are_rows_of_their_table() -> None:
    learned, at = Learned(Shape(6, 1, max_length=5)), torch.tensor([[4, 0, 2], [0, 1, 1]])
    x = torch.randn(2, 3, 6)
    for row in range(2):
        for column in range(3):
            close(learned.embed(x, at)[row, column], x[row, column] + learned.table[at[row, column]])


@pytest.mark.parametrize("clip", [1, 2, 16])
@pytest.mark.parametrize("causal", [False, True])
def test_relative_is_equation_4_of_shaw(clip: int, causal: bool) -> None:
    """e_ij = x_i W_q (x_j W_k + a_ij)^T / sqrt(d), where a_ij is the vector of clip(j - i)."""
    shape, length = Shape(8, 2, causal=causal), 6
    attention, relative = FullAttention(shape), Relative(shape, clip)
    shake(attention)
    shake(relative)
    x, at = torch.randn(1, length, 8), torch.arange(length)
    q, k, v = (part.unflatten(-1, (2, 4)) for part in attention.project(x)[0].chunk(3, dim=-1))  # (L, H, K)
    rows = []
    for i in range(length):
        heads = []
        for head in range(2):
            seen = range(i + 1) if causal else range(length)
            vectors = [relative.table[max(-clip, min(clip, j - i)) + clip] for j in seen]
            sums = [k[j, head] + vector for j, vector in zip(seen, vectors, strict=True)]
            weights = torch.stack([q[i, head] @ key / math.sqrt(4) for key in sums]).softmax(0)
            heads.append(sum((weight * v[j, head] for j, weight in zip(seen, weights, strict=True)), torch.zeros(4)))
        rows.append(torch.cat(heads))
    close(attention(x, Context(Mask(causal), relative, at, at))[0], attention.output(torch.stack(rows)))


def test_swiglu_is_equation_6_of_shazeer() -> None:
    swiglu, x = SwiGLU(Shape(6, 1), width=10), torch.randn(2, 3, 6)
    gate, inner = swiglu.inner.weight[:10], swiglu.inner.weight[10:]
    close(swiglu(x), (F.silu(x @ gate.t()) * (x @ inner.t())) @ swiglu.outer.weight.t())
    assert swiglu.inner.bias is None and swiglu.outer.bias is None


@pytest.mark.parametrize("d_model", [6, 64, 512])
def test_swiglu_has_as_many_parameters_as_the_plain_kind(d_model: int) -> None:
    counts = [sum(p.numel() for p in kind(Shape(d_model, 1)).parameters()) for kind in (SwiGLU, FeedForward)]
    assert counts[0] == pytest.approx(counts[1], rel=2.0 / d_model)


def by_hand(x: Tensor, layer: FeedForward) -> Tensor:
    inner = x @ layer.inner.weight.t() + layer.inner.bias
    gate = inner > 0 if layer.activation == "relu" else 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
    return (inner * gate) @ layer.outer.weight.t() + layer.outer.bias


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_feed_forward_is_equation_2_of_the_paper(activation: Literal["relu", "gelu"]) -> None:
    layer, x = FeedForward(Shape(6, 1), activation=activation), torch.randn(2, 3, 6, requires_grad=True)
    assert layer.inner.out_features == 24
    kept = x.detach().clone()
    ours, formula = layer(x), by_hand(x, layer)
    close(ours, formula)
    same_gradients(ours, formula, [x, *layer.parameters()])
    assert torch.equal(x, kept), "what runs in place must not reach the input"


def test_norms_are_their_formulas() -> None:
    x = 3.0 * torch.randn(2, 3, 8) + 1.0
    centred = x - x.mean(-1, keepdim=True)
    close(make_norm("layer_norm", 8)(x), centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt())
    close(make_norm("rms_norm", 8)(x), x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt())
    assert torch.equal(make_norm("none", 8)(x), x)


def test_embeddings_are_scaled_to_unit_variance() -> None:
    embedding, tokens = TokenEmbedding(5000, 16), torch.randint(5000, (40, 50))
    close(embedding(tokens), embedding.table[tokens] * 4.0)
    assert float(embedding(tokens).detach().var()) == pytest.approx(1.0, abs=0.03)
    assert float(embedding.table.detach().var()) == pytest.approx(1 / 16, rel=0.03)
