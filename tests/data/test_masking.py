"""Masking: what a word is, the shares of the paper, and where texts are cut."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from polyformer.data.masking import ending_of, mask_words, pieces_of, split_in_two, word_starts
from polyformer.text import PAD, SPECIALS, Tokenizer, TokenizerSettings, train_tokenizer

TEXTS = ["the lowest of the towers is wider than newer ones, and the widest is lower", "你好吗 so the tower is 新的", "don't"]


def tokenizer_of(kind: str, texts: list[str] = TEXTS * 3) -> Tokenizer:
    settings = TokenizerSettings(kind=kind, vocab_size=330, min_frequency=1)  # type: ignore[arg-type]
    return train_tokenizer(texts, settings, progress=False)


def words_of(tokenizer: Tokenizer, text: str) -> list[str]:
    ids = np.array(tokenizer.encode(text))
    parts = np.split(ids, np.flatnonzero(word_starts(ids, tokenizer.word_edges))[1:])
    return [tokenizer.decode(part.tolist()) for part in parts]


def rows(count: int, starts_share: float, seed: int = 0) -> Iterator[tuple[Any, Any, Any]]:
    """Random texts: ids, where words begin in them, and a source of chance for each."""
    chance = np.random.default_rng(seed)
    for number in range(count):
        length = int(chance.integers(1, 90))
        starts = chance.random(length) < starts_share
        starts[0] = True
        yield chance.integers(len(SPECIALS), 1000, length), starts, np.random.default_rng([seed, number])


# ---- words


@pytest.mark.parametrize("kind", ["bpe", "byte_bpe", "unigram", "character", "byte"])
def test_words_carry_their_space_and_characters_of_chinese_are_words(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    assert [word.strip() for word in words_of(tokenizer, "the lowest, don't")] == ["the", "lowest,", "don't"]
    words = [word.strip() for word in words_of(tokenizer, "好 tower新a")]
    in_bytes = kind in ("byte_bpe", "byte")  # where the end of a character cannot be seen
    assert words == ["好", "tower", *(["新a"] if in_bytes else ["新", "a"])]


def test_characters_that_are_cut_into_bytes_stay_whole() -> None:
    tokenizer = tokenizer_of("bpe", ["the tower"] * 3)
    assert words_of(tokenizer, "你好 \u0142\u0142 a") == ["你", "好", "\u0142\u0142", "a"]


@pytest.mark.parametrize("kind", ["word", "word_punctuation", "wordpiece"])
def test_words_of_other_kinds(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    assert words_of(tokenizer, "the lowest tower") == ["the", "lowest", "tower"]


def test_a_long_run_without_spaces_is_not_one_word() -> None:
    tokenizer = tokenizer_of("character")
    assert len(words_of(tokenizer, "the " + "lowest" * 9 + " tower")) == 1 + 55 + 1


@pytest.mark.parametrize("kind", ["bpe", "byte_bpe", "unigram", "wordpiece", "word", "word_punctuation", "character", "byte"])
def test_a_text_that_goes_on_has_the_tokens_of_the_whole(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    for first, second in (("the lowest", " tower is"), ("the", ""), ("你好", " tower")):
        assert [*tokenizer.encode(first), *tokenizer.encode_onward(second)] == tokenizer.encode(first + second)
    if kind not in ("word", "word_punctuation"):
        assert tokenizer.decode([*tokenizer.encode("tower"), *tokenizer.encode_onward("s,")]) == "towers,"


# ---- masking


@pytest.mark.parametrize("starts_share", [1.0, 0.6, 0.3])
@pytest.mark.parametrize("share", [0.15, 0.4])
def test_shares_are_those_of_the_paper(starts_share: float, share: float) -> None:
    counts = np.zeros(5)
    for ids, starts, generator in rows(3000, starts_share):
        read, target = mask_words(ids, starts, share, 1000, generator)
        chosen = target != PAD
        hidden, same = read == PAD, read == ids
        counts += [len(ids), chosen.sum(), hidden.sum(), (chosen & ~hidden & ~same).sum(), (chosen & same).sum()]
        assert np.array_equal(target[chosen], ids[chosen]) and bool(same[~chosen].all())
    assert counts[1] / counts[0] == pytest.approx(share, abs=0.012)
    assert counts[2:] / counts[1] == pytest.approx([0.8, 0.1, 0.1], abs=0.015)


@pytest.mark.parametrize("starts_share", [1.0, 0.5, 0.1])
def test_as_many_tokens_as_whole_words_allow(starts_share: float) -> None:
    for ids, starts, generator in rows(500, starts_share):
        _, target = mask_words(ids, starts, 0.15, 1000, generator)
        longest = int(np.bincount(np.cumsum(starts)).max())
        count = int((target != PAD).sum())
        assert count >= 1 and (abs(count - 0.15 * len(ids)) <= 0.5 + longest / 2 or count <= longest)


def test_the_tokens_of_a_word_have_one_fate() -> None:
    for ids, starts, generator in rows(300, 0.4):
        read, target = mask_words(ids, starts, 0.3, 1000, generator)
        fates = np.where(target == PAD, 0, np.where(read == PAD, 1, 2 + (read == ids)))  # a swapped token may stay by chance
        for word in np.split(fates, np.flatnonzero(starts)[1:]):
            assert len(set(word.tolist()) - {3}) <= 1 or set(word.tolist()) == {2, 3}


def test_other_tokens_are_never_special_ones() -> None:
    for ids, starts, generator in rows(500, 1.0):
        read, _ = mask_words(ids, starts, 0.9, 6, generator)
        assert set(read.tolist()) <= {PAD, 4, 5, *ids.tolist()}


# ---- cutting


@pytest.mark.parametrize("most", [1, 2, 7, 30])
def test_pieces_are_the_text_and_of_one_length(most: int) -> None:
    for ids, starts, _ in rows(100, 0.5):
        pieces = list(pieces_of(ids.tolist(), starts, most))
        assert [token for piece, _ in pieces for token in piece] == ids.tolist()
        assert np.array_equal(np.concatenate([begins for _, begins in pieces]), starts)
        lengths = [len(piece) for piece, _ in pieces]
        assert max(lengths) <= most
        longest = int(np.bincount(np.cumsum(starts)).max())
        assert all(bool(begins[0]) for _, begins in pieces) or longest > most // 2
        assert most < 30 or len(lengths) < 2 or min(lengths) > most // 2 - 2 * longest


def test_halves_and_endings_begin_with_a_word() -> None:
    for ids, starts, _ in rows(200, 0.5):
        first, second = split_in_two(ids.tolist(), starts)
        assert [*first, *second] == ids.tolist() and len(first) >= 1
        if starts[1:].any():
            assert bool(starts[len(first)])
        edges = (bytes(int(token % 2) for token in range(1000)), bytes(1000))
        ending = ending_of(ids.tolist(), 20, edges)
        assert len(ending) <= 20 and ids.tolist()[-len(ending) :] == list(ending)
        assert len(ending) == min(len(ids), 20) or ending[0] % 2
