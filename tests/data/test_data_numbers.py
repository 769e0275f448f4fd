"""Numbers in words."""

import pytest

from polyformer.data import SpelledNumbers, number_pairs, spell

TABLE = [
    (0, "zero", "null", "\u96f6"),
    (1, "one", "eins", "\u4e00"),
    (2, "two", "zwei", "\u4e8c"),
    (10, "ten", "zehn", "\u5341"),
    (12, "twelve", "zw\u00f6lf", "\u5341\u4e8c"),
    (16, "sixteen", "sechzehn", "\u5341\u516d"),
    (17, "seventeen", "siebzehn", "\u5341\u4e03"),
    (20, "twenty", "zwanzig", "\u4e8c\u5341"),
    (21, "twenty-one", "einundzwanzig", "\u4e8c\u5341\u4e00"),
    (34, "thirty-four", "vierunddrei\u00dfig", "\u4e09\u5341\u56db"),
    (70, "seventy", "siebzig", "\u4e03\u5341"),
    (101, "one hundred one", "einhunderteins", "\u4e00\u767e\u96f6\u4e00"),
    (105, "one hundred five", "einhundertf\u00fcnf", "\u4e00\u767e\u96f6\u4e94"),
    (110, "one hundred ten", "einhundertzehn", "\u4e00\u767e\u4e00\u5341"),
    (200, "two hundred", "zweihundert", "\u4e8c\u767e"),
    (1001, "one thousand one", "eintausendeins", "\u4e00\u5343\u96f6\u4e00"),
    (1010, "one thousand ten", "eintausendzehn", "\u4e00\u5343\u96f6\u4e00\u5341"),
    (1101, "one thousand one hundred one", "eintausendeinhunderteins", "\u4e00\u5343\u4e00\u767e\u96f6\u4e00"),
    (2002, "two thousand two", "zweitausendzwei", "\u4e24\u5343\u96f6\u4e8c"),
    (10_500, "ten thousand five hundred", "zehntausendf\u00fcnfhundert", "\u4e00\u4e07\u96f6\u4e94\u767e"),
    (12_000, "twelve thousand", "zw\u00f6lftausend", "\u4e00\u4e07\u4e8c\u5343"),
    (20_000, "twenty thousand", "zwanzigtausend", "\u4e24\u4e07"),
    (22_000, "twenty-two thousand", "zweiundzwanzigtausend", "\u4e24\u4e07\u4e8c\u5343"),
    (100_000, "one hundred thousand", "einhunderttausend", "\u5341\u4e07"),
    (101_000, "one hundred one thousand", "einhunderteintausend", "\u5341\u4e07\u4e00\u5343"),
    (
        121_021,
        "one hundred twenty-one thousand twenty-one",
        "einhunderteinundzwanzigtausendeinundzwanzig",
        "\u5341\u4e8c\u4e07\u4e00\u5343\u96f6\u4e8c\u5341\u4e00",
    ),
    (200_000, "two hundred thousand", "zweihunderttausend", "\u4e8c\u5341\u4e07"),
]


@pytest.mark.parametrize(("number", "english", "german", "chinese"), TABLE)
def test_known_spellings(number: int, english: str, german: str, chinese: str) -> None:
    assert (spell(number, "english"), spell(number, "german"), spell(number, "chinese")) == (english, german, chinese)


@pytest.mark.parametrize("language", ["english", "german", "chinese"])
def test_no_two_numbers_are_spelled_alike(language: str) -> None:
    numbers = [*range(20_000), *range(20_000, 1_000_000, 997)]
    assert len({spell(number, language) for number in numbers}) == len(numbers)  # type: ignore[arg-type]


def test_splits_share_no_number() -> None:
    splits = [{row["source"] for row in number_pairs(name, "german", 100, 1000, 3)} for name in ("train", "validation", "test")]
    assert [len(split) for split in splits] == [100, 100, 100]
    assert len(set.union(*splits)) == 300
    assert list(number_pairs("train", "chinese", 5, 100, 0)) == list(number_pairs("train", "chinese", 5, 100, 0))


def test_user_faults_are_named() -> None:
    with pytest.raises(ValueError, match="must be between 0 and 999,999, but is 1,000,000"):
        spell(1_000_000, "german")
    with pytest.raises(ValueError, match="`language` must be one of english, german, chinese, but is 'french'"):
        spell(1, "french")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="90 train numbers are wanted, but a `limit` of 100 leaves 80"):
        list(number_pairs("train", "german", 90, 100, 0))
    with pytest.raises(ValueError, match="`limit` must be between 10 and 1,000,000, but is 5"):
        list(number_pairs("train", "german", 1, 5, 0))


def test_the_data_module_needs_no_file() -> None:
    data = SpelledNumbers("chinese", train_count=200, evaluation_count=20, limit=1000)
    data.prepare_data()
    assert [len(data.dataset(split)) for split in ("train", "validation", "test")] == [200, 20, 20]
    (batch,) = data.test_dataloader()
    assert data.assets.tokenizers["target"].decode_batch(batch.target.tolist()) == batch.target_text
