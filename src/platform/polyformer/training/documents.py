"""What single documents cost a language model, however windows cut them.

Letters: B windows, L tokens in each, N tokens, D model, V vocabulary.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from polyformer.data import TextData
from polyformer.data.documents import byte_count
from polyformer.training.contract import KEPT_CHARACTERS
from polyformer.training.losses import token_losses

__all__ = ["Described", "WindowLosses", "describe_documents", "document_rows", "window_losses"]

log = logging.getLogger("polyformer")

Described = list[tuple[str, int]]
"""Of each document its text, or the beginning of it, and its bytes; its end is one byte."""


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
    windows: Sequence[WindowLosses], end: int, describe: Callable[[list[list[int]]], Described]
) -> list[dict[str, Any]]:
    """Each document's text, nats, tokens and bytes; its end is one token and one byte.

    Args:
        windows: In the order of the text, so that each token is in one of them.
        end: The token that ends a document.
        describe: The tokens of all documents, without their ends, to what they are.

    >>> window = WindowLosses(torch.tensor([5, 6, 3, 7]), torch.tensor([1.0, 2.0, 1.0, 8.0]))
    >>> rows = document_rows([window], end=3, describe=lambda several: [("x", len(ids) + 1) for ids in several])
    >>> [(row["nats"], row["tokens"], row["bytes"]) for row in rows]
    [(4.0, 3, 3), (8.0, 1, 2)]
    """
    tokens, nats = (torch.cat([getattr(one, name) for one in windows]) for name in ("tokens", "nats"))
    begins = [0, *((tokens == end).nonzero().squeeze(1) + 1).tolist(), len(tokens)]
    sizes = [stop - begin for begin, stop in pairwise(begins) if stop > begin]
    described = describe([ids[ids != end].tolist() for ids in tokens.split(sizes)])
    sums = [float(each.double().sum()) for each in nats.split(sizes)]
    return [
        {"input": text, "nats": total, "tokens": size, "bytes": count}
        for (text, count), total, size in zip(described, sums, sizes, strict=True)
    ]


def describe_documents(
    data: TextData, split: str, decode: Callable[[list[list[int]]], list[str]], tokens: list[list[int]]
) -> Described:
    """What the documents of a split are: as their files have them, so that they are the same for every tokenizer.

    Where the files are not what they were, or not all of them was evaluated: as their tokens decode.

    Args:
        data: Knows the files.
        split: Such as "test".
        decode: Tokens to texts.
        tokens: Of each document, without its end.
    """
    report = data.reports[split]
    try:
        found = _read_again(data, split)
    except (OSError, ValueError) as error:
        log.warning("the %s data cannot be read again, so its documents are kept as their tokens decode: %s", split, error)
        found = []
    if len(found) == len(tokens) and sum(count for _, count in found) == report.bytes:
        return found
    return [(text, byte_count(text) + 1) for text in decode(tokens)]


def _read_again(data: TextData, split: str) -> Described:
    """The documents of a split, without those that are dropped."""
    found: Described = []
    begin, count = "", 0
    for piece in data.pieces(split):
        begin, count = (piece.text[:KEPT_CHARACTERS], 1) if piece.begins else (begin, count)
        count += byte_count(piece.text)
        is_dropped = piece.begins and data.empty == "drop" and not piece.text.strip()
        if piece.ends and not is_dropped:
            found.append((begin, count))
    return found
