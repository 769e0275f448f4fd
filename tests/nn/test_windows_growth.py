"""Attention that sees few keys costs time and memory as the length, and its state stays small."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from polyformer.nn import BigBird, Context, FullAttention, Mask, NoPosition, Position, Rotary, Shape, SlidingWindow, State
from polyformer.nn.mixers import LatestKeyValues, sliding_window

from .scenes import HEADS, MAKERS, POSITIONS, WIDTH, WINDOW, close, fits, made


class Counted(TorchDispatchMode):
    """The largest tensor in memory, in bytes, and the number of elements of all results."""

    def __init__(self) -> None:
        super().__init__()
        self.largest, self.made = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for part in tree_leaves(out):
            if isinstance(part, Tensor):
                self.largest = max(self.largest, part.untyped_storage().nbytes())
                self.made += part.numel()
        return out


def counts(mixer: nn.Module, place: Position, length: int) -> tuple[int, int]:
    x, at = torch.randn(1, length, WIDTH, requires_grad=True), torch.arange(length)
    with Counted() as counted:
        mixer(x, Context(Mask(place.shape.causal), place, at, at)).sum().backward()
    return counted.largest, counted.made


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["none", "t5", "values", "transformer_xl"])
def test_twice_the_length_costs_twice_as_much(name: str, causal: bool) -> None:
    place = made(POSITIONS[name], causal)
    makers: list[Any] = [partial(SlidingWindow, window=8)]
    if name != "transformer_xl":
        makers += [
            partial(SlidingWindow, window=8, global_tokens=4),
            partial(BigBird, block=4, global_blocks=1, random_blocks=1),
        ]
    for maker in makers:
        mixer = maker(Shape(WIDTH, HEADS, 1024, causal, dropout=0.1))
        if fits(mixer, causal):
            short, long = counts(mixer, place, 128), counts(mixer, place, 256)
            assert all(after <= 2.2 * before for before, after in zip(short, long, strict=True))
    full = made(FullAttention, causal, dropout=0.1)
    assert counts(full, place, 512)[1] > 2.8 * counts(full, place, 256)[1]


@dataclass
class Decode:
    """A decode of two texts, padded on the left, and beside it all that has been read."""

    mixer: SlidingWindow
    place: Position
    padding: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self.state: State = self.mixer.start()
        self.x = torch.empty(2, 0, WIDTH)
        self.missing = torch.tensor([[count] for count in self.padding])

    def context(self, length: int) -> Context:
        """That of all tokens so far, the last ``length`` of them new."""
        columns = torch.arange(self.x.shape[1])
        if not any(self.padding):
            return Context(Mask(causal=True), self.place, columns if length == len(columns) else columns[-length:], columns)
        at = (columns - self.missing).clamp(min=0)
        return Context(Mask(causal=True, keep=columns >= self.missing), self.place, at[:, -length:], at)

    def step(self, length: int) -> None:
        new = torch.randn(2, length, WIDTH)
        self.x = torch.cat((self.x, new), dim=1)
        stepped = self.mixer(new, self.context(length), self.state)
        whole = self.context(self.x.shape[1])
        whole = self.mixer(self.x, replace(whole, at=whole.k_at))[:, -length:]
        real = (torch.arange(self.x.shape[1]) >= self.missing).expand(2, -1)[:, -length:]
        close(stepped[real], whole[real])

    def rewind(self, count: int) -> None:
        self.state.rewind(count)
        self.x = self.x[:, : self.x.shape[1] - count]

    def reorder(self, rows: list[int]) -> None:
        self.state.reorder(torch.tensor(rows))
        self.x, self.missing = self.x[rows], self.missing[rows]


@pytest.fixture
def slack(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sliding_window, "SLACK", 4)
    return 4


@pytest.mark.parametrize("padding", [(0, 0), (7, 0), (2, 9)])
@pytest.mark.parametrize("name", ["window", "window_of_one", "global"])
@pytest.mark.parametrize("position", [Rotary, POSITIONS["values"]], ids=["rotary", "values"])
@torch.no_grad()
def test_a_state_forgets_and_gives_what_the_whole_gives(
    slack: int, name: str, position: Callable[[Shape], Position], padding: tuple[int, int]
) -> None:
    decode = Decode(made(MAKERS[name], causal=True), made(position, causal=True), padding)
    for length in (11, 1, 1, 9, 1, 13, *[1] * 12):
        decode.step(length)
    assert isinstance(decode.state, LatestKeyValues) and decode.state.keys is not None
    kept = decode.mixer.window + slack + (decode.mixer.global_tokens and decode.mixer.global_tokens + max(padding))
    assert decode.state.forgotten and decode.state.length <= 2 * kept and decode.state.keys.shape[1] <= 4 * kept
    for rows in ([1, 0], [1, 1]):
        decode.reorder(rows)
        for _ in range(8):
            decode.step(1)


@torch.no_grad()
def test_tokens_are_taken_back_as_far_as_promised(slack: int) -> None:
    decode = Decode(made(MAKERS["global"], causal=True), made(Rotary, causal=True))
    decode.step(40)  # after this all but the latest is forgotten
    for count in (slack, 1):
        decode.step(1)
        decode.rewind(count)
        decode.step(count)
    for _ in range(30):
        decode.step(3)
        decode.rewind(2)
    decode = Decode(made(WINDOW, causal=True), made(Rotary, causal=True))
    decode.step(40)
    with pytest.raises(
        ValueError, match=r"SlidingWindow can take back its last 4 tokens, but 5 .* set `task.proposals` to at most 4"
    ):
        decode.rewind(5)
    decode.rewind(4)
    decode.step(2)


@torch.no_grad()
def test_a_long_prompt_leaves_a_small_state() -> None:
    decode = Decode(made(WINDOW, causal=True), made(NoPosition))
    decode.step(3000)
    assert isinstance(decode.state, LatestKeyValues) and decode.state.keys is not None
    assert decode.state.keys.shape[1] < 100
    decode.step(1)
