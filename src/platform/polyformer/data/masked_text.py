"""Running text in which a model is to predict words that it does not see, or to tell whether two texts belong together.

Letters: N rows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, starmap
from typing import Any

import numpy as np
import pyarrow.compute
import torch
from numpy.typing import NDArray

from polyformer.data.batches import BatchSettings
from polyformer.data.cache import cached_tokenizer
from polyformer.data.documents import Document, DocumentKind, Piece, cut, read_all
from polyformer.data.labelled import chance
from polyformer.data.limits import ColumnLimits, Rows
from polyformer.data.loader import BatchLoader
from polyformer.data.masked_rows import MaskedBatch, masked_batch
from polyformer.data.masking import (
    FORMAT,
    MaskingSettings,
    OtherDocuments,
    ending_of,
    mask_words,
    pieces_of,
    split_in_two,
    word_starts,
)
from polyformer.data.pairs import encode_texts
from polyformer.data.reading import Damaged, Reading
from polyformer.data.sourced import SourcedData, SourcedDataset
from polyformer.data.sources import Location, Train
from polyformer.data.text_data import TextTokenizerSettings
from polyformer.data.text_rows import batch_texts
from polyformer.text import Assets

__all__ = ["MaskedTextData"]

SHORTEST = 5  # two texts of one token, and the three marks around them
SECTION = 2**14  # characters after which a document is cut, before it is known how many tokens they are


@dataclass(frozen=True)
class LoadedTexts(SourcedDataset):
    """A memory-mapped data set and what became of its examples.

    Args:
        others: where there are two texts, how those of other documents are found.
    """

    others: OtherDocuments | None = None


class MaskedTextData(SourcedData):
    """Pieces of running text, some tokens of which are to be predicted, in batches of about `batches.tokens` tokens.

    Documents are cut into pieces of about equal length, before a word, so that none is short but those of short documents.
    What is to be predicted follows in training from seed, epoch and the number of the example, and in evaluation from its
    number: it is another in each epoch, and never depends on batches, workers or ranks. Documents without text are left
    out, and with `next_sentence` those of a single token; both are counted and said.

    Args:
        train: a text file, a table (.jsonl, .json, .parquet, .csv, .tsv), each also .gz, a pattern such as
            `shards/*.jsonl.gz` or a folder (in sorted order), a list of those, or `hub:NAME[@CONFIG]:SPLIT`. Or several
            sources that are mixed, as `[{files: web/*.parquet, weight: 0.7}, {files: books, weight: 0.3}]`: an epoch has as
            many batches as all of them together, each batch of one source.
        validation: likewise without weights, or none.
        test: as validation.
        text: the column of the text in tables, by name or number; each row is a document. Not used for text files.
        document: whether each line of a text file is a document, or each file.
        max_length: the most tokens in a row, the marks included.
        masking: which tokens are to be predicted.
        next_sentence: rows have two texts, which a model is to tell apart: in half of them the second follows the first, in
            the others it is of another document (Devlin et al. 2019, section 3.1).
        validation_share: where no validation data is given, this share of the training documents is held out for it, of
            long ones parts; it follows from the text alone, so that the same document is never on both sides.
        tokenizer: how text is cut into tokens.
        batches: how rows are put into batches.
        damaged: whether a run stops at a line or file that cannot be read, or leaves it out and counts it.
    """

    def __init__(
        self,
        train: Train = None,
        validation: str | list[str] | None = None,
        test: str | list[str] | None = None,
        text: str | int = "text",
        document: DocumentKind = "line",
        max_length: int = 512,
        masking: MaskingSettings = MaskingSettings(),  # noqa: B008 - frozen, as those below
        next_sentence: bool = False,
        validation_share: float | None = None,
        tokenizer: TextTokenizerSettings = TextTokenizerSettings(),  # noqa: B008
        batches: BatchSettings = BatchSettings(),  # noqa: B008
        damaged: Damaged = "stop",
    ) -> None:
        super().__init__(train, validation, test, batches, damaged, validation_share)
        if max_length < SHORTEST:
            raise ValueError(f"`data.max_length` must be at least {SHORTEST}, but is {max_length}")
        self.text, self.document, self.max_length = text, document, max_length
        self.masking, self.next_sentence, self.tokenizer = masking, next_sentence, tokenizer

    # Where text comes from; a subclass may say otherwise.

    @property
    def fields(self) -> tuple[str, ...]:
        """Our names of an example's texts."""
        return ("text", "second") if self.next_sentence else ("text",)

    @property
    def columns(self) -> Mapping[str, str | int]:
        """The text."""
        return {"text": self.text}

    def read(self, split: str) -> Iterator[Document]:
        """All documents at a split's location."""
        return read_all(self._location(split), self.text, self.document, self.readings[split])

    def examples(self, split: str) -> Iterator[dict[str, str]]:
        """The documents of a split with their numbers, long ones in parts, those held out left out."""
        share = self._share(split)
        for number, piece in _pieces(self.read(self.origin(split))):
            if share is None or (chance(piece.text) < share) == (split == "validation"):
                yield _example(number, piece)

    def examples_at(self, location: Location, reading: Reading) -> Iterator[dict[str, str]]:
        """The documents of a source with their numbers, long ones in parts."""
        return starmap(_example, _pieces(read_all(location, self.text, self.document, reading)))

    # From text to rows.

    def make_assets(self) -> Assets:
        """The tokenizer "text"; and the labels "next", for a head that tells whether a text follows another."""

        def texts() -> list[str]:
            return self.tokenizer.sampled(example["text"] for example in self.examples("train"))

        reading = {**self.content_key("train"), "text": self.text, "document": self.document}
        key = {**reading, "section": SECTION, "sample": self.tokenizer.sample_bytes}
        labels = {"next": ["no", "yes"]} if self.next_sentence else {}
        return Assets({"text": cached_tokenizer(texts, self.tokenizer.plain(), key)}, labels)

    def encode(self, rows: dict[str, list[str]]) -> Rows:
        """Documents to rows of ids without marks, more rows than documents; a document without text gives an empty one."""
        tokenizer, room = self.assets.tokenizers["text"], self.max_length - len(self.fields) - 1
        encoded: Rows = {name: [] for name in (*self.fields, "document")}
        for row, ids in enumerate(encode_texts(tokenizer, rows["text"])):
            starts = word_starts(np.array(ids, dtype=np.int64), tokenizer.word_edges)
            for piece, begins in pieces_of(ids, starts, room) if ids else [(ids, starts)]:
                texts = split_in_two(piece, begins) if self.next_sentence else (piece,)
                for name, text in zip(self.fields, texts, strict=True):
                    encoded[name].append(text)
                encoded["document"].append(int(rows["document"][row]))
        return encoded

    def limits(self, split: str) -> ColumnLimits:
        """Rows with an empty text are left out, in evaluation too: there is nothing to predict in them."""
        return ColumnLimits(dict.fromkeys(self.fields))

    def load(self, split: str) -> LoadedTexts:
        """The encoded rows of a split, from the cache if the same were encoded before."""
        if self.next_sentence != ("next" in self.assets.labels):
            raise ValueError(f"`data.next_sentence` is {self.next_sentence}, but the model was trained with the opposite")
        found = super().load(split)
        others = None
        if self.next_sentence:
            table = found.rows.data.table
            lengths = pyarrow.compute.list_value_length(table.column("second")).to_numpy()
            documents = _apart(table.column("document").to_numpy(), found.borders)
            others = OtherDocuments(documents, lengths.astype(np.int64))
        return LoadedTexts(found.rows, found.report, found.borders, others)

    def settings(self) -> dict[str, Any]:
        """What the training batches depend on beside files, columns and tokenizers."""
        masking = {f"masking.{name}": value for name, value in vars(self.masking).items()}
        kinds = {
            "format": FORMAT,
            "document": self.document,
            "max_length": self.max_length,
            "next_sentence": self.next_sentence,
        }
        return {**kinds, **masking, "validation_share": self.validation_share}

    def lengths(self, split: str) -> NDArray[np.int64]:
        """(N, 1) tokens of each row, the marks included."""
        table = self.dataset(split).data.table
        texts = [pyarrow.compute.list_value_length(table.column(name)).to_numpy() for name in self.fields]
        return (np.stack(texts, axis=1).astype(np.int64) + 1).sum(axis=1, keepdims=True) + 1

    # From rows to batches.

    def training_rows(self, rows: Rows, epoch: int) -> Rows:
        """Rows masked anew, as follows from seed, epoch and the example's number alone."""
        return self.masked(rows, "train", (self.seed, epoch))

    def evaluation_loader(self, split: str) -> BatchLoader:
        """Every row of a split exactly once over all ranks, masked as follows from its number alone."""
        loader = super().evaluation_loader(split)
        loader.prepare = partial(self._evaluated, split)
        return loader

    def _evaluated(self, split: str, rows: Rows, epoch: int) -> MaskedBatch:
        return self.collate(self.masked(rows, split, ()))

    def masked(self, rows: Rows, split: str, key: tuple[int, ...]) -> Rows:
        """Rows with what the model reads ("read") and is to predict ("target"), the texts of a row joined.

        With two texts, half of the second ones are replaced, and "follows" says which are not.

        Args:
            rows: encoded columns, with "index".
            split: where they are from.
            key: what the chances follow from, beside the example's number.
        """
        tokenizer = self.assets.tokenizers["text"]
        changed: Rows = {name: list(rows[name]) for name in ("index", *self.fields)}
        generators = [np.random.Generator(np.random.PCG64([*key, number])) for number in rows["index"]]
        if self.next_sentence:
            changed["follows"] = self._exchange(changed, split, generators)
        changed |= {"read": [], "target": []}
        for row, generator in enumerate(generators):
            texts = [np.array(changed[name][row], dtype=np.int64) for name in self.fields]
            ids, starts = np.concatenate(texts), np.concatenate([word_starts(text, tokenizer.word_edges) for text in texts])
            starts |= not self.masking.whole_words
            read, target = mask_words(ids, starts, self.masking.share, len(tokenizer), generator)
            changed["read"].append(read)
            changed["target"].append(target)
        return changed

    def _exchange(self, rows: Rows, split: str, generators: list[np.random.Generator]) -> list[float]:
        """Puts texts of other documents in place of half of the second ones, none longer; 1 for each row that has its own."""
        others: OtherDocuments = self.loaded(split).others
        drawn = {
            row: others.draw(rows["index"][row], generator)
            for row, generator in enumerate(generators)
            if generator.random() < 0.5
        }
        edges = self.assets.tokenizers["text"].word_edges
        seconds = self.dataset(split).select_columns(["second"])[list(drawn.values())]["second"] if drawn else []
        for row, second in zip(drawn, seconds, strict=True):
            rows["second"][row] = ending_of(second, len(rows["second"][row]), edges)
        return [float(row not in drawn) for row in range(len(generators))]

    def collate(self, rows: Rows) -> MaskedBatch:
        """Masked rows as tensors."""
        batch = batch_texts(list(zip(*(rows[name] for name in self.fields), strict=True)), rows["index"])
        follows = torch.tensor(rows["follows"]) if "follows" in rows else None
        return replace(masked_batch(batch, rows["read"], rows["target"]), follows=follows)


def _pieces(documents: Iterator[Document]) -> Iterator[tuple[int, Piece]]:
    """The documents in parts, each with the number of its document."""
    return ((number, piece) for number, document in enumerate(documents) for piece in cut(document, SECTION))


def _example(number: int, piece: Piece) -> dict[str, str]:
    return {"text": piece.text if piece.begins else piece.text.removeprefix(" "), "document": str(number)}


def _apart(documents: NDArray[np.int64], borders: list[int]) -> NDArray[np.int64]:
    """The numbers of documents, which begin anew in each source, so that those of all sources differ.

    >>> _apart(np.array([0, 1, 0, 0, 1]), [0, 2, 5]).tolist()
    [0, 1, 2, 2, 3]
    """
    apart, first = documents.copy(), 0
    for begin, end in pairwise(borders):
        apart[begin:end] += first
        first = int(apart[begin:end].max(initial=first - 1)) + 1
    return apart
