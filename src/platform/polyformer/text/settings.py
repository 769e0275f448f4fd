"""What a user may choose about a tokenizer."""

from dataclasses import dataclass
from typing import Literal, get_args

__all__ = ["KINDS", "Kind", "TokenizerSettings"]

Kind = Literal["bpe", "byte_bpe", "unigram", "wordpiece", "word", "word_punctuation", "character", "byte"]
KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True)
class TokenizerSettings:
    """How text is cut into tokens. Every vocabulary begins with `<pad>`, `<unk>`, `<bos>`, `<eos>`, ids 0 to 3.

    Args:
        kind: `bpe` and `unigram` (subwords; characters outside the vocabulary become bytes, so nothing is ever lost),
            `byte_bpe` (subwords of bytes), `wordpiece` (subwords; a word with an unknown character becomes `<unk>`),
            `word` (cut at spaces only, as in Penn Treebank and WikiText), `word_punctuation` (punctuation is cut off
            words), `character`, `byte`. `word` and `word_punctuation` give back any run of spaces as one space, and the
            same two, `wordpiece` and `character` lose what is not in the vocabulary; the others give back all text.
        vocab_size: the most tokens a vocabulary may have, the four special ones included, and for `bpe` and `unigram`
            the 256 bytes. `character` and `byte` ignore it.
        min_frequency: pieces and characters seen fewer times in the training text are left out. `byte` ignores it.
        lowercase: put all text in lower case first. Decoding then gives lower case: the case is not in the tokens.
        path: an existing tokenizer file, used instead of training one; everything above is then ignored.

    >>> TokenizerSettings(kind="unigram").vocab_size
    8000
    """

    kind: Kind = "bpe"
    vocab_size: int = 8000
    min_frequency: int = 2
    lowercase: bool = False
    path: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"tokenizer `kind` must be one of {', '.join(KINDS)}, but is {self.kind!r}")
        if self.min_frequency < 1:
            raise ValueError(f"tokenizer `min_frequency` must be at least 1, but is {self.min_frequency}")
        if self.vocab_size < 5:
            raise ValueError(f"tokenizer `vocab_size` must be at least 5, but is {self.vocab_size}")
