"""Texts, or pairs of texts, as rows of tokens: BOS text EOS, or BOS text EOS second EOS.

Letters: B batch, L tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyformer.data.batches import TokenBatches
from polyformer.data.cutting import TextLimits
from polyformer.data.pairs import pad_rows
from polyformer.text import BOS, EOS, PAD

__all__ = ["LabelledBatch", "batch_texts", "text_batches"]

Texts = Sequence[Sequence[int]]
"""The ids of an example's one or two texts."""


@dataclass(frozen=True)
class LabelledBatch:
    """Texts and what is to be predicted for them, right-padded with `PAD`.

    Where long texts are read in several windows, B counts windows, and "target" and "index" have an entry for each example.

    Args:
        tokens: (B, L) token ids.
        keep: (B, L), True where a token is real; None where nothing is padded.
        segment: (B, L), 0 in the first text and 1 in the second, with their marks; None where examples have one text.
        target: as the labelling says, (B,) or (B, number of labels); None where nothing is known.
        index: (B,) numbers of the examples.
        windows: how many consecutive rows belong to each example; None where it is one.
    """

    tokens: Tensor
    keep: Tensor | None
    segment: Tensor | None
    target: Tensor | None
    index: Tensor
    windows: Tensor | None = None

    def __len__(self) -> int:
        return len(self.index)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "LabelledBatch":
        """The batch on a device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "LabelledBatch":
        """The batch in page-locked memory, from where it is copied to a GPU faster."""
        return self._each(lambda tensor: tensor.pin_memory())

    def _each(self, change: Any) -> "LabelledBatch":
        changed = {name: change(value) for name, value in vars(self).items() if value is not None}
        return replace(self, **changed)


def batch_texts(
    examples: Sequence[Texts], index: Sequence[int], target: Tensor | None = None, limits: TextLimits | None = None
) -> LabelledBatch:
    """Examples as tensors; with limits that have a stride, a row for each window of a text.

    >>> batch = batch_texts([[[5, 6], [7]]], [0])
    >>> batch.tokens.tolist(), batch.segment.tolist()
    ([[2, 5, 6, 3, 7, 3]], [[0, 0, 0, 0, 1, 1]])
    >>> batch_texts([[[4]], [[5, 6, 7, 8]]], [0, 1], limits=TextLimits(max_length=5, stride=1)).windows.tolist()
    [1, 2]
    """
    windows = None
    if limits is not None and limits.stride is not None:
        read = [limits.windowed(ids) for (ids,) in examples]
        windows = torch.tensor([len(windows) for windows in read])
        examples = [[ids] for windows in read for ids in windows]
    tokens = pad_rows([[BOS, *(token for ids in texts for token in (*ids, EOS))] for texts in examples])
    keep = tokens != PAD
    segment = None
    if any(len(texts) > 1 for texts in examples):
        segment = pad_rows([[0] * (len(first) + 2) + [1] * (len(second) + 1) for first, second in examples])
    return LabelledBatch(
        tokens=tokens,
        keep=None if bool(keep.all()) else keep,
        segment=segment,
        target=target,
        index=torch.tensor(index, dtype=torch.int64),
        windows=windows,
    )


def text_batches(examples: Sequence[Texts], limits: TextLimits | None = None, tokens: int = 8192) -> Iterator[LabelledBatch]:
    """Batches of examples that are already ids, longest first; "index" is their places.

    >>> [batch.index.tolist() for batch in text_batches([[[5]], [[]], [[6, 7]]])]
    [[2, 0, 1]]
    """
    lengths = np.array([sum(map(len, texts)) + len(texts) + 1 for texts in examples])
    if limits is not None and limits.stride is not None:
        lengths = limits.cost(lengths - 2)
    for batch in TokenBatches(lengths, tokens=tokens, shuffle=False).plan(0):
        yield batch_texts([examples[at] for at in batch], batch.tolist(), limits=limits)
