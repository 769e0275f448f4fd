"""Tagging: an encoder reads a sentence, a linear head labels its words. Letters: B batch, L tokens, K labels."""

import math
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from polyformer.data import BatchSettings, LabelledBatch, LabelledData, TargetSettings, TextLimits, batch_texts, pad_rows
from polyformer.data.conll import read_sentences
from polyformer.data.sources import expand
from polyformer.models import EncoderOnly, EncoderOnlyOptions, initialize
from polyformer.text import PAD, UNK, Assets, TokenizerSettings
from polyformer.training import Answer, Loss, Task, find_spans, log

__all__ = ["Tagging", "TaggingData", "find_spans"]

BESIDE, BREAK = -1, -2  # in place of a label: where no word begins, and before the first word of a sentence


class TaggingData(LabelledData):
    """Sentences from files with a word in each line, columns between tabs or spaces, and an empty line after each sentence.

    Left out are `-DOCSTART-` and, in CoNLL-U (`.conllu` in the name), comments, ranges (3-4) and empty nodes (5.1). Arguments
    that are not listed here are those of `LabelledData`.

    Args:
        word: the column of the word, counted from 0, or from -1 at the end.
        label: the column of the label.
        max_length: the most tokens in a row, its two marks included; a longer sentence is cut, between words, into several.
    """

    def __init__(
        self, train: str | list[str] | None = None, validation: str | list[str] | None = None,
        test: str | list[str] | None = None, word: int = 0, label: int = -1, max_length: int = 256,
        tokenizer: TokenizerSettings = TokenizerSettings(), batches: BatchSettings = BatchSettings(),  # noqa: B008 - frozen
    ) -> None:  # fmt: skip
        target, limits = TargetSettings("labels", separator=" "), TextLimits(max_length)
        super().__init__(train, validation, test, word, None, label, target, limits, None, tokenizer, batches)

    def read(self, split: str) -> Iterator[dict[str, str]]:
        """Sentences, the words of each and their labels with spaces between them."""
        for path in expand(self._location(split)):
            yield from read_sentences(path, int(self.text), int(self.label))

    def encode(self, rows: dict[str, list[str]]) -> dict[str, list[Any]]:
        self.labelling.encode(zip(rows.get("label", []), rows.get("where", []), strict=True), self.assets)  # or refuses them
        known = {name: number for number, name in enumerate(self.assets.labels["labels"])}
        made, room = list[tuple[list[int], list[int]]](), self.text_limits.room(1)
        for text, labels in zip(rows["text"], rows.get("label", rows["text"]), strict=True):
            made.append(([], [BREAK]))
            words = [ids[:room] or [UNK] for ids in self.assets.tokenizers["text"].encode_batch(text.split(" ")) if text]
            for tokens, label in zip(words, labels.split(" "), strict=False):
                if len(made[-1][0]) + len(tokens) > room:
                    made.append(([], [BESIDE]))
                made[-1][0].extend(tokens)
                made[-1][1].extend([known[label] if "label" in rows else 0, *[BESIDE] * (len(tokens) - 1)])
        return {"text": [tokens for tokens, _ in made], "label": [[*labels, BESIDE] for _, labels in made]}

    def collate(self, rows: dict[str, list[Any]]) -> LabelledBatch:
        return batch_texts([[tokens] for tokens in rows["text"]], rows["index"], pad_rows(rows["label"], BESIDE))


class Tagging(Task):
    """Labels words by the vectors of their first tokens (Devlin et al. 2019, section 5.3), and measures spans if there are."""

    model_class, data_class = EncoderOnlyOptions, TaggingData

    def __init__(self, assets: Assets, options: EncoderOnlyOptions) -> None:
        super().__init__(assets, options)
        (labels,) = assets.labels.values()
        self.names = [*labels, "O", ""]  # the last two are those of BREAK and BESIDE
        self.has_spans = all(re.match("O$|[BIMESLU](-|$)", label) for label in labels)
        self.monitor = ("val/f1" if self.has_spans else "val/accuracy", "max")
        self.network = EncoderOnly(len(assets.tokenizers["text"]), options)
        self.output = initialize(nn.Linear(options.d_model, len(labels)), "gpt2")  # small: first guesses are even

    def accept(self, data: TaggingData) -> None:
        labels = self._names(data.texts("train", "label"))
        ends = any(re.match("[ESLU](-|$)", name) for name in self.names)  # as in BIOES, where each span has one
        odd = sum(labels[a][0] in "IMEL" or (ends and labels[b - 1][0] in "BIM") for _, a, b in find_spans(labels))
        if self.has_spans and 0 < odd < sum(label[0] in "BSU" for label in labels):  # else IOB1, where I begins most spans
            log.warning("%d spans in the training data break its scheme, %s", odd, "BIOES" if ends else "BIO")

    def loss(self, batch: Any) -> Loss:
        return self._read(batch)[0]

    def _read(self, batch: Any) -> tuple[Loss, Tensor]:
        """The loss of a batch, and (B, L, K) the logits of the words that begin at its tokens."""
        outputs, words = self.output(self.network(batch.tokens, None, batch.keep)).float(), batch.target >= 0
        total = nn.functional.cross_entropy(outputs[words], batch.target[words], reduction="sum")
        correct = (outputs.argmax(dim=-1) == batch.target).sum()
        return Loss(total, words.sum(), {"correct": correct, "tokens": (batch.tokens != PAD).sum()}), outputs

    def evaluate(self, batch: Any, split: str) -> tuple[Loss, list[tuple[int, Any]]]:
        loss, outputs = self._read(batch)
        shares, found = outputs.softmax(dim=-1).max(dim=-1)  # (B, L) each
        columns = (batch.target, torch.where(batch.target < 0, batch.target, found), shares)
        return loss, list(zip(batch.index.tolist(), zip(*(column.tolist() for column in columns), strict=True), strict=True))

    def measure(self, sums: dict[str, float], records: list[Any], split: str) -> dict[str, float]:
        figures = {"loss": sums["loss"] / sums["count"], "accuracy": sums["correct"] / sums["count"]}
        true, found = ({*find_spans(self._names(record[side] for record in records))} for side in (0, 1))
        sizes = {"precision": len(found), "recall": len(true), "f1": (len(found) + len(true)) / 2}
        spans = {name: len(true & found) / size if size else 0.0 for name, size in sizes.items()}
        return figures | (spans if self.has_spans else {})

    def example_rows(self, records: list[Any]) -> list[dict[str, Any]]:
        """A sentence is correct where all its labels are; none where some were left out (`trainer.limit_test_batches`)."""
        if len(records) < len(self.data.dataset("test")):
            return []
        told = (self.names[found] for record in records for true, found, _ in zip(*record, strict=True) if true >= 0)
        rows = ((row["text"], row["label"]) for row in self.data.read("test"))
        told_rows = [(text, true, " ".join(islice(told, true.count(" ") + 1))) for text, true in rows]
        return [{"input": text, "reference": true, "output": made, "correct": made == true} for text, true, made in told_rows]

    @torch.no_grad()
    def answer(self, lines: Sequence[str]) -> list[Answer]:
        """The labels of each line's words, which stand between spaces; they do not depend on the other lines."""
        data = TaggingData(max_length=self.settings["data"]["init_args"]["max_length"])
        data.use_assets(self.assets)
        batches = data.batches_of({"text": [" ".join(line.split()) for line in lines]})
        records = sorted(pair for batch in batches for pair in self.evaluate(batch.to(self.device), "test")[1])
        told = ((found, share) for _, record in records for true, found, share in zip(*record, strict=True) if true >= 0)
        return [self._answer(line.split(), [next(told) for _ in line.split()]) for line in lines]

    def _answer(self, words: list[str], told: list[tuple[int, float]]) -> Answer:
        labels, total = [self.names[found] for found, _ in told], math.fsum(math.log(share) for _, share in told)
        spans = [{"type": kind, "text": " ".join(words[a:b]), "begin": a, "end": b} for kind, a, b in find_spans(labels)]
        details = {"labels": labels, "probabilities": [share for _, share in told], "log_probability": total}
        return Answer(" ".join(labels), details | ({"spans": spans} if self.has_spans else {}))

    def score(self, lines: Sequence[str]) -> list[Answer]:
        """The log-probability of the best labels of each line."""
        return [Answer(f"{answer.details['log_probability']:.4f}", answer.details) for answer in self.answer(lines)]

    def _names(self, rows: Any) -> list[str]:
        return [self.names[label] for row in rows for label in row if label != BESIDE]
