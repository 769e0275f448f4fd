"""Running text in which a model is to predict words that it does not see, or to tell whether two texts belong together.

Letters: N rows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow.compute
import torch
from numpy.typing import NDArray

from polyformer.data.batches import BatchSettings, TokenBatches
from polyformer.data.cache import EncodedDataset, cached_tokenizer
from polyformer.data.documents import Document, DocumentKind, cut, read_all
from polyformer.data.examples import ExampleData
from polyformer.data.labelled import chance
from polyformer.data.limits import ColumnLimits, Rows
from polyformer.data.loader import BatchLoader, BatchPlan
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
from polyformer.data.mixture import MixedPlan, MixedRows, decoded
from polyformer.data.pairs import encode_texts
from polyformer.data.reading import Damaged
from polyformer.data.sources import Train, expand, parted
from polyformer.data.text_data import TextTokenizerSettings
from polyformer.data.text_rows import batch_texts
from polyformer.text import Assets

__all__ = ["MaskedTextData"]

SHORTEST = 5  # two texts of one token, and the three marks around them
SECTION = 2**14  # characters after which a document is cut, before it is known how many tokens they are


@dataclass(frozen=True)
class LoadedTexts(EncodedDataset):
    """A memory-mapped data set and what became of its examples.

    Args:
        borders: where the rows of each source begin, and where the last one's end.
        others: where there are two texts, how those of other documents are found.
    """

    borders: list[int]
    others: OtherDocuments | None = None


class MaskedTextData(ExampleData):
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
        location, self.sources = parted(train, validation_share)
        super().__init__(location, validation, test, batches, damaged, validation_share)
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
        """The documents of a split with their numbers, long ones in parts, those held out left out.

        Of sources that are mixed, also the number of the source.
        """
        share, number = self._share(split), 0
        for source, documents in self._by_source(self.origin(split)):
            for document in documents:
                number += 1
                for piece in cut(document, SECTION):
                    if share is None or (chance(piece.text) < share) == (split == "validation"):
                        text = piece.text if piece.begins else piece.text.removeprefix(" ")
                        yield {"text": text, "document": str(number - 1), "source": str(source)}

    def _by_source(self, split: str) -> Iterator[tuple[int, Iterator[Document]]]:
        if split != "train" or not self.sources:
            yield 0, self.read(split)
            return
        for number, source in enumerate(self.sources):
            yield number, read_all(source.files, self.text, self.document, self.readings[split])

    # From text to rows.

    def make_assets(self) -> Assets:
        """The tokenizer "text"; and the labels "next", for a head that tells whether a text follows another."""

        def texts() -> list[str]:
            return self.tokenizer.sampled(example["text"] for example in self.examples("train"))

        reading = {"contents": self.contents("train"), "text": self.text, "document": self.document}
        key = {**reading, "section": SECTION, "sample": self.tokenizer.sample_bytes}
        labels = {"next": ["no", "yes"]} if self.next_sentence else {}
        return Assets({"text": cached_tokenizer(texts, self.tokenizer.plain(), key)}, labels)

    def encode(self, rows: dict[str, list[str]]) -> Rows:
        """Documents to rows of ids without marks, more rows than documents; a document without text gives an empty one."""
        tokenizer, room = self.assets.tokenizers["text"], self.max_length - len(self.fields) - 1
        encoded: Rows = {name: [] for name in (*self.fields, "document", "source")}
        for row, ids in enumerate(encode_texts(tokenizer, rows["text"])):
            starts = word_starts(np.array(ids, dtype=np.int64), tokenizer.word_edges)
            for piece, begins in pieces_of(ids, starts, room) if ids else [(ids, starts)]:
                texts = split_in_two(piece, begins) if self.next_sentence else (piece,)
                for name, text in zip(self.fields, texts, strict=True):
                    encoded[name].append(text)
                encoded["document"].append(int(rows["document"][row]))
                encoded["source"].append(int(rows["source"][row]))
        return encoded

    def limits(self, split: str) -> ColumnLimits:
        """Rows with an empty text are left out, in evaluation too: there is nothing to predict in them."""
        return ColumnLimits(dict.fromkeys(self.fields))

    def load(self, split: str) -> LoadedTexts:
        """The encoded rows of a split, from the cache if the same were encoded before."""
        if self.next_sentence != ("next" in self.assets.labels):
            raise ValueError(f"`data.next_sentence` is {self.next_sentence}, but the model was trained with the opposite")
        found = super().load(split)
        table = found.rows.data.table
        numbers, count = table.column("source").to_numpy(), max(len(self.sources), 1)
        borders = [int(np.searchsorted(numbers, number)) for number in range(count + 1)]
        others = None
        if self.next_sentence:
            lengths = pyarrow.compute.list_value_length(table.column("second")).to_numpy()
            others = OtherDocuments(table.column("document").to_numpy(), lengths.astype(np.int64))
        return LoadedTexts(found.rows, found.report, borders, others)

    def settings(self) -> dict[str, Any]:
        """What the training batches depend on beside files, columns and tokenizers."""
        masking = {f"masking.{name}": value for name, value in vars(self.masking).items()}
        kinds = {
            "format": FORMAT,
            "document": self.document,
            "max_length": self.max_length,
            "next_sentence": self.next_sentence,
        }
        sources = {"train sources": [len(expand(source.files)) for source in self.sources]} if self.sources else {}
        return {**kinds, **masking, **sources, "validation_share": self.validation_share}

    def data_settings(self) -> dict[str, Any]:
        """All that decides which training batches come when; weights, unlike files, change no encoded row."""
        weights = {"train weights": [source.weight for source in self.sources]} if self.sources else {}
        return {**super().data_settings(), **weights}

    def lengths(self, split: str) -> NDArray[np.int64]:
        """(N, 1) tokens of each row, the marks included."""
        table = self.dataset(split).data.table
        texts = [pyarrow.compute.list_value_length(table.column(name)).to_numpy() for name in self.fields]
        return (np.stack(texts, axis=1).astype(np.int64) + 1).sum(axis=1, keepdims=True) + 1

    # From rows to batches.

    def training_plan(self, world: int) -> BatchPlan:
        """Batches of about `batches.tokens` tokens; of sources that are mixed, each batch of one."""
        if not self.sources:
            return super().training_plan(world)
        settings: dict[str, Any] = {"tokens": self.batches.tokens, "seed": self.seed, "at_least": world}
        lengths = np.split(self.lengths("train"), self.loaded("train").borders[1:-1])
        plans = [TokenBatches(part, **settings, max_examples=self.batches.max_examples) for part in lengths]
        return MixedPlan(plans, [source.weight for source in self.sources], self.seed, 1, list(map(str, self.sources)))

    def training_source(self) -> Any:
        """The columns that training batches are made from; of sources that are mixed, by the numbers of the mixed plan."""
        rows = super().training_source()
        if not self.sources:
            return rows
        return MixedRows([rows.select(range(first, last)) for first, last in pairwise(self.loaded("train").borders)])

    def prepare_training(self, rows: Rows, epoch: int) -> MaskedBatch:
        """Encoded columns to a training batch; a source has epochs of its own."""
        if self.sources:
            number, epoch, own = decoded(rows["index"], len(self.sources))
            rows = {**rows, "index": [self.loaded("train").borders[number] + at for at in own]}
        return self.collate(self.training_rows(rows, epoch))

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
