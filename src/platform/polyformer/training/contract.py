"""What a task gives to those who train and use it: losses as sums, answers, and errors that name a line."""

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

__all__ = ["KEPT_CHARACTERS", "Answer", "LineError", "Loss", "shortened"]

KEPT_CHARACTERS = 400
"""Of each input, in what a test leaves of its examples."""


@dataclass(frozen=True)
class Loss:
    """The loss of a batch as a sum and what it is a sum of, so that any cut into batches weighs tokens equally.

    Args:
        total: Summed loss, with a gradient.
        count: Number of tokens or examples it is summed over.
        sums: Other sums over the same tokens, by name; :meth:`Task.measure` turns them into metrics.
    """

    total: Tensor
    count: Tensor
    sums: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What a task answers to one line.

    Args:
        text: What is printed.
        details: What `--json` prints besides, such as scores and alternatives.
    """

    text: str
    details: dict[str, Any] = field(default_factory=dict)


class LineError(ValueError):
    """A line that cannot be answered.

    Args:
        line: Its number among the lines given, from 1.
        reason: What is wrong with it.
    """

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


def shortened(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of :meth:`Task.example_rows` with the beginnings of their inputs.

    >>> [len(row["input"]) for row in shortened([{"input": "a" * 999, "output": "b"}])]
    [400]
    """
    return [{**row, "input": row["input"][:KEPT_CHARACTERS]} for row in rows]
