"""Ways to attend to few keys that only some machines take: a few queries after the other, and FlexAttention."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch.nn.attention import flex_attention

from polyformer.nn import BigBird, Context, FullAttention, Mask, NoPosition, Rotary, Shape, SlidingWindow, T5Bias, pieces
from polyformer.nn.attend import Where, attend
from polyformer.nn.mixers import big_bird, kernel, near, sliding_window

from .scenes import LENGTH, MAKERS, WIDTH, Scene, close, fits, made, over_makers, over_scenes


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", ["plain", "padded", "packed"])
def test_a_few_queries_after_the_other_see_what_the_mask_says(kind: str, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pieces of all sizes: of some heads of one text, and of several texts."""
    length, window = 300, 40
    at = torch.arange(length)
    mask = {
        "plain": Mask(causal, window=window),
        "padded": Mask(causal, keep=at < torch.tensor([[300], [170], [20]]), window=window),
        "packed": Mask(causal, document=(at >= torch.tensor([[130], [20], [64]])).long(), window=window),
    }[kind]
    heads = [torch.randn(3, count, length, 4, requires_grad=True) for count in (4, 2, 2)]
    pull, where = torch.randn(3, 4, length, 4), Where(mask, at, at)
    whole = attend(*heads, where)
    expected = [whole, *torch.autograd.grad((whole * pull).sum(), heads)]
    for size in (1, 1 << 16, 1 << 20):
        monkeypatch.setattr(pieces, "PIECE_BYTES", size)
        out = near.attend_near(*heads, where)
        for one, other in zip([out, *torch.autograd.grad((out * pull).sum(), heads)], expected, strict=True):
            close(one, other)


def test_masks_of_pieces_that_lie_alike_are_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    original = Mask.pairs
    monkeypatch.setattr(Mask, "pairs", lambda *given: drawn.append(1) or original(*given))
    mixer, at = made(lambda shape: SlidingWindow(shape, window=16), causal=True), torch.arange(2048)
    mixer(torch.randn(1, 2048, WIDTH), Context(Mask(True), made(NoPosition), at, at)).sum().backward()
    assert len(drawn) == 2, "one for the first queries, one for all others"


@pytest.fixture
def flex(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """FlexAttention is used although there is no GPU, uncompiled and with gradients; each use is counted."""
    used: list[int] = []
    for module in (sliding_window, big_bird):
        monkeypatch.setattr(module, "WORTH", 0)
        monkeypatch.setattr(module, "has_kernel", lambda *_: not used.append(1))
    monkeypatch.setattr(kernel, "kernels", lambda: (flex_attention.create_block_mask, flex_attention.flex_attention))
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *_: None)
    monkeypatch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    return used


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("position", [NoPosition, Rotary])
@over_scenes
@over_makers
def test_flex_attention_equals_the_mask_over_all_pairs(
    flex: list[int],
    maker: Callable[[Shape], FullAttention],
    scene: Scene,
    position: type[NoPosition],
    causal: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mixer, place = made(maker, causal), made(position, causal)
    if not fits(mixer, causal):
        return
    x, pull = torch.randn(2, LENGTH, WIDTH, requires_grad=True), torch.randn(2, LENGTH, WIDTH)
    results = []
    for _ in range(2):
        out = mixer(x, scene.context(causal, place))[scene.real]
        results.append([out, *torch.autograd.grad((out * pull[scene.real]).sum(), [x, *mixer.parameters()])])
        monkeypatch.setattr(sliding_window, "WORTH", 1 << 40)
        monkeypatch.setattr(big_bird, "WORTH", 1 << 40)
    assert len(flex) == 1
    for kernels, dense in zip(*results, strict=True):
        close(kernels, dense)


def test_flex_attention_gives_zeros_to_rows_that_see_nothing(flex: list[int]) -> None:
    keep = torch.tensor([[False] * LENGTH, [True] * LENGTH])
    at, mixer = torch.arange(LENGTH), made(MAKERS["window"])
    x = torch.randn(2, LENGTH, WIDTH, requires_grad=True)
    context = Context(Mask(keep=keep), made(NoPosition), at, at)
    out = mixer(x, context)
    (gradient,) = torch.autograd.grad(out.square().sum(), x)
    assert flex and bool(out.isfinite().all()) and bool(gradient.isfinite().all())
    close(out[1], mixer(x[1:], replace(context, mask=Mask()))[0])


def test_who_takes_which_way() -> None:
    shape = Shape(32, 2)
    here, gpu = torch.empty(1, 2, 4, 16), torch.empty(1, 2, 4, 16, device="meta")
    assert near.has_cache(here, Rotary(shape)) and not near.has_cache(here, T5Bias(shape))
    assert not near.has_cache(gpu, Rotary(shape)) and not kernel.has_kernel(here, Rotary(shape), 0.0)


def test_big_bird_in_a_kernel_needs_no_order_of_columns(flex: list[int]) -> None:
    """Padding on the left moves the blocks of a text, which gathered blocks of columns cannot follow."""
    mixer = made(lambda shape: BigBird(shape, block=2, global_blocks=1, random_blocks=1))
    keep = torch.arange(LENGTH) >= torch.tensor([[0], [5]])
    at = (keep.cumsum(1) - 1).clamp(min=0)
    x = torch.randn(2, LENGTH, WIDTH)
    with torch.no_grad():
        padded = mixer(x, Context(Mask(keep=keep), made(NoPosition), at, at))[1, 5:]
        alone = torch.arange(LENGTH - 5)
        close(padded, mixer(x[1:, 5:], Context(Mask(), made(NoPosition), alone, alone))[0])
    assert len(flex) == 2
