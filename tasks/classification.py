"""Classification: an encoder reads a text or a pair of texts, a linear head decides.

Letters: B batch, L tokens, D model, W width of the pooled vector, K outputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from polyformer.data import LabelledBatch, LabelledData, TextLimits, cut_together, encode_texts, text_batches
from polyformer.models import EncoderOnly, EncoderOnlyOptions, initialize
from polyformer.nn import Dropout, Mean, PoolingFactory
from polyformer.text import EOS, Assets
from polyformer.training import Answer, ClassWeights, LineError, Loss, Task, make_target

__all__ = ["Classification", "ClassificationOptions"]

SHOWN = 3
SHOWN_CHARACTERS = 120


@dataclass(frozen=True, kw_only=True)
class ClassificationOptions(EncoderOnlyOptions):
    """An encoder and what its vectors become.

    Args:
        pooling: What makes one vector of a text's (a subclass of Pooling).
        output_dropout: Probability of dropout on that vector.
    """

    pooling: PoolingFactory = Mean
    output_dropout: float = 0.1


@dataclass(frozen=True)
class Classified:
    """One example after reading: K outputs, its target, and in a test, or for the first examples, the text."""

    outputs: list[float]
    target: Any
    text: str


class Classification(Task):
    """Labels texts or pairs of texts, or gives them a number. Which of these follows from the data.

    Args:
        assets: Tokenizer "text", and labels "label" or "labels", or numbers "number".
        options: The network.
        class_weights: How many times an example of each label counts in training: "balanced" makes all labels weigh the same
            in sum, a mapping gives the weights of the labels it names.
        label_smoothing: Share of each target given to all labels evenly.
    """

    model_class = ClassificationOptions
    data_class = LabelledData

    def __init__(
        self,
        assets: Assets,
        options: ClassificationOptions,
        class_weights: ClassWeights = "none",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(assets, options)
        self.target = make_target(assets, class_weights, label_smoothing)
        self.monitor = self.target.monitor
        self.tokenizer = assets.tokenizers["text"]
        self.network = EncoderOnly(len(self.tokenizer), options)
        self.pooling = options.pooling(options.shape(causal=False))
        self.output_dropout = Dropout(options.output_dropout)
        initialize(self.pooling, options.initialization)
        self.output = initialize(nn.Linear(self.pooling.width, self.target.size), "gpt2")  # small: first guesses are even
        self._answered = self._cut = self._empty = 0

    @classmethod
    def check(cls, options: ClassificationOptions, data: LabelledData, training: bool) -> None:
        limit, longest = options.limit(causal=False), data.text_limits.max_length
        if limit is not None and longest > limit:
            raise ValueError(
                f"`data.limits.max_length` ({longest}) must not be above `model.max_length` ({limit}), which is "
                "all that the position and the mixer have room for"
            )
        if len(data.fields) > 1 and options.segments == 1:
            raise ValueError("`model.segments` must be 2 for pairs of texts, or 0 for no segment embeddings, but is 1")

    # ---- training and evaluation

    def outputs(self, batch: LabelledBatch) -> Tensor:
        """The head's outputs for the N examples of a batch, (N, K): for a text read in windows the mean of theirs."""
        segment = batch.segment if self.network.segment_embedding is not None else None
        pooled = self.network.pooled(self.pooling, batch.tokens, segment, batch.keep)  # (B, W)
        outputs: Tensor = self.output(self.output_dropout(pooled)).float()  # (B, K)
        if batch.windows is None:
            return outputs
        owner = torch.repeat_interleave(batch.windows)  # (B,), the example that each window belongs to
        summed = outputs.new_zeros(len(batch), outputs.shape[1]).index_add(0, owner, outputs)  # (N, K)
        return summed / batch.windows[:, None]

    def loss(self, batch: LabelledBatch) -> Loss:
        return self._loss(self.outputs(batch), batch)

    def _loss(self, outputs: Tensor, batch: LabelledBatch) -> Loss:
        """Summed over examples, so that each weighs the same however batches are cut."""
        assert batch.target is not None
        trained, reported = self.target.losses(outputs, batch.target)
        tokens = torch.tensor(batch.tokens.numel(), device=outputs.device) if batch.keep is None else batch.keep.sum()
        count = torch.tensor(len(batch), device=outputs.device)
        right = self.target.right(outputs, batch.target)
        counted = {} if right is None else {"correct": right.sum()}
        return Loss(trained.sum(), count, {"reported": reported.detach().sum(), "tokens": tokens, **counted})

    def evaluate(self, batch: LabelledBatch, split: str) -> tuple[Loss, list[tuple[int, Classified]]]:
        assert batch.target is not None
        outputs = self.outputs(batch)
        numbers = batch.index.tolist()
        rows = range(len(numbers)) if batch.windows is None else (batch.windows.cumsum(0) - batch.windows).tolist()
        kept = [split == "test" or number < SHOWN for number in numbers]
        texts = [self._text(batch.tokens[row]) if keep else "" for row, keep in zip(rows, kept, strict=True)]
        records = map(Classified, outputs.tolist(), batch.target.tolist(), texts)
        return self._loss(outputs, batch), list(zip(numbers, records, strict=True))

    def _text(self, tokens: Tensor) -> str:
        """The one or two texts in a row of tokens, a tab between them."""
        ids = tokens.tolist()
        ends = [place for place, token in enumerate(ids) if token == EOS]
        begins = [1, *(place + 1 for place in ends)]
        texts = (self.tokenizer.decode(ids[begin:end]) for begin, end in zip(begins, ends, strict=False))
        return "\t".join(text.replace("\t", " ") for text in texts)

    def measure(self, sums: dict[str, float], records: list[Classified], split: str) -> dict[str, float]:
        return {"loss": sums["reported"] / sums["count"], **self.target.measure(*_stacked(records))}

    def signatures(self) -> dict[str, str]:
        limits = self._limits()
        windows = "" if limits.stride is None else f"|stride:{limits.stride}|windows:{limits.windows}"
        return {"texts": f"max_length:{limits.max_length}|cut:{limits.cut}{windows}", **self.target.signatures}

    def samples(self, records: list[Classified]) -> list[str]:
        outputs, target = _stacked(records)
        lines = []
        for record, output, true in zip(records[:SHOWN], outputs, target, strict=False):
            text = " ".join(record.text.split())
            shown = text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."
            lines.append(f"{shown}  ->  {self.target.answer(output).text}  (truth: {self.target.truth(true)})")
        return lines + self.target.summary(outputs, target)

    def sample_rows(self, records: list[Classified]) -> list[dict[str, Any]]:
        rows = zip(records[:SHOWN], *_stacked(records[:SHOWN]), strict=True)
        return [
            {"source": record.text, "reference": self.target.truth(true), "output": self.target.answer(output).text}
            for record, output, true in rows
        ]

    def example_rows(self, records: list[Classified]) -> list[dict[str, Any]]:
        """A number is neither right nor wrong."""
        rows = []
        for record, output, target in zip(records, *_stacked(records), strict=True):
            made, true = self.target.answer(output).text, self.target.truth(target)
            row = {"input": record.text, "reference": true, "output": made}
            rows.append(row if self.target.is_number else {**row, "correct": made == true})
        return rows

    def pictures(self, records: list[Classified]) -> dict[str, Any]:
        return self.target.pictures(*_stacked(records))

    def try_line(self, records: list[Classified]) -> str:
        texts = records[0].text.split("\t") if len(self._fields()) > 1 else [records[0].text]
        return "\t".join(" ".join(text[:SHOWN_CHARACTERS].split()) for text in texts)

    # ---- using it

    @torch.no_grad()
    def answer(self, lines: Sequence[str]) -> list[Answer]:
        """The label of each line, or of each pair "text<TAB>second"; a line's label does not depend on the others."""
        separator = self._data().get("target", {}).get("separator", ",")
        return [self.target.answer(outputs, separator) for outputs in self._read(lines)]

    @torch.no_grad()
    def score(self, lines: Sequence[str]) -> list[Answer]:
        """The log-probability of every label, for each line."""
        return [self.target.score(outputs) for outputs in self._read(lines)]

    def remarks(self) -> list[str]:
        limits = self._limits()
        longest = limits.room(len(self._fields())) + len(self._fields()) + 1
        counted = [
            (self._cut, f"longer than {longest} tokens and cut (data.limits.cut: {limits.cut})"),
            (self._empty, "without any text, answered all the same"),
        ]
        return [f"{count:,} of {self._answered:,} lines {what}" for count, what in counted if count]

    def _read(self, lines: Sequence[str]) -> list[Tensor]:
        """(K,) outputs for each line."""
        examples, limits = self._encoded(lines), self._limits()
        room = limits.room(len(self._fields()))
        cut = [cut_together(texts, room, limits.cut) for texts in examples]
        self._answered += len(lines)
        self._cut += sum(before != after for before, after in zip(examples, cut, strict=True))
        self._empty += sum(not any(texts) for texts in examples)
        found: dict[int, Tensor] = {}
        for batch in text_batches(cut, limits):
            outputs = self.outputs(batch.to(self.device)).cpu()
            found.update(zip(batch.index.tolist(), outputs, strict=True))
        return [found[place] for place in range(len(lines))]

    def _encoded(self, lines: Sequence[str]) -> list[list[list[int]]]:
        """The ids of each line's texts."""
        fields = self._fields()
        empty = [""] * len(fields)
        examples = [(line.split("\t") if len(fields) > 1 else [line]) if line.strip() else empty for line in lines]
        for number, texts in enumerate(examples, 1):
            if len(texts) != len(fields):
                raise LineError(number, f"must be text, tab, second text, but has {len(texts) - 1} tabs")
        columns = [encode_texts(self.tokenizer, column) for column in zip(*examples, strict=True)]
        return [list(texts) for texts in zip(*columns, strict=True)]

    def _data(self) -> dict[str, Any]:
        """The settings of the data that the task was trained on; texts are read alike wherever they come from."""
        given: dict[str, Any] = self.settings.get("data", {}).get("init_args", {})
        return given

    def _limits(self) -> TextLimits:
        return TextLimits(**self._data().get("limits", {"max_length": self.options.max_length}))

    def _fields(self) -> Sequence[str]:
        return ("text",) if self._data().get("second") is None else ("text", "second")


def _stacked(records: list[Classified]) -> tuple[Tensor, Tensor]:
    """(N, K) outputs and the targets of a split."""
    return torch.tensor([record.outputs for record in records]), torch.tensor([record.target for record in records])
