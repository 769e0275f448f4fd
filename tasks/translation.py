"""Translation: an encoder reads the source, a decoder writes the target.

Letters: B batch, L target tokens, D model.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import sacrebleu
import torch

from polyformer.data import PairBatch, PairData, encode_texts, pair_batches
from polyformer.decoding import Hypothesis, Search, Symbols, beam_search, log_probabilities
from polyformer.models import EncoderDecoder, EncoderDecoderOptions
from polyformer.text import BOS, EOS, PAD, Assets
from polyformer.text.words import is_spaceless
from polyformer.training import Answer, LineError, Loss, Task, perplexity, sequence_loss

__all__ = ["Translation"]

log = logging.getLogger("polyformer")

SYMBOLS = Symbols(begin=BOS, end=EOS, never=(PAD, BOS))
SHOWN, TABLED = 3, 8
SHOWN_CHARACTERS = 30
ADVISED = 100  # references that tell how their language is written


@dataclass(frozen=True)
class Translated:
    """One example after decoding."""

    source: str
    reference: str
    hypothesis: str


class Translation(Task):
    """Translates lines of text (Vaswani et al. 2017).

    Args:
        assets: Tokenizers "source" and "target".
        options: The network.
        label_smoothing: Share of each target given to all tokens evenly.
        search: How texts are decoded in `test` and `predict`.
        validation_beam: Beam during training; 1, greedy search, is fastest.
        bleu_tokenizer: How sacreBLEU cuts texts into words: 13a for languages written with spaces, zh for Chinese.
    """

    model_class = EncoderDecoderOptions
    data_class = PairData
    monitor = ("val/bleu", "max")

    def __init__(
        self,
        assets: Assets,
        options: EncoderDecoderOptions,
        label_smoothing: float = 0.1,
        search: Search = Search(),  # noqa: B008 - frozen
        validation_beam: int = 1,
        bleu_tokenizer: Literal["13a", "zh", "char", "intl", "none"] = "13a",
    ) -> None:
        super().__init__(assets, options)
        if not 0.0 <= label_smoothing < 1.0:
            raise ValueError(f"`label_smoothing` must be at least 0 and below 1, but is {label_smoothing}")
        self.label_smoothing, self.search, self.bleu_tokenizer = label_smoothing, search, bleu_tokenizer
        self._advised = False
        self.validation_search = replace(search, beam=validation_beam, n_best=1)
        sizes = len(assets.tokenizers["source"]), len(assets.tokenizers["target"])
        self.network = EncoderDecoder(*sizes, options)

    def accept(self, data: PairData) -> None:
        for side, column in (("target", 0), ("source", 1)):
            limit = (self.network.encoder if side == "source" else self.network.decoder).limit
            if limit is None:
                continue
            for split in data.reports:
                longest = int(data.lengths(split)[:, column].max())
                if longest > limit:
                    raise ValueError(
                        f"the longest {side} of the {split} data has {longest} tokens, but `model.max_length` is {limit}: "
                        f"raise it, or set `data.limits.max_{side}`"
                    )

    def loss(self, batch: PairBatch) -> Loss:
        hidden = self.network(batch.source, batch.target[:, :-1], batch.source_keep)  # (B, L, D)
        weight = self.network.output_weight
        token_loss, count = sequence_loss(hidden, weight, batch.target[:, 1:], PAD, self.label_smoothing)
        sums = {"negative_log_likelihood": token_loss.negative_log_likelihood, "correct": token_loss.correct}
        return Loss(token_loss.loss, torch.tensor(count, device=hidden.device), sums)

    def evaluate(self, batch: PairBatch, split: str) -> tuple[Loss, list[tuple[int, Translated]]]:
        best = self.decode(batch, self.search if split == "test" else self.validation_search)
        tokens = [hypotheses[0].tokens if hypotheses else [] for hypotheses in best]  # none where all logits are NaN
        texts = self.assets.tokenizers["target"].decode_batch(tokens)
        triples = zip(batch.source_text, batch.target_text, texts, strict=True)
        records = [Translated(*triple) for triple in triples]
        return self.loss(batch), list(zip(batch.index.tolist(), records, strict=True))

    def measure(self, sums: dict[str, float], records: list[Translated], split: str) -> dict[str, float]:
        likelihood = sums["negative_log_likelihood"] / sums["count"]
        hypotheses = [record.hypothesis for record in records]
        references = [[record.reference for record in records]]
        self._advise(" ".join(record.reference for record in records[:ADVISED]))
        exact = sum(record.hypothesis == record.reference for record in records)
        return {
            "loss": likelihood,
            "perplexity": perplexity(likelihood),
            "accuracy": sums["correct"] / sums["count"],
            "bleu": self._bleu().corpus_score(hypotheses, references).score,
            "chrf": sacrebleu.CHRF().corpus_score(hypotheses, references).score,
            "exact_match": exact / len(records),
        }

    def _advise(self, references: str) -> None:
        """Warns, once, where BLEU would take whole sentences for words."""
        if self.bleu_tokenizer in ("13a", "intl") and not self._advised and is_spaceless(references):
            log.warning(
                "the references have no spaces between words, so that BLEU is next to nothing with `task.bleu_tokenizer` %s: "
                "set it to zh for Chinese, or to char",
                self.bleu_tokenizer,
            )
            self._advised = True

    def _bleu(self) -> sacrebleu.BLEU:
        return sacrebleu.BLEU(tokenize=self.bleu_tokenizer)

    def signatures(self) -> dict[str, str]:
        metrics = {"bleu": self._bleu(), "chrf": sacrebleu.CHRF()}
        for metric in metrics.values():
            metric.corpus_score(["a"], [["a"]])  # a signature knows the number of references only afterwards
        return {name: str(metric.get_signature()) for name, metric in metrics.items()}

    def samples(self, records: list[Translated]) -> list[str]:
        return [f"{record.source}  ->  {record.hypothesis}  (reference: {record.reference})" for record in records[:SHOWN]]

    def sample_rows(self, records: list[Translated]) -> list[dict[str, Any]]:
        """The score is the chrF of a sentence, since BLEU says little of a single one."""
        chrf = sacrebleu.CHRF()
        return [
            {"source": one.source, "reference": one.reference, "output": one.hypothesis,
             "score": chrf.sentence_score(one.hypothesis, [one.reference]).score}
            for one in records[:TABLED]
        ]  # fmt: skip

    def example_rows(self, records: list[Translated]) -> list[dict[str, Any]]:
        return [{"input": one.source, "reference": one.reference, "output": one.hypothesis} for one in records]

    def try_line(self, records: list[Translated]) -> str:
        return records[0].source

    def decode(self, batch: PairBatch, search: Search) -> list[list[Hypothesis]]:
        """The best texts for every row of a batch, best first."""
        memory = self.network.encode(batch.source, batch.source_keep)
        lengths = (batch.source != PAD).sum(dim=1)
        longest = search.max_lengths(lengths)
        limit = self.network.decoder.limit
        return beam_search(self.network.start(memory), longest if limit is None else longest.clamp(max=limit), search, SYMBOLS)

    @torch.no_grad()
    def answer(self, lines: Sequence[str]) -> list[Answer]:
        answers = [Answer("", {"text": "", "empty": True}) for _ in lines]
        sources = self._encoded("source", lines)
        self._warn_of_long(lines, sources)
        for batch in pair_batches(sources, [[] for _ in lines]):
            batch = batch.to(self.device)
            for place, hypotheses in zip(batch.index.tolist(), self.decode(batch, self.search), strict=True):
                answers[place] = self._answer(hypotheses)
        return answers

    def _warn_of_long(self, lines: Sequence[str], sources: list[list[int]]) -> None:
        """Says at once that a text is longer than any in training, since it may take long."""
        limits = self.settings.get("data", {}).get("init_args", {}).get("limits") or {}
        longest = limits.get("max_source")
        for line, ids in zip(lines, sources, strict=True):
            if longest is not None and len(ids) >= longest:
                known = f"more than any text in training had ({longest:,}, `data.limits.max_source`)"
                begin = line[:SHOWN_CHARACTERS]
                log.warning("%r... has %d tokens, %s: it may take long and go wrong", begin, len(ids) + 1, known)

    def _answer(self, hypotheses: list[Hypothesis]) -> Answer:
        texts = self.assets.tokenizers["target"].decode_batch([hypothesis.tokens for hypothesis in hypotheses])
        n_best = [
            {"text": text, "score": hypothesis.score, "log_probability": hypothesis.log_probability}
            for text, hypothesis in zip(texts, hypotheses, strict=True)
        ]
        return Answer(texts[0], {**n_best[0], "n_best": n_best} if len(n_best) > 1 else n_best[0])

    @torch.no_grad()
    def score(self, lines: Sequence[str]) -> list[Answer]:
        """The log-probability of the target in each line "source<TAB>target"; an empty line has none."""
        pairs = [line.split("\t") if line.strip() else ["", ""] for line in lines]
        for number, pair in enumerate(pairs, 1):
            if len(pair) != 2:
                raise LineError(number, f"must be source, tab, target, but has {len(pair) - 1} tabs")
        sources = self._encoded("source", [source for source, _ in pairs])
        targets = self._encoded("target", [target for _, target in pairs])
        answers = [Answer("", {"log_probability": None, "empty": True}) for _ in lines]
        for batch in pair_batches(sources, targets):
            batch = batch.to(self.device)
            hidden = self.network(batch.source, batch.target[:, :-1], batch.source_keep)
            each = log_probabilities(self.network.logits(hidden), batch.target[:, 1:], PAD)  # (B, L)
            counts = (batch.target[:, 1:] != PAD).sum(dim=1)
            for place, total, count in zip(batch.index.tolist(), each.sum(dim=1).tolist(), counts.tolist(), strict=True):
                details = {"log_probability": total, "tokens": count, "perplexity": perplexity(-total / count)}
                answers[place] = Answer(f"{total:.4f}", details)
        return answers

    def _encoded(self, side: str, texts: Sequence[str]) -> list[list[int]]:
        """Ids of texts, each short enough for the model's positions."""
        encoded = encode_texts(self.assets.tokenizers[side], texts)
        stack = self.network.encoder if side == "source" else self.network.decoder
        for number, ids in enumerate(encoded, 1):
            if stack.limit is not None and len(ids) + 1 > stack.limit:
                raise LineError(
                    number, f"has {len(ids) + 1} tokens, but the model was trained with `model.max_length` {stack.limit}"
                )
        return encoded
