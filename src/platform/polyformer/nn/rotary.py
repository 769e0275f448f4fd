"""Rotary positions: queries and keys are turned, so that their products see distances.

Letters: B batch, H heads, L tokens, K width per head.
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from polyformer.nn.position import Position
from polyformer.nn.shape import Shape

__all__ = ["LinearScaling", "NTKScaling", "Rotary", "RotaryScaling", "YaRNScaling"]


class RotaryScaling(ABC):
    """Changes the angles of :class:`Rotary` for texts longer than those of training.

    A trained model can be used with it as it is; a little more training makes it better. The angles do not depend on the
    length of the text at hand, so that keys in a cache stay right.

    Args:
        factor: How many times longer texts get.

    Raises:
        ValueError: For a factor below 1.
    """

    def __init__(self, factor: float) -> None:
        if factor < 1.0:
            raise ValueError(f"`factor` of {type(self).__name__} must be at least 1, but is {factor}")
        self.factor = factor

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in vars(self).items())})"

    @abstractmethod
    def speeds(self, base: float, pairs: int) -> list[float]:
        """By what angle each pair of features is turned from one token to the next."""

    @property
    def growth(self) -> float:
        """What turned queries and keys are multiplied by."""
        return 1.0


class LinearScaling(RotaryScaling):
    """Position interpolation (Chen et al. 2023, section 2.3): all angles are divided by the factor.

    >>> scaling = LinearScaling(4.0)
    >>> scaling, scaling.speeds(10000.0, 2)
    (LinearScaling(factor=4.0), [0.25, 0.0025])
    """

    def speeds(self, base: float, pairs: int) -> list[float]:
        return [speed / self.factor for speed in plain_speeds(base, pairs)]


class NTKScaling(RotaryScaling):
    """A larger base ("NTK-aware"; Peng et al. 2023, section 3.1): b' = b factor^(K / (K - 2)).

    The fastest pair keeps its speed, the slowest is divided by the factor, and those between by something between.
    """

    def speeds(self, base: float, pairs: int) -> list[float]:
        return plain_speeds(base * self.factor ** (pairs / max(pairs - 1, 1)), pairs)


class YaRNScaling(RotaryScaling):
    """Slow pairs are interpolated, fast ones kept, and attention is sharpened (YaRN, Peng et al. 2023, sections 3.2 and 3.4).

    A pair that turns fully ``beta_slow`` times or less within the trained length is divided by the factor, one that turns
    ``beta_fast`` times or more is left, and a ramp over the pairs between leads from one to the other (as in the authors'
    code; the paper has it over the turns). Queries and keys grow by 0.1 ln(factor) + 1 each, which is the paper's temperature
    of the logits.

    Args:
        factor: How many times longer texts get.
        trained_length: Length of the texts of training, in tokens.
        beta_fast: Turns from which on a pair is left as it is.
        beta_slow: Turns up to which a pair is interpolated.

    Raises:
        ValueError: For a factor below 1, a length below 1, or betas in the wrong order.
    """

    def __init__(self, factor: float, trained_length: int, beta_fast: float = 32.0, beta_slow: float = 1.0) -> None:
        super().__init__(factor)
        if trained_length < 1:
            raise ValueError(f"`trained_length` of YaRNScaling must be at least 1, but is {trained_length}")
        if not 0.0 < beta_slow < beta_fast:
            raise ValueError(
                f"`beta_slow` of YaRNScaling must be above 0 and below `beta_fast` ({beta_fast}), but is {beta_slow}"
            )
        self.trained_length, self.beta_fast, self.beta_slow = trained_length, beta_fast, beta_slow

    def speeds(self, base: float, pairs: int) -> list[float]:
        first, last = (self._pair(turns, base, pairs) for turns in (self.beta_fast, self.beta_slow))
        first, last = max(math.floor(first), 0), min(math.ceil(last), 2 * pairs - 1)
        shares = [min(max((pair - first) / max(last - first, 0.001), 0.0), 1.0) for pair in range(pairs)]
        plain = plain_speeds(base, pairs)
        return [(1.0 - share) * speed + share * speed / self.factor for share, speed in zip(shares, plain, strict=True)]

    def _pair(self, turns: float, base: float, pairs: int) -> float:
        """The pair, a fraction, that turns so often within the trained length."""
        return pairs * math.log(self.trained_length / (2.0 * math.pi * turns)) / math.log(base)

    @property
    def growth(self) -> float:
        return 0.1 * math.log(self.factor) + 1.0


class Rotary(Position):
    """Queries and keys turned by angles that grow with the index, so that logits see distances (Su et al. 2021, equation 34).

    Feature i of the first half of a head is turned together with feature i of the second half, by at / base^(2i/K);
    angles are float32 in every precision. (Weights of models that turn neighbouring features must be permuted to fit.)

    Args:
        shape: What the stack has decided.
        base: Wavelengths grow from 2 pi to 2 pi times this.
        fraction: Share of each head's features that are turned; the others are left as they are.
        scaling: Changes the angles for texts longer than those of training: a LinearScaling, NTKScaling or YaRNScaling.
    """

    def __init__(
        self, shape: Shape, base: float = 10000.0, fraction: float = 1.0, scaling: RotaryScaling | None = None
    ) -> None:
        super().__init__(shape)
        if not 0.0 < fraction <= 1.0:
            raise ValueError(f"`fraction` of Rotary must be above 0 and at most 1, but is {fraction}")
        if base <= 1.0:
            raise ValueError(f"`base` of Rotary must be above 1, but is {base}")
        width = round(shape.d_head * fraction)
        if width < 2 or width % 2:
            raise ValueError(
                f"Rotary turns pairs of features, but `fraction` ({fraction}) of the {shape.d_head} per head are {width}, "
                f"which is not even; choose another `d_model` ({shape.d_model}), `num_heads` ({shape.num_heads}) or `fraction`"
            )
        self.pairs = width // 2
        self.speeds = plain_speeds(base, self.pairs) if scaling is None else scaling.speeds(base, self.pairs)
        self.growth = 1.0 if scaling is None else scaling.growth

    def rotate(self, heads: Tensor, at: Tensor) -> Tensor:
        speeds = torch.tensor(self.speeds, dtype=torch.float32, device=at.device)
        angles = at.float().unsqueeze(-1) * speeds  # (L, K/2) or (B, L, K/2)
        angles = angles if angles.dim() == 2 else angles.unsqueeze(1)  # (L, K/2) or (B, 1, L, K/2)
        cos, sin = angles.cos().to(heads.dtype), angles.sin().to(heads.dtype)
        heads = heads if self.growth == 1.0 else heads * self.growth
        first, second, rest = heads.split((self.pairs, self.pairs, heads.shape[-1] - 2 * self.pairs), dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)


def plain_speeds(base: float, pairs: int) -> list[float]:
    """By what angle pairs are turned from one token to the next: from 1 down to almost 1 / base."""
    return [base ** (-pair / pairs) for pair in range(pairs)]
