"""Who may look at whom, as a value; drawn as a tensor as late as possible.

Letters: B batch, L queries, S keys.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Mask"]


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

    >>> Mask(causal=True).dense(torch.arange(2), torch.arange(2)).int()
    tensor([[[[1, 0],
              [1, 1]]]], dtype=torch.int32)
    """

    causal: bool = False
    keep: Tensor | None = None
    document: Tensor | None = None

    def sees_all(self, q_at: Tensor, k_at: Tensor) -> bool:
        """Whether every query sees every key, so that no mask is needed; asked only where answering is free.

        One query that is the newest of the keys sees all of them, which is every step of cached decoding.
        """
        if self.keep is not None or self.document is not None:
            return False
        return not self.causal or (q_at.shape[-1] == 1 and q_at.dim() == 1 == k_at.dim())

    def is_plain_causal(self, q_at: Tensor, k_at: Tensor) -> bool:
        """Whether the mask is the lower triangle: queries and keys are the same tokens, nothing is padded."""
        return self.causal and self.keep is None and self.document is None and q_at is k_at

    def dense(self, q_at: Tensor, k_at: Tensor) -> Tensor:
        """The mask as a tensor.

        Args:
            q_at: Indices of the queries, (L,) or (B, L).
            k_at: Indices of the keys, (S,) or (B, S).

        Returns:
            (B or 1, 1, L or 1, S) bool, True where the query may look.
        """
        drawn = torch.ones(1, 1, 1, k_at.shape[-1], dtype=torch.bool, device=k_at.device)
        if self.causal:
            allowed = k_at.unsqueeze(-2) <= q_at.unsqueeze(-1)  # (L, S) or (B, L, S)
            drawn = allowed.unsqueeze(-3) if allowed.dim() == 3 else allowed[None, None]  # (B|1, 1, L, S)
        if self.document is not None:
            drawn = drawn & (self.document.unsqueeze(-1) == self.document.unsqueeze(-2)).unsqueeze(1)  # (B, 1, L, L)
        if self.keep is not None:
            drawn = drawn & self.keep[:, None, None, :]  # (B, 1, L|1, S)
        return drawn
