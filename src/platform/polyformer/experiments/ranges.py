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
        ValueError: If there is nothing between the two, a logarithm of what has none, or no whole number at an end.
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
        if self.whole and not (float(self.low).is_integer() and float(self.high).is_integer()):
            raise ValueError(f"`low` and `high` must be whole where `whole` is true, but are {self.low:g} and {self.high:g}")

    def draw(self, chance: random.Random) -> float | int:
        """A number, each as likely as any other on the scale; a whole one stands for all that is rounded to it."""
        if self.scale == "linear" and self.whole:
            return chance.randint(int(self.low), int(self.high))
        if self.scale == "linear":
            return self.written(chance.uniform(self.low, self.high))
        room = 0.5 if self.whole else 0.0
        value = math.exp(chance.uniform(math.log(self.low - room), math.log(self.high + room)))
        return self.written(min(max(value, self.low), self.high))

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
        ValueError: If it is neither, or its ends are no numbers.
    """
    if isinstance(kind, list) and kind:
        return kind
    if not isinstance(kind, dict):
        raise ValueError(f"a range such as `{{low: 1, high: 8}}` or a list of values is needed, but there is {kind}")
    unknown = sorted(str(name) for name in kind if name not in ("low", "high", "scale", "whole"))
    if unknown:
        raise ValueError(f"a range has `low`, `high`, `scale` and `whole`, but not `{unknown[0]}`")
    low, high = _number(kind, "low"), _number(kind, "high")
    return Range(low, high, kind.get("scale", "linear"), bool(kind.get("whole", False)))


def _number(kind: dict[str, Any], name: str) -> float:
    try:
        return float(kind[name])
    except KeyError:
        raise ValueError(f"a range needs `{name}`") from None
    except (ValueError, TypeError):
        raise ValueError(f"`{name}` must be a number, but is {kind[name]}") from None
