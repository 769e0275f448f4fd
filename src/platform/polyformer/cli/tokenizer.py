"""`platform tokenizer train` and `platform tokenizer show`."""

import sys
import zipfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from polyformer.cli.help import TOKENIZER
from polyformer.cli.words import flag, option, refuse_rest
from polyformer.data import read_examples
from polyformer.data.tables import table_format
from polyformer.errors import UsageError
from polyformer.text import Tokenizer, TokenizerSettings, train_tokenizer
from polyformer.training.checkpoints import find_checkpoint, read_checkpoint

__all__ = ["tokenizer"]

SHOWN = 20
OPTIONS = ["--output", "--input", "--kind", "--vocab_size", "--min_frequency", "--lowercase", "--columns"]


def tokenizer(words: list[str]) -> int:
    """Makes a tokenizer, or shows what one does."""
    if {"-h", "--help"}.intersection(words):
        print(TOKENIZER)
        return 0
    if not words or words[0] not in ("train", "show"):
        raise UsageError("say `platform tokenizer train` or `platform tokenizer show`")
    return _train(words[1:]) if words[0] == "train" else _show(words[1:])


def _train(words: list[str]) -> int:
    output, kind, lowercase = option(words, "--output"), option(words, "--kind", "bpe"), flag(words, "--lowercase")
    size, frequency = _number(words, "--vocab_size", 8000), _number(words, "--min_frequency", 2)
    columns, files = option(words, "--columns"), _files(words)
    refuse_rest(words, OPTIONS)
    if not files or output is None:
        raise UsageError("both --output FILE and --input FILES are needed")
    if not Path(output).resolve().parent.is_dir():
        raise UsageError(f"--output {output}: there is no folder {Path(output).parent}")
    try:
        settings = TokenizerSettings(kind=kind, vocab_size=size, min_frequency=frequency, lowercase=lowercase)  # type: ignore[arg-type]
    except ValueError as error:
        raise UsageError(str(error)) from None
    sources = [_texts(file, columns) for file in files]
    try:
        made = train_tokenizer(chain.from_iterable(sources), settings)
    except ValueError as error:
        raise ValueError(f"{', '.join(files)}: {error}" if "no text" in str(error) else str(error)) from None
    made.save(output)
    print(f"{output}: {made.kind}, {len(made):,} tokens")
    return 0


def _files(words: list[str]) -> list[str]:
    """Takes `--input FILES ...` or `--input=FILE` out of the words: all up to the next option."""
    for place, word in enumerate(words):
        if word == "--input" or word.startswith("--input="):
            end = next((at for at in range(place + 1, len(words)) if words[at].startswith("--")), len(words))
            given = word.partition("=")[2:] if "=" in word else ()
            files = [*given, *words[place + 1 : end]]
            del words[place:end]
            return files
    return []


def _number(words: list[str], name: str, default: int) -> int:
    value = option(words, name, str(default))
    assert value is not None
    if not value.isdigit():
        raise UsageError(f"{name} must be a whole number, but is {value}")
    return int(value)


def _texts(file: str, columns: str | None = None) -> Iterator[str]:
    """The texts of a file: its lines, or the named columns of a table."""
    if table_format(file) is None:
        return (example["text"] for example in read_examples(file, {"text": 0}))
    if columns is None:
        raise UsageError(f"{file} is a table: say which columns hold text, by --columns NAMES (or numbers from 0), such as 0,1")
    names = {column: int(column) if column.isdigit() else column for column in columns.split(",")}
    return (text for example in read_examples(file, names) for text in example.values())


def _show(words: list[str]) -> int:
    source = option(words, "--input")
    if not words:
        raise UsageError("name a tokenizer file, a checkpoint or a run folder")
    place = words.pop(0)
    refuse_rest(words, ["--input"])
    lines = list(_texts(source)) if source else [line.rstrip("\r\n") for line in sys.stdin]
    for role, made in _tokenizers(place).items():
        print(f"{role}: {made.kind}, {len(made):,} tokens")
        for line in lines[:SHOWN]:
            print("  " + " ".join(made.pieces(line)))
        pieces = sum(len(made.encode(line)) for line in lines)
        changed = [number for number, line in enumerate(lines, 1) if made.decode(made.encode(line)) != line]
        unknown = sum(made.unknown_count(line) for line in lines)
        words_in = sum(len(line.split()) for line in lines)
        per_word = f"{pieces / words_in:.2f} per word" if words_in else "no words"
        print(f"  {len(lines):,} lines, {pieces:,} tokens ({per_word}), {unknown:,} unknown")
        where = f" (first: line {changed[0]})" if changed else ""
        print(f"  round trip: {len(lines) - len(changed):,} of {len(lines):,} lines come back as they were{where}")
    return 0


def _tokenizers(place: str) -> dict[str, Tokenizer]:
    if Path(place).is_file() and not zipfile.is_zipfile(place):  # which every checkpoint is
        return {"tokenizer": Tokenizer.load(place)}
    stored = read_checkpoint(find_checkpoint(place))["polyformer"]["assets"]
    files = {name: Tokenizer.from_json(text) for name, text in stored["files"].items()}
    roles: dict[str, list[str]] = {}
    for role, name in stored["tokenizers"].items():
        roles.setdefault(name, []).append(role)
    return {" and ".join(names): files[name] for name, names in roles.items()}
