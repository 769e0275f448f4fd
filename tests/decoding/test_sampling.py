"""The distribution that tokens are drawn from, the draws, and writing with them."""

from collections import Counter
from dataclasses import replace

import pytest
import torch

from polyformer.decoding import Sampling, Written, generate, pad_left, probabilities
from polyformer.decoding.sampling import Chances, pick, repeated

from .toys import END, SYMBOLS, Toy

LOGITS = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(), [0.5, 0.3, 0.15, 0.05]),
        (Sampling(temperature=0.0), [1.0, 0.0, 0.0, 0.0]),
        (Sampling(temperature=0.5), [0.25 / 0.365, 0.09 / 0.365, 0.0225 / 0.365, 0.0025 / 0.365]),
        (Sampling(top_k=1), [1.0, 0.0, 0.0, 0.0]),
        (Sampling(top_k=3), [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0.0]),
        (Sampling(top_k=99), [0.5, 0.3, 0.15, 0.05]),
        (Sampling(top_p=0.5), [1.0, 0.0, 0.0, 0.0]),
        (Sampling(top_p=0.51), [0.625, 0.375, 0.0, 0.0]),
        (Sampling(top_p=1e-9), [1.0, 0.0, 0.0, 0.0]),
        (Sampling(min_p=0.29), [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0.0]),
        (Sampling(min_p=0.31), [0.625, 0.375, 0.0, 0.0]),
        (Sampling(top_k=3, top_p=0.6), [0.625, 0.375, 0.0, 0.0]),
    ],
    ids=str,
)
def test_the_distribution_is_cut_as_the_papers_say(sampling: Sampling, expected: list[float]) -> None:
    order = torch.tensor([2, 0, 3, 1])
    shares = probabilities(LOGITS[:, order], sampling)
    torch.testing.assert_close(shares, torch.tensor([expected]).double()[:, order], rtol=1e-5, atol=1e-7)


def test_the_repetition_penalty_pushes_seen_tokens_down() -> None:
    logits, seen = torch.tensor([[2.0, -2.0, 2.0, -2.0]]), torch.tensor([[True, True, False, False]])
    assert repeated(logits, seen, 4.0).tolist() == [[0.5, -8.0, 2.0, -2.0]]


@pytest.mark.parametrize(
    "wrong",
    [{"temperature": -1.0}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.1}, {"min_p": 1.0}, {"repetition_penalty": 0.0},
     {"max_tokens": 0}, {"stop": ("",)}, {"samples": 0}, {"seed": -1}],
    ids=str,
)  # fmt: skip
def test_senseless_settings_are_named(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"`sampling.{next(iter(wrong))}` must be"):
        Sampling(**wrong)  # type: ignore[arg-type]


def test_draws_have_the_distribution() -> None:
    """A chi-square statistic of 4,000 draws over 4 tokens stays below its 99.99th percentile, 21.1."""
    shares, chances = probabilities(LOGITS, Sampling()), Chances(1, [(0, 0)])
    counts = Counter(int(pick(shares, chances.draw([0]))) for _ in range(4_000))
    expected = (shares[0] * 4_000).tolist()
    assert sum((counts[token] - wanted) ** 2 / wanted for token, wanted in enumerate(expected)) < 21.1


def test_what_has_no_share_is_never_drawn() -> None:
    shares = torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0]]).double()
    assert {int(pick(shares, [chance])) for chance in (0.0, 0.25, 0.49999, 0.5, 0.75, 1.0 - 2**-53)} == {1, 3}


def write(sentences: list[int], sampling: Sampling, stop_after: int | None = None, prompt: int = 0) -> dict[int, list[Written]]:
    """What is written for each sentence of a toy."""
    toy, texts = Toy(sentences), {sentence: [] for sentence in sentences}  # type: ignore[var-annotated]
    rows = [(sentence, 0) for sentence in sentences]
    prompts, _ = pad_left([[prompt]] * len(sentences), padding=0)
    for written in generate(toy, prompts, sampling, SYMBOLS, rows, lambda row, tokens: len(tokens) == stop_after):
        texts[sentences[written.row]].append(replace(written, row=0))
    return texts


@pytest.mark.parametrize("sampling", [Sampling(max_tokens=12), Sampling(temperature=0.0, max_tokens=12),
                                      Sampling(top_p=0.8, repetition_penalty=1.5, max_tokens=12)], ids=str)  # fmt: skip
def test_mates_and_their_order_change_nothing(sampling: Sampling) -> None:
    together = write([0, 1, 2, 3, 4, 5], sampling)
    assert together == write([3, 5, 1, 0, 4, 2], sampling)
    for sentence, text in together.items():
        assert write([sentence], sampling)[sentence] == text


def test_a_seed_is_a_text_and_another_is_another() -> None:
    first, again, other = (write([1, 2], Sampling(max_tokens=30, seed=seed)) for seed in (3, 3, 4))
    assert first == again != other


def test_greedy_takes_the_likeliest_and_says_how_likely() -> None:
    text = write([7], Sampling(temperature=0.0, max_tokens=6))[7]
    toy, prefix = Toy([7]), (0,)
    for written in text:
        logits = toy.logits(7, prefix)
        allowed = logits.clone()
        allowed[0] = -torch.inf
        assert written.token == int(allowed.argmax())
        assert written.log_probability == pytest.approx(float(logits.log_softmax(-1)[written.token]), abs=1e-5)
        prefix = (*prefix, written.token)


def test_every_row_ends_once_and_begin_is_never_written() -> None:
    for stop_after in (None, 2):
        for text in write(list(range(20)), Sampling(max_tokens=5), stop_after).values():
            assert [written.is_last for written in text] == [False] * (len(text) - 1) + [True]
            assert len(text) == (stop_after or 5) or text[-1].token == END
            assert all(written.token != 0 for written in text)


def test_the_penalty_spares_the_end() -> None:
    """Every prompt of a language model begins with the end of the text before it."""
    ends = [
        write([sentence], Sampling(temperature=0.0, max_tokens=1, repetition_penalty=penalty), prompt=END)
        for sentence in range(30)
        for penalty in (1.0, 9.0)
    ]
    plain, penalized = ([text[0].token == END for found in ends[side::2] for text in found.values()] for side in (0, 1))
    assert any(plain)
    assert all(after or not before for before, after in zip(plain, penalized, strict=True))
