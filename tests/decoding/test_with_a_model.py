"""Beam search and scoring over a real encoder-decoder, whose weights are large enough that nothing ties."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from polyformer.decoding import Hypothesis, Search, Symbols, beam_search, log_probabilities
from polyformer.models import Decoder, EncoderDecoder, EncoderDecoderOptions
from polyformer.nn import Learned, NoPosition, Relative, Sinusoidal

PADDING, BEGIN, END, V = 0, 1, 2, 17
LONGEST = 9
SYMBOLS = Symbols(BEGIN, END, never=(PADDING, BEGIN))
SOURCES = [[5, 6, 7, END], [9, END], [3, 3, 11, 12, 13, END], [16, 4, END]]
over_positions = pytest.mark.parametrize("position", [NoPosition, Sinusoidal, Learned, Relative])
over_beams = pytest.mark.parametrize("beam", [1, 2, 4])


def model_with(position: type) -> EncoderDecoder:
    options = EncoderDecoderOptions(
        d_model=16,
        num_heads=2,
        encoder_layers=2,
        decoder_layers=2,
        position=position,
        cross_position=Relative,
        tied="none",
    )
    model = EncoderDecoder(V, V, options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return model.eval()


def padded(texts: list[list[int]]) -> Tensor:
    rows = [torch.tensor(text) for text in texts]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PADDING)


@torch.no_grad()
def translate(model: EncoderDecoder, sources: list[list[int]], **settings: int) -> list[list[Hypothesis]]:
    source = padded(sources)
    memory = model.encode(source, source != PADDING)
    return beam_search(model.start(memory), torch.full((len(sources),), LONGEST), Search(**settings), SYMBOLS)


@torch.no_grad()
def rescored(model: EncoderDecoder, source: list[int], hypotheses: list[Hypothesis]) -> Tensor:
    """Log-probabilities of the hypotheses by teacher forcing, in one padded batch."""
    given = padded([[BEGIN, *hypothesis.tokens] for hypothesis in hypotheses])
    wanted = padded([[*hypothesis.tokens, END] for hypothesis in hypotheses])
    hidden = model(torch.tensor([source] * len(hypotheses)), given)
    return log_probabilities(model.logits(hidden), wanted, PADDING).sum(dim=1)


@torch.no_grad()
def greedy(model: EncoderDecoder, source: list[int]) -> list[int]:
    """Without any state: the whole text goes through the model at every step."""
    tokens: list[int] = []
    while len(tokens) < LONGEST - 1:
        logits = model.logits(model(torch.tensor([source]), torch.tensor([[BEGIN, *tokens]])))[0, -1]
        logits[[PADDING, BEGIN]] = -torch.inf
        if (best := int(logits.argmax())) == END:
            break
        tokens.append(best)
    return tokens


@over_positions
def test_a_beam_of_one_is_greedy(position: type) -> None:
    model = model_with(position)
    found = translate(model, SOURCES, beam=1)
    assert [hypotheses[0].tokens for hypotheses in found] == [greedy(model, source) for source in SOURCES]
    assert any(hypotheses[0].tokens for hypotheses in found)


@over_positions
@over_beams
def test_scores_are_those_of_rescoring(position: type, beam: int) -> None:
    model = model_with(position)
    for source, hypotheses in zip(SOURCES, translate(model, SOURCES, beam=beam, n_best=beam), strict=True):
        values = torch.tensor([hypothesis.log_probability for hypothesis in hypotheses])
        torch.testing.assert_close(values, rescored(model, source, hypotheses), rtol=1e-5, atol=2e-5)


@over_positions
@over_beams
def test_batches_of_any_order_and_size_give_the_same(position: type, beam: int) -> None:
    model = model_with(position)
    alone = [translate(model, [source], beam=beam, n_best=beam)[0] for source in SOURCES]
    for order in ([0, 1, 2, 3], [2, 0, 3, 1], [3, 2], [1, 1, 2, 1]):
        together = translate(model, [SOURCES[index] for index in order], beam=beam, n_best=beam)
        for index, hypotheses in zip(order, together, strict=True):
            assert [h.tokens for h in hypotheses] == [h.tokens for h in alone[index]]
            for one, other in zip(hypotheses, alone[index], strict=True):
                assert one.score == pytest.approx(other.score, abs=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("beam", [1, 3, 40])
@pytest.mark.parametrize("longest", [1, 6])
def test_a_search_may_use_every_place_a_model_has(beam: int, longest: int) -> None:
    """The longest text is the decoder's own limit: the search must not ask for one place more."""
    model = model_with(Learned)
    options = EncoderDecoderOptions(d_model=16, num_heads=2, max_length=longest, position=Learned)
    model.decoder = Decoder(options).eval()
    source = padded(SOURCES)
    endless = replace(SYMBOLS, never=(PADDING, BEGIN, END))  # then texts end where they must
    continuation = model.start(model.encode(source, source != PADDING))
    found = beam_search(continuation, torch.full((len(SOURCES),), longest), Search(beam=beam), endless)
    assert [len(hypotheses[0].tokens) + 1 for hypotheses in found] == [longest] * len(SOURCES)


def test_a_model_answers_the_same_twice() -> None:
    model = model_with(Relative)
    assert translate(model, SOURCES, beam=3) == translate(model, SOURCES, beam=3)


def test_log_probabilities_are_minus_cross_entropy() -> None:
    logits, target = torch.randn(3, 4, V), torch.randint(1, V, (3, 4))
    target[1, 2:] = PADDING
    scores = log_probabilities(logits, target, PADDING)
    expected = -F.cross_entropy(logits.transpose(1, 2), target, ignore_index=PADDING, reduction="none")
    torch.testing.assert_close(scores, expected)
    assert bool((scores[target == PADDING] == 0).all())


def test_log_probabilities_are_blind_to_padding() -> None:
    logits, target = torch.randn(2, 3, V), torch.randint(1, V, (2, 3))
    longer, behind = torch.cat((logits, torch.randn(2, 7, V)), 1), torch.cat((target, torch.full((2, 7), PADDING)), 1)
    exact = log_probabilities(logits, target, PADDING)
    assert torch.equal(log_probabilities(longer, behind, PADDING)[:, :3], exact)
    assert float(log_probabilities(longer, behind, PADDING)[:, 3:].abs().max()) == 0.0


def test_log_probabilities_of_half_logits_are_computed_in_float32() -> None:
    logits, target = (3 * torch.randn(2, 3, V)).bfloat16(), torch.randint(1, V, (2, 3))
    scores = log_probabilities(logits, target, PADDING)
    assert scores.dtype is torch.float32
    assert torch.equal(scores, log_probabilities(logits.float(), target, PADDING))
