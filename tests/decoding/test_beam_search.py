"""Beam search against a greedy loop, against all texts there are, and against itself in other batches."""

from typing import Any

import pytest
import torch

from polyformer.decoding import Hypothesis, Search, Symbols, beam_search

from .toys import BEGIN, END, SYMBOLS, VOCABULARY, Ending, Toy, beam_by_hand, everything, greedy, log_probability

seeds = pytest.mark.parametrize("seed", range(5))
penalties = pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])


def search(toy: Toy, max_lengths: list[int], symbols: Symbols = SYMBOLS, **settings: Any) -> list[list[Hypothesis]]:
    return beam_search(toy, torch.tensor(max_lengths), Search(**settings), symbols)


def same(one: Hypothesis, other: Hypothesis) -> bool:
    scores = (one.log_probability, one.score) == pytest.approx((other.log_probability, other.score), abs=1e-4)
    return one.tokens == other.tokens and bool(scores)


@seeds
@pytest.mark.parametrize("max_length", [1, 2, 6, 15])
def test_a_beam_of_one_is_greedy(seed: int, max_length: int) -> None:
    names = list(range(6))
    found = search(Toy(names, seed), [max_length] * 6, beam=1)
    for name, (best,) in zip(names, found, strict=True):
        assert best.tokens == greedy(Toy([], seed), name, max_length)


@seeds
@penalties
@pytest.mark.parametrize("max_length", [1, 2, 4])
def test_a_beam_that_holds_everything_finds_everything(seed: int, alpha: float, max_length: int) -> None:
    count = sum(3**length for length in range(max_length))
    found = search(Toy([0, 1], seed), [max_length] * 2, beam=count, n_best=count, length_penalty=alpha)
    for name in (0, 1):
        expected = everything(Toy([], seed), name, max_length, alpha)
        assert len(expected) == len(found[name]) == count
        for hypothesis, (score, value, tokens) in zip(found[name], expected, strict=True):
            assert same(hypothesis, Hypothesis(tokens, value, score))


@seeds
@penalties
@pytest.mark.parametrize("beam", [1, 2, 3, 4, 7])
def test_every_beam_equals_a_search_by_hand(seed: int, alpha: float, beam: int) -> None:
    names, max_lengths = list(range(5)), [8, 3, 5, 1, 8]
    found = search(Toy(names, seed), max_lengths, beam=beam, n_best=beam, length_penalty=alpha)
    for name, longest, hypotheses in zip(names, max_lengths, found, strict=True):
        expected = beam_by_hand(Toy([], seed), name, longest, beam, alpha)
        assert [hypothesis.tokens for hypothesis in hypotheses] == expected


@seeds
@penalties
@pytest.mark.parametrize("beam", [1, 2, 3, 5, 8])
def test_scores_are_those_of_rescoring(seed: int, alpha: float, beam: int) -> None:
    names = [3, 1, 2]
    for name, hypotheses in zip(
        names, search(Toy(names, seed), [7, 5, 3], beam=beam, n_best=beam, length_penalty=alpha), strict=True
    ):
        assert 1 <= len(hypotheses) <= beam
        for hypothesis in hypotheses:
            value = log_probability(Toy([], seed), name, hypothesis.tokens)
            length = len(hypothesis.tokens) + 1
            assert same(hypothesis, Hypothesis(hypothesis.tokens, value, value / ((5 + length) / 6) ** alpha))
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        assert len({tuple(h.tokens) for h in hypotheses}) == len(hypotheses), "no text is found twice"


@seeds
@pytest.mark.parametrize("beam", [2, 3, 5])
def test_a_wider_request_never_changes_the_top(seed: int, beam: int) -> None:
    names = [0, 1, 2]
    widest = search(Toy(names, seed), [6, 9, 4], beam=beam, n_best=beam)
    for n_best in range(1, beam):
        fewer = search(Toy(names, seed), [6, 9, 4], beam=beam, n_best=n_best)
        assert fewer == [hypotheses[:n_best] for hypotheses in widest]


@seeds
@pytest.mark.parametrize("beam", [1, 2, 4])
def test_batch_mates_never_change_a_result(seed: int, beam: int) -> None:
    lengths = {name: 2 + name for name in range(6)}
    alone = {name: search(Toy([name], seed), [lengths[name]], beam=beam, n_best=beam)[0] for name in lengths}
    for names in ([0, 1, 2, 3, 4, 5], [5, 3, 1, 0, 2, 4], [4, 4, 0], [2, 5]):
        together = search(Toy(names, seed), [lengths[name] for name in names], beam=beam, n_best=beam)
        assert together == [alone[name] for name in names]


@seeds
@pytest.mark.parametrize("beam", [1, 2, 4, 30])
@pytest.mark.parametrize("max_lengths", [[1, 1], [1, 5], [2, 7, 1], [12]])
def test_no_text_is_longer_than_allowed(seed: int, beam: int, max_lengths: list[int]) -> None:
    toy = Toy(list(range(len(max_lengths))), seed)
    found = search(toy, max_lengths, beam=beam, n_best=beam)
    for hypotheses, longest in zip(found, max_lengths, strict=True):
        assert hypotheses and all(len(hypothesis.tokens) + 1 <= longest for hypothesis in hypotheses)
    assert len(toy.widths) <= max(max_lengths), "no step is made beyond the longest text"


@pytest.mark.parametrize("beam", [1, 3])
def test_a_text_that_would_never_end_is_as_long_as_allowed(beam: int) -> None:
    toy = Ending([99, 99])
    found = search(toy, [3, 6], beam=beam)
    assert [len(hypotheses[0].tokens) + 1 for hypotheses in found] == [3, 6]
    assert len(toy.widths) == 6
    assert found[0][0].log_probability == pytest.approx(log_probability(Ending([]), 99, found[0][0].tokens), abs=1e-3)


@seeds
@pytest.mark.parametrize("beam", [1, 3, 20])
@pytest.mark.parametrize("never", [(BEGIN,), (BEGIN, 3), (BEGIN, 2, 3), ()])
def test_forbidden_tokens_never_come(seed: int, beam: int, never: tuple[int, ...]) -> None:
    found = search(Toy([0, 1, 2], seed), [5] * 3, Symbols(BEGIN, END, never), beam=beam, n_best=beam)
    written = {token for hypotheses in found for hypothesis in hypotheses for token in hypothesis.tokens}
    assert not written & {END, *never}
    if beam == 20:
        assert written == set(range(VOCABULARY)) - {END, *never}, "all others come"


def test_a_text_that_may_not_end_is_ended_at_its_longest() -> None:
    """To forbid the end is to ask for a text of exactly the longest length."""
    for hypotheses in search(Toy([0, 1]), [4, 2], Symbols(BEGIN, END, (BEGIN, END)), beam=3, n_best=3):
        assert len({len(hypothesis.tokens) for hypothesis in hypotheses}) == 1
        assert len(hypotheses[0].tokens) in (1, 3)


@pytest.mark.parametrize("beam", [1, 2, 3])
def test_finished_sentences_leave_and_prefixes_are_not_read_again(beam: int) -> None:
    toy = Ending([1, 4, 2])
    found = search(toy, [10] * 3, beam=beam)
    assert set(toy.lengths) == {1}, "a step gets the newest token only"
    assert [len(hypotheses[0].tokens) for hypotheses in found] == [1, 4, 2]
    rows = [3] + [beam * open_sentences for open_sentences in (3, 2, 1, 1)]
    assert toy.widths == rows


def test_greedy_search_moves_no_rows_while_nobody_leaves() -> None:
    toy = Ending([4, 4])
    search(toy, [10, 10], beam=1)
    assert toy.reordered == 0 and len(toy.widths) == 5


def test_nothing_to_search_is_no_work() -> None:
    toy = Toy([])
    assert beam_search(toy, torch.empty(0, dtype=torch.long), Search(), SYMBOLS) == []
    assert toy.widths == []


def test_the_length_penalty_is_that_of_wu() -> None:
    """((5 + 4) / 6)^0.5 = 1.5^0.5, and alpha 0 divides by 1."""
    assert Search(length_penalty=0.5).penalty(4) == pytest.approx(1.5**0.5)
    assert Search(length_penalty=0.0).penalty(40) == 1.0
    assert Search(length_penalty=2.0).penalty(1) == 1.0


def test_longest_texts_follow_the_source() -> None:
    lengths = Search(max_ratio=1.5, max_extra=3).max_lengths(torch.tensor([0, 1, 4, 5]))
    assert lengths.tolist() == [3, 4, 9, 10] and lengths.dtype is torch.long


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beam": 0}, r"`beam` must be at least 1, but is 0"),
        ({"beam": -3}, r"`beam` must be at least 1, but is -3"),
        ({"beam": 2, "n_best": 3}, r"`n_best` must be from 1 to `beam` \(2\), but is 3"),
        ({"n_best": 0}, r"`n_best` must be from 1 to `beam` \(5\), but is 0"),
        ({"max_ratio": -1.0}, r"`max_ratio` must not be negative, but is -1.0"),
        ({"max_extra": -1}, r"`max_extra` must not be negative, but is -1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Search(**settings)


def test_no_gradient_is_kept() -> None:
    class Learning(Toy):
        def step(self, tokens: torch.Tensor) -> torch.Tensor:
            assert not torch.is_grad_enabled()
            return super().step(tokens)

    assert search(Learning([0]), [4], beam=2)


class Sure:
    """A model that is sure of one text; what it holds possible besides is to end too early."""

    text = (2, 3, 4, 2, 3, 4, END)

    def __init__(self) -> None:
        self.length = 0

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = torch.full((len(tokens), VOCABULARY), -20.0)
        logits[:, END] = -8.0
        logits[:, self.text[min(self.length, 6)]] = 0.0
        self.length += 1
        return logits

    def reorder(self, rows: torch.Tensor) -> None:
        """Every row is alike."""


@pytest.mark.parametrize("beam", [1, 2, 3, 5])
def test_bad_early_ends_do_not_crowd_out_the_right_one(beam: int) -> None:
    """Five ends, each hopeless, come before the right text is written."""
    found = beam_search(Sure(), torch.tensor([20]), Search(beam=beam), SYMBOLS)
    assert found[0][0].tokens == list(Sure.text[:-1])
