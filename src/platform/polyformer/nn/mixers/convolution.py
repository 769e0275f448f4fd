"""A gated convolution as a mixer.

Letters: B batch, L tokens, D model, T inputs in the state, X kernel.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polyformer.nn.mixer import Context, Mixer
from polyformer.nn.shape import Shape
from polyformer.nn.state import State

__all__ = ["Convolution", "Inputs"]

TAKEN_BACK = 16
"""How many tokens a state can take back, more than speculative decoding usually proposes at once."""


class Inputs(State):
    """The last inputs of a convolution: those that its kernel still reaches, and a few more, so that tokens can be taken back.

    Reordered rows keep only the first: searches that reorder take nothing back, and would pay for moving the others.

    Args:
        reach: How many tokens before the next one its kernel sees.
    """

    def __init__(self, reach: int) -> None:
        self.reach = reach
        self.inputs: Tensor | None = None  # (B, T, D), zeros before the first token

    def append(self, x: Tensor) -> Tensor:
        """Adds (B, L, D) inputs; returns them with those before that the kernel reaches, (B, reach + L, D)."""
        before = x.new_zeros(x.shape[0], self.reach, x.shape[2]) if self.inputs is None else self.inputs
        known = torch.cat((before, x), dim=1)
        self.inputs = known[:, max(0, known.shape[1] - self.reach - TAKEN_BACK) :]
        return known[:, before.shape[1] - self.reach :]

    def reorder(self, rows: Tensor) -> None:
        if self.inputs is not None:
            self.inputs = self.inputs[:, self.inputs.shape[1] - self.reach :][rows]

    def rewind(self, count: int) -> None:
        """Forgets the last ``count`` tokens.

        Raises:
            ValueError: If the inputs that the kernel would reach then are no longer there.
        """
        known = 0 if self.inputs is None else self.inputs.shape[1] - self.reach
        if count > known:
            raise ValueError(
                f"Convolution can take back its last {known} tokens, but {count} are to be taken back; "
                f"set `task.proposals` to at most {TAKEN_BACK}"
            )
        if self.inputs is not None:
            self.inputs = self.inputs[:, : self.inputs.shape[1] - count]


class Convolution(Mixer):
    """(W x + b) sigmoid(V x + c), x being a token and its neighbours (Dauphin et al. 2017, equation 1).

    O(L X D^2) time, all tokens at once; no limit on the length. Causal, the kernel reaches back from its token; in an encoder
    as far ahead as back (Gehring et al. 2017). It reaches over no border of a packed document, and padding counts as zero.

    Limits: a stack of N layers sees N (X - 1) tokens back, or half as many in either direction.

    Args:
        shape: What the stack has decided.
        kernel: Number of neighbouring tokens that are seen, the token itself included (X).

    Raises:
        ValueError: For a kernel below 1, and for an even one in an encoder.
    """

    takes_back = TAKEN_BACK

    def __init__(self, shape: Shape, kernel: int = 5) -> None:
        super().__init__()
        if kernel < 1:
            raise ValueError(f"`kernel` of Convolution must be at least 1, but is {kernel}")
        if not shape.causal and kernel % 2 == 0:
            raise ValueError(
                f"`kernel` of Convolution must be odd in an encoder, where it reaches as far ahead as back, but is {kernel}; "
                f"use {kernel - 1} or {kernel + 1}"
            )
        self.causal, self.kernel = shape.causal, kernel
        self.back = kernel - 1 if shape.causal else kernel // 2
        self.output = nn.Linear(kernel * shape.d_model, 2 * shape.d_model)

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        mask, around = context.mask, (self.back, self.kernel - 1 - self.back)
        assert mask.causal == self.causal
        if mask.keep is not None:
            x = x.masked_fill(~mask.keep[:, -x.shape[1] :].unsqueeze(-1), 0.0)
        if state is None:
            wide = F.pad(x, (0, 0, *around))  # (B, L + X - 1, D)
        else:
            assert isinstance(state, Inputs) and mask.document is None
            wide = state.append(x)
        seen = wide.unfold(1, self.kernel, 1).transpose(2, 3)  # (B, L, X, D)
        if mask.document is not None:
            document = F.pad(mask.document, around).unfold(1, self.kernel, 1)  # (B, L, X)
            seen = seen.masked_fill((document != mask.document.unsqueeze(-1)).unsqueeze(-1), 0.0)
        value, gate = self.output(seen.flatten(2)).chunk(2, dim=-1)  # (B, L, D) each
        return value * gate.sigmoid()

    def start(self) -> Inputs:
        assert self.causal
        return Inputs(self.back)
