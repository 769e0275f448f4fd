"""BPE-dropout (Provilkov et al., 2020, section 3): a word is cut differently each time it is met.

The tokenizers library has it too, but with a random state that cannot be set, so that a resumed run would differ.
"""

import json
import random
import sys
from collections.abc import Callable, Sequence

import tokenizers

__all__ = ["SubwordDropout"]

VARIANT_BITS = 6  # 64 cuts drawn per word; an occurrence takes one of them, which is many times faster than a new draw

REMEMBERED_TEXTS = 200_000


class SubwordDropout:
    """Encodes text with merges left out at random. The same text and seed give the same ids.

    Made by `Tokenizer.with_dropout`. Each word has 64 independent draws of the algorithm, and an occurrence takes one.
    """

    def __init__(self, model: tokenizers.Tokenizer, probability: float, spaced: Callable[[str], str]) -> None:
        if not 0.0 <= probability < 1.0:
            raise ValueError(f"the probability of subword dropout must be at least 0 and below 1, but is {probability}")
        self.probability = probability
        self._spaced = spaced
        self._normalizer, self._pre_tokenizer = model.normalizer, model.pre_tokenizer
        content = json.loads(model.to_str())["model"]
        self._vocabulary: dict[str, int] = content["vocab"]
        self._ranks = {tuple(pair): rank for rank, pair in enumerate(content["merges"])}
        self._words: dict[str, list[str]] = {}
        self._cuts: dict[tuple[str, int], list[int]] = {}

    def encode(self, text: str, seed: int) -> list[int]:
        """The ids of a text, without special tokens."""
        generator = random.Random(seed)
        ids: list[int] = []
        for word in self._split(text):
            ids += self._cut(word, generator.getrandbits(VARIANT_BITS))
        return ids

    def encode_batch(self, texts: Sequence[str], seeds: Sequence[int]) -> list[list[int]]:
        """`encode` of each text with its own seed."""
        return [self.encode(text, seed) for text, seed in zip(texts, seeds, strict=True)]

    def _split(self, text: str) -> list[str]:
        """The words of a text, remembered for some texts, since finding them takes most of the time."""
        words = self._words.get(text)
        if words is None:
            spaced = self._spaced(text)
            normal = spaced if self._normalizer is None else self._normalizer.normalize_str(spaced)
            words = [sys.intern(word) for word, _ in self._pre_tokenizer.pre_tokenize_str(normal)]
            if len(self._words) < REMEMBERED_TEXTS:
                self._words[text] = words
        return words

    def _cut(self, word: str, variant: int) -> list[int]:
        known = self._cuts.get((word, variant))
        if known is None:
            pieces = self._merge(self._symbols(word), random.Random(f"{variant} {word}"))
            known = self._cuts[word, variant] = [self._vocabulary[piece] for piece in pieces]
        return known

    def _symbols(self, word: str) -> list[str]:
        symbols: list[str] = []
        for character in word:
            in_vocabulary = character in self._vocabulary
            symbols += [character] if in_vocabulary else [f"<0x{byte:02X}>" for byte in character.encode()]
        return symbols

    def _merge(self, symbols: list[str], generator: random.Random) -> list[str]:
        """Merges the best pair that is not dropped this time, until no pair is left."""
        while True:
            best: tuple[int, int] | None = None
            for at in range(len(symbols) - 1):
                rank = self._ranks.get((symbols[at], symbols[at + 1]))
                if rank is not None and (best is None or rank < best[0]) and generator.random() >= self.probability:
                    best = rank, at
            if best is None:
                return symbols
            at = best[1]
            symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
