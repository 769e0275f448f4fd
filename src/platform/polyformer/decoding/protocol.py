"""What a search needs to know of a model: nothing but this.

Letters: N rows being decoded, L new tokens, V vocabulary.
"""

from typing import Protocol

from torch import Tensor

__all__ = ["Stepper"]


class Stepper(Protocol):
    """A decode in progress. It owns whatever the model remembers; dropping it frees the memory."""

    def step(self, tokens: Tensor) -> Tensor:
        """(N, L) tokens that follow those of earlier steps -> (N, V) logits of the token after the last one.

        The logits are the search's to overwrite.
        """
        ...

    def reorder(self, rows: Tensor) -> None:
        """Row i continues what row ``rows[i]`` was; rows may be repeated or dropped."""
        ...
