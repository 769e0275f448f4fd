"""Recurrent networks as mixers, on torch's own kernels.

Letters: B batch, L tokens, D model, W width of one direction, N real tokens of a batch, Q sequences (a sequence is the real
tokens of one document), P vectors that a network remembers (2 in an LSTM, otherwise 1).
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from polyformer.nn.mixer import Context, Mixer
from polyformer.nn.shape import Shape
from polyformer.nn.state import State

__all__ = ["GRU", "LSTM", "RNN", "Hidden"]

TAKEN_BACK = 16
"""How many tokens a state can take back, more than speculative decoding usually proposes at once."""


class Hidden(State):
    """What a recurrent network remembers after the last token, and after each of a few before it, which can be taken back.

    Reordered rows forget the earlier ones: searches that reorder take nothing back, and would pay for moving them.
    """

    def __init__(self) -> None:
        self.past: list[Tensor] = []  # (P, B, W) each, the newest last; before the first token there are none

    def append(self, hidden: Tensor) -> None:
        """Remembers (P, B, W), what one more token has left."""
        self.past = [*self.past[-TAKEN_BACK:], hidden]

    def reorder(self, rows: Tensor) -> None:
        self.past = [hidden[:, rows] for hidden in self.past[-1:]]

    def rewind(self, count: int) -> None:
        """Forgets the last ``count`` tokens.

        Raises:
            ValueError: If they are more than are remembered one by one.
        """
        known = max(0, len(self.past) - 1)
        if count > known:
            raise ValueError(
                f"a recurrent mixer can take back its last {known} tokens, but {count} are to be taken back; "
                f"set `task.proposals` to at most {TAKEN_BACK}"
            )
        self.past = self.past[: len(self.past) - count]


@dataclass(frozen=True)
class Packing:
    """Sequences of different lengths as torch's kernels take them: all first tokens, then all second ones, and so on.

    In each step the longest sequence stands first, so that those which have ended are always the last ones.

    Args:
        places: (N,) where the tokens are in the batch laid flat, row after row.
        sizes: How many sequences have a first token, a second, ...; on the CPU, as torch wants it.
        rows: (Q,) the row each sequence is from.
    """

    places: Tensor
    sizes: Tensor
    rows: Tensor


def pack(keep: Tensor, document: Tensor | None) -> Packing:
    """Makes a sequence of the real tokens of each document, wherever padding stands.

    Args:
        keep: (B, L) bool, True where a token is real; a row without one is packed by its first token, so that no sequence
            is empty.
        document: (B, L) numbers of the documents, each in one piece; None where a row is one document.
    """
    real = keep.clone()
    real[:, 0] |= ~keep.any(dim=1)
    flat = real.flatten().nonzero().squeeze(1)  # (N,)
    row = flat // keep.shape[1]  # (N,)
    begins = torch.ones_like(flat, dtype=torch.bool)
    begins[1:] = row[1:] != row[:-1]
    if document is not None:
        number = document.flatten()[flat]
        begins[1:] |= number[1:] != number[:-1]
    sequence = begins.cumsum(0) - 1  # (N,) the sequence each token is of
    lengths = sequence.bincount()  # (Q,)
    step = torch.arange(len(flat), device=flat.device) - (lengths.cumsum(0) - lengths)[sequence]  # (N,)
    longest_first = lengths.argsort(descending=True, stable=True)  # (Q,)
    rank = torch.empty_like(longest_first)
    rank[longest_first] = torch.arange(len(rank), device=flat.device)
    order = (step * len(rank) + rank[sequence]).argsort()  # (N,)
    return Packing(flat[order], step.bincount().cpu(), row[begins][longest_first])


class RNN(Mixer):
    """h = tanh(W x + U h' + b), h' being the h of the token before (Elman 1990).

    O(L D^2) time, one token after the other; no limit on the length. In an encoder two networks read from either end, with
    half of ``d_model`` each (Schuster and Paliwal 1997). Padding is left out wherever it stands, and each of several packed
    documents begins anew. Matrices of inputs start uniform (Glorot and Bengio 2010), those between steps orthogonal (Saxe
    et al. 2014), biases at zero.

    Limits: what is far away must have survived every step in between.

    Args:
        shape: What the stack has decided.

    Raises:
        ValueError: For an odd ``d_model`` in an encoder.
    """

    takes_back = TAKEN_BACK
    kernel: ClassVar[type[nn.RNN] | type[nn.GRU] | type[nn.LSTM]] = nn.RNN
    remembered: ClassVar[int] = 1

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.causal, width = shape.causal, shape.d_model
        if not self.causal:
            if width % 2:
                raise ValueError(
                    f"`{type(self).__name__}` needs an even `d_model` in an encoder, half for each direction it reads in, "
                    f"but has {width}; choose {width + 1}"
                )
            width //= 2
        self.recurrent = self.kernel(shape.d_model, width, batch_first=True, bidirectional=not self.causal)
        first_weights(self.recurrent)

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        mask = context.mask
        assert mask.causal == self.causal
        if state is None:
            return self._read(x, mask.keep, mask.document, None)[0]
        assert isinstance(state, Hidden) and mask.document is None
        if not state.past:
            state.append(x.new_zeros(self.remembered, x.shape[0], self.recurrent.hidden_size))
        keep = None if mask.keep is None else mask.keep[:, -x.shape[1] :]
        single = min(x.shape[1], TAKEN_BACK)
        sizes = [size for size in (x.shape[1] - single, *[1] * single) if size]
        outs = []
        for place, part in zip(torch.tensor(sizes).cumsum(0).tolist(), x.split(sizes, dim=1), strict=True):
            kept = None if keep is None else keep[:, place - part.shape[1] : place]
            out, hidden = self._read(part, kept, None, state.past[-1])
            outs.append(out)
            state.append(hidden)
        return torch.cat(outs, dim=1)

    def _read(self, x: Tensor, keep: Tensor | None, document: Tensor | None, hidden: Tensor | None) -> tuple[Tensor, Tensor]:
        """(B, L, D) and what each row remembers, if anything -> (B, L, D) and, of rows that are one document, (P, B, W)."""
        if keep is not None and bool(keep.all()):
            keep = None
        if keep is None and document is None:
            return self._run(x, hidden)
        kept = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if keep is None else keep
        packing = pack(kept, document)
        tokens = PackedSequence(x.flatten(0, 1)[packing.places], packing.sizes)
        out, last = self._run(tokens, None if hidden is None else hidden[:, packing.rows])
        out = out.new_zeros(kept.numel(), out.shape[-1]).index_copy(0, packing.places, out).view(x.shape)
        if hidden is not None:
            last = hidden.index_copy(1, packing.rows, last.to(hidden.dtype))
            last = torch.where(kept.any(dim=1, keepdim=True), last, hidden)
        return out, last

    def _run(self, x: Tensor | PackedSequence, hidden: Tensor | None) -> tuple[Tensor, Tensor]:
        """Torch's kernel, in the weights' own type on a CPU, where mixed precision lacks one for some processors."""
        dtype = next(self.recurrent.parameters()).dtype
        given = None if hidden is None else hidden.to(dtype)
        with torch.autocast("cpu", enabled=False):
            out, last = self.recurrent(x.to(dtype), given if given is None or len(given) == 1 else given.split(1))
        last = last if isinstance(last, Tensor) else torch.cat(last)  # (P, B, W), or (2 P, B, W) in both directions
        return out.data if isinstance(out, PackedSequence) else out, last

    def start(self) -> Hidden:
        assert self.causal
        return Hidden()


class GRU(RNN):
    """h = z h' + (1 - z) tanh(W x + r (U h') + b), r and z being sigmoids of x and h' (Cho et al. 2014, equations 5 to 8).

    The gate r acts after the product with U, as in all fast kernels; in the paper before. Otherwise as :class:`RNN`.

    Args:
        shape: What the stack has decided.

    Raises:
        ValueError: For an odd ``d_model`` in an encoder.
    """

    kernel = nn.GRU


class LSTM(RNN):
    """h = o tanh(c), c = f c' + i tanh(W x + U h' + b) (Hochreiter and Schmidhuber 1997).

    The gates i, f and o are sigmoids of x and h'. The gate f, which forgets, is that of Gers et al. 2000; its bias starts at
    1, so that what is remembered at first stays (Jozefowicz et al. 2015). Otherwise as :class:`RNN`.

    Args:
        shape: What the stack has decided.

    Raises:
        ValueError: For an odd ``d_model`` in an encoder.
    """

    kernel = nn.LSTM
    remembered = 2

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        for name, bias in self.recurrent.named_parameters():
            if name.startswith("bias_ih"):  # torch adds a second bias, bias_hh, which stays zero
                nn.init.ones_(bias.detach().chunk(4)[1])  # of the gates i, f, c, o


@torch.no_grad()
def first_weights(recurrent: nn.RNNBase) -> None:
    """Gives the matrices of every gate their first weights, each on its own."""
    for name, parameter in recurrent.named_parameters():
        for gate in parameter.split(recurrent.hidden_size):
            if name.startswith("weight_hh"):
                nn.init.orthogonal_(gate)
            elif name.startswith("weight_ih"):
                nn.init.xavier_uniform_(gate)
            else:
                nn.init.zeros_(gate)
