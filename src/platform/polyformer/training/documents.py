"""What single documents cost a language model, however windows cut them.

Letters: B windows, L tokens in each, N tokens, D model, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from polyformer.training.losses import token_losses

__all__ = ["WindowLosses", "document_rows", "window_losses"]


@dataclass(frozen=True)
class WindowLosses:
    """What one window of an evaluated text scored.

    Args:
        tokens: (N,) ids.
        nats: (N,) what each of them cost; where nobody asks for that, none.
    """

    tokens: Tensor
    nats: Tensor = field(default_factory=lambda: torch.empty(0))


def window_losses(hidden: Tensor, weight: Tensor, target: Tensor, padding: int) -> list[WindowLosses]:
    """The scored tokens of each window of a batch and their losses, brought to the processor.

    Args:
        hidden: (B, L, D) vectors.
        weight: (V, D) output matrix.
        target: (B, L) token ids.
        padding: The id that stands for no token.
    """
    rows = zip(target.cpu(), token_losses(hidden, weight, target, padding).cpu(), strict=True)
    return [WindowLosses(tokens[tokens != padding], nats[tokens != padding]) for tokens, nats in rows]


def document_rows(
    windows: Sequence[WindowLosses], end: int, decode: Callable[[list[list[int]]], list[str]]
) -> list[dict[str, Any]]:
    """Each document's text, nats, tokens and bytes; its end is one token and one byte.

    Args:
        windows: In the order of the text, so that each token is in one of them.
        end: The token that ends a document.
        decode: Tokens to texts.

    >>> window = WindowLosses(torch.tensor([5, 6, 3, 7]), torch.tensor([1.0, 2.0, 1.0, 8.0]))
    >>> rows = document_rows([window], end=3, decode=lambda several: ["x" * len(ids) for ids in several])
    >>> [(row["nats"], row["tokens"], row["bytes"]) for row in rows]
    [(4.0, 3, 3), (8.0, 1, 2)]
    """
    tokens, nats = (torch.cat([getattr(one, name) for one in windows]) for name in ("tokens", "nats"))
    begins = [0, *((tokens == end).nonzero().squeeze(1) + 1).tolist(), len(tokens)]
    sizes = [stop - begin for begin, stop in pairwise(begins) if stop > begin]
    texts = decode([ids[ids != end].tolist() for ids in tokens.split(sizes)])
    sums = [float(each.double().sum()) for each in nats.split(sizes)]
    return [
        {"input": text, "nats": total, "tokens": size, "bytes": len(text.encode()) + 1}
        for text, total, size in zip(texts, sums, sizes, strict=True)
    ]
