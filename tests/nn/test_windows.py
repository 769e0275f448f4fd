"""Attention that sees few keys: gathered blocks equal a mask over all pairs."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from polyformer.nn import (
    BigBird,
    Context,
    FullAttention,
    Mask,
    NoPosition,
    Pattern,
    Position,
    Rotary,
    Shape,
    SlidingWindow,
    recorded_weights,
)
from polyformer.nn.mixers import big_bird, near, sliding_window
from polyformer.nn.mixers.blocks import side_by_side, touches_first

from .scenes import (
    HEADS,
    LENGTH,
    MAKERS,
    POSITIONS,
    SCENES,
    WIDTH,
    Scene,
    close,
    counted,
    fits,
    made,
    over_makers,
    over_positions,
    over_scenes,
)


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Has texts of any length be read in blocks, or none; the list that is returned grows by one for each reading in blocks.

    Without a cache blocks are gathered, as on a GPU; with one, a few queries follow the others where that is possible.
    """
    monkeypatch.setattr(near, "QUERIES", 4)

    def use(always: bool, cached: bool = True) -> list[int]:
        calls: list[int] = []
        for module, name in (
            (sliding_window, "attend_in_blocks"),
            (sliding_window, "attend_near"),
            (big_bird, "attend_in_blocks"),
        ):
            original = getattr(module, name)

            def attend(*given: Any, original: Any = original) -> Tensor:
                calls.append(1)
                read: Tensor = original(*given)
                return read

            monkeypatch.setattr(module, name, attend)
            monkeypatch.setattr(module, "WORTH", 0 if always else 1 << 40)
        monkeypatch.setattr(sliding_window, "has_cache", near.has_cache if cached else lambda *_: False)
        return calls

    return use


def patterns() -> list[Pattern | None]:
    return [None, partial(touches_first, 2)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 1, 2, 5, 40])
@pytest.mark.parametrize("pattern", patterns(), ids=["alone", "with_first"])
@over_scenes
def test_a_mask_is_its_definition(scene: Scene, pattern: Pattern | None, window: int | None, causal: bool) -> None:
    mask = replace(scene.context(causal, made(NoPosition)).mask, window=window, pattern=pattern)
    for q_at, k_at in [(scene.at, scene.at), *([] if scene.document is not None else [(scene.at[..., -2:], scene.at)])]:
        drawn = mask.dense(q_at, k_at).expand(2, 1, q_at.shape[-1], LENGTH)
        ahead = k_at.expand(2, -1).unsqueeze(1) - q_at.expand(2, -1).unsqueeze(2)
        seen = torch.ones_like(ahead, dtype=torch.bool) if window is None and pattern is None else ahead.abs() < (window or 0)
        if pattern is not None:
            seen = seen | (k_at.expand(2, -1) < 2).unsqueeze(1) | (q_at.expand(2, -1) < 2).unsqueeze(2)
        seen = seen & scene.real.unsqueeze(1) & (ahead <= 0 if causal else torch.ones_like(seen))
        if scene.document is not None:
            seen = seen & (scene.document.unsqueeze(1) == scene.document.unsqueeze(2))
        assert torch.equal(drawn[:, 0], seen)
        assert not mask.sees_all(q_at, k_at) or bool(drawn.all())
        assert not mask.is_plain_causal(q_at, k_at) or torch.equal(drawn[0, 0], torch.ones(LENGTH, LENGTH).tril().bool())


@pytest.mark.parametrize("window", [4, 5])
def test_a_window_that_does_not_bind_needs_no_mask_and_one_that_does_needs_it(window: int) -> None:
    at, late = torch.arange(5), torch.tensor([4])
    assert Mask(window=window).sees_all(at, at) == Mask(window=window).sees_all(late, at) == (window == 5)
    assert Mask(True, window=window).is_plain_causal(at, at) == Mask(True, window=window).sees_all(late, at) == (window == 5)
    assert not Mask(window=window).sees_all(at * 2, at * 2), "indices count, not columns"


@pytest.mark.parametrize("causal", [False, True])
@over_positions
@over_scenes
@over_makers
def test_blocks_equal_the_mask_over_all_pairs(
    blocks: Callable[..., list[int]],
    maker: Callable[[Shape], FullAttention],
    scene: Scene,
    position: Callable[[Shape], Position],
    causal: bool,
) -> None:
    mixer, place = made(maker, causal), made(position, causal)
    if not fits(mixer, causal):
        return
    x, pull = torch.randn(2, LENGTH, WIDTH, requires_grad=True), torch.randn(2, LENGTH, WIDTH)
    given = [x, *mixer.parameters(), *place.parameters()]
    results = []
    for always, cached in ((False, True), (True, True), (True, False)):
        calls = blocks(always, cached)
        out = mixer(x, scene.context(causal, place))[scene.real]
        results.append([out, *torch.autograd.grad((out * pull[scene.real]).sum(), given)])
        moved = isinstance(mixer, BigBird) and (scene.document is not None or scene.at.dim() == 2)
        assert len(calls) == (always and not moved)
    for dense, *sparse in zip(*results, strict=True):
        for each in sparse:
            close(each, dense)


@over_makers
def test_blocks_drop_and_keep_the_expectation(
    blocks: Callable[[bool], list[int]], maker: Callable[[Shape], FullAttention]
) -> None:
    mixer, context = made(maker, dropout=0.3), SCENES["plain"].context(False, made(NoPosition))
    x, calls = torch.randn(1, LENGTH, WIDTH).expand(1500, -1, -1), blocks(True)
    with torch.no_grad():
        dropped, exact = mixer(x, context), mixer.eval()(x[:1], context)[0]
    spread = dropped.std(0) / len(x) ** 0.5
    assert len(calls) == 2 and bool((spread > 0).all())
    assert bool(((dropped.mean(0) - exact).abs() < 5 * spread + 1e-5).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@over_makers
def test_a_row_of_padding_only_is_finite_and_leaves_others_alone(
    blocks: Callable[[bool], list[int]], maker: Callable[[Shape], FullAttention], dtype: torch.dtype
) -> None:
    mixer, keep, calls = made(maker).to(dtype), torch.tensor([[False] * LENGTH, [True] * LENGTH]), blocks(True)
    context = Scene(keep, None, torch.arange(LENGTH)).context(False, made(NoPosition))
    x = torch.randn(2, LENGTH, WIDTH, dtype=dtype, requires_grad=True)
    out = mixer(x, context)
    gradients = torch.autograd.grad(out.float().square().sum(), [x, *mixer.parameters()])
    assert calls and out.dtype is dtype and all(bool(part.isfinite().all()) for part in (out, *gradients))
    if dtype is torch.float32:
        close(out[1], mixer(x[1:], replace(context, mask=Mask()))[0])


@over_makers
@torch.no_grad()
def test_weights_are_recorded_over_all_pairs(
    blocks: Callable[[bool], list[int]], maker: Callable[[Shape], FullAttention]
) -> None:
    mixer, at = made(maker), torch.arange(LENGTH)
    x, context, calls = torch.randn(2, LENGTH, WIDTH), SCENES["plain"].context(False, made(NoPosition)), blocks(True)
    with recorded_weights() as weights:
        recorded = mixer(x, context)
    assert not calls and len(weights) == 1 and weights[0].shape == (2, HEADS, LENGTH, LENGTH)
    assert torch.equal(weights[0] > 0, mixer.narrowed(Mask()).dense(at, at).expand_as(weights[0]))
    close(mixer(x, context), recorded)


@over_scenes
@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_what_does_not_bind_is_full_attention(scene: Scene, causal: bool) -> None:
    for maker in (
        partial(SlidingWindow, window=LENGTH),
        partial(BigBird, block=LENGTH),
        partial(BigBird, block=1, global_blocks=90),
    ):
        mixer, full, place = made(maker, causal), made(FullAttention, causal), made(POSITIONS["t5"], causal)
        if fits(mixer, causal):
            full.load_state_dict({name: value for name, value in mixer.state_dict().items() if name != "random"})
            x, context = torch.randn(2, LENGTH, WIDTH), scene.context(causal, place)
            close(mixer(x, context)[scene.real], full(x, context)[scene.real])


def test_a_window_that_does_not_bind_draws_no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Tensor:
        raise AssertionError("a mask was drawn")

    monkeypatch.setattr(Mask, "dense", refuse)
    for causal, length in product((False, True), (5, 6)):
        mixer, at = made(partial(SlidingWindow, window=6), causal), torch.arange(length)
        mixer(torch.randn(1, length, WIDTH), Context(Mask(causal), made(NoPosition), at, at))
    with pytest.raises(AssertionError, match="a mask was drawn"):
        mixer(torch.randn(1, 7, WIDTH), Context(Mask(True), made(NoPosition), torch.arange(7), torch.arange(7)))


@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_padding_inside_a_text_changes_nothing(blocks: Callable[[bool], list[int]], causal: bool) -> None:
    keep = torch.ones(1, LENGTH, dtype=torch.bool)
    keep[:, 7:12] = False
    mixer, place, x, calls = made(MAKERS["global"], causal), made(Rotary), torch.randn(1, LENGTH, WIDTH), blocks(True)
    holed = mixer(x, Scene(keep, None, counted(keep)).context(causal, place))[keep]
    assert not side_by_side(Mask(keep=keep), counted(keep)) and not calls
    at = torch.arange(int(keep.sum()))
    close(holed, mixer(x[keep].unsqueeze(0), Context(Mask(causal), place, at, at))[0])


@pytest.mark.parametrize(
    ("maker", "message"),
    [
        (partial(SlidingWindow, window=0), "`window` of SlidingWindow must be at least 1, but is 0"),
        (partial(SlidingWindow, global_tokens=-1), "`global_tokens` of SlidingWindow must be at least 0, but is -1"),
        (partial(BigBird, block=0), "`block` of BigBird must be at least 1, but is 0"),
        (partial(BigBird, random_blocks=-1), "`random_blocks` of BigBird must be at least 0, but are 2 and -1"),
    ],
)
def test_impossible_sizes_are_refused(maker: Callable[[Shape], FullAttention], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(maker)
