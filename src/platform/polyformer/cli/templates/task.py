"""StarRating: where a text stands on a scale whose steps are in order, such as one to five stars.

A whole head in one file. It works as it is, since what it learns from is made on the spot; change it from the top down.

Letters: B batch, L tokens, D model, W width of the pooled vector, K steps of the scale.
"""

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polyformer.data import LabelledBatch, LabelledData, TextLimits, cut_together, encode_texts, text_batches
from polyformer.models import EncoderOnly, EncoderOnlyOptions, initialize
from polyformer.nn import Mean, PoolingFactory
from polyformer.text import PAD, Assets
from polyformer.training import Answer, Loss, Task

__all__ = ["StarRating", "StarRatingData", "StarRatingOptions"]

Record = tuple[int, int]
"""The step that a text was given, and its true one."""


# 1. Options: each field is a key under `model:`, beside those of the encoder.
@dataclass(frozen=True, kw_only=True)
class StarRatingOptions(EncoderOnlyOptions):
    """An encoder and what its vectors become.

    Args:
        pooling: What makes one vector of a text's (a subclass of Pooling).
    """

    pooling: PoolingFactory = Mean


# 2. Data: LabelledData reads your own files, a text and a label in each row, when `data.train` names them. What is made here
#    where none are given can be deleted then.
class StarRatingData(LabelledData):
    """Texts and their stars: those of `train`, or else reviews that are made by a rule."""

    things = ("bed", "food", "garden", "pool", "room", "staff")
    words = (("awful", 1), ("horrible", 1), ("poor", 2), ("weak", 2), ("fair", 3), ("good", 4), ("nice", 4), ("superb", 5))
    places = {"validation": slice(0, 500), "test": slice(500, 1000), "train": slice(1000, None)}

    def contents(self, split: str) -> list[str] | None:
        if not self._is_made(split):
            return super().contents(split)
        return [hashlib.sha256(repr([*self.read(split)]).encode()).hexdigest()]

    def read(self, split: str) -> Iterator[dict[str, str]]:
        if not self._is_made(split):
            yield from super().read(split)
            return
        chance = random.Random(0)
        reviews = dict(self._review(chance) for _ in range(6000))  # a text is there once, so it is in one split only
        for text, stars in [*reviews.items()][self.places[split]]:
            yield {"text": text, "label": str(stars), "where": text}

    def _is_made(self, split: str) -> bool:
        return self.locations[split] is None and self.locations["train"] is None

    def _review(self, chance: random.Random) -> tuple[str, int]:
        """One or two things and the mean of their stars; "not" turns the scale round."""
        parts, total = [], 0
        for thing in chance.sample(self.things, chance.randint(1, 2)):
            (word, stars), negated = chance.choice(self.words), chance.random() < 0.3
            parts.append(f"the {thing} was {'not ' if negated else ''}{word}")
            total += 6 - stars if negated else stars
        return " and ".join(parts), int(total / len(parts) + 0.5)


class StarRating(Task):
    """Rates texts: one score for each, and a bound between any two neighbouring steps (Cao et al. 2020).

    Args:
        assets: Tokenizer "text", and the steps, as labels "label".
        options: The network.
        certainty: A text is above a step if it is so with more than this probability.
    """

    model_class = StarRatingOptions
    data_class = StarRatingData
    monitor = ("val/mean_absolute_error", "min")  # which checkpoint is the best

    # 3. The network. Each argument after the first two is a key under `task:`.
    def __init__(self, assets: Assets, options: StarRatingOptions, certainty: float = 0.5) -> None:
        super().__init__(assets, options)
        if not 0.0 < certainty < 1.0:
            raise ValueError(f"`task.certainty` must be above 0 and below 1, but is {certainty}")
        self.certainty, self.tokenizer = certainty, assets.tokenizers["text"]
        self.steps = sorted(assets.labels["label"], key=in_order)
        self.network = EncoderOnly(len(self.tokenizer), options)
        self.pooling = options.pooling(options.shape(causal=False))
        self.output = initialize(nn.Linear(self.pooling.width, 1, bias=False), "gpt2")  # small: first guesses are even
        self.bounds = nn.Parameter(torch.linspace(-2.0, 2.0, len(self.steps) - 1))
        initialize(self.pooling, options.initialization)

    @classmethod
    def check(cls, options: StarRatingOptions, data: StarRatingData, training: bool) -> None:
        super().check(options, data, training)
        if data.second is not None or data.text_limits.stride is not None or data.target.kind != "class":
            raise ValueError("`data.second`, `data.limits.stride` and `data.target.kind` must be left as they are here")

    def outputs(self, batch: LabelledBatch) -> Tensor:
        """(B, K - 1): for each step but the highest, the logit of being above it."""
        pooled = self.network.pooled(self.pooling, batch.tokens, keep=batch.keep)  # (B, W)
        score: Tensor = self.output(pooled).float()  # (B, 1)
        return score - self.bounds  # (B, K - 1)

    # 4. The loss: a sum and what it is a sum of, so that every text weighs the same however batches are cut.
    def loss(self, batch: LabelledBatch) -> Loss:
        return self._loss(self.outputs(batch), self._truth(batch), batch)

    def _truth(self, batch: LabelledBatch) -> Tensor:
        """(B,) the true steps, from 0."""
        assert batch.target is not None
        places = torch.tensor([self.steps.index(label) for label in self.assets.labels["label"]])
        return places.to(batch.target.device)[batch.target]

    def _loss(self, outputs: Tensor, truth: Tensor, batch: LabelledBatch) -> Loss:
        above = truth.unsqueeze(1) > torch.arange(outputs.shape[1], device=truth.device)  # (B, K - 1)
        total = F.binary_cross_entropy_with_logits(outputs, above.float(), reduction="sum")
        return Loss(total, torch.tensor(len(batch), device=total.device), {"tokens": (batch.tokens != PAD).sum()})

    # 5. The measure: a record of each text, then figures from all records of a split.
    def evaluate(self, batch: LabelledBatch, split: str) -> tuple[Loss, list[tuple[int, Record]]]:
        outputs, truth = self.outputs(batch), self._truth(batch)
        records = zip(self._choose(outputs.sigmoid()), truth.tolist(), strict=True)
        return self._loss(outputs, truth, batch), list(zip(batch.index.tolist(), records, strict=True))

    def measure(self, sums: dict[str, float], records: list[Record], split: str) -> dict[str, float]:
        off = [abs(chosen - true) for chosen, true in records]
        figures = {"accuracy": off.count(0) / len(off), "mean_absolute_error": sum(off) / len(off)}
        return {"loss": sums["loss"] / sums["count"], **figures}

    # 6. The answer to each line of `platform predict`; it must not depend on the other lines.
    @torch.no_grad()
    def answer(self, lines: Sequence[str]) -> list[Answer]:
        limits = TextLimits(**self.settings["data"]["init_args"]["limits"])  # long texts are cut as in training
        texts = [cut_together([ids], limits.room(1), limits.cut) for ids in encode_texts(self.tokenizer, lines)]
        answers: dict[int, Answer] = {}
        for batch in text_batches(texts):
            above = self.outputs(batch.to(self.device)).sigmoid()  # (B, K - 1)
            for number, step, row in zip(batch.index.tolist(), self._choose(above), above.tolist(), strict=True):
                answers[number] = Answer(self.steps[step], {"above": dict(zip(self.steps, row, strict=False))})
        return [answers[number] for number in range(len(lines))]

    def _choose(self, above: Tensor) -> list[int]:
        """The step of each text."""
        return [int(count) for count in (above > self.certainty).sum(dim=1)]


def in_order(label: str) -> tuple[float, str]:
    """Orders steps that are numbers by size, and others by name.

    >>> sorted(["10", "2", "1.5"], key=in_order)
    ['1.5', '2', '10']
    """
    try:
        return float(label), label
    except ValueError:
        return 0.0, label
