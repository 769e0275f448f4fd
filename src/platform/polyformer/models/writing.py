"""Writing with a language model: one text per row, each token computed once, past the context too.

Letters: N rows, L new tokens, T columns so far, S columns in the state, D model, V vocabulary, C context.
"""

from typing import Protocol

import torch
from torch import Tensor

from polyformer.models.stack import Encoder, Placement
from polyformer.nn import prepare_output

__all__ = ["Writing"]


class LanguageModel(Protocol):
    """What writing needs of a model: an embedding, a causal stack, an output layer, and the longest text it can see."""

    @property
    def context(self) -> int: ...

    @property
    def embedding(self) -> torch.nn.Module: ...

    @property
    def stack(self) -> Encoder: ...

    @property
    def output_weight(self) -> Tensor: ...


class Writing:
    """A decode in progress: new tokens in, logits out, rows reordered, the last tokens taken back.

    Rows are aligned at their ends; shorter prompts are padded on the left. A text that outgrows the context slides: it is
    then seen from a later token on, a multiple of half a context, which is read anew. Where a row begins to be seen follows
    from its own length alone, so neither its mates nor how its tokens came in changes a result.

    Args:
        model: The model that writes.
        padding: How many columns at the left of each row hold no token; None: none.
    """

    def __init__(self, model: LanguageModel, padding: list[int] | None = None) -> None:
        self.model = model
        self.padding = None if padding is None else torch.tensor(padding)  # (N,)
        self.tokens: Tensor | None = None  # (N, T)
        self.begin = torch.zeros(0, dtype=torch.long)  # (N,), the column from which each row is seen
        self.first = 0  # the column that the state begins with
        self.state, self.output = model.stack.start(), prepare_output(model.output_weight)

    @property
    def room(self) -> int:
        """How many tokens can follow before a row slides."""
        if self.tokens is None:
            return self.model.context
        lengths = self.tokens.shape[1] - self.begin
        return self.model.context - int(lengths.max())

    def step(self, tokens: Tensor) -> Tensor:
        """(N, L) tokens that follow those of earlier steps -> (N, V) logits of the token after the last one."""
        return self.output(self._read(tokens)[:, -1])

    def step_all(self, tokens: Tensor) -> Tensor:
        """As :meth:`step`, but (N, L, V), the logits after each of the tokens; they must fit into :attr:`room`."""
        assert tokens.shape[1] <= self.room
        return self.output(self._read(tokens)[:, -tokens.shape[1] :].flatten(0, 1)).unflatten(0, (len(tokens), -1))

    def reorder(self, rows: Tensor) -> None:
        """Row i continues what row ``rows[i]`` was."""
        assert self.tokens is not None and self.padding is not None
        self.tokens = self.tokens[rows]
        places = rows.cpu()
        self.padding, self.begin = self.padding[places], self.begin[places]
        self.state.reorder(rows)

    def rewind(self, count: int) -> None:
        """Takes the last ``count`` tokens of every row back."""
        assert self.tokens is not None
        if count:
            self.tokens = self.tokens[:, :-count]
            self.state.rewind(count)

    def _read(self, new: Tensor) -> Tensor:
        """(N, L) new tokens -> vectors of at least these, the last of them last."""
        if self.padding is None:
            self.padding = torch.zeros(len(new), dtype=torch.long)
        self.tokens = new if self.tokens is None else torch.cat((self.tokens, new), dim=1)
        begin = self._begins(self.tokens.shape[1])
        if len(self.begin) and not torch.equal(begin, self.begin):
            self.state = self.model.stack.start()  # some row slides: everything is read from where it is seen now
        if not len(self.begin) or not torch.equal(begin, self.begin):
            self.begin, self.first = begin, int(begin.min())
            new = self.tokens[:, self.first :]
        hidden: Tensor = self.model.stack(self.model.embedding(new), self._placement(new), self.state)
        return hidden

    def _begins(self, columns: int) -> Tensor:
        """(N,) the column from which each row is seen: the first multiple of half a context that leaves a context or less."""
        assert self.padding is not None
        context, half = self.model.context, max(1, self.model.context // 2)
        beyond = (columns - self.padding - context).clamp(min=0)
        return self.padding + (beyond + half - 1) // half * half

    def _placement(self, new: Tensor) -> Placement:
        assert self.tokens is not None
        missing = (self.begin - self.first).to(new.device).unsqueeze(1)  # (N, 1)
        if not bool((self.begin > self.first).any()):
            return Placement()
        columns = torch.arange(self.tokens.shape[1] - self.first, device=new.device)  # (S,)
        at = (columns[-new.shape[1] :] - missing).clamp(min=0)  # (N, L)
        return Placement(keep=columns >= missing, at=at)
