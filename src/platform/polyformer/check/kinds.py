"""The kinds of networks that the laws can look into.

Letters: B texts, L tokens, V vocabulary, N places that are predicted.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from polyformer.check.probe import Composed, Probe, Stack, Text, first_hidden, predicted, side_by_side, without_padding
from polyformer.decoding import Sampling, Search, Stepper, Symbols, beam_search, generate, pad_left
from polyformer.models import DecoderOnly, EncoderDecoder, EncoderOnly, Placement
from polyformer.nn import Memory
from polyformer.text import BOS, EOS, PAD, UNK

__all__ = ["DecoderOnlyProbe", "EncoderDecoderProbe", "EncoderOnlyProbe", "probe_of"]


class EncoderDecoderProbe(Probe):
    """An encoder reads the source, a decoder writes the tokens."""

    kind = "encoder-decoder"
    widths = (1, 4)
    symbols = Symbols(begin=BOS, end=EOS, never=(PAD, BOS))
    network: EncoderDecoder

    @property
    def stacks(self) -> list[Stack]:
        return [self.network.encoder, self.network.decoder]

    @property
    def size(self) -> int:
        return min(len(self.network.source_embedding.table), len(self.network.target_embedding.table))

    @property
    def embedding(self) -> nn.Module:
        return self.network.target_embedding

    def read(self, batch: Any) -> list[Text]:
        pairs = zip(batch.source.tolist(), batch.target.tolist(), strict=True)
        return [Text(without_padding(target)[:-1], without_padding(source)) for source, target in pairs]

    def text(self, ids: Sequence[int]) -> Text:
        return Text((BOS, *ids[:-1]), (*reversed(ids[1:]), EOS))

    def outputs(self, texts: Sequence[Text], right: int = 0, left: int = 0) -> list[Tensor]:
        memory = self._memory(texts, right, left)
        rows = side_by_side([text.tokens for text in texts], self.device, right)
        return rows.each(self.network.logits(self.network.decode(rows.tokens, memory)))

    def _memory(self, texts: Sequence[Text], right: int = 0, left: int = 0) -> Memory:
        rows = side_by_side([text.source for text in texts], self.device, right, left)
        if not left:
            return self.network.encode(rows.tokens, rows.keep)
        embedded = self.network.source_embedding(rows.tokens)
        return Memory(self.network.encoder(embedded, Placement(rows.keep, rows.at)), rows.at, rows.keep)

    def seeing_nothing(self, texts: Sequence[Text]) -> Tensor:
        source = side_by_side([text.source for text in texts[:2]], self.device)
        target = side_by_side([text.tokens for text in texts[:2]], self.device)
        return self.network.logits(self.network(source.tokens, target.tokens, first_hidden(source)))

    def ways_to_be_too_long(self) -> dict[str, Callable[[], object]]:
        return self._reading_too_much(self.network.encoder.limit) | self._writing_too_much(self.network.decoder.limit)

    def _reading_too_much(self, limit: int | None) -> dict[str, Callable[[], object]]:
        if limit is None:
            return {}
        return {f"{limit + 1} tokens of a source": lambda: self.network.encode(self._ends(limit + 1))}

    def _writing_too_much(self, limit: int | None) -> dict[str, Callable[[], object]]:
        if limit is None:
            return {}
        memory = self.network.encode(self._ends(2))

        def step_by_step() -> object:
            stepper = self.network.start(memory)
            return stepper.step(self._ends(limit)), stepper.step(self._ends(1))

        whole = f"{limit + 1} tokens of a target"
        return {whole: lambda: self.network.decode(self._ends(limit + 1), memory), f"{whole} in steps": step_by_step}

    def start(self, texts: Sequence[Text]) -> Stepper:
        return self.network.start(self._memory(texts))

    def prompt(self, text: Text) -> Text:
        return Text((BOS,), text.source)

    def write(self, texts: Sequence[Text], longest: int, width: int, n_best: int = 1) -> list[list[Composed]]:
        most = torch.full((len(texts),), longest, device=self.device)
        found = beam_search(self.start(texts), most, Search(beam=width, n_best=n_best), self.symbols)
        return [[self._composed((*one.tokens, EOS), one.log_probability, longest) for one in best] for best in found]

    def _composed(self, tokens: tuple[int, ...], log_probability: float, longest: int) -> Composed:
        return Composed(tokens, log_probability, min(len(tokens), longest - 1))  # the last one must be an end

    def log_probabilities(self, batch: Any) -> tuple[Tensor, Tensor]:
        hidden = self.network(batch.source, batch.target[:, :-1], batch.source_keep)
        return predicted(self.network.logits(hidden), batch.target[:, 1:])


class DecoderOnlyProbe(Probe):
    """A causal stack continues its tokens."""

    kind = "decoder-only"
    widths = (1,)
    symbols = Symbols(begin=EOS, end=EOS, never=(PAD, UNK, BOS))
    network: DecoderOnly

    @property
    def stacks(self) -> list[Stack]:
        return [self.network.stack]

    @property
    def room(self) -> int:
        return self.network.context

    @property
    def size(self) -> int:
        return len(self.network.embedding.table)

    @property
    def embedding(self) -> nn.Module:
        return self.network.embedding

    def read(self, batch: Any) -> list[Text]:
        return [Text(without_padding(row)) for row in batch.tokens.tolist()]

    def text(self, ids: Sequence[int]) -> Text:
        return Text(tuple(ids))

    def outputs(self, texts: Sequence[Text], right: int = 0, left: int = 0) -> list[Tensor]:
        rows = side_by_side([text.tokens for text in texts], self.device, right, left)
        placement = Placement(rows.keep, rows.at) if left else Placement()
        return rows.each(self.network.logits(self.network(rows.tokens, placement)))

    def seeing_nothing(self, texts: Sequence[Text]) -> Tensor:
        rows = side_by_side([text.tokens for text in texts[:2]], self.device)
        return self.network.logits(self.network(rows.tokens, Placement(first_hidden(rows))))

    def ways_to_be_too_long(self) -> dict[str, Callable[[], object]]:
        limit = self.network.stack.limit
        if limit is None:
            return {}
        tokens = self._ends(limit + 1)

        def step_by_step() -> object:
            embedded, state = self.network.embedding(tokens), self.network.stack.start()
            parts = embedded.split((limit, 1), dim=1)
            return [self.network.stack(part, state=state) for part in parts]

        return {f"{limit + 1} tokens": lambda: self.network(tokens), f"{limit + 1} tokens in steps": step_by_step}

    def packed(self, texts: Sequence[Text]) -> list[Tensor]:
        lengths = [len(text.tokens) for text in texts]
        tokens = torch.tensor([[token for text in texts for token in text.tokens]], device=self.device)  # (1, L)
        at = torch.tensor([[place for length in lengths for place in range(length)]], device=self.device)
        document = torch.tensor([[number for number, length in enumerate(lengths) for _ in range(length)]], device=self.device)
        logits = self.network.logits(self.network(tokens, Placement(at=at, document=document)))
        return list(logits[0].split(lengths))

    def start(self, texts: Sequence[Text]) -> Stepper:
        return self.network.start()

    def prompt(self, text: Text) -> Text:
        return text

    def write(self, texts: Sequence[Text], longest: int, width: int, n_best: int = 1) -> list[list[Composed]]:
        prompts, missing = pad_left([text.tokens for text in texts], PAD)
        rows, sampling = [(number, 0) for number in range(len(texts))], Sampling(temperature=0.0, max_tokens=longest)
        stepper, written = self.network.start(missing), [Composed((), 0.0, 0) for _ in texts]
        for one in generate(stepper, prompts.to(self.device), sampling, self.symbols, rows, lambda row, tokens: False):
            before = written[one.row]
            assert one.log_probability is not None
            tokens, total = (*before.tokens, one.token), before.log_probability + one.log_probability
            written[one.row] = Composed(tokens, total, len(tokens))
        return [[one] for one in written]

    def log_probabilities(self, batch: Any) -> tuple[Tensor, Tensor]:
        hidden = self.network(batch.tokens, Placement(at=batch.at, document=batch.document))
        return predicted(self.network.logits(hidden), batch.target)


class EncoderOnlyProbe(Probe):
    """An encoder reads its tokens whole, under a head of any kind; outputs are the encoder's vectors."""

    kind = "encoder with a head"
    network: EncoderOnly

    @property
    def stacks(self) -> list[Stack]:
        return [self.network.stack]

    @property
    def size(self) -> int:
        return len(self.network.embedding.table)

    def read(self, batch: Any) -> list[Text]:
        keep = torch.ones_like(batch.tokens, dtype=torch.bool) if batch.keep is None else batch.keep
        return [Text(tuple(row[real].tolist())) for row, real in zip(batch.tokens, keep, strict=True)]

    def text(self, ids: Sequence[int]) -> Text:
        return Text((BOS, *ids[1:-1], EOS))

    def outputs(self, texts: Sequence[Text], right: int = 0, left: int = 0) -> list[Tensor]:
        rows = side_by_side([text.tokens for text in texts], self.device, right, left)
        if not left:
            return rows.each(self.network(rows.tokens, None, rows.keep))
        embedded = self.network.embed(rows.tokens, None, rows.keep)
        return rows.each(self.network.stack(embedded, Placement(rows.keep, rows.at)))

    def seeing_nothing(self, texts: Sequence[Text]) -> Tensor:
        rows = side_by_side([text.tokens for text in texts[:2]], self.device)
        vectors: Tensor = self.network(rows.tokens, None, first_hidden(rows))
        return vectors

    def ways_to_be_too_long(self) -> dict[str, Callable[[], object]]:
        limit = self.network.stack.limit
        return {} if limit is None else {f"{limit + 1} tokens": lambda: self.network(self._ends(limit + 1))}


PROBES: tuple[tuple[type[nn.Module], type[Probe]], ...] = (
    (EncoderDecoder, EncoderDecoderProbe),
    (DecoderOnly, DecoderOnlyProbe),
    (EncoderOnly, EncoderOnlyProbe),
)


def probe_of(network: object) -> Probe | None:
    """The probe of a network's kind; None for a kind of its own."""
    return next((probe(network) for kind, probe in PROBES if isinstance(network, kind)), None)
