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
from polyformer.data.documents import Document, DocumentKind, byte_count, read_documents
from polyformer.data.encoding import Empty
from polyformer.data.lines import check_file
from polyformer.data.ranks import gather_objects
from polyformer.data.reading import Damaged, Reading, Unread, said_of_unread
from polyformer.data.sources import Location, Source, Train, expand, hub_parts, read_hub
from polyformer.data.stream import Share, WindowStream
from polyformer.data.stream_loader import StreamLoader
from polyformer.data.text_batch import Layout
from polyformer.data.text_data import MEGABYTE, TextData, TextTokenizerSettings
from polyformer.data.windows import windows_in_batch
from polyformer.text import Assets

__all__ = ["TextStream"]

log = logging.getLogger("polyformer")


@dataclass(frozen=True)
class StreamReport:
    """What is known of a text before it is read, and what has been left out of it so far.

    >>> print(StreamReport(files=3, bytes=2_000_000, unread=Unread(damaged_lines=7)))
    3 files of 2.0 MB, tokenized while they are read; not read: 7 damaged lines
    """

    files: int
    bytes: int
    unread: Unread

    def __str__(self) -> str:
        size = f" of {self.bytes / MEGABYTE:,.1f} MB" if self.bytes else ""
        return f"{self.files:,} files{size}, tokenized while they are read{said_of_unread(self.unread)}"


@dataclass(frozen=True)
class StreamedText:
    """A split that is read anew in each epoch."""

    files: int
    bytes: int
    reading: Reading

    @property
    def report(self) -> StreamReport:
        """What is known by now."""
        return StreamReport(self.files, self.bytes, self.reading.unread)


class TextStream(TextData):
    """Running text, tokenized while it is read; for text that is not worth an array on disk, or has no room there.

    The text is divided into shares, and each device reads its own shares alone: whole files, in each epoch dealt out in
    another order; where files are left that are fewer than shares, every share has its own documents of them. In an epoch of
    its share a document is read exactly once; a shorter share begins its next epoch earlier, and training never waits for the
    longest. With `readers` given, batches are the same on any number of devices that divides it, and a run may be resumed on
    another such number; without, they depend on the number of devices. Validation and test data are arrays, as in
    `TextData`, and the same on any number of devices.

    Windows are shuffled within blocks of `shuffle_windows`. How many batches an epoch has is not known, so
    `trainer.max_steps` must be given. Files of a resumed run must have the same names and sizes.

    Args:
        train: see `TextData`, sources with weights included: each window is of one source. Of the hub, data sets are streamed.
        validation: likewise, without weights; or none.
        test: as validation.
        text: the column of the text in tables.
        document: whether each line of a text file is a document, or each file.
        layout: see `TextData`.
        window: tokens in a window.
        stride: in evaluation, tokens from one window to the next.
        empty: whether documents that hold only spaces are dropped or kept.
        shuffle_windows: about how many windows are held and shuffled at a time, over all devices.
        readers: how many shares the text is divided into, a multiple of the number of devices; one for each if None.
        tokenizer: how text is cut into tokens; `sample_megabytes` are taken from the beginning of the text.
        batches: how windows are put into batches; with `workers`, a thread reads and tokenizes meanwhile.
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
        shuffle_windows: int = 4096,
        readers: int | None = None,
        tokenizer: TextTokenizerSettings = TextTokenizerSettings(),  # noqa: B008 - frozen
        batches: BatchSettings = BatchSettings(),  # noqa: B008 - frozen
        damaged: Damaged = "stop",
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
            damaged=damaged,
        )
        for name, value in (("shuffle_windows", shuffle_windows), ("readers", readers)):
            if value is not None and value < 1:
                raise ValueError(f"`data.{name}` must be at least 1, but is {value}")
        self.shuffle_windows, self.readers = shuffle_windows, readers

    def read(self, split: str) -> Iterator[Document]:
        """All documents at a split's location; of the hub, those of the training data as they come."""
        if split != "train":
            yield from super().read(split)
            return
        for place in expand(self._location(split)):
            yield from self.read_from(place, 0)

    def read_from(self, place: str, first: int) -> Iterator[Document]:
        """The documents of one file or hub data set from a number on."""
        if place.startswith("hub:"):
            rows = read_hub(place, {"text": self.text}, streaming=True, skip=first)
            return ((row["text"],) for row in rows)
        documents = read_documents(place, self.text, self.document, self.readings["train"])
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
        return StreamedText(len(places), sum(map(_size, places)), self.readings["train"])

    def settings(self) -> dict[str, Any]:
        """What else the training batches depend on."""
        return {**super().settings(), "shuffle_windows": self.shuffle_windows, "readers": self.readers or self._ranks()[1]}

    def batches_per_epoch(self, world: int = 1) -> None:
        """Nobody knows."""
        return None

    def training_loader(self, rank: int, world: int) -> StreamLoader:
        """Reads this rank's shares of the training text from the beginning on."""
        size = windows_in_batch(self.batches.tokens, self.window, self.batches.max_examples, world)
        shares = self.readers or world
        if shares % world:
            raise ValueError(f"`data.readers` ({shares}) must be a multiple of the number of devices ({world})")
        location = self._location("train")
        sources = self.sources or (Source(location),)
        weights = [source.weight / sum(one.weight for one in sources) for source in sources]
        if rank == 0:
            mixed = "; " + ", ".join(f"{weight:.2%} of {source}" for weight, source in zip(weights, sources, strict=True))
            said = "train data: batches of %d windows of %d tokens, shuffled among %d; text in %d shares%s"
            log.info(said, size, self.window, self.shuffle_windows, shares, mixed if self.sources else "")
        places = [_places(source.files) for source in sources]
        streams = {
            share: [self._stream(number, places, weights, Share(share, shares)) for number in range(len(sources))]
            for share in range(rank, shares, world)
        }
        limit = self._first_batches()
        return StreamLoader(
            streams,
            shares,
            weights,
            size,
            self.prepare_training,
            rank=rank,
            world=world,
            limit=limit,
            ahead=max(1, self.shuffle_windows // size) if self.batches.workers else 0,
        )

    def state_dict(self) -> dict[str, Any]:
        """As ever, and what could not be read so far, on all ranks, which all must call it."""
        reading = self.readings["train"]
        for met in gather_objects([reading.met]):
            reading.join(met)
        state = super().state_dict()
        return {**state, "unread": reading.met} if state else state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As ever; what could not be read before is counted too."""
        super().load_state_dict(state_dict)
        if "unread" in state_dict:
            self.readings["train"].join(state_dict["unread"])

    def teardown(self, stage: str) -> None:
        """Says what could not be read, of which warnings have told the beginning only."""
        if stage == "fit" and "train" in self.reports and self.reports["train"].unread != Unread() and self._ranks()[0] == 0:
            log.info("train data: %s", self.reports["train"])

    def _first_batches(self) -> int | None:
        """How many batches one call of lightning's is of, if it ends; a stream has no epochs that could be cut short.

        Raises ValueError where they are to be.
        """
        if self.few is not None:
            raise ValueError(f"`{self.few.key}` is for data that has epochs, which TextStream has not: use TextData")
        limit = None if self.total_batches is not None or self.trainer is None else self.trainer.limit_train_batches
        return limit if isinstance(limit, int) else None

    def _stream(self, number: int, places: list[list[str]], weights: list[float], share: Share) -> WindowStream:
        """A share of a source; blocks are as large as the part of all windows that come from it."""
        block = math.ceil(self.shuffle_windows * weights[number] / share.of)
        seed = (self.seed, number) if self.sources else (self.seed,)
        keep = self.empty == "keep"
        return WindowStream(places[number], self.read_from, self.text_tokenizer, self.window, block, seed, share, keep)


def _places(location: Location) -> list[str]:
    """The files of a location; of a data set of the hub, its parts."""
    parts = [hub_parts(place) if place.startswith("hub:") else [place] for place in expand(location)]
    return [place for found in parts for place in found]


def _size(place: str) -> int:
    return 0 if place.startswith("hub:") else check_file(place).stat().st_size
