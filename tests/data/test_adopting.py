"""A tokenizer from elsewhere: taken where the user's keys ask for nothing else, refused where they do."""

from pathlib import Path
from typing import Any

import pytest

from polyformer.data import LabelledData, PairData, PairTokenizerSettings, SpelledNumbers
from polyformer.text import Tokenizer, TokenizerSettings, train_tokenizer

TEXTS = ["the cat sat on the mat", "the dog ran", "A CAT RAN"]


def made(**settings: Any) -> Tokenizer:
    return train_tokenizer(TEXTS, TokenizerSettings(**{"min_frequency": 1, **settings}), progress=False)


def labelled(**settings: Any) -> LabelledData:
    return LabelledData("a.tsv", tokenizer=TokenizerSettings(**settings))


@pytest.mark.parametrize(
    ("own", "given"),
    [
        ({"kind": "word"}, {}),
        ({"kind": "word"}, {"kind": "word", "min_frequency": 3}),
        ({"kind": "word"}, {"vocab_size": 9000}),  # of a small text fewer are made
        ({"kind": "word", "lowercase": True}, {}),
        ({"kind": "word", "lowercase": True}, {"lowercase": True}),
        ({"kind": "byte"}, {"kind": "byte", "vocab_size": 20}),  # which bytes ignore
    ],
)
def test_what_may_be_the_same_is_taken(own: dict[str, Any], given: dict[str, Any]) -> None:
    data, tokenizer = labelled(**given), made(**own)
    for _ in range(2):  # as where a run is resumed
        data.adopt(tokenizer)
        assert Tokenizer.load(str(data.tokenizer.path)).fingerprint == tokenizer.fingerprint


@pytest.mark.parametrize(
    ("own", "given", "message"),
    [
        ({"kind": "word"}, {"kind": "character"}, r"`data\.tokenizer\.kind` is character, but .*, which is word: leave"),
        ({"kind": "word"}, {"lowercase": True}, r"`data\.tokenizer\.lowercase` is True, but .*, which keeps capitals: leave"),
        ({"kind": "word"}, {"vocab_size": 9}, r"`data\.tokenizer\.vocab_size` is 9, but .*, which has 14 tokens: leave"),
    ],
)
def test_what_cannot_be_the_same_is_refused(own: dict[str, Any], given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        labelled(**given).adopt(made(**own))


def test_what_a_class_has_by_itself_is_no_wish_of_the_user() -> None:
    SpelledNumbers().adopt(made(kind="word"))
    with pytest.raises(ValueError, match=r"`data\.tokenizer\.kind` is bpe, but"):
        SpelledNumbers(tokenizer=PairTokenizerSettings(kind="bpe")).adopt(made(kind="word"))


def test_the_keys_are_about_the_target_where_the_source_comes_from_elsewhere(tmp_path: Path) -> None:
    for side in ("en", "de"):
        (tmp_path / f"a.{side}").write_text("".join(f"{text} {side}\n" for text in TEXTS))
    settings = PairTokenizerSettings(kind="character", joint=False, min_frequency=1)
    data = PairData([str(tmp_path / "a.en"), str(tmp_path / "a.de")], tokenizer=settings)
    data.adopt(made(kind="word"))
    assert [data.assets.tokenizers[side].kind for side in ("source", "target")] == ["word", "character"]
    other = PairData([str(tmp_path / "a.en"), str(tmp_path / "a.de")], tokenizer=settings)
    with pytest.raises(ValueError, match=r"`data\.tokenizer\.kind` is character, but"):
        other.adopt(made(kind="word"), made(kind="word"))
