"""Running text, for language models: from files to windows of tokens."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from polyformer.data.batches import BatchSettings
from polyformer.data.cache import cached_tokenizer, key_digest
from polyformer.data.documents import Document, DocumentKind, Piece, cut, evenly, hold_out, plain_size, read_all
from polyformer.data.encoding import Empty, TextReport
from polyformer.data.loader import BatchLoader
from polyformer.data.module import DataModule, class_source
from polyformer.data.reading import Damaged, Reading
from polyformer.data.sources import Location, Source, Train, expand, parted
from polyformer.data.text_array import TextArray, TextArrays, encoded_text
from polyformer.data.text_batch import Layout, TextBatch, batch_windows
from polyformer.data.window_mixture import MixedWindowPlan, MixedWindows
from polyformer.data.windows import EvaluationPlan, EvaluationWindows, TrainingWindows, WindowPlan
from polyformer.text import Assets, Tokenizer, TokenizerSettings

__all__ = ["TextData", "TextTokenizerSettings"]

log = logging.getLogger("polyformer")

MEGABYTE = 10**6


@dataclass(frozen=True)
class TextTokenizerSettings(TokenizerSettings):
    """How running text is cut into tokens.

    Args:
        sample_megabytes: a longer training text is not read whole to make the tokenizer, but at most so many megabytes of
            it, which are taken evenly from all of it. Ten times that is used in memory.
    """

    sample_megabytes: float = 50.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sample_megabytes <= 0:
            raise ValueError(f"tokenizer `sample_megabytes` must be above 0, but is {self.sample_megabytes}")

    @property
    def sample_bytes(self) -> int:
        """The same in bytes."""
        return max(1, round(self.sample_megabytes * MEGABYTE))

    def sampled(self, texts: Iterable[str]) -> list[str]:
        """The part of the texts that a tokenizer is made from; how much of the whole it is, is written to the log."""
        found, total = evenly(texts, self.sample_bytes)
        held = sum(len(text.encode()) for text in found)
        if held < total:
            log.info(
                "tokenizer: made from %.1f of the %.1f MB of training text (data.tokenizer.sample_megabytes: %g)",
                held / MEGABYTE,
                total / MEGABYTE,
                self.sample_megabytes,
            )
        return found

    def plain(self) -> TokenizerSettings:
        """The settings of the tokenizer itself."""
        return TokenizerSettings(self.kind, self.vocab_size, self.min_frequency, self.lowercase, self.path)


class TextData(DataModule):
    """Running text in windows of tokens, in batches of about `batches.tokens` tokens.

    The text is encoded once, into an array on disk that is then read in place, so it may be larger than the memory.

    Args:
        train: a text file, a table (.jsonl, .json, .parquet, .csv, .tsv), each also .gz, a pattern such as
            `shards/*.jsonl.gz` or a folder (in sorted order), a list of those, or `hub:NAME[@CONFIG]:SPLIT`. Or several
            sources that are mixed, as `[{files: web/*.parquet, weight: 0.7}, {files: books, weight: 0.3}]`: an epoch has as
            many windows as all of them together, and every batch some of each.
        validation: likewise without weights, or none.
        test: as validation.
        text: the column of the text in tables, by name or number; each row is a document. Not used for text files.
        document: whether each line of a text file is a document, or each file.
        layout: `packed` tells documents apart, none sees another; `stream` takes all of the text as one, as Penn Treebank
            and WikiText are used.
        window: tokens in a window: how far back a model can see, in training and evaluation.
        stride: in evaluation, tokens from one window to the next, which is what each scores; a window if None. Less gives
            each token more context, and takes more time.
        empty: whether documents that hold only spaces are dropped, or kept as an end of document.
        validation_share: where no validation data is given, the last share of the training documents is held out for it;
            of the characters, where there is one document.
        tokenizer: how text is cut into tokens.
        processes: how many processes encode long text; all cores if None. Changes no result.
        batches: how windows are put into batches.
        damaged: whether a run stops at a line or file that cannot be read, or leaves it out and counts it.
    """

    def __init__(
        self,
        train: Train = None,
        validation: str | list[str] | None = None,
        test: str | list[str] | None = None,
        text: str | int = "text",
        document: DocumentKind = "line",
        layout: Layout = "packed",
        window: int = 256,
        stride: int | None = None,
        empty: Empty = "drop",
        validation_share: float | None = None,
        tokenizer: TextTokenizerSettings = TextTokenizerSettings(),
        processes: int | None = None,
        batches: BatchSettings = BatchSettings(),  # noqa: B008 - frozen
        damaged: Damaged = "stop",
    ) -> None:
        location, self.sources = parted(train, validation_share)
        super().__init__(location, validation, test, batches, damaged, validation_share)
        _check(window, stride, processes)
        self.text, self.document, self.layout, self.empty = text, document, layout, empty
        self.window, self.stride = window, stride
        self.tokenizer, self.processes = tokenizer, processes

    # Where text comes from; a subclass may say otherwise.

    def documents(self, split: str) -> Iterator[Document]:
        """The documents of a split; each must be used up before the next. Raises ValueError where none are given."""
        if self.validation_share is None or split == "test":
            return self.read(split)
        return hold_out(lambda: self.read("train"), self.validation_share, last=split == "validation")

    def read(self, split: str) -> Iterator[Document]:
        """All documents at a split's location."""
        return read_all(self._location(split), self.text, self.document, self.readings[split])

    # From text to windows.

    def make_assets(self) -> Assets:
        """One tokenizer, "text"."""
        key = {**self._text_key("train"), "sample": self.tokenizer.sample_bytes}
        return Assets({"text": cached_tokenizer(self.sample, self.tokenizer.plain(), key)})

    def sample(self) -> list[str]:
        """The text that the tokenizer is made from."""
        return self.tokenizer.sampled(piece.text for piece in self.pieces("train"))

    def pieces(self, split: str) -> Iterator[Piece]:
        """The documents of a split, the long ones cut."""
        return (piece for document in self.documents(split) for piece in cut(document))

    @property
    def text_tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        return self.assets.tokenizers["text"]

    def load(self, split: str) -> TextArray | TextArrays:
        """The tokens of a split, from the cache if the same text was encoded before; of sources that are mixed, each apart."""
        if split == "train" and self.sources:
            return TextArrays([self._source_array(source) for source in self.sources])
        location, reading = self.locations[split], self.readings[self.origin(split)]
        return self._encoded(self.pieces(split), self._text_key(split), f"{split} data", location, reading)

    def _source_array(self, source: Source) -> TextArray:
        reading = Reading(self.readings["train"].damaged)
        documents = read_all(source.files, self.text, self.document, reading)
        pieces = (piece for document in documents for piece in cut(document))
        key = {**self._text_key("train"), "contents": self.digests_of(source.files), "forms": self.forms_of(source.files)}
        return self._encoded(pieces, key, f"train data, {source}", source.files, reading)

    def _encoded(
        self, pieces: Iterator[Piece], key: dict[str, Any], name: str, location: Location | None, reading: Reading
    ) -> TextArray:
        return encoded_text(
            pieces,
            self.text_tokenizer,
            key,
            name,
            empty=self.empty,
            processes=self.processes,
            total_bytes=None if location is None else plain_size(expand(location)),
            reading=reading,
        )

    def settings(self) -> dict[str, Any]:
        """What else the training batches depend on."""
        mixed = [[len(expand(source.files)), source.weight] for source in self.sources]
        sources = {"train weights": mixed} if mixed else {}
        return {"layout": self.layout, "window": self.window, "empty": self.empty, **sources, **self._reading()}

    def training_plan(self, world: int) -> WindowPlan | MixedWindowPlan:
        """Windows in random order, of text cut anew in each epoch."""
        loaded, batches = self.loaded("train"), self.batches
        settings: dict[str, Any] = {"tokens": batches.tokens, "seed": self.seed, "max_examples": batches.max_examples}
        if not self.sources:
            return WindowPlan(len(loaded) - 1, self.window, **settings, world=world)
        totals = [len(array) - 1 for array in loaded.arrays]
        return MixedWindowPlan(totals, self.sources, self.window, **settings, world=world)

    def training_source(self) -> TrainingWindows | MixedWindows:
        """The training text in windows."""
        loaded = self.loaded("train")
        return MixedWindows(loaded.arrays, self.window) if self.sources else TrainingWindows(loaded, self.window)

    def prepare_training(self, rows: dict[str, Any], epoch: int) -> TextBatch:
        """Windows as tensors."""
        return batch_windows(rows, self.layout)

    def evaluation_loader(self, split: str) -> BatchLoader:
        """Windows over a split, in which each token is scored exactly once, over all ranks."""
        rank, world = self._ranks()
        array = self.loaded(split)
        plan = EvaluationPlan(len(array) - 1, self.window, self.stride, self.batches.evaluation_tokens)
        if rank == 0:
            log.info("%s data: %s", split, plan.describe())
        prepare = partial(_prepare_evaluation, array.report, self.layout)
        windows = EvaluationWindows(array, plan)
        return BatchLoader(windows, plan, prepare, rank=rank, world=world, workers=self.batches.workers)

    def _reading(self) -> dict[str, Any]:
        return {"text": self.text, "document": self.document}

    def _text_key(self, split: str) -> dict[str, Any]:
        """What a split's text depends on; for a class that is not Polyformer's, also its code."""
        others = [kind for kind in type(self).__mro__ if issubclass(kind, TextData) and kind.__module__ != __name__]
        code = [class_source(kind) for kind in others if not kind.__module__.startswith("polyformer.")]
        skips = {"damaged": "skip"} if self.readings[split].damaged == "skip" else {}
        return {**self.content_key(split), **skips, **self._reading(), "code": key_digest({"code": code})}


def _check(window: int, stride: int | None, processes: int | None) -> None:
    if window < 1:
        raise ValueError(f"`data.window` must be at least 1, but is {window}")
    if stride is not None and not 1 <= stride <= window:
        raise ValueError(f"`data.stride` must be between 1 and `data.window` ({window}), but is {stride}")
    if processes is not None and processes < 1:
        raise ValueError(f"`data.processes` must be at least 1, but is {processes}")


def _prepare_evaluation(report: TextReport, layout: Layout, rows: dict[str, Any], epoch: int) -> TextBatch:
    """Windows as tensors; the first one of a split carries its counts."""
    batch = batch_windows(rows, layout)
    if 0 not in rows["index"]:
        return batch
    return replace(batch, words=report.words, bytes=report.bytes, scored=report.tokens)
