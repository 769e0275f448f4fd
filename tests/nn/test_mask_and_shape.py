"""Masks agree with what they say of themselves; shapes and fits are refused with the key to change."""

from collections.abc import Iterator
from itertools import product
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from polyformer.nn import (
    Context,
    CrossAttention,
    CrossMixer,
    FullAttention,
    KeyValues,
    Learned,
    Mask,
    Mixer,
    NoPosition,
    Position,
    Relative,
    Shape,
    Sinusoidal,
    check_fit,
    recorded_weights,
)


def indices() -> Iterator[tuple[Tensor, Tensor]]:
    """Queries and keys as they occur: the newest keys are the queries, in rising order, in rows that may differ."""
    for past, new in product(range(4), range(1, 4)):
        k_at = torch.arange(past + new)
        yield (k_at, k_at) if past == 0 else (k_at[past:], k_at)
        ragged = k_at + torch.tensor([[0], [3]])
        yield (ragged, ragged) if past == 0 else (ragged[:, past:], ragged)
    yield torch.arange(1, 4), torch.arange(3)  # as many queries as keys, but not the same tokens


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [None, False, True])
def test_a_mask_that_says_it_is_not_needed_is_not(causal: bool, padded: bool | None) -> None:
    said_all, said_plain = 0, 0
    for q_at, k_at in indices():
        keep = None if padded is None else torch.ones(2, k_at.shape[-1], dtype=torch.bool)
        if keep is not None and padded:
            keep[1, 0] = False
        mask = Mask(causal, keep)
        drawn = mask.dense(q_at, k_at)
        if mask.sees_all(q_at, k_at):
            said_all += 1
            assert bool(drawn.all())
        if mask.is_plain_causal(q_at, k_at):
            said_plain += 1
            lower = torch.ones(q_at.shape[-1], k_at.shape[-1], dtype=torch.bool).tril()
            assert bool((drawn == lower).all())
    assert (said_all > 0) == (padded is None)
    assert (said_plain > 0) == (causal and padded is None)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_dense_is_its_definition(causal: bool, padded: bool) -> None:
    for q_at, k_at in indices():
        length, keys = q_at.shape[-1], k_at.shape[-1]
        keep = torch.rand(2, keys) < 0.5 if padded else None
        drawn = Mask(causal, keep).dense(q_at, k_at)
        assert drawn.dtype is torch.bool and drawn.dim() == 4 and drawn.shape[1] == 1
        drawn = drawn.expand(2, 1, length, keys)
        queries, places = q_at.expand(2, length), k_at.expand(2, keys)
        for row, i, j in product(range(2), range(length), range(keys)):
            may = (not causal or places[row, j] <= queries[row, i]) and (keep is None or bool(keep[row, j]))
            assert bool(drawn[row, 0, i, j]) == may


def test_the_cheap_cases_draw_no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Tensor:
        raise AssertionError("a mask was drawn")

    monkeypatch.setattr(Mask, "dense", refuse)
    shape = Shape(8, 2, causal=True)
    attention, nowhere, at = FullAttention(shape), NoPosition(shape), torch.arange(4)
    x = torch.randn(2, 4, 8)
    attention(x, Context(Mask(), nowhere, at, at))
    attention(x, Context(Mask(causal=True), nowhere, at, at))
    state = attention.start()
    assert isinstance(state, KeyValues)
    attention(x, Context(Mask(causal=True), nowhere, at, at), state)
    attention(x[:, :1], Context(Mask(causal=True), nowhere, torch.tensor([4]), torch.arange(5)), state)
    with pytest.raises(AssertionError, match="a mask was drawn"):
        attention(x, Context(Mask(keep=torch.ones(2, 4, dtype=torch.bool)), nowhere, at, at))


def test_a_mask_is_frozen() -> None:
    with pytest.raises(AttributeError):
        Mask().causal = True  # type: ignore[misc]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"d_model": 0}, r"`d_model` must be at least 1, but is 0"),
        ({"num_heads": 0}, r"`num_heads` must be at least 1, but is 0"),
        ({"max_length": -1}, r"`max_length` must be at least 1, but is -1"),
        ({"num_heads": 7, "d_model": 512}, r"`num_heads` must divide `d_model` \(512\), but is 7"),
        ({"dropout": 1.0}, r"`dropout` must be at least 0 and below 1, but is 1.0"),
        ({"dropout": -0.5}, r"`dropout` must be at least 0 and below 1, but is -0.5"),
    ],
)
def test_an_impossible_shape_is_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Shape(**{"d_model": 8, "num_heads": 2} | settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [FullAttention, CrossAttention])
@pytest.mark.parametrize("num_kv_heads", [0, -2, 3, 8])
def test_heads_that_cannot_be_shared_are_refused(make: type, num_kv_heads: int) -> None:
    with pytest.raises(ValueError, match=rf"`num_kv_heads` must divide `num_heads` \(4\), but is {num_kv_heads}"):
        make(Shape(16, 4), num_kv_heads=num_kv_heads)


def test_shared_heads_save_weights() -> None:
    shape = Shape(16, 4)
    count = {heads: sum(p.numel() for p in FullAttention(shape, heads).parameters()) for heads in (1, 2, 4)}
    assert count[4] - count[2] == 2 * 2 * 4 * 17 and count[2] - count[1] == 2 * 1 * 4 * 17
    assert FullAttention(shape, 4).project.weight.shape == FullAttention(shape).project.weight.shape


def test_a_clip_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`clip` of Relative must be at least 1, but is 0"):
        Relative(Shape(8, 2), clip=0)


class _Deaf(Mixer):
    """Honours no door and only looks both ways; a stand-in for mixers without logits."""

    directions: ClassVar[frozenset[str]] = frozenset({"both"})


class _DeafCross(CrossMixer):
    """Honours no door."""


def test_a_position_without_its_door_is_refused_with_what_would_work() -> None:
    with pytest.raises(ValueError) as error:
        check_fit(_Deaf, Relative)
    assert "`Relative` needs a mixer with bias, which `_Deaf` lacks" in str(error.value)
    works = str(error.value).split("use ")[1]
    assert all(kind.__name__ in works for kind in (Learned, NoPosition, Sinusoidal)) and "Relative" not in works
    with pytest.raises(ValueError, match=r"`Relative` needs a mixer with bias, which `_DeafCross` lacks"):
        check_fit(_DeafCross, Relative)


def test_a_direction_that_cannot_be_run_is_refused_with_what_can() -> None:
    with pytest.raises(ValueError, match=r"`_Deaf` cannot run causal; use .*FullAttention"):
        check_fit(_Deaf, NoPosition, causal=True)


@pytest.mark.parametrize("position", [NoPosition, Sinusoidal, Learned])
def test_what_fits_is_accepted(position: type[Position]) -> None:
    check_fit(_Deaf, position)
    check_fit(_DeafCross, position)
    for causal in (False, True):
        check_fit(FullAttention, position, causal)
        check_fit(FullAttention, Relative, causal)


def test_mixers_that_cannot_step_say_so() -> None:
    for mixer in (_Deaf(), _DeafCross()):
        with pytest.raises(NotImplementedError, match=f"{type(mixer).__name__} cannot decode step by step"):
            mixer.start()


def test_the_recorder_sees_every_attention_once_and_only_inside() -> None:
    shape = Shape(8, 2, dropout=0.5)
    layers, at = [FullAttention(shape) for _ in range(3)], torch.arange(5)
    keep, x = torch.arange(5) < torch.tensor([[5], [2]]), torch.randn(2, 5, 8)
    context = Context(Mask(keep=keep), NoPosition(shape), at, at)
    with recorded_weights() as outer:
        for layer in layers:
            layer(x, context)
        with recorded_weights() as inner:
            layers[0](x, context)
    layers[0](x, context)
    assert len(outer) == 3 and len(inner) == 1
    for weights in (*outer, *inner):
        assert weights.shape == (2, 2, 5, 5) and not weights.requires_grad
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 5))
        assert bool((weights[1, :, :, 2:] == 0).all())


def test_the_recorder_stops_after_an_error() -> None:
    shape, at = Shape(8, 2), torch.arange(2)
    context = Context(Mask(), NoPosition(shape), at, at)
    with pytest.raises(KeyError), recorded_weights() as weights:
        raise KeyError
    FullAttention(shape)(torch.randn(1, 2, 8), context)
    assert weights == []
