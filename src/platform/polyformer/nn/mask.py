"""Who may look at whom, as a value; drawn as a tensor as late as possible.

Letters: B batch, L queries, S keys.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Mask", "Pattern"]

Pattern = Callable[[Tensor, Tensor], Tensor]
"""Indices of queries and of keys, whose shapes broadcast -> bool, True where the query is to see the key."""


@dataclass(frozen=True)
class Mask:
    """Which keys a query may see.

    A description, not a tensor: the plain causal and the all-visible cases then need no tensor at all and keep
    the fast kernel (see :func:`polyformer.nn.attend.attend`).

    Args:
        causal: A query sees keys whose index is not greater than its own.
        keep: (B, S) bool, True where the key is a real token; None when all are.
        document: (B, L) numbers of the documents that the tokens of packed rows belong to: a query sees keys of its own
            document only, and indices count within it; None where a row is one document. Not for decoding step by step.
        window: A query sees keys whose index differs from its own by less than this, so itself and ``window - 1`` neighbours
            on each side, or only those before it where ``causal``. None: there is no window.
        pattern: A query sees keys that this says besides those in the window, or only these without a window. None: no others.

    >>> Mask(causal=True).dense(torch.arange(2), torch.arange(2)).int()
    tensor([[[[1, 0],
              [1, 1]]]], dtype=torch.int32)
    """

    causal: bool = False
    keep: Tensor | None = None
    document: Tensor | None = None
    window: int | None = None
    pattern: Pattern | None = None

    def sees_all(self, q_at: Tensor, k_at: Tensor) -> bool:
        """Whether every query sees every key, so that no mask is needed; asked only where answering is almost free.

        One query that is the newest of the keys sees all of them, which is every step of cached decoding.
        """
        if self.keep is not None or self.document is not None or self._narrows(q_at, k_at):
            return False
        return not self.causal or (q_at.shape[-1] == 1 and q_at.dim() == 1 == k_at.dim())

    def is_plain_causal(self, q_at: Tensor, k_at: Tensor) -> bool:
        """Whether the mask is the lower triangle: queries and keys are the same tokens, nothing is padded or out of sight."""
        plain = self.causal and self.keep is None and self.document is None and q_at is k_at
        return plain and not self._narrows(q_at, k_at)

    def _narrows(self, q_at: Tensor, k_at: Tensor) -> bool:
        """Whether window and pattern may hide anything; indices are looked at only where they are few."""
        if self.window is None:
            return self.pattern is not None
        if max(q_at.shape[-1], k_at.shape[-1]) > self.window:
            return True
        return int(torch.maximum(q_at.max(), k_at.max()) - torch.minimum(q_at.min(), k_at.min())) >= self.window

    def pairs(self, q_at: Tensor, k_at: Tensor) -> Tensor:
        """What indices alone decide, whatever is padded or packed: (..., L) and (..., S) -> (..., L or 1, S) bool."""
        return self.sees(q_at.unsqueeze(-1), k_at.unsqueeze(-2))

    def sees(self, q_at: Tensor, k_at: Tensor) -> Tensor:
        """As :meth:`pairs`, for indices of queries and of keys whose shapes broadcast -> bool."""
        seen = torch.ones_like(k_at, dtype=torch.bool)
        if self.window is not None:
            seen = (k_at - q_at).abs() < self.window
        if self.pattern is not None:
            linked = self.pattern(q_at, k_at)
            seen = linked if self.window is None else seen | linked
        return seen & (k_at <= q_at) if self.causal else seen

    def dense(self, q_at: Tensor, k_at: Tensor) -> Tensor:
        """The mask as a tensor.

        Args:
            q_at: Indices of the queries, (L,) or (B, L).
            k_at: Indices of the keys, (S,) or (B, S).

        Returns:
            (B or 1, 1, L or 1, S) bool, True where the query may look.
        """
        pairs = self.pairs(q_at, k_at)  # (L|1, S) or (B, L|1, S)
        drawn = pairs.unsqueeze(-3) if pairs.dim() == 3 else pairs[None, None]  # (B|1, 1, L|1, S)
        if self.document is not None:
            drawn = drawn & (self.document.unsqueeze(-1) == self.document.unsqueeze(-2)).unsqueeze(1)  # (B, 1, L, L)
        if self.keep is not None:
            drawn = drawn & self.keep[:, None, None, :]  # (B, 1, L|1, S)
        return drawn
