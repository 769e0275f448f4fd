"""The loss of an output layer over a vocabulary, without ever holding all logits.

Letters: N tokens, D model, V vocabulary, C tokens in a chunk.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

__all__ = ["TokenLoss", "linear_cross_entropy", "perplexity", "sequence_loss", "token_losses"]

CHUNK_BYTES = {"cpu": 8 << 20}
"""Of logits, where a cache decides; elsewhere a gigabyte, since many small products would leave an accelerator idle."""


class TokenLoss(NamedTuple):
    """Sums over tokens; all are scalars.

    Args:
        loss: Label-smoothed negative log-likelihood in nats; the one that has a gradient.
        negative_log_likelihood: Without smoothing, in nats; its exponential per token is the perplexity.
        correct: Number of tokens whose logit is the highest.
    """

    loss: Tensor
    negative_log_likelihood: Tensor
    correct: Tensor


def linear_cross_entropy(hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float = 0.0) -> TokenLoss:
    """Cross-entropy of ``softmax(hidden @ weight.T)`` against ``target``, summed over tokens.

    With smoothing e the target is worth 1 - e, and e is spread evenly over all V tokens (Szegedy et al. 2016, section 7;
    torch's own definition). The gradient is made in the forward pass, chunk by chunk, from the same exponentials as the
    loss: memory is one chunk of logits, and no product is computed twice.

    Args:
        hidden: (N, D) vectors.
        weight: (V, D) output matrix.
        target: (N,) token ids; leave padding out beforehand.
        smoothing: Share of the target given away, at least 0 and below 1.

    >>> loss = linear_cross_entropy(torch.zeros(3, 2), torch.zeros(4, 2), torch.tensor([0, 1, 2]))
    >>> round(float(loss.negative_log_likelihood), 4)  # 3 ln 4
    4.1589
    """
    return TokenLoss(*_LinearCrossEntropy.apply(hidden, weight, target, smoothing, torch.is_grad_enabled()))


def perplexity(nats: float) -> float:
    """exp(nats), infinite where a float cannot hold it.

    >>> perplexity(0.0), perplexity(1e4)
    (1.0, inf)
    """
    return math.exp(nats) if nats < 700.0 else math.inf


def sequence_loss(
    hidden: Tensor, weight: Tensor, target: Tensor, padding: int, smoothing: float = 0.0
) -> tuple[TokenLoss, int]:
    """:func:`linear_cross_entropy` over the tokens of a batch that are not padding, and how many these are.

    Args:
        hidden: (B, L, D) vectors.
        weight: (V, D) output matrix.
        target: (B, L) token ids.
        padding: The id that stands for no token.
        smoothing: As above.
    """
    labels = target.flatten()  # (B L,)
    real = (labels != padding).nonzero().squeeze(1)  # (N,)
    vectors = hidden.flatten(0, 1).index_select(0, real)  # (N, D)
    return linear_cross_entropy(vectors, weight, labels[real], smoothing), len(real)


@torch.no_grad()
def token_losses(hidden: Tensor, weight: Tensor, target: Tensor, padding: int) -> Tensor:
    """What each token costs, (B, L) nats, 0 at padding; without a gradient, and chunk by chunk as above.

    Args:
        hidden: (B, L, D) vectors.
        weight: (V, D) output matrix.
        target: (B, L) token ids.
        padding: The id that stands for no token.

    >>> token_losses(torch.zeros(1, 2, 3), torch.zeros(4, 3), torch.tensor([[2, 0]]), padding=0)
    tensor([[1.3863, 0.0000]])
    """
    vectors, labels = hidden.flatten(0, 1), target.flatten()  # (B L, D), (B L,)
    chunk = max(1, CHUNK_BYTES.get(hidden.device.type, 1 << 30) // (4 * weight.shape[0]))
    parts = zip(vectors.split(chunk), labels.split(chunk), strict=True)
    each = [F.cross_entropy((x @ weight.t()).float(), y, reduction="none") for x, y in parts]
    return torch.cat(each).masked_fill(labels == padding, 0.0).view_as(target)


class _LinearCrossEntropy(torch.autograd.Function):
    """With z = W x, loss = logsumexp(z) - (1 - e) z[target] - e mean(z), and mean(z) = x . mean(W): the smoothing costs
    nothing in V. The gradient softmax(z) - (1 - e) onehot - e / V is never written out either: its three terms reach
    x and W by a matrix product, an index and an outer product."""

    @staticmethod
    def forward(ctx, hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float, enabled: bool) -> tuple[Tensor, ...]:  # type: ignore[no-untyped-def]
        wants_gradient = enabled and any(ctx.needs_input_grad[:2])  # torch asks for it under no_grad too
        wide = torch.promote_types(weight.dtype, torch.float32)
        x_gradient = torch.empty_like(hidden) if wants_gradient else None
        w_gradient = torch.zeros_like(weight, dtype=wide) if wants_gradient else None
        chunk = max(1, CHUNK_BYTES.get(hidden.device.type, 1 << 30) // (4 * weight.shape[0]))
        mean = weight.to(wide).mean(dim=0)  # (D,)
        sums = torch.zeros(3, dtype=wide if hidden.device.type == "mps" else torch.float64, device=hidden.device)
        for begin in range(0, hidden.shape[0], chunk):
            x, y = hidden[begin : begin + chunk], target[begin : begin + chunk]  # (C, D), (C,)
            chunk_sums, shares = _chunk_sums((x @ weight.t()).to(wide), y, x.to(wide) @ mean, smoothing)
            sums += chunk_sums
            if x_gradient is not None and w_gradient is not None:
                shares = shares.to(weight.dtype)  # (C, V)
                x_gradient[begin : begin + chunk] = shares @ weight
                w_gradient += shares.t() @ x.to(weight.dtype)
        if x_gradient is not None and w_gradient is not None:
            x_gradient.sub_(weight[target], alpha=1.0 - smoothing).sub_(mean.to(hidden.dtype), alpha=smoothing)
            w_gradient.index_add_(0, target, hidden.to(wide), alpha=smoothing - 1.0)
            w_gradient.sub_(hidden.to(wide).sum(dim=0), alpha=smoothing / weight.shape[0])
            ctx.save_for_backward(x_gradient, w_gradient.to(weight.dtype))
        loss, likelihood, correct = (total.clone() for total in sums.to(wide))  # not views: a caller may divide in place
        ctx.mark_non_differentiable(likelihood, correct)
        return loss, likelihood, correct

    @staticmethod
    @once_differentiable
    def backward(ctx, loss_gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        x_gradient, w_gradient = ctx.saved_tensors
        return x_gradient * loss_gradient, w_gradient * loss_gradient, None, None, None


def _chunk_sums(logits: Tensor, target: Tensor, mean: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The three sums of :class:`TokenLoss` for one chunk of (C, V) logits, and their softmax (C, V).

    ``mean`` (C,) holds the mean logit of each token. One fused softmax is cheaper than maximum, exponential and sum one
    by one; the normaliser is read off the likeliest token, whose share is never too small for its logarithm.
    """
    top, at = logits.max(dim=-1, keepdim=True)  # (C, 1)
    chosen = logits.gather(1, target.unsqueeze(1))  # (C, 1)
    shares = logits.softmax(dim=-1)  # (C, V)
    likelihood = (top - shares.gather(1, at).log() - chosen).squeeze(1)  # (C,)
    loss = likelihood + smoothing * (chosen.squeeze(1) - mean)
    return torch.stack((loss.sum(), likelihood.sum(), (at.squeeze(1) == target).sum())), shares
