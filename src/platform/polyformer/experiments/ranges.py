"""What settings may be drawn from: ranges of numbers, and lists."""

import math
import random
from dataclasses import dataclass
from typing import Any

__all__ = ["Choices", "Range", "drawn_from", "range_of"]


@dataclass(frozen=True)
class Range:
    """Numbers that are drawn from.

    Args:
        low: The least.
        high: The most.
        scale: "linear", or "log" for what matters by its magnitude, such as learning rates.
        whole: Whether only whole numbers are drawn.

    Raises:
        ValueError: If there is nothing between the two, or a logarithm of what has none.
    """

    low: float
    high: float
    scale: str = "linear"
    whole: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"`low` must be below `high`, but they are {self.low:g} and {self.high:g}")
        if self.scale not in ("linear", "log"):
            raise ValueError(f"`scale` must be linear or log, but is {self.scale}")
        if self.scale == "log" and self.low <= 0:
            raise ValueError(f"`low` must be above 0 where `scale` is log, but is {self.low:g}")

    def draw(self, chance: random.Random) -> float | int:
        """A number, each as likely as any other on the scale."""
        low, high = (math.log(self.low), math.log(self.high)) if self.scale == "log" else (self.low, self.high)
        value = chance.uniform(low, high)
        return self.written(math.exp(value) if self.scale == "log" else value)

    def written(self, value: float) -> float | int:
        """A number as settings have it: whole, or of four digits.

        >>> Range(0.0, 1.0).written(0.123456), Range(1, 9, whole=True).written(3.7)
        (0.1235, 4)
        """
        return round(value) if self.whole else float(f"{value:.4g}")


Choices = Range | list[Any]
"""A range, or a list of which one is taken."""


def drawn_from(kind: Choices, chance: random.Random) -> Any:
    """One of them."""
    return kind.draw(chance) if isinstance(kind, Range) else chance.choice(kind)


def range_of(kind: Any) -> Choices:
    """A range or a list from its description.

    Raises:
        ValueError: For a key that a range does not have.
    """
    if isinstance(kind, list):
        return kind
    unknown = set(kind) - {"low", "high", "scale", "whole"}
    if unknown:
        raise ValueError(f"a range has `low`, `high`, `scale` and `whole`, but not `{sorted(unknown)[0]}`")
    return Range(float(kind["low"]), float(kind["high"]), kind.get("scale", "linear"), bool(kind.get("whole", False)))
