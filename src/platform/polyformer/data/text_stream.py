"""Running text that is never held and never written: tokenized while it is read."""

import hashlib
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from polyformer.data.batches import BatchSettings
from polyformer.data.cache import cached_tokenizer
from polyformer.data.documents import Document, DocumentKind, byte_count, expand, read_documents
from polyformer.data.encoding import Empty
from polyformer.data.lines import check_file
from polyformer.data.sources import read_hub
from polyformer.data.stream import StreamLoader, WindowStream
from polyformer.data.text_batch import Layout
from polyformer.data.text_data import MEGABYTE, TextData, TextTokenizerSettings
from polyformer.data.windows import windows_in_batch
from polyformer.text import Assets

__all__ = ["TextStream"]

log = logging.getLogger("polyformer")


@dataclass(frozen=True)
class StreamReport:
    """What is known of a text before it is read.

    >>> print(StreamReport(files=3, bytes=2_000_000))
    3 files of 2.0 MB, tokenized while they are read
    """

    files: int
    bytes: int

    def __str__(self) -> str:
        size = f" of {self.bytes / MEGABYTE:,.1f} MB" if self.bytes else ""
        return f"{self.files:,} files{size}, tokenized while they are read"


@dataclass(frozen=True)
class StreamedText:
    """A split that is read anew in each epoch."""

    report: StreamReport


class TextStream(TextData):
    """Running text, tokenized while it is read; for text that is not worth an array on disk, or has no room there.

    In each epoch the files are read in another order, each from beginning to end. Windows are shuffled within blocks of
    `shuffle_windows`. The number of batches in an epoch is not known, so `trainer.max_steps` must be given. Files of a
    resumed run must have the same names and sizes. Validation and test data are arrays, as in `TextData`.

    Args:
        train: see `TextData`; of the hub, data sets are streamed.
        validation: likewise, or none.
        test: likewise, or none.
        text: the column of the text in tables.
        document: whether each line of a text file is a document, or each file.
        layout: see `TextData`.
        window: tokens in a window.
        stride: in evaluation, tokens from one window to the next.
        empty: whether documents that hold only spaces are dropped or kept.
        shuffle_windows: about how many windows are held and shuffled at a time.
        tokenizer: how text is cut into tokens; `sample_megabytes` are taken from the beginning of the text.
        batches: how windows are put into batches; with `workers`, a thread reads and tokenizes meanwhile.
    """

    def __init__(
        self,
        train: str | list[str] | None = None,
        validation: str | list[str] | None = None,
        test: str | list[str] | None = None,
        text: str | int = "text",
        document: DocumentKind = "line",
        layout: Layout = "packed",
        window: int = 256,
        stride: int | None = None,
        empty: Empty = "drop",
        shuffle_windows: int = 4096,
        tokenizer: TextTokenizerSettings = TextTokenizerSettings(),  # noqa: B008 - frozen
        batches: BatchSettings = BatchSettings(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(
            train,
            validation,
            test,
            text=text,
            document=document,
            layout=layout,
            window=window,
            stride=stride,
            empty=empty,
            tokenizer=tokenizer,
            batches=batches,
        )
        if shuffle_windows < 1:
            raise ValueError(f"`data.shuffle_windows` must be at least 1, but is {shuffle_windows}")
        self.shuffle_windows = shuffle_windows

    def read(self, split: str) -> Iterator[Document]:
        """All documents at a split's location; of the hub, those of the training data as they come."""
        for place in expand(self._location(split)):
            if split == "train":
                yield from self.read_from(place, 0)
            else:
                yield from read_documents(place, self.text, self.document)

    def read_from(self, place: str, first: int) -> Iterator[Document]:
        """The documents of one file or hub data set from a number on."""
        if place.startswith("hub:"):
            rows = read_hub(place, {"text": self.text}, streaming=True, skip=first)
            return ((row["text"],) for row in rows)
        documents = read_documents(place, self.text, self.document)
        for document in islice(documents, first):
            for _ in document:
                pass
        return documents

    def contents(self, split: str) -> list[str] | None:
        """Names and sizes of the training files, since all of them would have to be read for more; otherwise digests."""
        location = self.locations[split]
        if split != "train" or location is None:
            return super().contents(split)
        return [place if place.startswith("hub:") else f"{place} ({_size(place):,} bytes)" for place in expand(location)]

    def make_assets(self) -> Assets:
        """One tokenizer, "text", made from the beginning of the training text."""
        settings = self.tokenizer.plain()
        texts = [] if settings.path is not None else self.sample()
        digest = hashlib.sha256()
        for text in texts:
            digest.update(len(text).to_bytes(8, "big") + text.encode())
        return Assets({"text": cached_tokenizer(lambda: texts, settings, {"sample": digest.hexdigest()})})

    def sample(self) -> list[str]:
        """The beginning of the training text, which the tokenizer is made from."""
        most, held = self.tokenizer.sample_bytes, 0
        texts: list[str] = []
        for piece in self.pieces("train"):
            texts.append(piece.text)
            held += byte_count(piece.text)
            if held >= most:
                break
        said = "the first %.1f MB of the training text (data.tokenizer.sample_megabytes: %g)"
        log.info("tokenizer: made from " + said, held / MEGABYTE, self.tokenizer.sample_megabytes)
        return texts

    def load(self, split: str) -> Any:
        """The tokens of an evaluation split; of the training text, its size alone."""
        if split != "train":
            return super().load(split)
        places = expand(self._location(split))
        return StreamedText(StreamReport(len(places), sum(map(_size, places))))

    def settings(self) -> dict[str, Any]:
        """What else the training batches depend on."""
        return {**super().settings(), "shuffle_windows": self.shuffle_windows}

    def batches_per_epoch(self, world: int = 1) -> None:
        """Nobody knows."""
        return None

    def training_loader(self, rank: int, world: int) -> StreamLoader:
        """Reads the training text from the beginning on."""
        count = windows_in_batch(self.batches.tokens, self.window, self.batches.max_examples, world)
        block = math.ceil(self.shuffle_windows / count) * count
        if rank == 0:
            log.info("train data: batches of %d windows of %d tokens, shuffled among %d", count, self.window, block)
        places = expand(self._location("train"))
        keep = self.empty == "keep"
        stream = WindowStream(places, self.read_from, self.text_tokenizer, self.window, block, self.seed, keep)
        limit = None if self.total_batches is not None or self.trainer is None else self.trainer.limit_train_batches
        limit = limit if isinstance(limit, int) else None
        threaded = self.batches.workers > 0
        return StreamLoader(stream, count, self.prepare_training, rank=rank, world=world, limit=limit, threaded=threaded)


def _size(place: str) -> int:
    return 0 if place.startswith("hub:") else check_file(place).stat().st_size
