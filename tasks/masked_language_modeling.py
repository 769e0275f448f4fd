"""Masked language modelling: an encoder that predicts words it does not see (Devlin et al. 2019).

Letters: B batch, L tokens, D model, V vocabulary, N places to predict.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polyformer.data import LabelledBatch, MaskedBatch, MaskedTextData, masked_batch, text_batches
from polyformer.models import EncoderOnly, EncoderOnlyOptions, initialize
from polyformer.nn import make_norm
from polyformer.text import PAD, SPECIALS, UNK, Assets
from polyformer.training import Answer, LineError, Loss, Task, linear_cross_entropy, perplexity, token_losses

__all__ = ["MaskedLanguageModeling"]

MASK = "<mask>"
BEST = 5
SHOWN, SHOWN_TOKENS = 3, 24


@dataclass(frozen=True)
class Guessed:
    """A part of one of the first rows after reading.

    Args:
        shown: Its text, with masks where something was to be predicted.
        guess: The text with what was predicted.
        truth: The text as it is.
    """

    shown: str
    guess: str
    truth: str


@dataclass(frozen=True)
class Read:
    """A row after reading.

    Args:
        guessed: What is shown of it; None: nothing.
        tokens: (L,) its ids without marks; in a test alone, as what follows.
        masked: (N,) the ids that were to be predicted.
        nats: (N,) what each of them cost.
    """

    guessed: Guessed | None
    tokens: list[int] = field(default_factory=list)
    masked: list[int] = field(default_factory=list)
    nats: list[float] = field(default_factory=list)


class MaskedLanguageModeling(Task):
    """Predicts the words of a text that are masked, so that its encoder learns from text without labels.

    A mask is the token `PAD` at a place that is real. So the vocabulary has no token for it, the row of `PAD` in the
    embedding table, which nothing else reads, becomes its vector, and :class:`Classification` goes on from these weights:
    its network is the same, name by name.

    With `data.next_sentence`, a second head tells from the first token whether two texts follow each other. Its loss counts
    once for each masked token of the row: so the two losses per masked token are added, as in the paper, and neither
    depends on how rows fall into batches.

    Args:
        assets: Tokenizer "text"; labels "next" where the second head is wanted.
        options: The network.
    """

    model_class = EncoderOnlyOptions
    data_class = MaskedTextData

    def __init__(self, assets: Assets, options: EncoderOnlyOptions) -> None:
        super().__init__(assets, options)
        self.tokenizer = assets.tokenizers["text"]
        self.network = EncoderOnly(len(self.tokenizer), options)
        width = options.d_model
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), make_norm(options.norm, width))
        self.next_sentence = nn.Linear(width, 1) if "next" in assets.labels else None
        for part in (self.head, self.next_sentence):
            if part is not None:
                initialize(part, options.initialization)

    @classmethod
    def check(cls, options: EncoderOnlyOptions, data: MaskedTextData, training: bool) -> None:
        limit = options.limit(causal=False)
        if limit is not None and data.max_length > limit:
            raise ValueError(
                f"`data.max_length` ({data.max_length}) must not be above `model.max_length` ({limit}), which is "
                "all that the position and the mixer have room for"
            )
        if data.next_sentence and options.segments == 1:
            raise ValueError("`model.segments` must be 2 for `data.next_sentence`, or 0 for no segment embeddings, but is 1")

    # ---- training and evaluation

    def read(self, batch: LabelledBatch) -> Tensor:
        """(B, L, D), the vectors of a batch's tokens."""
        segment = batch.segment if self.network.segment_embedding is not None else None
        vectors: Tensor = self.network(batch.tokens, segment, batch.keep)
        return vectors

    def masked_vectors(self, read: Tensor, target: Tensor) -> Tensor:
        """(B, L, D) vectors -> (N, D), what the head makes of those whose (B, L) target is a token."""
        places = (target != PAD).flatten().nonzero().squeeze(1)  # (N,)
        vectors: Tensor = self.head(read.flatten(0, 1).index_select(0, places))
        return vectors

    def log_probabilities(self, vectors: Tensor) -> Tensor:
        """(N, D) vectors of the head -> (N, V)."""
        return (vectors @ self.network.embedding.table.t()).float().log_softmax(dim=-1)

    def loss(self, batch: MaskedBatch) -> Loss:
        return self._loss(self.read(batch), batch)

    def _loss(self, read: Tensor, batch: MaskedBatch) -> Loss:
        """Summed over masked tokens, so that each weighs the same however batches are cut."""
        assert batch.target is not None
        is_masked = batch.target != PAD  # (B, L)
        vectors = self.masked_vectors(read, batch.target)  # (N, D)
        masked = linear_cross_entropy(vectors, self.network.embedding.table, batch.target[is_masked])
        tokens = torch.tensor(batch.tokens.numel(), device=read.device) if batch.keep is None else batch.keep.sum()
        sums = {"masked": masked.negative_log_likelihood, "correct": masked.correct, "tokens": tokens}
        total = masked.loss
        if self.next_sentence is not None and batch.follows is not None:
            output = self.next_sentence(read[:, 0]).squeeze(1).float()  # (B,)
            each = F.binary_cross_entropy_with_logits(output, batch.follows, reduction="none")  # (B,)
            total = total + (each * is_masked.sum(dim=1)).sum()
            sums["rows"] = torch.tensor(len(batch), device=read.device)
            sums["rows_correct"] = ((output > 0) == (batch.follows > 0)).sum()
        return Loss(total, is_masked.sum(), sums)

    def evaluate(self, batch: MaskedBatch, split: str) -> tuple[Loss, list[tuple[int, Read]]]:
        read, numbers = self.read(batch), batch.index.tolist()
        guessed = [self._guessed(read, batch, row) if number < SHOWN else None for row, number in enumerate(numbers)]
        records = map(Read, guessed, *self._scored(read, batch)) if split == "test" else map(Read, guessed)
        kept = [(number, record) for number, record in zip(numbers, records, strict=True) if record.guessed or record.nats]
        return self._loss(read, batch), kept

    def _scored(self, read: Tensor, batch: MaskedBatch) -> tuple[list[list[int]], list[list[int]], list[list[float]]]:
        """Of each row its ids, those that were to be predicted, and what these cost."""
        assert batch.target is not None
        is_masked = batch.target != PAD  # (B, L)
        wanted, vectors = batch.target[is_masked], self.masked_vectors(read, batch.target)  # (N,), (N, D)
        nats = token_losses(vectors[None], self.network.embedding.table, wanted[None], PAD)[0]  # (N,)
        counts, whole = is_masked.sum(dim=1).tolist(), torch.where(is_masked, batch.target, batch.tokens).tolist()
        rows = [[token for token in row if token >= len(SPECIALS)] for row in whole]
        return rows, [each.tolist() for each in wanted.split(counts)], [each.tolist() for each in nats.split(counts)]

    def _guessed(self, read: Tensor, batch: MaskedBatch, row: int) -> Guessed:
        """What is predicted in a row, from a little before its first mask on."""
        assert batch.target is not None
        target = batch.target[row]  # (L,)
        is_masked = target != PAD  # (L,)
        best = self._best(self.masked_vectors(read[row : row + 1], target), 1)[1].squeeze(1)  # (N,)
        truth = torch.where(is_masked, target, batch.tokens[row])
        guess = truth.masked_scatter(is_masked, best)
        begin = max(0, int(is_masked.int().argmax()) - SHOWN_TOKENS // 2)
        part = slice(begin, begin + SHOWN_TOKENS)
        shown = self._with_masks(truth[part].tolist(), is_masked[part].tolist())
        guessed, true = (self.tokenizer.decode(ids[part].tolist()) for ids in (guess, truth))
        return Guessed(*(" ".join(text.split()) for text in (shown, guessed, true)))

    def _with_masks(self, ids: list[int], is_masked: list[bool]) -> str:
        """The text of ids, with masks for some of them."""
        text = self.tokenizer.decode(ids)
        ends = [len(self.tokenizer.decode(ids[:end])) for end in range(len(ids) + 1)]
        pieces = [text[begin:end] for begin, end in pairwise(ends)]
        masks = [" " * piece.startswith(" ") + MASK for piece in pieces]
        return "".join(mask if hidden else piece for piece, mask, hidden in zip(pieces, masks, is_masked, strict=True))

    def measure(self, sums: dict[str, float], records: list[Read], split: str) -> dict[str, float]:
        """The loss is that of masked tokens alone."""
        loss = sums["masked"] / sums["count"]
        figures = {"loss": loss, "perplexity": perplexity(loss), "accuracy": sums["correct"] / sums["count"]}
        if "rows" in sums:
            figures["next_sentence_accuracy"] = sums["rows_correct"] / sums["rows"]
        return figures

    def signatures(self) -> dict[str, str]:
        data = self.settings.get("data", {}).get("init_args", {})
        masking = data.get("masking", {})
        units = "words" if masking.get("whole_words") else "tokens"
        return {"perplexity": f"masked:{masking.get('share')} of {units}|max_length:{data.get('max_length')}"}

    def samples(self, records: list[Read]) -> list[str]:
        return [f"{one.shown}  ->  {one.guess}  (truth: {one.truth})" for one in _shown(records)]

    def sample_rows(self, records: list[Read]) -> list[dict[str, Any]]:
        return [{"source": one.shown, "reference": one.truth, "output": one.guess} for one in _shown(records)]

    def example_rows(self, records: list[Read]) -> list[dict[str, Any]]:
        """Of each row what its masked tokens cost, and how many they are and in bytes."""
        decode = self.tokenizer.decode_batch
        texts, masked = decode([one.tokens for one in records]), decode([one.masked for one in records])
        return [
            {"input": text, "nats": sum(one.nats), "tokens": len(one.nats), "bytes": max(1, len(hidden.encode()))}
            for one, text, hidden in zip(records, texts, masked, strict=True)
        ]

    def try_line(self, records: list[Read]) -> str:
        return next((one.shown for one in _shown(records)), "")

    # ---- using it

    @torch.no_grad()
    def answer(self, lines: Sequence[str]) -> list[Answer]:
        """Each line with the most probable token in place of each "<mask>"; the masks of a line are filled independently."""
        filled = [place for place, line in enumerate(lines) if line.strip()]
        rows = {place: self._marked(lines[place], place + 1) for place in filled}
        answers = {place: Answer("", {"masks": []}) for place in range(len(lines)) if place not in rows}
        for batch in text_batches([[rows[place][0]] for place in filled]):
            places = [filled[at] for at in batch.index.tolist()]
            masks = [np.array(rows[place][1]) for place in places]
            read = [np.where(mask, PAD, rows[place][0]) for place, mask in zip(places, masks, strict=True)]
            hidden = masked_batch(batch, read, [np.where(mask, UNK, PAD) for mask in masks]).to(self.device)
            assert hidden.target is not None
            shares, tokens = self._best(self.masked_vectors(self.read(hidden), hidden.target), BEST)
            found = iter(zip(shares.tolist(), tokens.tolist(), strict=True))
            for place, mask in zip(places, masks, strict=True):
                answers[place] = self._answer(lines[place], [next(found) for _ in range(int(mask.sum()))])
        return [answers[place] for place in range(len(lines))]

    def _marked(self, line: str, number: int) -> tuple[list[int], list[bool]]:
        """The ids of a line, and which of them are masks."""
        parts = self._parts(line)
        if len(parts) < 2:
            raise LineError(number, f"has nothing to predict: write {MASK} where a token is to be found")
        ids, masks = self.tokenizer.encode(parts[0]), [False] * len(self.tokenizer.encode(parts[0]))
        for part in parts[1:]:
            more = self.tokenizer.encode_onward(part)
            ids, masks = [*ids, UNK, *more], [*masks, True, *[False] * len(more)]
        self._check_length(ids, number)
        return ids, masks

    def _parts(self, line: str) -> list[str]:
        """What stands between masks, without the spaces that the tokens in their place carry."""
        parts = line.split(MASK)
        carry = self.tokenizer.spaced("a") != "a"
        return [part.removesuffix(" ") if carry and place < len(parts) - 1 else part for place, part in enumerate(parts)]

    def _check_length(self, ids: list[int], number: int) -> None:
        limit, length = self.network.stack.limit, len(ids) + 2
        if limit is not None and length > limit:
            raise LineError(number, f"has {length} tokens, but the model was trained with `model.max_length` {limit}")

    def _best(self, vectors: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The most probable tokens at (N, D) vectors, special ones left out: probabilities and ids, (N, count) each."""
        each = self.log_probabilities(vectors)[:, len(SPECIALS) :].softmax(dim=-1)
        shares, places = each.topk(min(count, each.shape[1]), dim=-1)
        return shares, places + len(SPECIALS)

    def _answer(self, line: str, found: list[tuple[list[float], list[int]]]) -> Answer:
        parts = self._parts(line)
        masks = [
            [{"token": self._token(token), "probability": share} for share, token in zip(shares, tokens, strict=True)]
            for shares, tokens in found
        ]
        text = parts[0] + "".join(str(mask[0]["token"]) + part for mask, part in zip(masks, parts[1:], strict=True))
        return Answer(text if parts[0] else text.removeprefix(" "), {"masks": masks})

    def _token(self, token: int) -> str:
        """The text of a token, with the space that it carries."""
        return self.tokenizer.decode([UNK, token])[len(self.tokenizer.decode([UNK])) :]

    @torch.no_grad()
    def score(self, lines: Sequence[str]) -> list[Answer]:
        """The pseudo-log-likelihood of each line: of each token, where it alone is masked (Salazar et al. 2020)."""
        encoded = [self.tokenizer.encode(line) if line.strip() else [] for line in lines]
        for number, ids in enumerate(encoded, 1):
            self._check_length(ids, number)
        return [self._score(ids) for ids in encoded]

    def _score(self, ids: list[int]) -> Answer:
        if not ids:
            return Answer("", {"pseudo_log_likelihood": None, "empty": True})
        total = sum(float(each.double().sum()) for each in self._alone(ids))
        details = {"tokens": len(ids), "pseudo_perplexity": perplexity(-total / len(ids))}
        return Answer(f"{total:.4f}", {"pseudo_log_likelihood": total, **details})

    def _alone(self, ids: list[int]) -> Iterator[Tensor]:
        """The log-probabilities of the tokens of a text, each from all others."""
        whole, is_masked = np.array(ids), np.eye(len(ids), dtype=np.bool_)
        for batch in text_batches([[ids]] * len(ids)):
            masks = is_masked[batch.index.numpy()]  # (B, L)
            hidden = masked_batch(batch, [*np.where(masks, PAD, whole)], [*np.where(masks, whole, PAD)]).to(self.device)
            assert hidden.target is not None
            each = self.log_probabilities(self.masked_vectors(self.read(hidden), hidden.target))  # (N, V)
            yield each.gather(1, hidden.target[hidden.target != PAD].unsqueeze(1)).cpu()


def _shown(records: list[Read]) -> list[Guessed]:
    return [record.guessed for record in records if record.guessed is not None]
