"""One tokenizer class for every kind: text to ids and back."""

import hashlib
import json
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from polyformer.text.dropout import SubwordDropout
from polyformer.text.settings import KINDS

__all__ = ["BOS", "DROPOUT_KINDS", "EOS", "PAD", "SPECIALS", "UNK", "Tokenizer"]

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<bos>", "<eos>")

FORMAT = "polyformer-tokenizer-1"
WORD_KINDS = ("word", "word_punctuation")
DROPOUT_KINDS = ("bpe", "byte_bpe")
UNSPACED = re.compile("[\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
UNSPACED_BYTES = (b"\xe3", b"\xe9")  # with which nearly all of these characters begin, those cut into bytes too
BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")


class Tokenizer:
    """Cuts text into the ids of a vocabulary and puts ids together again.

    Words carry the space before them (" the"), and a space is put before the text so that its first word is the same
    token as elsewhere; decoding takes that one away. Text in Chinese or Japanese characters gets none.
    Nothing written in a text becomes a special token: a literal "<eos>" is cut like any other text. (For the two word
    kinds a word "<unk>" is `UNK`, since corpora write their unknown words so.)

    Made by `train_tokenizer`, `Tokenizer.load` or `Tokenizer.from_json`.

    >>> from polyformer.text import TokenizerSettings, train_tokenizer
    >>> tokenizer = train_tokenizer(["the cat sat", "the dog sat"], TokenizerSettings(kind="word", min_frequency=1))
    >>> tokenizer.encode("the dog"), tokenizer.decode(tokenizer.encode("the dog"))
    ([5, 7], 'the dog')
    """

    def __init__(self, kind: str, model: tokenizers.Tokenizer) -> None:
        self.kind = kind
        self._model = model

    def __len__(self) -> int:
        """The size of the vocabulary, special tokens included."""
        return int(self._model.get_vocab_size())

    def __repr__(self) -> str:
        return f"Tokenizer(kind={self.kind!r}, size={len(self)}, fingerprint={self.fingerprint!r})"

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens."""
        return list(self._model.encode(self.spaced(text), add_special_tokens=False).ids)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text, on all cores."""
        spaced = [self.spaced(text) for text in texts]
        return [encoding.ids for encoding in self._model.encode_batch_fast(spaced, add_special_tokens=False)]

    def encode_onward(self, text: str) -> list[int]:
        """The ids of a text that goes on where others end: it begins with a space only if one is written there."""
        text = self.spaced(text) if self.kind in WORD_KINDS else text
        return list(self._model.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids. Special tokens give nothing, except `UNK`, which is shown as "<unk>"."""
        table = self._table
        text = b"".join([table[index] for index in ids]).decode("utf-8", errors="replace")
        return text[1:] if self._has_prefix and text.startswith(" ") else text

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """`decode` of each row."""
        return [self.decode(ids) for ids in batch]

    def pieces(self, text: str) -> list[str]:
        """How a text is cut, to be looked at: a space is shown as U+2581, a byte that is no character as "<0xE2>"."""
        return [self._shown(index) for index in self.encode(text)]

    def unknown_count(self, text: str) -> int:
        """How many tokens of a text are `UNK`."""
        return self.encode(text).count(UNK)

    def with_dropout(self, probability: float) -> SubwordDropout:
        """Encodes with BPE-dropout (Provilkov et al., 2020), for training only; this tokenizer stays as it is.

        Raises ValueError for a kind without merges, or a probability outside [0, 1).
        """
        if self.kind not in DROPOUT_KINDS:
            names = " and ".join(DROPOUT_KINDS)
            raise ValueError(f"subword dropout needs a tokenizer of kind {names}, but the kind is {self.kind}")
        return SubwordDropout(self._model, probability, self.spaced)

    def to_json(self) -> str:
        """All of it as plain JSON; `from_json` gives it back."""
        content = {"format": FORMAT, "kind": self.kind, "tokenizer": json.loads(self._model.to_str())}
        return json.dumps(content, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        """The tokenizer that `to_json` wrote. Raises ValueError for any other text."""
        try:
            content: Any = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"not a tokenizer: broken JSON at line {error.lineno}: {error.msg}") from None
        if not isinstance(content, dict) or content.get("format") != FORMAT or content.get("kind") not in KINDS:
            raise ValueError(
                'not a tokenizer of Polyformer (no "format", or an unknown one); `platform tokenizer train` makes one'
            )
        try:
            model = tokenizers.Tokenizer.from_str(json.dumps(content["tokenizer"]))
        except Exception as error:  # the library raises bare Exception
            raise ValueError(f"not a tokenizer: {error}") from None
        return cls(content["kind"], model)

    def save(self, path: str | Path) -> None:
        """Writes `to_json` into a file."""
        Path(path).write_text(self.to_json(), encoding="utf-8", newline="\n")

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Reads what `save` wrote. Raises ValueError for a file that is missing or no tokenizer."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise ValueError(f"{path}: no tokenizer can be read here: {reason}") from None
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @property
    def lowercase(self) -> bool:
        """Whether all text is put in lower case first."""
        return isinstance(self._model.normalizer, tokenizers.normalizers.Lowercase)

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that differ when anything in the tokenizer does."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    @cached_property
    def word_edges(self) -> tuple[bytes, bytes]:
        """A byte for each id: 1 where it begins a word; and 1 where it ends one, whatever follows.

        A word begins at white space, which it carries; each Chinese or Japanese character is a word.
        """
        begins = bytes(piece[:1].isspace() or UNSPACED_BYTES[0] <= piece[:1] <= UNSPACED_BYTES[1] for piece in self._table)
        ends = bytes(bool(UNSPACED.match(piece.decode("utf-8", errors="replace")[-1:])) for piece in self._table)
        return begins, ends

    def spaced(self, text: str) -> str:
        """The text as the vocabulary sees it: words begin with a space."""
        if self.kind in WORD_KINDS:
            text = " ".join(text.split())
            return " " + text if text else ""
        return " " + text if self._has_prefix and text and not UNSPACED.match(text) else text

    @property
    def _has_prefix(self) -> bool:
        return self.kind not in ("character", "byte")

    def _shown(self, index: int) -> str:
        try:
            return self._table[index].decode("utf-8").replace(" ", "\u2581")
        except UnicodeDecodeError:
            return "".join(f"<0x{byte:02X}>" for byte in self._table[index])

    @cached_property
    def _table(self) -> list[bytes]:
        """The bytes of each id: decoding is joining them."""
        vocabulary = sorted(self._model.get_vocab(with_added_tokens=False).items(), key=lambda item: item[1])
        table = [self._piece_bytes(piece) for piece, _ in vocabulary]
        unknown = b" <unk>" if self.kind in (*WORD_KINDS, "wordpiece") else b"<unk>"
        table[: len(SPECIALS)] = [b"", unknown, b"", b""]
        return table

    def _piece_bytes(self, piece: str) -> bytes:
        if self.kind in ("byte_bpe", "byte"):
            return bytes(BYTE_OF_CHARACTER[character] for character in piece)
        if self.kind in ("bpe", "unigram") and (match := BYTE_PIECE.fullmatch(piece)):
            return bytes([int(match.group(1), 16)])
        return piece.encode()


def _byte_of_character() -> dict[str, int]:
    """The inverse of GPT-2's map of bytes to printable characters, which the byte-level models use."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}


BYTE_OF_CHARACTER = _byte_of_character()
