"""Questions on texts, in files of SQuAD's form."""

import json
from collections.abc import Iterator
from typing import Any

from polyformer.data.lines import read_lines
from polyformer.data.sources import Location, expand

__all__ = ["Questions", "read_squad"]


class Questions:
    """The questions of splits; those of evaluation are read once and kept, since every validation needs their texts."""

    def __init__(self) -> None:
        self._kept: dict[str, list[dict[str, Any]]] = {}

    def read(self, location: Location, split: str) -> Iterator[dict[str, Any]]:
        """The questions of a split, from all files at its location. See `read_squad`."""
        found = (question for path in expand(location) for question in read_squad(path, strict=split == "train"))
        if split == "train":
            return found
        if split not in self._kept:
            self._kept[split] = list(found)
        return iter(self._kept[split])


def read_squad(path: str, strict: bool) -> Iterator[dict[str, Any]]:
    """The questions of a file as SQuAD 1.1 and 2.0 have it: "text" (the question), "second" (the text), "label" (the answers).

    Args:
        path: The file.
        strict: Whether every answer must stand where its `answer_start` says.

    Raises:
        ValueError: For a file of another form, and for an answer that is elsewhere.
    """
    try:
        parts = [part for article in json.loads("".join(read_lines(path)))["data"] for part in article["paragraphs"]]
        for text, qa in [(part["context"], qa) for part in parts for qa in part["qas"]]:
            answers = [(one["text"], one["answer_start"]) for one in qa["answers"] if one["text"]]
            if strict and not all(at >= 0 and text.startswith(one, at) for one, at in answers):
                raise ValueError(f"{path}, question {qa['id']}: an answer is not where `answer_start` says")
            yield {"text": qa["question"], "second": text, "label": answers}
    except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: not JSON as that of SQuAD: {type(error).__name__} {error}") from None
