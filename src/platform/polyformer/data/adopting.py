"""Reading text by a tokenizer that comes from elsewhere, where the user's keys do not ask for another."""

from polyformer.data.cache import cache_folder, write_text
from polyformer.text import Tokenizer, TokenizerSettings

__all__ = ["adopted"]

COMES = "the one that comes with `model.init_from`, or with the first of several parts"
SIZED = ("bpe", "byte_bpe", "unigram", "wordpiece", "word", "word_punctuation")


def adopted(tokenizer: Tokenizer, settings: TokenizerSettings, usual: TokenizerSettings, key: str) -> str:
    """The file of a tokenizer that is used instead of what settings describe.

    Args:
        tokenizer: what is used.
        settings: what the user's keys say.
        usual: what they say where the user says nothing.
        key: what they begin with, for messages.

    Raises ValueError where the user has named or described another one.
    """
    if settings.path is None:
        _check(tokenizer, settings, usual, key)
    elif Tokenizer.load(settings.path).fingerprint != tokenizer.fingerprint:
        raise ValueError(f"`{key}.path` ({settings.path}) is another tokenizer than {COMES}: leave it out")
    path = cache_folder() / "tokenizers" / f"{tokenizer.fingerprint}.json"
    if not path.is_file():
        write_text(path, tokenizer.to_json())
    return str(path)


def _check(tokenizer: Tokenizer, settings: TokenizerSettings, usual: TokenizerSettings, key: str) -> None:
    """Refuses what a tokenizer is known not to have been made with. A smaller vocabulary than asked for tells nothing."""
    size = len(tokenizer)
    is_smaller = settings.vocab_size < size and settings.vocab_size != usual.vocab_size and tokenizer.kind in SIZED
    for name, is_other, own in (
        ("kind", settings.kind not in (usual.kind, tokenizer.kind), f"is {tokenizer.kind}"),
        ("lowercase", settings.lowercase and not usual.lowercase and not tokenizer.lowercase, "keeps capitals"),
        ("vocab_size", is_smaller, f"has {size:,} tokens"),
    ):
        if is_other:
            value = getattr(settings, name)
            raise ValueError(f"`{key}.{name}` is {value}, but text is read by {COMES}, which {own}: leave `{key}.{name}` out")
