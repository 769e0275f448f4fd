"""Numbers spelled out in English, German and Chinese: true translations without any file."""

from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np

from polyformer.data.batches import BatchSettings
from polyformer.data.pairs import PairData, PairTokenizerSettings

__all__ = ["SpelledNumbers", "number_pairs", "spell"]

Language = Literal["english", "german", "chinese"]
LARGEST = 999_999

# fmt: off
ENGLISH = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)
ENGLISH_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
GERMAN = (
    "null", "ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf",
    "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn",
)
GERMAN_TENS = ("", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig")
# fmt: on
CHINESE = "零一二三四五六七八九"
CHINESE_PLACES = ((1000, "千"), (100, "百"), (10, "十"), (1, ""))


def spell(number: int, language: Language) -> str:
    """A whole number from 0 to 999,999 in words. Raises ValueError outside of that.

    >>> spell(1134, "english"), spell(1134, "german"), spell(1134, "chinese")
    ('one thousand one hundred thirty-four', 'eintausendeinhundertvierunddreißig', '一千一百三十四')
    """
    if language not in SPELLERS:
        raise ValueError(f"`language` must be one of {', '.join(SPELLERS)}, but is {language!r}")
    if not 0 <= number <= LARGEST:
        raise ValueError(f"a number to be spelled must be between 0 and {LARGEST:,}, but is {number:,}")
    return SPELLERS[language](number)


def _english(number: int) -> str:
    if number < 20:
        return ENGLISH[number]
    if number < 100:
        tens, rest = divmod(number, 10)
        return ENGLISH_TENS[tens] + (f"-{ENGLISH[rest]}" if rest else "")
    size, name = (1000, "thousand") if number >= 1000 else (100, "hundred")
    count, rest = divmod(number, size)
    return f"{_english(count)} {name}" + (f" {_english(rest)}" if rest else "")


def _german(number: int) -> str:
    """One ends in "eins" at the end of the number only: "einhunderteins", but "einhunderteintausend"."""
    words = _german_part(number)
    return words + "s" if number % 100 == 1 else words


def _german_part(number: int) -> str:
    if number < 20:
        return GERMAN[number]
    if number < 100:
        tens, rest = divmod(number, 10)
        return (f"{GERMAN[rest]}und" if rest else "") + GERMAN_TENS[tens]
    size, name = (1000, "tausend") if number >= 1000 else (100, "hundert")
    count, rest = divmod(number, size)
    return _german_part(count) + name + (_german_part(rest) if rest else "")


def _chinese(number: int) -> str:
    """Simplified Chinese. Two is "两" where the number begins with it before "千" or "万", and "二" everywhere else."""
    if number == 0:
        return CHINESE[0]
    thousands, rest = divmod(number, 10_000)
    words = _chinese_part(thousands) + "万" if thousands else ""
    if words and 0 < rest < 1000:
        words += CHINESE[0]
    words += _chinese_part(rest) if rest else ""
    words = words[1:] if words.startswith("一十") else words
    return "两" + words[1:] if words[:2] in ("二千", "二万") else words


def _chinese_part(number: int) -> str:
    """1 to 9999; places left out inside are one "零"."""
    words, skipped = "", False
    for size, name in CHINESE_PLACES:
        digit = number // size % 10
        if digit:
            words += (CHINESE[0] if skipped and words else "") + CHINESE[digit] + name
        skipped = not digit
    return words


def number_pairs(split: str, language: Language, count: int, limit: int, seed: int = 0) -> Iterator[dict[str, str]]:
    """`count` different numbers below `limit` as English source and target in `language`.

    The numbers below the limit are shared out by the seed: 8 of 10 may be in "train", one each in "validation" and
    "test", so that no number is in two splits. Raises ValueError when a split's share is smaller than `count`.

    >>> next(number_pairs("train", "german", count=80, limit=100, seed=0)).keys()
    dict_keys(['source', 'target'])
    """
    if not 10 <= limit <= LARGEST + 1:
        raise ValueError(f"`limit` must be between 10 and {LARGEST + 1:,}, but is {limit:,}")
    order = np.random.Generator(np.random.PCG64(seed)).permutation(limit)
    tenth = limit // 10
    share = {"validation": order[:tenth], "test": order[tenth : 2 * tenth], "train": order[2 * tenth :]}[split]
    if count > len(share):
        raise ValueError(f"{count:,} {split} numbers are wanted, but a `limit` of {limit:,} leaves {len(share):,} for it")
    for number in share[:count].tolist():
        yield {"source": spell(number, "english"), "target": spell(number, language)}


class SpelledNumbers(PairData):
    """English numbers and their German or Chinese spelling, made on the spot: a first task that needs no file.

    Args:
        language: what is translated to.
        train_count: training pairs.
        evaluation_count: pairs in validation, and in test.
        limit: numbers are below this.
        tokenizer: how text is cut into tokens.
        batches: how examples are put into batches.
    """

    def __init__(
        self,
        language: Literal["german", "chinese"] = "german",
        train_count: int = 8000,
        evaluation_count: int = 500,
        limit: int = 100_000,
        tokenizer: PairTokenizerSettings = PairTokenizerSettings(kind="character"),  # noqa: B008 - frozen
        batches: BatchSettings = BatchSettings(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(None, tokenizer=tokenizer, batches=batches)
        self.language, self.limit = language, limit
        self.counts = {"train": train_count, "validation": evaluation_count, "test": evaluation_count}

    def examples(self, split: str) -> Iterator[dict[str, str]]:
        """The pairs of a split."""
        return number_pairs(split, self.language, self.counts[split], self.limit)

    def contents(self, split: str) -> list[str]:
        """What the pairs follow from."""
        return [f"{self.counts[split]} numbers below {self.limit} in {self.language}, {split}"]


SPELLERS: dict[str, Callable[[int], str]] = {"english": _english, "german": _german, "chinese": _chinese}
