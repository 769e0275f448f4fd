"""What the laws judge: a task with its weights, a few texts for its network, and the data."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from polyformer.check.kinds import probe_of
from polyformer.check.law import NotApplicable
from polyformer.check.pool import Pool, moved
from polyformer.check.probe import Probe, Text
from polyformer.data import DataModule
from polyformer.text import SPECIALS
from polyformer.training.build import load_task
from polyformer.training.task import Task

__all__ = ["Reading", "Subject", "shake"]

LENGTHS = (24, 19, 13, 8)
"""How many tokens the texts for a network have at most: it is told apart by mistakes, not by length."""
LONG = 320
"""Tokens of the one text that is longer than the others, if no mixer tells longer ones apart."""


@dataclass(frozen=True)
class Reading:
    """What became of reading the data.

    Args:
        data: The data module, where its training data could be read.
        pools: Training examples of each part of it.
        missing: Why there are none: no data is given, or it is not to be had here.
        broken: What is wrong with data that is here.
    """

    data: DataModule | None = None
    pools: list[Pool] = field(default_factory=list)
    missing: str = ""
    broken: str = ""


class Subject:
    """A task in evaluation mode, and what it is to be judged with.

    Args:
        task: The task, where it is to be judged.
        reading: What became of reading its data.
        weights: What its weights are, for the report.
    """

    def __init__(self, task: Task, reading: Reading, weights: str) -> None:
        self.task, self.reading, self.weights = task.eval(), reading, weights
        self.device = next(task.parameters()).device
        self._probe = probe_of(getattr(task, "network", None))

    @property
    def probe(self) -> Probe:
        """How the network is reached. Raises NotApplicable for a network of a kind of its own."""
        if self._probe is None:
            raise NotApplicable("the network is of a kind of its own")
        return self._probe

    @property
    def data(self) -> DataModule:
        """The data. Raises NotApplicable where it could not be read."""
        if self.reading.data is None:
            raise NotApplicable("the training data is not here" if self.reading.missing else "the training data cannot be read")
        return self.reading.data

    @property
    def pools(self) -> list[Pool]:
        """Training examples of each part of the data. Raises NotApplicable where there are none."""
        assert self.data
        return self.reading.pools

    def batch(self, pool: Pool, places: Sequence[int]) -> Any:
        """A batch of examples, where the task is."""
        return moved(pool.batch(places), self.device)

    @cached_property
    def texts(self) -> list[Text]:
        """A few texts of different lengths, the longest first; of random tokens where the data gives none."""
        found = self._texts_of_data() or self._random_texts()
        room = self.probe.room or 2 * LENGTHS[0]
        cut = [text.cut(max(2, min(length, room // 2))) for text, length in zip(found, LENGTHS, strict=False)]
        cut.sort(key=lambda text: -len(text.tokens))
        if len({len(text.tokens) for text in cut}) == 1 and len(cut[0].tokens) > 2:
            cut = [cut[0], *(text.cut(len(text.tokens) - 1) for text in cut[1:])]
        return cut

    @cached_property
    def has_own_texts(self) -> bool:
        """Whether the texts are of the data."""
        return bool(self._texts_of_data())

    def _texts_of_data(self) -> list[Text]:
        found: list[Text] = []
        for pool in self.reading.pools:
            batch = self.batch(pool, pool.few)
            try:
                found += self.probe.read(batch.batch if pool.part else batch)
            except AttributeError:
                continue  # a batch of a kind of its own
        longest = sorted(found, key=lambda text: -len(text.tokens))[: len(LENGTHS)]
        return longest if len(longest) > 1 and all(len(text.tokens) > 1 for text in longest) else []

    def _random_texts(self) -> list[Text]:
        ids = torch.randint(len(SPECIALS), self.probe.size, (len(LENGTHS), LENGTHS[0]))
        return [self.probe.text(row) for row in ids.tolist()]

    @cached_property
    def even_texts(self) -> list[Text]:
        """The same, cut to one length, so that none is padded."""
        sources = [len(text.source) for text in self.texts]
        length, source = min(len(text.tokens) for text in self.texts), min(sources)
        return [Text(text.tokens[:length], text.source[:source]) for text in self.texts]

    @cached_property
    def long_text(self) -> Text:
        """All texts, over and over, so that windows and buckets matter, as far as there is room."""
        length, room = max(LONG, *(mixer.long for mixer in self.probe.mixers)), self.probe.room
        length = length if room is None else min(length, room)
        tokens, source = (sum(parts, ()) for parts in zip(*((text.tokens, text.source) for text in self.texts), strict=True))
        return Text((tokens * length)[:length], (source * length)[:length])

    @cached_property
    @torch.no_grad()
    def largest(self) -> float:
        """The largest of the outputs for the texts, and at least 1: what is made from outputs is rounded as they are."""
        return max(1.0, *(float(outputs.abs().max()) for outputs in self.probe.outputs(self.texts)))

    @cached_property
    def reloaded(self) -> Task:
        """The task after it was saved and loaded, as a run's checkpoint is."""
        with TemporaryDirectory() as folder:
            content: dict[str, Any] = {"state_dict": self.task.state_dict()}
            self.task.on_save_checkpoint(content)
            path = Path(folder) / "checked.ckpt"
            torch.save(content, path)
            return load_task(path)[0].to(self.device)


def shake(module: nn.Module) -> None:
    """Moves all weights away from symmetry: no bias stays 0, no gain 1, and matrices keep about their size."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(_spread(parameter) * torch.randn_like(parameter))


def _spread(parameter: Tensor) -> float:
    """How far a parameter is moved."""
    if parameter.dim() < 2:
        return 0.2
    deviation = float(parameter.std()) if parameter.numel() > 1 else 0.0
    return 0.5 * (deviation or parameter.shape[-1] ** -0.5)
