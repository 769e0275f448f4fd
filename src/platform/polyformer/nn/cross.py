"""The attention of recurrent translators: one head over a memory, with scores of their own.

Letters: B batch, L queries, S keys, D model, A width of the alignment model, M memories, R rows per memory.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from polyformer.nn.attend import Where, attend
from polyformer.nn.dropout import Dropout
from polyformer.nn.mask import Mask
from polyformer.nn.mixer import CrossContext, CrossMixer, Memory
from polyformer.nn.shape import Shape
from polyformer.nn.state import CrossState, Projected, State

__all__ = ["Bahdanau", "Luong"]


class Luong(CrossMixer):
    """tanh(W [c; x]), c being the mean of the memory with weights softmax(score) (Luong et al. 2015, equations 5 and 7).

    The score of a query x and a memory vector m is x . m ("dot") or x . W m ("general", section 3.1), here divided by sqrt(D):
    behind a norm, vectors are longer than those of an LSTM, and their products would leave softmax no gradient. The result
    enters the layers above, not the next step ("input feeding"), so that all tokens are trained at once.

    O(L S D) time; no limit on the lengths. Queries of rows that share a memory, as the hypotheses of a beam, share what is
    computed from it.

    Args:
        shape: What the stack has decided.
        score: "dot" or "general".
        dropout: Dropout on the attention weights; None: the stack's.
    """

    def __init__(self, shape: Shape, score: Literal["dot", "general"] = "general", dropout: float | None = None) -> None:
        super().__init__()
        self.key = nn.Linear(shape.d_model, shape.d_model, bias=False) if score == "general" else nn.Identity()
        self.output = nn.Linear(2 * shape.d_model, shape.d_model, bias=False)
        self.dropout = Dropout(shape.dropout if dropout is None else dropout)

    def forward(self, x: Tensor, context: CrossContext, state: State | None = None) -> Tensor:
        memory = project_once(self.key, context.memory, state, len(x))
        q = x.reshape(len(memory.keys), 1, -1, x.shape[-1])  # (M, 1, R L, D)
        where = Where(Mask(keep=memory.keep), context.at, memory.at)
        gathered = attend(q, memory.keys, memory.values, where, dropout_probability=self.dropout.active)  # (M, 1, R L, D)
        return torch.tanh(self.output(torch.cat((gathered.reshape(x.shape), x), dim=-1)))

    def start(self) -> CrossState:
        return CrossState()


class Bahdanau(CrossMixer):
    """C c, c being the mean of the memory with weights softmax(v . tanh(W x + U m)) (Bahdanau et al. 2015, appendix A.1.2).

    Each memory vector m is scored by a small network. The weights follow from the current token's vector x, not from that of
    the step before, and c is added to x by the residual wrapper, as in the paper's output layer; it enters the layers above,
    not the next step, so that all tokens are trained at once.

    O(L S A) time and memory: a tanh for each pair of tokens, which suits sentences, not documents.

    Args:
        shape: What the stack has decided.
        width: Width of the alignment model (A); None: ``d_model``.
        dropout: Dropout on the attention weights; None: the stack's.
    """

    def __init__(self, shape: Shape, width: int | None = None, dropout: float | None = None) -> None:
        super().__init__()
        width = shape.d_model if width is None else width
        self.query = nn.Linear(shape.d_model, width, bias=False)
        self.key = nn.Linear(shape.d_model, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)
        self.output = nn.Linear(shape.d_model, shape.d_model, bias=False)
        self.dropout = Dropout(shape.dropout if dropout is None else dropout)

    def forward(self, x: Tensor, context: CrossContext, state: State | None = None) -> Tensor:
        memory = project_once(self.key, context.memory, state, len(x))
        q = self.query(x).reshape(len(memory.keys), 1, -1, 1, memory.keys.shape[-1])  # (M, 1, R L, 1, A)
        scores = self.score(torch.tanh(q + memory.keys.unsqueeze(2))).squeeze(-1)  # (M, 1, R L, S)
        # Met by keys that are one-hot, a row of scores is a row of logits, once the usual division is undone.
        size = scores.shape[-1]
        one_hot = torch.eye(size, dtype=scores.dtype, device=x.device).expand(len(scores), 1, -1, -1)  # (M, 1, S, S)
        where = Where(Mask(keep=memory.keep), context.at, memory.at)
        gathered = attend(scores * size**0.5, one_hot, memory.values, where, dropout_probability=self.dropout.active)
        return self.output(gathered.reshape(x.shape))  # (M R, L, D)

    def start(self) -> CrossState:
        return CrossState()


def project_once(key: Callable[[Tensor], Tensor], memory: Memory, state: State | None, rows: int) -> Projected:
    """What ``rows`` rows look at: keys (M, 1, S, A) and values (M, 1, S, D) of one head, from the state if they are there."""
    assert state is None or isinstance(state, CrossState)
    projected = None if state is None else state.projected
    if projected is None:
        values = memory.keys if memory.values is None else memory.values
        projected = Projected(key(memory.keys).unsqueeze(1), values.unsqueeze(1), memory.at, memory.keep)
    if state is not None:
        state.projected, state.rows_per_memory = projected, rows // len(projected.keys)
    return projected
