"""Language modelling: a causal stack that predicts each next token.

Letters: B batch, L tokens, D model, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from polyformer.data import TextBatch, TextData
from polyformer.decoding import Sampling, Speculation, Symbols, Written, generate, log_probabilities, pad_left
from polyformer.models import DecoderOnly, DecoderOnlyOptions, Placement
from polyformer.nn import Mixer, check_takes_back
from polyformer.text import BOS, EOS, PAD, UNK, Assets
from polyformer.training import Answer, Loss, Task, find_checkpoint, load_task, sequence_loss
from polyformer.training.documents import WindowLosses, describe_documents, document_rows, window_losses
from polyformer.training.metrics import goodness_of_fit

__all__ = ["LanguageModeling"]

SYMBOLS = Symbols(begin=EOS, end=EOS, never=(PAD, UNK, BOS))
ROWS_AT_ONCE = 64
SHOWN_TOKENS, TRIED_TOKENS = 60, 12


@dataclass
class _Text:
    """A text while it is written."""

    tokens: list[int] = field(default_factory=list)
    log_probability: float | None = 0.0
    ended: str = "length"

    def add(self, written: Written) -> None:
        if written.token == EOS:
            self.ended = "end"
        else:
            self.tokens.append(written.token)
        known = self.log_probability is not None and written.log_probability is not None
        self.log_probability = self.log_probability + written.log_probability if known else None  # type: ignore[operator]


class LanguageModeling(Task):
    """Predicts the next token of text, and continues lines of text (Radford et al. 2018).

    Args:
        assets: Tokenizer "text".
        options: The network.
        sampling: How texts are continued.
        draft: Checkpoint or run folder of a smaller model with the same tokenizer, which proposes tokens (speculative
            decoding): faster, the same distribution. None: none.
        proposals: Most tokens that the draft proposes at once.
    """

    model_class = DecoderOnlyOptions
    data_class = TextData

    def __init__(
        self,
        assets: Assets,
        options: DecoderOnlyOptions,
        sampling: Sampling = Sampling(),  # noqa: B008 - frozen
        draft: str | None = None,
        proposals: int = 4,
    ) -> None:
        super().__init__(assets, options)
        if proposals < 1:
            raise ValueError(f"`proposals` must be at least 1, but is {proposals}")
        self.sampling, self.draft, self.proposals = sampling, draft, proposals
        self.answered = 0
        self.tokenizer = assets.tokenizers["text"]
        self.network = DecoderOnly(len(self.tokenizer), options)
        if draft is not None:
            self._check_draft(self.network)

    # ---- training and evaluation

    @classmethod
    def check(cls, options: DecoderOnlyOptions, data: TextData, training: bool) -> None:
        """A model sees as far back when it writes as it did in training; it may be measured with shorter windows."""
        if data.window > options.max_length or (training and data.window != options.max_length):
            rule = "be the same as" if training else "not be above"
            raise ValueError(
                f"`data.window` ({data.window}) must {rule} `model.max_length` ({options.max_length}), which is how far back "
                "the model looks when it writes"
            )

    def loss(self, batch: TextBatch) -> Loss:
        return self._loss(self._hidden(batch), batch)

    def _hidden(self, batch: TextBatch) -> Tensor:
        hidden: Tensor = self.network(batch.tokens, Placement(at=batch.at, document=batch.document))  # (B, L, D)
        return hidden

    def _loss(self, hidden: Tensor, batch: TextBatch) -> Loss:
        token_loss, count = sequence_loss(hidden, self.network.output_weight, batch.target, PAD)
        return Loss(token_loss.loss, torch.tensor(count, device=hidden.device), {"correct": token_loss.correct})

    def evaluate(self, batch: TextBatch, split: str) -> tuple[Loss, list[tuple[int, WindowLosses]]]:
        """The text's words and bytes ride on the batch with its first window, which is the only record but in a test."""
        hidden = self._hidden(batch)  # (B, L, D)
        loss = self._loss(hidden, batch)
        for name in ("words", "bytes", "scored"):
            loss.sums[name] = torch.tensor(getattr(batch, name), dtype=torch.int64)
        numbers = batch.index.tolist()
        if split == "test":
            return loss, [*zip(numbers, window_losses(hidden, self.network.output_weight, batch.target, PAD), strict=True)]
        first = [row for row, number in enumerate(numbers) if number == 0]
        return loss, [(0, WindowLosses(batch.target[row, :TRIED_TOKENS].cpu())) for row in first]

    def measure(self, sums: dict[str, float], records: list[WindowLosses], split: str) -> dict[str, float]:
        """Per word and byte only where all of the text was scored, not with `trainer.limit_val_batches`."""
        fit = goodness_of_fit(sums["loss"], sums["count"], sums["words"] or 1.0, sums["bytes"] or 1.0)
        if sums["count"] != sums["scored"]:
            fit = {name: fit[name] for name in ("loss", "perplexity")}
        return {**fit, "accuracy": sums["correct"] / sums["count"]}

    def signatures(self) -> dict[str, str]:
        data = self.settings.get("data", {}).get("init_args", {})
        window, stride = data.get("window"), data.get("stride") or data.get("window")
        how = f"context:{window}|stride:{stride}|layout:{data.get('layout')}|ends:counted"
        return {
            "perplexity": how,
            "word_perplexity": f"{how}|words:between spaces, and each end of a document",
            "bits_per_byte": f"{how}|bytes:UTF-8, and one for each end of a document",
        }

    @torch.no_grad()
    def samples(self, records: list[WindowLosses]) -> list[str]:
        sampling = replace(self.sampling, max_tokens=SHOWN_TOKENS, samples=1)
        prompt = torch.tensor([[EOS]], device=self.device)
        written = generate(self.network.start(), prompt, sampling, SYMBOLS, [(0, 0)], lambda row, tokens: False)
        tokens = [one.token for one in written]
        return [line for line in self.tokenizer.decode(tokens).splitlines() if line.strip()][:3]

    def try_line(self, records: list[WindowLosses]) -> str:
        begin = self.tokenizer.decode(records[0].tokens[:TRIED_TOKENS].tolist()) if records else ""
        lines = [line.strip() for line in begin.splitlines() if line.strip()]
        return lines[0] if lines else ""

    def example_rows(self, records: list[WindowLosses]) -> list[dict[str, Any]]:
        return document_rows(records, EOS, partial(describe_documents, self.data, "test", self.tokenizer.decode_batch))

    # ---- using it

    def skip(self, lines: int) -> None:
        self.answered += lines

    @torch.no_grad()
    def answer(self, lines: Sequence[str]) -> list[Answer]:
        """The lines, continued; what is drawn follows from the seed and the line's number, not from what the others say."""
        prompts, first = self._prompts(lines), self.answered
        self.answered += len(lines)
        order = sorted(range(len(lines)), key=lambda place: -len(prompts[place]))
        answers: dict[int, Answer] = {}
        at_once = max(1, ROWS_AT_ONCE // self.sampling.samples)
        for begin in range(0, len(order), at_once):
            places = order[begin : begin + at_once]
            texts = [_Text() for _ in range(len(places) * self.sampling.samples)]
            numbers = [first + place for place in places]
            for written in self._written([prompts[place] for place in places], self.sampling, numbers):
                texts[written.row].add(written)
            for number, place in enumerate(places):
                chosen = texts[number * self.sampling.samples :][: self.sampling.samples]
                answers[place] = self._answer(lines[place], prompts[place], chosen)
        return [answers[place] for place in range(len(lines))]

    def _answer(self, line: str, prompt: list[int], texts: list[_Text]) -> Answer:
        samples: list[dict[str, Any]] = []
        for text in texts:
            continuation, stopped = self._cut(self._continuation(prompt, text.tokens))
            details = {"tokens": len(text.tokens), "ended": "stop" if stopped else text.ended}
            if text.log_probability is not None:
                details["log_probability"] = text.log_probability
            samples.append({"text": line + continuation, "continuation": continuation, **details})
        return Answer(samples[0]["text"], {**samples[0], "samples": samples} if len(samples) > 1 else samples[0])

    @torch.no_grad()
    def stream(self, line: str) -> Iterator[str]:
        """The line, then its continuation in pieces; what may be the beginning of a stop text waits until that is known."""
        yield line
        prompt, text, shown = self._prompts([line])[0], _Text(), 0
        waiting = max((len(stop) for stop in self.sampling.stop), default=1) - 1
        self.answered += 1
        for written in self._written([prompt], replace(self.sampling, samples=1), [self.answered - 1]):
            text.add(written)
            whole = self._continuation(prompt, text.tokens)
            sure, stopped = self._cut(whole)
            if not (stopped or written.is_last):
                sure = whole.rstrip("\ufffd")  # a character that is not complete yet
                sure = sure[: max(shown, len(sure) - waiting)]
            yield sure[shown:]
            shown = max(shown, len(sure))

    @torch.no_grad()
    def score(self, lines: Sequence[str]) -> list[Answer]:
        """The log-probability of each line as a whole document, its end included."""
        return [self._score(line, [*prompt, EOS]) for line, prompt in zip(lines, self._prompts(lines), strict=True)]

    def _score(self, line: str, ids: list[int]) -> Answer:
        total, context = 0.0, self.options.max_length
        stride = max(1, context // 2)
        for begin in range(0, max(1, len(ids) - 1 - context + stride), stride):
            tokens = torch.tensor([ids[begin : begin + context + 1]], device=self.device)  # (1, L + 1)
            skipped = 0 if begin == 0 else context - stride  # scored in the window before
            logits = self.network.logits(self.network(tokens[:, :-1]))[:, skipped:]
            total += float(log_probabilities(logits, tokens[:, 1 + skipped :], PAD).cpu().double().sum())
        words, size = len(line.split()) + 1, len(line.encode()) + 1
        fit = goodness_of_fit(-total, len(ids) - 1, words, size)
        how = {"context": context, "stride": stride}
        counts = {"tokens": len(ids) - 1, "words": words, "bytes": size}
        return Answer(f"{total:.4f}", {"log_probability": total, **counts, **fit, **how})

    def remarks(self) -> list[str]:
        used = self.__dict__.get("_speculation")  # without loading a draft only to say that it did nothing
        if used is None or not used.counts.proposed:
            return []
        counts = used.counts
        return [f"{counts.rate:.1%} of {counts.proposed:,} tokens proposed by the draft were accepted"]

    # ---- writing

    def _prompts(self, lines: Sequence[str]) -> list[list[int]]:
        return [[EOS, *ids] for ids in self.tokenizer.encode_batch(lines)]

    def _written(self, prompts: list[list[int]], sampling: Sampling, numbers: list[int]) -> Iterator[Written]:
        """Tokens as they come; row r belongs to prompt r // samples. ``numbers`` tell the prompts apart for the chances."""
        rows = [(number, sample) for number in numbers for sample in range(sampling.samples)]
        repeated = [prompt for prompt in prompts for _ in range(sampling.samples)]
        if self._speculation is not None:
            for row, (prompt, name) in enumerate(zip(repeated, rows, strict=True)):
                yield from self._speculated(row, prompt, name, sampling)
            return
        padded, missing = pad_left(repeated, PAD)
        stepper = self.network.start(missing)
        is_stopped = partial(self._is_stopped, repeated)
        yield from generate(stepper, padded.to(self.device), sampling, SYMBOLS, rows, is_stopped)

    def _speculated(self, row: int, prompt: list[int], name: tuple[int, int], sampling: Sampling) -> Iterator[Written]:
        assert self._speculation is not None
        self._speculation.sampling = sampling
        text: list[int] = []
        for token in self._speculation.write(prompt, name):
            text.append(token)
            is_last = token == EOS or len(text) == sampling.max_tokens or self._is_stopped([prompt], 0, text)
            yield Written(row, token, None, is_last)
            if is_last:
                return

    @cached_property
    def _speculation(self) -> Speculation | None:
        """Writing with the draft, where there is one.

        Raises:
            ValueError: If it is no language model with the same tokenizer, or cannot take tokens back.
        """
        if self.draft is None:
            return None
        loaded, _ = load_task(find_checkpoint(self.draft))
        if not isinstance(loaded, LanguageModeling) or loaded.tokenizer.fingerprint != self.tokenizer.fingerprint:
            raise ValueError(f"`task.draft` {self.draft} must be a language model with the same tokenizer as this one")
        self._check_draft(loaded.network)
        draft = loaded.to(self.device).network
        return Speculation(lambda: (self.network.start(), draft.start()), self.sampling, SYMBOLS, self.proposals, self.device)

    def _check_draft(self, network: DecoderOnly) -> None:
        """Refuses a network that cannot take back what a draft proposes. Raises ValueError naming its mixer."""
        try:
            check_takes_back((module for module in network.modules() if isinstance(module, Mixer)), self.proposals)
        except ValueError as error:
            raise ValueError(f"`task.draft` with `task.proposals` {self.proposals}: {error}") from None

    def _is_stopped(self, prompts: list[list[int]], row: int, tokens: list[int]) -> bool:
        if not self.sampling.stop:
            return False
        longest = max(len(stop.encode()) for stop in self.sampling.stop)
        whole = [*prompts[row][-1:], *tokens]
        tail = self._continuation(whole[: -longest - 1], whole[-longest - 1 :])  # a token is at least a byte
        return any(stop in tail for stop in self.sampling.stop)

    def _cut(self, continuation: str) -> tuple[str, bool]:
        """The text before the first stop text, and whether there was one."""
        found = [place for stop in self.sampling.stop if (place := continuation.find(stop)) >= 0]
        return (continuation[: min(found)], True) if found else (continuation, False)

    def _continuation(self, prompt: list[int], tokens: list[int]) -> str:
        """The text that tokens add to what stands before, whose last token tells whether a space stands between."""
        before = prompt[-1:]
        return self.tokenizer.decode([*before, *tokens])[len(self.tokenizer.decode(before)) :]
