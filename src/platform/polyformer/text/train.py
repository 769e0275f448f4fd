"""Making a tokenizer from text. The same text and settings give the same tokenizer, on any number of threads."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from polyformer.text.settings import TokenizerSettings
from polyformer.text.tokenizer import BYTE_OF_CHARACTER, SPECIALS, UNK, Tokenizer

__all__ = ["train_tokenizer"]

UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\u3005\u30fc"
# No piece holds both "<" and a letter, so neither "<pad>" nor the byte "<0x0A>" can ever come out of a text.
SUBWORDS = rf"[{UNSPACED}]+| ?(?:(?![{UNSPACED}])[\p{{L}}\p{{M}}])+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+|\s+(?!\S)|\s+"
WORDS = r" ?\S+"
PUNCTUATED = r" ?<unk>(?!\S)| ?[\p{L}\p{M}\p{N}]+| ?[^\s\p{L}\p{M}\p{N}]"
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))


def train_tokenizer(texts: Iterable[str], settings: TokenizerSettings, *, progress: bool = True) -> Tokenizer:
    """A tokenizer for texts such as these; an iterator is read into memory, since some kinds read the text twice.

    Raises ValueError when there is no text, or when `vocab_size` has no room for what the kind must hold.

    >>> tokenizer = train_tokenizer(["low lower lowest"] * 5, TokenizerSettings(vocab_size=300))
    >>> tokenizer.decode(tokenizer.encode("  lower, \\u4f60!"))
    '  lower, \\u4f60!'
    """
    if settings.path is not None:
        return Tokenizer.load(settings.path)
    texts = texts if isinstance(texts, list) else list(texts)
    if settings.kind != "byte" and not any(texts):
        raise ValueError("no text to train a tokenizer on: all of it is empty")
    shell = Tokenizer(settings.kind, tokenizers.Tokenizer(models.BPE()))
    texts = [shell.spaced(text) for text in texts]
    if settings.lowercase:
        texts = [normalizers.Lowercase().normalize_str(text) for text in texts]
    model = TRAINERS[settings.kind](texts, settings, progress)
    return Tokenizer(settings.kind, model)


def _assemble(model: Any, pattern: str, settings: TokenizerSettings) -> tokenizers.Tokenizer:
    """A model with its way of cutting; no added tokens, since the library would look for those in the text."""
    result = tokenizers.Tokenizer(model)
    keep_matches_only = settings.kind in ("word", "word_punctuation")
    behavior = "removed" if keep_matches_only else "isolated"
    split = pre_tokenizers.Split(tokenizers.Regex(pattern), behavior=behavior, invert=keep_matches_only)
    if settings.kind in ("byte_bpe", "byte"):
        to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        result.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
    else:
        result.pre_tokenizer = split
    if settings.lowercase:
        result.normalizer = normalizers.Lowercase()
    return result


def _alphabet(texts: list[str], settings: TokenizerSettings, held: int) -> list[str]:
    """The characters seen `min_frequency` times; at most half of the vocabulary, to leave room for longer pieces."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    frequent = sorted((-count, character) for character, count in counts.items() if count >= settings.min_frequency)
    room = max((settings.vocab_size - held) // 2, 1)
    return sorted({" "} | {character for _, character in frequent[:room]})


def _check_size(settings: TokenizerSettings, needed: int, what: str) -> None:
    if settings.vocab_size < needed:
        raise ValueError(
            f"`vocab_size` must be at least {needed} for kind {settings.kind} ({what}), but is {settings.vocab_size}"
        )


def _merges(
    texts: list[str], settings: TokenizerSettings, held: tuple[str, ...], alphabet: list[str], progress: bool
) -> dict[str, Any]:
    """The model part of a trained BPE, as the library writes it: "vocab" (piece to id) and "merges"."""
    _check_size(settings, len(held) + len(alphabet) + 1, f"{len(held)} fixed tokens and {len(alphabet)} characters")
    model = _assemble(models.BPE(), SUBWORDS, settings)
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocab_size,
        min_frequency=settings.min_frequency,
        special_tokens=list(held),
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=progress,
    )
    model.train_from_iterator(texts, trainer, length=len(texts))
    content: dict[str, Any] = json.loads(model.to_str())["model"]
    return content


def _train_bpe(texts: list[str], settings: TokenizerSettings, progress: bool) -> tokenizers.Tokenizer:
    held = SPECIALS + BYTES
    _check_size(settings, len(held) + 4, f"{len(held)} of them are special tokens and bytes")
    alphabet = _alphabet(texts, settings, len(held))
    content = _merges(_without_rare(texts, alphabet), settings, held, alphabet, progress)
    merges = [tuple(pair) for pair in content["merges"]]
    model = models.BPE(vocab=content["vocab"], merges=merges, unk_token=SPECIALS[UNK], byte_fallback=True)
    return _assemble(model, SUBWORDS, settings)


def _train_byte_bpe(texts: list[str], settings: TokenizerSettings, progress: bool) -> tokenizers.Tokenizer:
    content = _merges(texts, settings, SPECIALS, sorted(BYTE_OF_CHARACTER), progress)
    merges = [tuple(pair) for pair in content["merges"]]
    return _assemble(models.BPE(vocab=content["vocab"], merges=merges), SUBWORDS, settings)


def _train_wordpiece(texts: list[str], settings: TokenizerSettings, progress: bool) -> tokenizers.Tokenizer:
    alphabet = _alphabet(texts, settings, len(SPECIALS))
    vocabulary = _merges(_without_rare(texts, alphabet), settings, SPECIALS, alphabet, progress)["vocab"]
    # The word's first piece has its space, so the others need no "##".
    model = models.WordPiece(vocabulary, unk_token=SPECIALS[UNK], max_input_chars_per_word=200, continuing_subword_prefix="")
    return _assemble(model, SUBWORDS, settings)


def _train_unigram(texts: list[str], settings: TokenizerSettings, progress: bool) -> tokenizers.Tokenizer:
    held = SPECIALS + BYTES
    alphabet = _alphabet(texts, settings, len(held))
    _check_size(settings, len(held) + len(alphabet) + 2, f"{len(held)} fixed tokens and {len(alphabet)} characters")
    model = _assemble(models.Unigram(), SUBWORDS, settings)
    trainer = trainers.UnigramTrainer(vocab_size=settings.vocab_size - len(held), show_progress=progress, unk_token=None)
    known = _without_rare(texts, alphabet)
    model.train_from_iterator(known, trainer, length=len(known))
    trained = _settled(json.loads(model.to_str())["model"]["vocab"])
    lowest = trained[-1][1]
    vocabulary = [*((piece, lowest) for piece in held), *trained]
    return _assemble(models.Unigram(vocabulary, unk_id=UNK, byte_fallback=True), SUBWORDS, settings)


def _settled(pieces: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Pieces and log-probabilities, best first, without what depends on the order in which threads ended.

    Sums differ in their last digits, and the characters that got no count are spread by 0.0001 each in no fixed order.
    """
    lowest = min(score for _, score in pieces)
    uncounted = lowest + 0.0001 * (1 + sum(len(piece) == 1 for piece, _ in pieces))
    scores = {piece: lowest if len(piece) == 1 and score < uncounted else score for piece, score in pieces}
    return sorted(((piece, round(score, 6)) for piece, score in scores.items()), key=lambda item: (-item[1], item[0]))


def _without_rare(texts: list[str], alphabet: list[str]) -> list[str]:
    """The texts with a line break for each character outside the alphabet, so that its neighbours are not joined."""
    seen: set[str] = set()
    for text in texts:
        seen.update(text)
    table = dict.fromkeys((ord(character) for character in seen.difference(alphabet)), "\n")
    return [text.translate(table) for text in texts] if table else texts


def _train_words(texts: list[str], settings: TokenizerSettings, progress: bool) -> tokenizers.Tokenizer:
    pattern = WORDS if settings.kind == "word" else PUNCTUATED
    model = _assemble(models.WordLevel({SPECIALS[UNK]: 0}, unk_token=SPECIALS[UNK]), pattern, settings)
    everything: Any = {"vocab_size": 2**31, "min_frequency": settings.min_frequency, "show_progress": progress}
    model.train_from_iterator(texts, trainers.WordLevelTrainer(**everything), length=len(texts))
    words = sorted(model.get_vocab().items(), key=lambda item: item[1])
    kept = [word for word, _ in words if word.strip() != SPECIALS[UNK]][: settings.vocab_size - len(SPECIALS)]
    return _assemble(_word_level(kept), pattern, settings)


def _train_characters(texts: list[str], settings: TokenizerSettings, progress: bool) -> tokenizers.Tokenizer:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    kept = sorted(character for character, count in counts.items() if count >= settings.min_frequency)
    return _assemble(_word_level(kept), r"[\s\S]", settings)


def _word_level(words: list[str]) -> models.WordLevel:
    vocabulary = {word: index for index, word in enumerate([*SPECIALS, *words])}
    return models.WordLevel(vocabulary, unk_token=SPECIALS[UNK])


def _make_bytes(texts: list[str], settings: TokenizerSettings, progress: bool) -> tokenizers.Tokenizer:
    by_byte = sorted(BYTE_OF_CHARACTER, key=BYTE_OF_CHARACTER.__getitem__)
    vocabulary = {piece: index for index, piece in enumerate([*SPECIALS, *by_byte])}
    return _assemble(models.BPE(vocab=vocabulary, merges=[]), SUBWORDS, settings)


TRAINERS: dict[str, Callable[[list[str], TokenizerSettings, bool], tokenizers.Tokenizer]] = {
    "bpe": _train_bpe,
    "byte_bpe": _train_byte_bpe,
    "unigram": _train_unigram,
    "wordpiece": _train_wordpiece,
    "word": _train_words,
    "word_punctuation": _train_words,
    "character": _train_characters,
    "byte": _make_bytes,
}
