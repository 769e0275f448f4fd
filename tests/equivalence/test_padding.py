"""Padding, on either side and any amount of it, never changes the vectors of real tokens; neither do batch mates."""

from dataclasses import replace

import torch
from torch import Tensor

from polyformer.models import Encoder, Placement
from polyformer.nn import Memory

from .cases import D_MODEL, Case, Subject, close, over_decoders, over_encoders, over_one_norm, over_one_norm_causal

LENGTHS = (5, 3)
PADDING = 9.0  # what stands at padding must not matter, so it is something large
AMOUNTS = (0, 7, 64)


def ragged() -> list[Tensor]:
    return [torch.randn(length, D_MODEL) for length in LENGTHS]


def on_the_right(texts: list[Tensor], amount: int) -> tuple[Tensor, Placement]:
    """(B, L, D) with at least ``amount`` vectors of padding behind each text, and which are real."""
    length = max(len(text) for text in texts) + amount
    x = torch.full((len(texts), length, D_MODEL), PADDING)
    for row, text in enumerate(texts):
        x[row, : len(text)] = text
    lengths = torch.tensor([len(text) for text in texts])
    return x, Placement(torch.arange(length) < lengths.unsqueeze(1))


def on_the_left(texts: list[Tensor], amount: int) -> tuple[Tensor, Placement]:
    """The same with the padding in front, and the indices that this needs."""
    x, placement = on_the_right(texts, amount)
    assert placement.keep is not None
    x, keep = x.clone(), placement.keep.flip(1)
    for row, text in enumerate(texts):
        x[row] = PADDING
        x[row, x.shape[1] - len(text) :] = text
    return x, Placement(keep, (keep.cumsum(1) - 1).clamp(min=0))


@over_encoders
@torch.no_grad()
def test_right_and_left_padding(case: Case) -> None:
    stack, texts = case.build().stack, ragged()
    alone = [stack(text[None])[0] for text in texts]
    for amount in AMOUNTS:
        for out, exact in zip(stack(*on_the_right(texts, amount)), alone, strict=True):
            close(out[: len(exact)], exact, f"{amount} on the right")
        for out, exact in zip(stack(*on_the_left(texts, amount)), alone, strict=True):
            close(out[len(out) - len(exact) :], exact, f"{amount} on the left")


@over_encoders
@torch.no_grad()
def test_left_padding_in_cached_decoding(case: Case) -> None:
    if case.kind == "encoder":
        return
    stack, texts = case.build().stack, ragged()
    assert isinstance(stack, Encoder)
    x, placement = on_the_left(texts, 7)
    keep, state = placement.keep, stack.start()
    assert keep is not None
    stack(x, placement, state)
    new = torch.randn(len(texts), 3, D_MODEL)
    for step in range(new.shape[1]):
        keep = torch.cat((keep, torch.ones(len(texts), 1, dtype=torch.bool)), dim=1)
        out = stack(new[:, step : step + 1], Placement(keep), state)
        for row, text in enumerate(texts):
            close(out[row, 0], stack(torch.cat((text, new[row, : step + 1]))[None])[0, -1])
    state.reorder(torch.tensor([1, 0]))
    keep = torch.cat((keep.flip(0), torch.ones(len(texts), 1, dtype=torch.bool)), dim=1)
    out = stack(new[:, :1], Placement(keep), state)
    close(out[1, 0], stack(torch.cat((texts[0], new[0], new[1, :1]))[None])[0, -1])


@over_one_norm_causal
@torch.no_grad()
def test_right_padding_without_a_mask_where_nothing_looks_ahead(case: Case) -> None:
    subject, texts = case.build(), ragged()
    memory = subject.memory(len(texts))
    exact = subject(on_the_right(texts, 0)[0], memory)
    for amount in AMOUNTS[1:]:
        padded = subject(on_the_right(texts, amount)[0], memory)
        for row, text in enumerate(texts):
            close(padded[row, : len(text)], exact[row, : len(text)], f"{amount} on the right")


@over_decoders
@torch.no_grad()
def test_padding_of_the_memory(case: Case) -> None:
    subject, sources = case.build(), ragged()
    x = torch.randn(len(sources), 4, D_MODEL)
    memories = [Memory(source[None], torch.arange(len(source))) for source in sources]
    alone = torch.cat([subject(row[None], memory) for row, memory in zip(x, memories, strict=True)])
    for amount in AMOUNTS:
        keys, placement = on_the_right(sources, amount)
        check_memory(subject, x, Memory(keys, torch.arange(keys.shape[1]), placement.keep), alone)
        keys, placement = on_the_left(sources, amount)
        assert placement.at is not None
        check_memory(subject, x, Memory(keys, placement.at, placement.keep), alone)


def check_memory(subject: Subject, x: Tensor, padded: Memory, expected: Tensor) -> None:
    close(subject(x, padded), expected, "whole")
    state = subject.stack.start()
    close(torch.cat([subject(x[:, :3], padded, state), subject(x[:, 3:], padded, state)], dim=1), expected, "cached")


@over_decoders
@torch.no_grad()
def test_the_memory_matters(case: Case) -> None:
    subject = case.build()
    x, memory = torch.randn(1, 4, D_MODEL), subject.memory(1)
    assert memory is not None
    other = replace(memory, keys=memory.keys + torch.randn_like(memory.keys))
    assert not torch.allclose(subject(x, memory), subject(x, other), atol=1e-3)


@over_one_norm
@torch.no_grad()
def test_a_batch_equals_its_rows_in_any_order(case: Case) -> None:
    subject = case.build()
    x, memory, order = torch.randn(3, 5, D_MODEL), subject.memory(3), [2, 0, 1]
    whole = subject(x, memory)
    if memory is None:
        close(subject(x[order]), whole[order])
        alone = [subject(row[None])[0] for row in x]
    else:
        assert memory.keep is not None
        close(subject(x[order], replace(memory, keys=memory.keys[order], keep=memory.keep[order])), whole[order])
        rows = zip(x, memory.keys, memory.keep, strict=True)
        alone = [subject(row[None], Memory(keys[None], memory.at, keep[None]))[0] for row, keys, keep in rows]
    close(torch.stack(alone), whole)
