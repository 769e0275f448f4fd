"""The language model: packed documents, writing step by step, sliding, regularisation, recomputation."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from polyformer.models import DecoderOnly, DecoderOnlyOptions, Placement
from polyformer.nn import Learned, NoPosition, Relative, Rotary, Sinusoidal

from ..equivalence.cases import close, shake

POSITIONS = [NoPosition, Sinusoidal, Learned, Relative, Rotary]
OPTIONS = DecoderOnlyOptions(d_model=8, num_heads=2, num_layers=2, max_length=10, dropout=0.0)
over_positions = pytest.mark.parametrize("position", POSITIONS, ids=lambda kind: kind.__name__)


def model(position: Any = Sinusoidal, **options: Any) -> DecoderOnly:
    made = DecoderOnly(11, replace(OPTIONS, position=position, **options)).eval()
    shake(made)
    return made


def packed(documents: list[Tensor]) -> tuple[Tensor, Placement]:
    """Documents side by side in one row, and where they are."""
    tokens = torch.cat(documents).unsqueeze(0)
    at = torch.cat([torch.arange(len(document)) for document in documents]).unsqueeze(0)
    number = torch.cat([torch.full((len(document),), place) for place, document in enumerate(documents)]).unsqueeze(0)
    return tokens, Placement(at=at, document=number)


@over_positions
def test_packed_documents_equal_separate_ones_in_logits_and_gradients(position: Any) -> None:
    made = model(position)
    documents = [torch.randint(4, 11, (length,)) for length in (3, 1, 4, 2)]
    apart = torch.cat([made(document.unsqueeze(0)) for document in documents], dim=1)
    weights = torch.randn_like(apart)
    (apart * weights).sum().backward()
    expected = {name: parameter.grad for name, parameter in made.named_parameters()}
    made.zero_grad()
    tokens, placement = packed(documents)
    together = made(tokens, placement)
    close(together, apart)
    (together * weights).sum().backward()
    for name, parameter in made.named_parameters():
        if expected[name] is not None:
            close(parameter.grad, expected[name], name)


@over_positions
def test_a_packed_document_does_not_see_its_neighbours(position: Any) -> None:
    made = model(position)
    documents = [torch.randint(4, 11, (4,)) for _ in range(2)]
    before = made(*packed(documents))[:, 4:]
    documents[0] = (documents[0] - 3) % 7 + 4
    assert torch.equal(made(*packed(documents))[:, 4:], before)


@over_positions
@torch.no_grad()
def test_writing_is_recomputing_past_the_context_too(position: Any) -> None:
    made = model(position)
    text = torch.randint(4, 11, (1, 37))
    writing = made.start()
    for length in range(1, 38):
        stepped = writing.step(text[:, length - 1 : length])
        close(stepped, made.start().step(text[:, :length]), f"{length} tokens")
    plain = made.logits(made(text[:, :10]))[:, -1]
    close(made.start().step(text[:, :10]), plain)


@torch.no_grad()
def test_a_text_beyond_the_context_is_seen_from_a_multiple_of_half_of_it() -> None:
    made = model()
    text = torch.randint(4, 11, (1, 23))
    for length, begin in ((10, 0), (11, 5), (15, 5), (16, 10), (23, 15)):
        seen = made.logits(made(text[:, begin:length]))[:, -1]
        close(made.start().step(text[:, :length]), seen, f"{length} tokens")


@over_positions
@torch.no_grad()
def test_ragged_prompts_in_a_batch_equal_single_ones(position: Any) -> None:
    made = model(position)
    text, lengths = torch.randint(4, 11, (4, 40)), [3, 9, 1, 12]
    longest = max(lengths)
    padding = [longest - length for length in lengths]
    prompts = torch.stack(
        [torch.cat((torch.zeros(gap, dtype=torch.long), row[: longest - gap])) for gap, row in zip(padding, text, strict=True)]
    )
    together, alone = made.start(padding), [made.start() for _ in lengths]
    rows = list(range(4))
    close(together.step(prompts), torch.cat([alone[row].step(text[row : row + 1, : lengths[row]]) for row in rows]))
    for step in range(20):
        if step in (4, 9):  # rows end, and others change places
            kept = torch.tensor([2, 0, 1] if step == 4 else [1, 0])
            rows = [rows[place] for place in kept.tolist()]
            together.reorder(kept)
        new = torch.stack([text[row, lengths[row] + step] for row in rows]).unsqueeze(1)
        close(together.step(new), torch.cat([alone[row].step(new[place : place + 1]) for place, row in enumerate(rows)]))


@over_positions
@torch.no_grad()
def test_tokens_taken_back_leave_no_trace(position: Any) -> None:
    made = model(position, max_length=32)
    text = torch.randint(4, 11, (1, 20))
    writing = made.start()
    writing.step(text[:, :5])
    writing.step_all(torch.randint(4, 11, (1, 6)))
    writing.rewind(6)
    every = writing.step_all(text[:, 5:12])
    close(every, made.logits(made(text[:, :12]))[:, 5:])


def test_recomputed_blocks_give_the_same_loss_and_gradients() -> None:
    """With dropout too: the random numbers are drawn alike in the second pass."""
    results = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        made = DecoderOnly(11, replace(OPTIONS, dropout=0.3, checkpointing=checkpointing)).train()
        hidden = made(torch.arange(4, 11).unsqueeze(0))
        hidden.square().sum().backward()
        results.append([hidden, *(parameter.grad for parameter in made.parameters())])
    for plain, recomputed in zip(*results, strict=True):
        assert torch.equal(plain, recomputed)


def test_a_dropped_word_is_dropped_wherever_it_stands() -> None:
    made = DecoderOnly(1000, replace(OPTIONS, word_dropout=0.4)).train()
    tokens = torch.arange(1000).repeat(2).unsqueeze(0)
    embedded = made.embedding(tokens).view(2, 1000, -1)
    assert torch.equal(embedded[0], embedded[1])
    dropped = (embedded[0] == 0).all(dim=-1)
    assert 0.3 < dropped.float().mean() < 0.5
    made.eval()
    scale = embedded[0][~dropped] / made.embedding(tokens[:, :1000])[0][~dropped]
    torch.testing.assert_close(scale, torch.full_like(scale, 1 / 0.6), rtol=1e-4, atol=0.0)


@pytest.mark.parametrize("option", ["embedding_dropout", "output_dropout", "word_dropout", "dropout"])
def test_every_dropout_acts_while_training_only(option: str) -> None:
    made = DecoderOnly(11, replace(OPTIONS, embedding_dropout=0.0) if option != "embedding_dropout" else OPTIONS)
    made = DecoderOnly(11, replace(made.stack.options, **{option: 0.5}))
    tokens = torch.randint(4, 11, (2, 8))
    assert not torch.equal(made(tokens), made(tokens))
    made.eval()
    assert torch.equal(made(tokens), made(tokens))


@pytest.mark.parametrize("tied", [True, False])
def test_the_output_layer_is_the_embedding_if_tied(tied: bool) -> None:
    made = model(tied=tied)
    assert (made.output_weight is made.embedding.table) == tied
