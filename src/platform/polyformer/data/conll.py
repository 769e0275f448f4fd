"""Sentences from files with a word in each line, as those of CoNLL-2003 and Universal Dependencies."""

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from polyformer.data.lines import columns_of, read_lines

__all__ = ["read_sentences"]


def read_sentences(path: str, word: int, label: int) -> Iterator[dict[str, str]]:
    """The sentences of a file: "text" and "label", the words and their labels with spaces between, and "where" each of them is.

    Args:
        path: the file; an empty line stands after each sentence, and all other lines have as many columns.
        word: the column of the word, from 0, or from -1 at the end.
        label: the column of the label.

    A line that begins with "#" and has another number of columns is a comment.

    Raises ValueError, naming the line, for a carriage return inside it, and for another number of columns than in the lines
    before or too few of them; and for CoNLL-U where the word is to be in its first column, which is a number.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w") as file:
    ...     _ = file.write("we O\\nsaw O\\nAda B-PER\\n")
    ...     file.flush()
    ...     [(sentence["text"], sentence["label"]) for sentence in read_sentences(file.name, 0, -1)]
    [('we saw Ada', 'O O B-PER')]
    """
    universal = ".conllu" in Path(path).name
    if universal and word == 0:
        raise ValueError(
            f"{path}: `data.word` is 0, but column 0 of CoNLL-U is a number; words are in 1 (`data.word`), parts of speech in "
            "3 (`data.label`)"
        )
    skipped = re.compile(r"\s*$|" + (r"#|\d+[-.]\d+\t" if universal else r"-DOCSTART-(\s|$)"))
    words_first = (line for line in read_lines(path) if not skipped.match(line) and not line.startswith("#"))
    chosen, width = (word, label), next((len(columns_of(line)) for line in words_first), 0)
    least = max(2, *(max(column + 1, -column) for column in chosen))
    for _, lines in groupby(enumerate(read_lines(path), 1), key=lambda numbered: not numbered[1].strip()):
        rows = [(at, columns_of(line)) for at, line in lines if not skipped.match(line)]
        rows = [(at, row) for at, row in rows if width in (0, len(row)) or not row[0].startswith("#")]  # without comments
        for at, row in rows:
            if any("\r" in column.strip() for column in row):
                raise ValueError(f"{path}, line {at}: has a lone carriage return (\\r) inside; let lines end with \\n")
            width = width or len(row)
            if len(row) != width or len(row) < least:
                raise ValueError(f"{path}, line {at}: {len(row)} columns, unlike lines before or too few for {chosen}")
        words, labels = (" ".join(row[column].replace(" ", "\u00a0") or "_" for _, row in rows) for column in chosen)
        if rows:
            yield {"text": words, "label": labels, "where": f"{path}, sentence at line {rows[0][0]}"}
