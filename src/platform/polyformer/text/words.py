"""Words as people see them, whatever a tokenizer makes of them."""

import re

__all__ = ["WORD", "is_spaceless"]

SIGNS = (
    r"!-/:-@\[-`{-~"  # ASCII
    r"\xa1-\xbf\u2010-\u20cf"  # Latin signs, dashes, quotation marks, currencies
    r"\u060c-\u061f\u06d4\u0964\u0965"  # Arabic and Indic
    r"\u0e00-\u0eff\u3000-\ud7ff\uff00-\uffef"  # Thai and Lao, Chinese, Japanese and Korean with their signs
)

WORD = re.compile(rf"[^\s{SIGNS}]+|\S")
"""A word: what stands between spaces, signs, and characters of scripts without spaces, each of which stands alone.

>>> WORD.findall("(NBA) 10€, 人口"), "\\uff0c" in WORD.findall("人\\uff0c2189")
(['(', 'NBA', ')', '10', '€', ',', '人', '口'], True)
"""

SPACELESS = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
"""A character of a script whose words no spaces part: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""


def is_spaceless(text: str) -> bool:
    """Whether most of a text is written without spaces between words.

    >>> is_spaceless("一只狗在跑 (1)"), is_spaceless("개가 달린다"), is_spaceless("")
    (True, False, False)
    """
    return 2 * len(SPACELESS.findall(text)) > len("".join(text.split()))
