"""Texts, or pairs of texts, with a label, several, or a number."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow.compute
from numpy.typing import NDArray

from polyformer.data.batches import BatchSettings
from polyformer.data.cache import cached_assets, cached_tokenizer
from polyformer.data.cutting import TextLimits
from polyformer.data.examples import ExampleData
from polyformer.data.folders import folders_digest, label_folders, read_folders
from polyformer.data.labels import TargetSettings, make_labelling
from polyformer.data.limits import ColumnLimits, Rows, Together
from polyformer.data.pairs import encode_texts
from polyformer.data.reading import Damaged
from polyformer.data.sources import Location, read_shard, shards
from polyformer.data.text_rows import LabelledBatch, batch_texts
from polyformer.text import Assets, TokenizerSettings

__all__ = ["LabelledData", "chance"]


class LabelledData(ExampleData):
    """Texts with labels or numbers, in batches of about `batches.tokens` tokens.

    In training, examples without a text are left out; in validation, test and prediction they are kept, as the two marks
    alone. Both, and what is cut, is counted and said.

    Args:
        train: a table (.jsonl, .json, .csv, .tsv, .parquet, each also .gz), a pattern such as `shards/*.parquet`, a folder
            or a list of those; a folder with one folder of text files for each label, a list of such label folders, a list
            of text files (text, second, label), or `hub:NAME[@CONFIG]:SPLIT`.
        validation: likewise, or none.
        test: likewise, or none.
        text: the column of the text, by name or number; not used for files and folders.
        second: the column of a second text, for tasks that compare two; none otherwise.
        label: the column of the label or number.
        target: what is predicted, and how it is written.
        limits: how long texts may be.
        validation_share: where no validation data is given, this share of the training examples is held out for it; it
            follows from the texts alone, so that the same text is never on both sides.
        tokenizer: how text is cut into tokens.
        batches: how examples are put into batches.
        damaged: whether a run stops at a line or file that cannot be read, or leaves it out and counts it.
    """

    counted = ("text",)

    def __init__(
        self,
        train: str | list[str] | None = None,
        validation: str | list[str] | None = None,
        test: str | list[str] | None = None,
        text: str | int = "text",
        second: str | int | None = None,
        label: str | int = "label",
        target: TargetSettings = TargetSettings(),  # noqa: B008 - frozen, as those below
        limits: TextLimits = TextLimits(),  # noqa: B008
        validation_share: float | None = None,
        tokenizer: TokenizerSettings = TokenizerSettings(),  # noqa: B008
        batches: BatchSettings = BatchSettings(),  # noqa: B008
        damaged: Damaged = "stop",
    ) -> None:
        super().__init__(train, validation, test, batches, damaged, validation_share)
        if second is not None and limits.stride is not None:
            raise ValueError(f"`data.limits.stride` ({limits.stride}) is for single texts, but `data.second` is {second}")
        self.text, self.second, self.label = text, second, label
        self.target, self.labelling = target, make_labelling(target)
        for reading in self.readings.values():
            reading.lists = ("label",) if target.kind == "labels" else ()
        self.text_limits, self.tokenizer = limits, tokenizer

    # Where examples come from; a subclass may say otherwise.

    @property
    def fields(self) -> tuple[str, ...]:
        """Our names of an example's texts."""
        return ("text",) if self.second is None else ("text", "second")

    @property
    def columns(self) -> Mapping[str, str | int]:
        """The texts and the label."""
        second = {} if self.second is None else {"second": self.second}
        return {"text": self.text, **second, "label": self.label}

    def read(self, split: str) -> Iterator[dict[str, str]]:
        """All examples at a split's location, with "where" each of them is."""
        location = self._location(split)
        folders = label_folders(location)
        if folders is None:
            for shard in shards(location, list(self.columns)):
                for number, example in enumerate(read_shard(shard, self.columns, self.readings[split]), 1):
                    yield {**example, "where": f"{shard[0]}, example {number}"}
        elif self.second is not None:
            raise ValueError(f"`data.second` is {self.second}, but a file in a folder, as in {folders[0]}, is a single text")
        else:
            yield from read_folders(folders, self.readings[split])

    def examples(self, split: str) -> Iterator[dict[str, str]]:
        """The examples of a split, those held out left out."""
        share = self._share(split)
        if share is None:
            yield from self.read(split)
            return
        for example in self.read("train"):
            if (chance(*(example[name] for name in self.fields)) < share) == (split == "validation"):
                yield example

    def digests_of(self, location: Location) -> list[str]:
        """A digest of each file, and one of all label folders together."""
        folders = label_folders(location)
        return super().digests_of(location) if folders is None else [folders_digest(folders)]

    def forms_of(self, location: Location) -> list[str]:
        """How each file is read; those of label folders are all text, and their digest has the names."""
        return super().forms_of(location) if label_folders(location) is None else []

    # From text to batches.

    def make_assets(self) -> Assets:
        """The tokenizer "text", and what the labels of all training examples tell, those held out included."""

        def learn() -> Assets:
            return self.labelling.learn((example["label"].strip(), example["where"]) for example in self.read("train"))

        def texts() -> Iterator[str]:
            return (example[name] for example in self.examples("train") for name in self.fields)

        key = {**self.content_key("train"), "columns": {name: self.columns[name] for name in self.fields}}
        learned = cached_assets(learn, {**self._origin_key("train"), "settings": self.settings()})
        return Assets({"text": cached_tokenizer(texts, self.tokenizer, key)}, learned.labels, learned.numbers)

    def encode(self, rows: dict[str, list[str]]) -> Rows:
        """Ids without marks, and those of the labels, if there are any."""
        encoded: Rows = {name: encode_texts(self.assets.tokenizers["text"], rows[name]) for name in self.fields}
        if "label" in rows:
            places = rows.get("where", [f"example {number}" for number, _ in enumerate(rows["label"], 1)])
            labels = (label.strip() for label in rows["label"])
            encoded["label"] = self.labelling.encode(zip(labels, places, strict=True), self.assets)
        return encoded

    def limits(self, split: str) -> ColumnLimits:
        """What is too long is cut; examples without a label are left out, and in training those without a text."""
        together = Together(self.fields, self.text_limits.room(len(self.fields)), self.text_limits.cut)
        needed = () if self.labelling.optional else ("label",)
        filled = (*self.fields, *needed) if split == "train" else needed
        return ColumnLimits(dict.fromkeys(filled), "truncate", "drop", together)

    def settings(self) -> dict[str, Any]:
        """What the training batches depend on beside files, columns and tokenizers."""
        limits = {f"limits.{name}": value for name, value in vars(self.text_limits).items()}
        target = {f"target.{name}": value for name, value in vars(self.target).items()}
        target["target.unlabelled"] = list(self.target.unlabelled)
        return {**limits, **target, "validation_share": self.validation_share}

    def lengths(self, split: str) -> NDArray[np.int64]:
        """(N, 1) tokens of each example, the marks included, and of a text read in windows those of all of them."""
        table = self.dataset(split).data.table
        texts = [pyarrow.compute.list_value_length(table.column(name)).to_numpy() for name in self.fields]
        tokens = np.stack(texts, axis=1).astype(np.int64).sum(axis=1, keepdims=True)
        return self.text_limits.cost(tokens) if self.text_limits.stride else tokens + len(self.fields) + 1

    def collate(self, rows: Rows) -> LabelledBatch:
        """Examples as tensors."""
        examples = list(zip(*(rows[name] for name in self.fields), strict=True))
        target = self.labelling.tensor(rows["label"], self.assets) if "label" in rows else None
        return batch_texts(examples, rows["index"], target, self.text_limits)


def chance(*texts: str) -> float:
    """A number from 0 to 1 that follows from texts alone, and is spread evenly over many.

    >>> 0.0 <= chance("a", "b") < 1.0, chance("a", "b") == chance("b", "a")
    (True, False)
    """
    digest = hashlib.sha256("\t".join(texts).encode()).digest()
    return float(int.from_bytes(digest[:8], "big") / 2**64)
