"""Windows of running text as tensors.

Letters: B windows, L tokens in each.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyformer.text import EOS

__all__ = ["Layout", "TextBatch", "batch_windows"]

Layout = Literal["packed", "stream"]
Array = NDArray[np.int64]


@dataclass(frozen=True)
class TextBatch:
    """Windows of a text; what is predicted at a place is the token after it.

    Args:
        tokens: (B, L) inputs; `PAD` after the end of the text.
        target: (B, L) the token to be predicted at each place; `PAD` where none is scored.
        at: (B, L) how far each input is from the beginning of its document, or of the window where that cuts it; None
            where documents are not told apart.
        document: (B, L) the number of each input's document within the window. An `EOS` is the first input of the
            document after it. None where documents are not told apart.
        index: (B,) where each window begins in the text; in evaluation, its number.
        words: words of the whole text, counted on its first window and nowhere else, so that sums are exact; 0 in training.
        bytes: likewise, bytes of the whole text.
        scored: likewise, how many tokens are scored in all of it.
    """

    tokens: Tensor
    target: Tensor
    at: Tensor | None
    document: Tensor | None
    index: Tensor
    words: int = 0
    bytes: int = 0
    scored: int = 0

    def __len__(self) -> int:
        return len(self.index)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "TextBatch":
        """The batch on a device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "TextBatch":
        """The batch in page-locked memory, from where it is copied to a GPU faster."""
        return self._each(lambda tensor: tensor.pin_memory())

    def _each(self, change: Callable[[Tensor], Tensor]) -> "TextBatch":
        return replace(
            self,
            tokens=change(self.tokens),
            target=change(self.target),
            at=None if self.at is None else change(self.at),
            document=None if self.document is None else change(self.document),
            index=change(self.index),
        )


def batch_windows(rows: dict[str, Any], layout: Layout) -> TextBatch:
    """Windows as tensors.

    Args:
        rows: "tokens" (B, L + 1), the inputs and the last target; "index", B numbers; and "target" (B, L) where not all
            are scored.
        layout: `packed` tells documents apart, `stream` takes the text as one.

    >>> batch = batch_windows({"tokens": np.array([[7, 3, 8, 9]]), "index": [0]}, "packed")
    >>> batch.target.tolist(), batch.document.tolist(), batch.at.tolist()
    ([[3, 8, 9]], [[0, 1, 1]], [[0, 0, 1]])
    """
    tokens: Array = rows["tokens"]
    inputs = np.ascontiguousarray(tokens[:, :-1])
    target = np.ascontiguousarray(rows.get("target", tokens[:, 1:]))
    at, document = _documents(inputs) if layout == "packed" else (None, None)
    return TextBatch(
        tokens=torch.from_numpy(inputs),
        target=torch.from_numpy(target),
        at=None if at is None else torch.from_numpy(at),
        document=None if document is None else torch.from_numpy(document),
        index=torch.as_tensor(rows["index"], dtype=torch.int64),
    )


def _documents(inputs: Array) -> tuple[Array, Array]:
    """(B, L) each: the place in its document, and the number of the document, of every input."""
    begins = inputs == EOS
    places = np.arange(inputs.shape[1])
    first = np.maximum.accumulate(np.where(begins, places, 0), axis=1)
    return places - first, np.cumsum(begins, axis=1, dtype=np.int64)
