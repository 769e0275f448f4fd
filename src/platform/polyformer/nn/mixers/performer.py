"""Softmax attention by random features (Choromanski et al. 2021).

Letters: B batch, L tokens, H heads, K width per head, F features.
"""

import torch
from torch import Tensor

from polyformer.nn.mixers.linear_attention import LinearAttention
from polyformer.nn.shape import Shape

__all__ = ["Performer", "orthogonal_vectors"]

RANGE = 60.0  # exponents of keys are between minus this and this, so that sums over any text neither overflow nor vanish


class Performer(LinearAttention):
    """An estimate of softmax attention with orthogonal random features (FAVOR+, Choromanski et al. 2021, section 2).

    exp(q . k) is the mean of exp(w . q - |q|^2 / 2) exp(w . k - |k|^2 / 2) over normal vectors w, q and k here being divided by
    the fourth root of K. O(L F K) time, no limit on the length; causal and step by step by sums, as
    :class:`LinearAttention`. Positions that rotate act before the features and do what they do in full attention, up to the
    error of the estimate: it falls with 1 / sqrt(F) and grows fast with the lengths of q and k.

    Exponents are kept in range without a maximum over keys, which would let a causal model see ahead, and differ between a
    row, the same row in a batch, and the same row in steps. From those of a query its own maximum is subtracted, a factor of
    all its weights. Those of keys are cut off at -60 and 60, whatever the other tokens are; they never exceed |w|^2 / 2, about
    K / 2, and what is below e^-60 has no part beside any other key.

    Limits: those of :class:`LinearAttention` in practice, since sharp weights need more features than there are tokens. The
    vectors w are a buffer, part of every checkpoint. Forward never changes them; while training, a callback draws them
    anew, the same ones on all ranks and after resuming.

    Args:
        shape: What the stack has decided.
        features: Number of random features of each head; the theory asks for about K log K.
        redraw_every: Steps of training from one draw of the vectors to the next; None: they stay.
        bias: Whether the projections add a bias.

    Raises:
        ValueError: For numbers below 1.
    """

    drawn: Tensor

    def __init__(self, shape: Shape, features: int = 128, redraw_every: int | None = 1000, bias: bool = True) -> None:
        super().__init__(shape, bias)
        if features < 1:
            raise ValueError(f"`features` of Performer must be at least 1, but is {features}")
        if redraw_every is not None and redraw_every < 1:
            raise ValueError(f"`redraw_every` of Performer must be at least 1, or null for never, but is {redraw_every}")
        self.redraw_every = redraw_every
        self.register_buffer("drawn", orthogonal_vectors(features, shape.d_head))  # (F, K)

    @torch.no_grad()
    def redraw(self, generator: torch.Generator) -> None:
        """Draws other vectors with a generator of the CPU."""
        count, width = self.drawn.shape
        self.drawn.copy_(orthogonal_vectors(count, width, generator))

    def features(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        vectors, scale = self.drawn.to(q.dtype), q.shape[-1] ** -0.25
        q, k = q * scale, k * scale
        of_q = q @ vectors.t()  # (B, H, L, F); |q|^2 / 2 is a factor of all weights as well
        of_k = k @ vectors.t() - k.square().sum(dim=-1, keepdim=True) / 2
        highest = of_q.detach().amax(dim=-1, keepdim=True)
        return (of_q - highest).exp(), of_k.clamp(-RANGE, RANGE).exp()


def orthogonal_vectors(count: int, width: int, generator: torch.Generator | None = None) -> Tensor:
    """(count, width) normal vectors, orthogonal in groups of ``width`` (Choromanski et al. 2021, section 2.4).

    >>> products = (vectors := orthogonal_vectors(3, 3)) @ vectors.t()
    >>> bool((products.fill_diagonal_(0.0).abs() < 1e-5).all())
    True
    """
    bases, triangles = torch.linalg.qr(torch.randn(-(-count // width), width, width, generator=generator))
    bases = bases * triangles.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)  # so that every basis is as likely as another
    lengths = torch.randn(count, width, generator=generator).norm(dim=-1, keepdim=True)  # (F, 1)
    return bases.transpose(-1, -2).flatten(0, 1)[:count] * lengths
