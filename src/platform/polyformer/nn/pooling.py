"""From the vectors of a text's tokens to one vector.

Letters: B batch, L tokens, D model, W width of the pooled vector.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from polyformer.nn.mixer import take
from polyformer.nn.shape import Shape

__all__ = ["AttentionPooling", "FirstToken", "Max", "Mean", "MeanMax", "Pooling", "PoolingFactory"]


class Pooling(nn.Module):
    """Makes one vector of a sequence. What stands where no token is real has no part in it, whatever it holds.

    Args:
        shape: What the stack has decided.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape

    @property
    def width(self) -> int:
        """Width of the pooled vector (W)."""
        return self.shape.d_model

    def places(self, tokens: Tensor, keep: Tensor | None = None) -> Tensor | None:
        """(B, R) indices of the only R tokens in each row of (B, L) that it looks at; None: it looks at all."""
        return None

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        """Pools the tokens of each row.

        Args:
            x: (B, L, D).
            keep: (B, L) bool, True where a token is real; None when all are.

        Returns:
            (B, W), zeros for a row without a real token.
        """
        raise NotImplementedError


PoolingFactory = Callable[[Shape], Pooling]


class FirstToken(Pooling):
    """The vector of the first token, which a text begins with for this purpose (Devlin et al. 2019, section 3.1).

    >>> FirstToken(Shape(2, 1))(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), torch.tensor([[False, True]]))
    tensor([[3., 4.]])
    """

    def places(self, tokens: Tensor, keep: Tensor | None = None) -> Tensor:  # (B, L) -> (B, 1)
        return tokens.new_zeros(len(tokens), 1) if keep is None else keep.int().argmax(dim=1, keepdim=True)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        if keep is None:
            return x[:, 0]
        vectors = take(x, self.places(keep, keep)).squeeze(1)  # (B, D)
        return _zero_where_empty(vectors, keep)


class Mean(Pooling):
    """The mean of the tokens.

    >>> Mean(Shape(2, 1))(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]))
    tensor([[2., 3.]])
    """

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        return mean_of(x, keep)


class Max(Pooling):
    """The largest value of each dimension over the tokens (Collobert et al. 2011, section 3.2.2).

    >>> Max(Shape(2, 1))(torch.tensor([[[1.0, 4.0], [3.0, 2.0]]]))
    tensor([[3., 4.]])
    """

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        return max_of(x, keep)


class MeanMax(Pooling):
    """Mean and maximum side by side (Howard and Ruder 2018, section 3.3).

    >>> MeanMax(Shape(2, 1))(torch.tensor([[[1.0, 4.0], [3.0, 2.0]]]))
    tensor([[2., 3., 3., 4.]])
    """

    @property
    def width(self) -> int:
        return 2 * self.shape.d_model

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        return torch.cat((mean_of(x, keep), max_of(x, keep)), dim=-1)  # (B, 2 D)


class AttentionPooling(Pooling):
    """The mean weighted by softmax(u . tanh(W x + b)), u being learned (Yang et al. 2016, equations 5 to 7).

    Args:
        shape: What the stack has decided.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.inner = nn.Linear(shape.d_model, shape.d_model)
        self.context = nn.Linear(shape.d_model, 1, bias=False)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        if keep is not None:
            x = x.masked_fill(~keep.unsqueeze(-1), 0.0)
        scores = self.context(torch.tanh(self.inner(x))).squeeze(-1)  # (B, L)
        if keep is not None:  # finite, so that a row without a real token is free of NaN; its vectors are zeros
            scores = scores.masked_fill(~keep, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1, dtype=_wide(x))
        return (weights.unsqueeze(1).to(x.dtype) @ x).squeeze(1)  # (B, D)


def mean_of(x: Tensor, keep: Tensor | None) -> Tensor:
    """(B, L, D) -> (B, D), the mean of the real tokens."""
    if keep is None:
        return x.mean(dim=1)
    total = x.masked_fill(~keep.unsqueeze(-1), 0.0).sum(dim=1, dtype=_wide(x))  # (B, D)
    return (total / keep.sum(dim=1, keepdim=True).clamp(min=1)).to(x.dtype)


def max_of(x: Tensor, keep: Tensor | None) -> Tensor:
    """(B, L, D) -> (B, D), the largest values of the real tokens."""
    if keep is None:
        return x.amax(dim=1)
    highest = x.masked_fill(~keep.unsqueeze(-1), -torch.inf).amax(dim=1)  # (B, D)
    return _zero_where_empty(highest, keep)


def _zero_where_empty(vectors: Tensor, keep: Tensor) -> Tensor:
    return vectors.masked_fill(~keep.any(dim=1, keepdim=True), 0.0)


def _wide(x: Tensor) -> torch.dtype:
    """The type to add up many numbers in."""
    return torch.promote_types(x.dtype, torch.float32)
