"""Words as people see them, whatever a tokenizer makes of them."""

import re

__all__ = ["WORD"]

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
