"""The wrapper around every sublayer: where its norm, its dropout and its shortcut are decided.

    pre-norm                         post-norm
    x ---------------------+         x ------------------+
    |                      |         |                   |
    norm - f - dropout - (+) ->      f - dropout - (+) - norm ->

Pre-norm (Xiong et al. 2020) trains without a careful warm-up and needs one more norm at the end of the stack; post-norm is
the layout of Vaswani et al. 2017.
"""

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from polyformer.nn.dropout import Dropout, dropout_add
from polyformer.nn.mixer import Context, Mixer, take

__all__ = ["NormKind", "NormPlace", "Residual", "make_norm"]

NormKind = Literal["layer_norm", "rms_norm", "none"]
NormPlace = Literal["pre", "post"]


def make_norm(kind: NormKind, d_model: int) -> nn.Module:
    """LayerNorm (Ba et al. 2016) or RMSNorm (Zhang and Sennrich 2019) over the last dimension, or nothing."""
    if kind == "none":
        return nn.Identity()
    return nn.LayerNorm(d_model) if kind == "layer_norm" else nn.RMSNorm(d_model, eps=1e-6)


class Residual(nn.Module):
    """x + dropout(f(norm(x))), or norm(x + dropout(f(x))), around one sublayer f that it owns.

    Args:
        inner: The sublayer; it is called with the input and whatever else ``forward`` is given.
        norm: The norm module.
        place: "pre" or "post".
        dropout: Probability of dropping an element of the sublayer's output.
    """

    def __init__(self, inner: nn.Module, norm: nn.Module, place: NormPlace, dropout: float) -> None:
        super().__init__()
        self.inner, self.norm, self.pre = inner, norm, place == "pre"
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, *rest: object) -> Tensor:  # (B, L, D)
        return self._around(x, x, lambda entering: self.inner(entering, *rest))

    def read(self, x: Tensor, context: Context, places: Tensor) -> Tensor:
        """What ``forward`` gives at (B, R) places alone, (B, R, D); the sublayer is a mixer."""
        mixer = self.inner
        assert isinstance(mixer, Mixer)
        return self._around(take(x, places), x, lambda entering: mixer.read(entering, context, places))

    def _around(self, shortcut: Tensor, x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre:
            return dropout_add(shortcut, f(self.norm(x)), self.dropout.active)
        normed: Tensor = self.norm(dropout_add(shortcut, f(x), self.dropout.active))
        return normed
