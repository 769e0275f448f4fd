"""Encoder and decoder stacks: blocks in order, one context per forward, the state of a whole decode.

Letters: B batch, L tokens, S memory tokens, D model.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from polyformer.models.options import EncoderDecoderOptions, StackOptions
from polyformer.nn import (
    Context,
    CrossContext,
    CrossMixer,
    DecoderBlock,
    Dropout,
    EncoderBlock,
    Mask,
    Memory,
    Mixer,
    Position,
    PositionFactory,
    Residual,
    Shape,
    State,
    check_fit,
    make_norm,
)

__all__ = ["Decoder", "Encoder", "Placement", "StackState"]


@dataclass(frozen=True)
class Placement:
    """Where the tokens of a batch are, beyond standing side by side.

    Args:
        keep: (B, S) bool, True where a token is real, tokens in the state included; None when all are.
        at: (L,) or (B, L) indices of the tokens, needed when padding stands on the left and where documents are packed;
            None: they count from the end of the state, or from 0.
        document: (B, L) numbers of the documents packed into each row; None where a row is one document.
    """

    keep: Tensor | None = None
    at: Tensor | None = None
    document: Tensor | None = None


class StackState(State):
    """The state of a whole decode: the tokens that have gone through, and what each layer remembers of them."""

    def __init__(self, layers: list[State]) -> None:
        self.layers = layers
        self.at: Tensor | None = None  # (P,) or (B, P), indices of the tokens so far

    def place(self, x: Tensor, at: Tensor | None) -> tuple[Tensor, Tensor]:
        """(indices of the new tokens ``x``, indices of all tokens with them); without ``at`` they go on counting."""
        if at is None:
            new = torch.arange(x.shape[1], device=x.device)
            at = new if self.at is None else self.at[..., -1:] + 1 + new  # (L,) or (B, L), as those before
        self.at = at if self.at is None else torch.cat((self.at, at), dim=-1)
        return at, self.at

    def reorder(self, rows: Tensor) -> None:
        if self.at is not None and self.at.dim() == 2:
            self.at = self.at[rows]
        for layer in self.layers:
            layer.reorder(rows)

    def rewind(self, count: int) -> None:
        if self.at is not None:
            self.at = self.at[..., : self.at.shape[-1] - count]
        for layer in self.layers:
            layer.rewind(count)


class Stack(nn.Module):
    """What encoder and decoder share: positions, the dropout on embeddings, the last norm.

    Args:
        options: What the user chose.
        num_layers: Number of blocks.
        causal: Whether a token may see only itself and earlier ones.
    """

    def __init__(self, options: StackOptions, num_layers: int, causal: bool) -> None:
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"a stack needs at least 1 layer, but has {num_layers}")
        self.options, self.shape = options, options.shape(causal)
        self.positions = _per_layer(options.position, self.shape, num_layers)
        self.dropout = Dropout(options.dropout if options.embedding_dropout is None else options.embedding_dropout)
        self.norm = make_norm(options.norm, options.d_model) if options.norm_place == "pre" else nn.Identity()

    @property
    def limit(self) -> int | None:
        """The longest sequence the position can tell; None when there is no limit."""
        return position_of(self.positions, 0).limit

    def mixer(self) -> Mixer:
        """A mixer that fits the position and the direction of the stack."""
        mixer = self.options.mixer(self.shape)
        check_fit(type(mixer), type(position_of(self.positions, 0)), self.shape.causal)
        return mixer

    def wrap(self, inner: nn.Module) -> Residual:
        """The sublayer in its residual wrapper."""
        norm = make_norm(self.options.norm, self.options.d_model)
        return Residual(inner, norm, self.options.norm_place, self.options.dropout)

    def run(self, block: nn.Module, x: Tensor, *rest: object) -> Tensor:
        """One block; with `checkpointing` its inside is computed again in the backward pass instead of being kept.

        Not where the last argument, the state, is given, which must not take its tokens in twice.
        """
        recompute = self.options.checkpointing and torch.is_grad_enabled() and rest[-1] is None
        out: Tensor = checkpoint(block, x, *rest, use_reentrant=False) if recompute else block(x, *rest)
        return out

    def enter(self, x: Tensor, at: Tensor | None, state: StackState | None) -> tuple[Tensor, Tensor, Tensor]:
        """Puts positions on (B, L, D) embeddings: (embeddings, their indices, the indices of all keys)."""
        if state is not None:
            at, k_at = state.place(x, at)
        else:
            at = k_at = torch.arange(x.shape[1], device=x.device) if at is None else at
        position = position_of(self.positions, 0)
        position.check_length(k_at.shape[-1])
        return self.dropout(position.embed(x, at)), at, k_at


class Encoder(Stack):
    """A stack of encoder blocks; causal, it is the body of a language model.

    Args:
        options: What the user chose.
        num_layers: Number of blocks.
        causal: Whether a token may see only itself and earlier ones.
    """

    def __init__(self, options: StackOptions, num_layers: int, causal: bool = False) -> None:
        super().__init__(options, num_layers, causal)
        self.blocks = nn.ModuleList(
            EncoderBlock(self.mixer(), options.feed_forward(self.shape), self.wrap) for _ in range(num_layers)
        )

    def forward(self, x: Tensor, placement: Placement = Placement(), state: StackState | None = None) -> Tensor:
        """Mixes token embeddings.

        Args:
            x: (B, L, D) token embeddings, without positions.
            placement: Where the tokens are.
            state: What was remembered of earlier tokens; ``x`` continues them.

        Returns:
            (B, L, D).
        """
        x, at, k_at = self.enter(x, placement.at, state)
        mask = Mask(self.shape.causal, placement.keep, placement.document)
        for number, block in enumerate(self.blocks):
            context = Context(mask, position_of(self.positions, number), at, k_at)
            x = self.run(block, x, context, state.layers[number] if state else None)
        normed: Tensor = self.norm(x)
        return normed

    def start(self) -> StackState:
        """An empty state for decoding step by step."""
        return StackState([block.start() for block in self.blocks if isinstance(block, EncoderBlock)])


class Decoder(Stack):
    """A stack of decoder blocks, always causal.

    Args:
        options: What the user chose.
    """

    def __init__(self, options: EncoderDecoderOptions) -> None:
        super().__init__(options, options.decoder_layers, causal=True)
        self.cross_positions = _per_layer(options.cross_position, self.shape, options.decoder_layers)
        self.blocks = nn.ModuleList(
            DecoderBlock(self.mixer(), self._cross(options), options.feed_forward(self.shape), self.wrap)
            for _ in range(options.decoder_layers)
        )

    def _cross(self, options: EncoderDecoderOptions) -> CrossMixer:
        cross, position = options.cross(self.shape), type(position_of(self.cross_positions, 0))
        if "embed" in position.doors():
            raise ValueError(
                f"`cross_position` must act on queries and keys, but {position.__name__} acts on token embeddings, which a "
                "decoder and its memory do not share; use NoPosition or one that acts in attention, as Relative"
            )
        check_fit(type(cross), position)
        return cross

    def forward(self, x: Tensor, memory: Memory, state: StackState | None = None) -> Tensor:
        """Mixes target embeddings with each other and with the memory.

        Args:
            x: (B, L, D) embeddings; padding may stand on the right, where no real token sees it.
            memory: What the encoder read; with a state, it may serve several consecutive rows of ``x``.
            state: What was remembered of earlier tokens; ``x`` continues them.

        Returns:
            (B, L, D).
        """
        x, at, k_at = self.enter(x, None, state)
        for number, block in enumerate(self.blocks):
            context = Context(Mask(causal=True), position_of(self.positions, number), at, k_at)
            cross = CrossContext(memory, position_of(self.cross_positions, number), at)
            x = self.run(block, x, context, cross, state.layers[number] if state else None)
        normed: Tensor = self.norm(x)
        return normed

    def start(self) -> StackState:
        """An empty state for decoding step by step."""
        return StackState([block.start() for block in self.blocks if isinstance(block, DecoderBlock)])


def _per_layer(factory: PositionFactory, shape: Shape, num_layers: int) -> nn.ModuleList:
    """One position for all layers, or one for each, as the kind says."""
    first = factory(shape)
    return nn.ModuleList([first, *(factory(shape) for _ in range(num_layers - 1) if not first.shared)])


def position_of(positions: nn.ModuleList, layer: int) -> Position:
    """The position that the given layer uses."""
    position = positions[layer if len(positions) > 1 else 0]
    assert isinstance(position, Position)
    return position
