"""Learning-rate schedules: the factor on the optimizer's rate at each optimizer step.

Every schedule counts steps, never epochs. `lr` below is the optimizer's own.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

__all__ = [
    "Constant",
    "Cosine",
    "Horizon",
    "InverseSquareRoot",
    "Linear",
    "Noam",
    "Schedule",
    "ScheduleFactory",
    "WarmupStableDecay",
]


@dataclass(frozen=True)
class Horizon:
    """What a schedule may know of the training: its steps (None: no end is set) and the model's width."""

    steps: int | None
    d_model: int


class Schedule(ABC):
    """A factor for each step.

    Args:
        horizon: What is known of the training.
        warmup: Steps during which the factor rises linearly from near 0.

    Raises:
        ValueError: For a negative warm-up.
    """

    def __init__(self, horizon: Horizon, warmup: int = 0) -> None:
        if warmup < 0:
            raise ValueError(f"`warmup` must not be negative, but is {warmup}")
        self.horizon, self.warmup = horizon, warmup

    def __call__(self, step: int) -> float:
        """The factor at optimizer step ``step``, counted from 0."""
        if step < self.warmup:
            return self.after(self.warmup) * (step + 1) / self.warmup
        return self.after(step)

    @abstractmethod
    def after(self, step: int) -> float:
        """The factor at a step that is not in the warm-up."""

    def share(self, step: int) -> float:
        """Which share of the steps after the warm-up is over, from 0 to 1.

        Raises:
            ValueError: If the training has no set end.
        """
        if self.horizon.steps is None:
            raise ValueError(
                f"the schedule {type(self).__name__} must know when training ends; set `trainer.max_steps` or "
                "`trainer.max_epochs`"
            )
        return min(1.0, (step - self.warmup) / max(1, self.horizon.steps - self.warmup))


ScheduleFactory = Callable[[Horizon], Schedule]


class Constant(Schedule):
    """lr, after the warm-up.

    >>> [Constant(Horizon(None, 8), warmup=2)(step) for step in range(3)]
    [0.5, 1.0, 1.0]
    """

    def after(self, step: int) -> float:
        return 1.0


class InverseSquareRoot(Schedule):
    """lr * sqrt(warmup / step): the peak is lr, at the end of the warm-up.

    Args:
        horizon: What is known of the training.
        warmup: Steps of linear rise.
    """

    def __init__(self, horizon: Horizon, warmup: int = 4000) -> None:
        super().__init__(horizon, warmup)

    def after(self, step: int) -> float:
        return math.sqrt(max(1, self.warmup) / max(1, step))


class Noam(Schedule):
    """lr * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5), steps from 1 (Vaswani et al. 2017, equation 3).

    The optimizer's lr is a factor on the paper's rate: 1 gives the paper's, 2 what tensor2tensor used.

    Args:
        horizon: What is known of the training.
        warmup: Steps of linear rise; at least 1.
    """

    def __init__(self, horizon: Horizon, warmup: int = 4000) -> None:
        if warmup < 1:
            raise ValueError(f"`warmup` of Noam must be at least 1, but is {warmup}")
        super().__init__(horizon, warmup)

    def __call__(self, step: int) -> float:
        return float(self.horizon.d_model**-0.5 * min((step + 1) ** -0.5, (step + 1) * self.warmup**-1.5))

    def after(self, step: int) -> float:
        return self(step)


class Linear(Schedule):
    """From lr down to lr * floor in a straight line, at the last step.

    Args:
        horizon: What is known of the training.
        warmup: Steps of linear rise.
        floor: Factor at the last step.
    """

    def __init__(self, horizon: Horizon, warmup: int = 0, floor: float = 0.0) -> None:
        super().__init__(horizon, warmup)
        self.floor = floor

    def after(self, step: int) -> float:
        return self.floor + (1.0 - self.floor) * (1.0 - self.share(step))


class Cosine(Schedule):
    """From lr down to lr * floor along half a cosine (Loshchilov and Hutter 2017), at the last step.

    Args:
        horizon: What is known of the training.
        warmup: Steps of linear rise.
        floor: Factor at the last step.
    """

    def __init__(self, horizon: Horizon, warmup: int = 0, floor: float = 0.0) -> None:
        super().__init__(horizon, warmup)
        self.floor = floor

    def after(self, step: int) -> float:
        return self.floor + (1.0 - self.floor) * 0.5 * (1.0 + math.cos(math.pi * self.share(step)))


class WarmupStableDecay(Schedule):
    """lr, then in the last steps down to lr * floor in a straight line (WSD; Hu et al. 2024).

    Args:
        horizon: What is known of the training.
        warmup: Steps of linear rise.
        decay: Share of the steps after the warm-up in which the rate falls.
        floor: Factor at the last step.
    """

    def __init__(self, horizon: Horizon, warmup: int = 0, decay: float = 0.2, floor: float = 0.0) -> None:
        super().__init__(horizon, warmup)
        if not 0.0 < decay <= 1.0:
            raise ValueError(f"`decay` must be above 0 and at most 1, but is {decay}")
        self.decay, self.floor = decay, floor

    def after(self, step: int) -> float:
        left = min(1.0, (1.0 - self.share(step)) / self.decay)
        return self.floor + (1.0 - self.floor) * left
