"""Question answering: an encoder reads a question and a text, and points at the answer. Letters: B batch, L tokens."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from polyformer.data import BatchSettings, LabelledBatch, LabelledData, TextLimits, batch_texts, cached_tokenizer
from polyformer.data.squad import Questions
from polyformer.models import EncoderOnly, EncoderOnlyOptions, initialize
from polyformer.text import BOS, EOS, PAD, UNK, WORD, Assets, TokenizerSettings
from polyformer.training import Answer, LineError, Loss, Task, answer_metrics

__all__ = ["QuestionAnswering", "QuestionData"]


class QuestionData(LabelledData):
    """Questions on texts, as in SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018); other arguments are those of `LabelledData`.

    Args:
        max_length: the most tokens in a row: question, text and three marks; a longer text is read in several windows.
        stride: how many tokens lie between the beginnings of two windows.
    """

    def __init__(
        self, train: str | list[str] | None = None, validation: str | list[str] | None = None,
        test: str | list[str] | None = None, max_length: int = 384, stride: int = 128,
        tokenizer: TokenizerSettings = TokenizerSettings(), batches: BatchSettings = BatchSettings(),  # noqa: B008 - frozen
    ) -> None:  # fmt: skip
        limits, self.stride, self.half = TextLimits(max_length), stride, (max_length - 3) // 2
        self.counted, self.texts_served = ("second",), ("places", "first")
        self.questions = Questions()
        super().__init__(train, validation, test, second="context", limits=limits, tokenizer=tokenizer, batches=batches)
        if not 0 < stride <= self.half:
            raise ValueError(f"`data.stride` must be from 1 to {self.half}, half of `data.max_length`, but is {stride}")

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "stride": self.stride}

    def read(self, split: str) -> Iterator[dict[str, Any]]:
        return self.questions.read(self._location(split), split)

    def make_assets(self) -> Assets:
        texts = dict.fromkeys(" ".join(WORD.findall(row[name])) for row in self.read("train") for name in self.fields)
        tokenizer = cached_tokenizer(lambda: texts, self.tokenizer, {"contents": self.contents("train"), "word": WORD.pattern})
        return Assets({"text": tokenizer}, numbers={"unanswered": [float(sum(not row["label"] for row in self.read("train")))]})

    def cut(self, text: str) -> list[tuple[int, int, int]]:
        """The tokens of a text, each with the characters where its word begins and ends."""
        words = self.assets.tokenizers["text"].encode_batch(WORD.findall(text))
        return [(ids, *at.span()) for at, tokens in zip(WORD.finditer(text), words, strict=True) for ids in tokens or [UNK]]

    def encode(self, rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        made, cut = list[Any](), {text: self.cut(text) for text in {*rows["second"]}}
        for asked, text, answers in zip(rows["text"], rows["second"], rows["label"], strict=True):
            question, tokens = [token for token, *_ in self.cut(asked)][: self.half], cut[text]
            room, (answer, start) = self.text_limits.room(2) - len(question), (answers or [("", 0)])[0]
            held = [at for at, (_, begin, end) in enumerate(tokens) if begin < start + len(answer) and end > start]
            for first in range(0, max(len(tokens) - room, 0) + self.stride, self.stride):
                part, shift = tokens[first : first + room], len(question) + 2 - first
                label = [held[0] + shift, held[-1] + shift] if held and first <= held[0] and held[-1] < first + room else [0, 0]
                places = [(0, 0)] * (first + shift) + [place for _, *place in part]
                made.append((question, [token for token, *_ in part], label, places, first))
        return dict(zip(("text", "second", "label", "places", "first"), map(list, zip(*made, strict=True)), strict=True))

    def collate(self, rows: dict[str, list[Any]]) -> LabelledBatch:
        return batch_texts(list(zip(rows["text"], rows["second"], strict=True)), rows["index"], torch.tensor(rows["label"]))


class QuestionAnswering(Task):
    """Points at the answer in a text, or at BOS for none if training had such questions (Devlin et al. 2019, 4.2 and 4.3).

    Args:
        longest: The most tokens of an answer.
    """

    model_class, data_class, monitor = EncoderOnlyOptions, QuestionData, ("val/f1", "max")

    def __init__(self, assets: Assets, options: EncoderOnlyOptions, longest: int = 30) -> None:
        super().__init__(assets, options)
        self.longest, self.has_segments = longest, options.segments > 1
        self.least = 0.0 if any(assets.numbers.get("unanswered", [])) else -torch.inf  # log-odds of an answer against none
        self.network = EncoderOnly(len(assets.tokenizers["text"]), options)
        self.output = initialize(nn.Linear(options.d_model, 2), "gpt2")  # small: first guesses are even

    def loss(self, batch: Any) -> Loss:
        return self._read(batch)[0]

    def _read(self, batch: Any) -> tuple[Loss, Tensor]:
        """The loss, and (B, L, 2) log-probabilities that the answer begins and ends at a token; at BOS, that there is none."""
        outputs = self.output(self.network(batch.tokens, batch.segment if self.has_segments else None, batch.keep))
        hidden = (batch.tokens != BOS) & ((batch.segment == 0) | (batch.tokens == EOS))  # (B, L)
        outputs = outputs.float().masked_fill(hidden.unsqueeze(-1), -torch.inf).log_softmax(dim=1)
        total, windows = -outputs.gather(1, batch.target.unsqueeze(1)).sum(), (batch.tokens == BOS).sum()
        return Loss(total, windows, {"tokens": (batch.tokens != PAD).sum()}), outputs

    def evaluate(self, batch: Any, split: str) -> tuple[Loss, list[tuple[int, Any]]]:
        loss, outputs = self._read(batch)
        spans, length = outputs[..., 0].unsqueeze(2) + outputs[..., 1].unsqueeze(1), outputs.shape[1]  # (B, L, L)
        allowed = torch.ones_like(spans[0], dtype=torch.bool).triu().tril(self.longest - 1)[1:]  # not from BOS on
        best, place = spans[:, 1:].where(allowed, -torch.inf).flatten(1).max(dim=1)  # (B,) each
        columns = (best - spans[:, 0, 0], best.exp(), place // length + 1, place % length)
        return loss, list(zip(batch.index.tolist(), zip(*(column.tolist() for column in columns), strict=True), strict=True))

    def best(self, rows: dict[str, Any], records: Sequence[Any], texts: Sequence[str]) -> list[Answer]:
        """The best answer to each question, over all windows of its text."""
        found: list[Answer] = []
        for first, places, (odds, share, begin, end) in zip(rows["first"], rows["places"], records, strict=True):
            at = len(found) - (first > 0)  # the first window of a text is that of the next question
            if first == 0 or odds > found[at].details["score"]:
                begin, end = (places[begin][0], places[end][1]) if odds > self.least else (0, 0)
                found[at:] = [Answer(texts[at][begin:end], {"begin": begin, "end": end, "score": odds, "probability": share})]
        return found

    def answered(self, records: Sequence[Any], split: str) -> list[dict[str, Any]]:
        """The questions of a split with what was answered; none where some were left out (`trainer.limit_val_batches`)."""
        data, name = self.data, "validation" if split == "val" else split
        if len(records) < len(data.dataset(name)):
            return []
        rows, windows = [*data.read(name)], data.dataset(name).select_columns(["first", "places"])[:]
        found = self.best(windows, records, [row["second"] for row in rows])
        true = ([text for text, _ in row["label"]] or [""] for row in rows)
        return [{**row, "true": texts, "made": answer.text} for row, texts, answer in zip(rows, true, found, strict=True)]

    def measure(self, sums: dict[str, float], records: list[Any], split: str) -> dict[str, float]:
        answers = [(row["made"], row["true"]) for row in self.answered(records, split)]
        return {"loss": sums["loss"] / sums["count"], **(answer_metrics(answers) if answers else {})}

    def example_rows(self, records: list[Any]) -> list[dict[str, Any]]:
        rows = ((f"{row['text']}\t{row['second']}", row["true"], row["made"]) for row in self.answered(records, "test"))
        return [
            {"input": asked, "reference": true[0], "output": made, "correct": answer_metrics([(made, true)])["exact_match"] > 0}
            for asked, true, made in rows
        ]

    def signatures(self) -> dict[str, str]:
        return {"f1": "squad:lower|no_punctuation|no_articles"}

    @torch.no_grad()
    def answer(self, lines: Sequence[str]) -> list[Answer]:
        """The answer to each line "question<TAB>text"; it does not depend on the other lines."""
        data = QuestionData(**{name: self.settings["data"]["init_args"][name] for name in ("max_length", "stride")})
        data.use_assets(self.assets)
        questions, tabs, texts = zip(*((line if line.strip() else "\t").partition("\t") for line in lines), strict=True)
        if "" in tabs:
            raise LineError(tabs.index("") + 1, "must be question, tab, text, but has no tab")
        rows: dict[str, Any] = {"text": questions, "second": texts, "label": [[]] * len(lines)}
        records = sorted(pair for batch in data.batches_of(rows) for pair in self.evaluate(batch.to(self.device), "test")[1])
        return self.best(data.encode(rows), [record for _, record in records], texts)
