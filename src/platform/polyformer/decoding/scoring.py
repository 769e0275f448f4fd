"""Log-probabilities of given texts.

Letters: B texts, L tokens, V vocabulary.
"""

from torch import Tensor

__all__ = ["log_probabilities"]


def log_probabilities(logits: Tensor, target: Tensor, padding: int) -> Tensor:
    """What a model thinks of each token of given texts.

    Args:
        logits: (B, L, V), where logits i speak of token i of ``target``.
        target: (B, L) token ids.
        padding: The id that stands for no token.

    Returns:
        (B, L) in nats, 0 at padding.

    >>> import torch
    >>> log_probabilities(torch.zeros(1, 2, 4), torch.tensor([[3, 0]]), padding=0)
    tensor([[-1.3863,  0.0000]])
    """
    chosen = logits.float().log_softmax(dim=-1).gather(-1, target.unsqueeze(-1)).squeeze(-1)  # (B, L)
    return chosen.masked_fill(target == padding, 0.0)
