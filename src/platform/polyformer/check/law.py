"""What a law is, and what may come of judging by it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

__all__ = ["Finding", "NotApplicable", "Outcome", "Result", "compared", "counted", "several"]

Outcome = Literal["pass", "warning", "fail", "not applicable"]

TOLERANCE = 2e-5
"""Times the largest number, and at least times one: what another order of additions may cost in float32."""
SHOWN = 3


class NotApplicable(Exception):
    """A law does not speak of this subject; the message says why."""


@dataclass(frozen=True)
class Result:
    """What a law has found.

    Args:
        outcome: Whether it holds.
        what: What was run, or what is wrong.
        difference: The largest absolute difference, where numbers are compared.
        tolerance: The largest one that is accepted.
    """

    outcome: Outcome
    what: str
    difference: float | None = None
    tolerance: float | None = None


@dataclass(frozen=True)
class Finding:
    """A line of the report.

    Args:
        group: What the law is about: model, decoding, loss, storage or data.
        law: The law's name.
        says: The law in words.
        result: What was found.
    """

    group: str
    law: str
    says: str
    result: Result


def compared(pairs: Iterable[tuple[Tensor, Tensor]], what: str, factor: float = 1.0, largest: float = 1.0) -> Result:
    """Whether numbers are as expected.

    Args:
        pairs: Tensors, each with what it must be equal to.
        what: What was run.
        factor: How many times the usual tolerance is accepted.
        largest: The largest number that they were computed from, where it may be larger than they are.

    >>> import torch
    >>> compared([(torch.tensor([1.0, 200.0]), torch.tensor([1.0, 200.5]))], "two numbers")
    Result(outcome='fail', what='two numbers', difference=0.5, tolerance=0.00401)
    """
    difference, count = 0.0, 0
    for found, expected in pairs:
        assert found.shape == expected.shape, (found.shape, expected.shape)
        gap = float((found.double() - expected.double()).abs().max())
        difference = gap if math.isnan(gap) or gap > difference else difference
        largest, count = max(largest, float(expected.abs().max())), count + 1
    assert count, "nothing was compared"
    tolerance = round(factor * TOLERANCE * largest, 12)
    return Result("pass" if difference <= tolerance else "fail", what, difference, tolerance)


def counted(problems: Sequence[str], what: str, outcome: Outcome = "fail") -> Result:
    """Whether there are no problems; a few are named.

    Args:
        problems: In words.
        what: What was looked at.
        outcome: What problems amount to.

    >>> counted(["a", "b", "c", "d"], "letters").what
    '4 problems: a; b; c; ...'
    """
    if not problems:
        return Result("pass", what)
    told = "; ".join([*problems[:SHOWN], *(["..."] if len(problems) > SHOWN else [])])
    return Result(outcome, told if len(problems) == 1 else f"{several(len(problems), 'problem')}: {told}")


def several(count: int, what: str) -> str:
    """A number of things.

    >>> several(1, "batch"), several(2000, "batch"), several(2, "text")
    ('1 batch', '2,000 batches', '2 texts')
    """
    ending = "" if count == 1 else "es" if what.endswith(("ch", "s")) else "s"
    return f"{count:,} {what}{ending}"
