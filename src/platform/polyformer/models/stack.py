"""Encoder and decoder stacks: blocks in order, one context per forward, the state of a whole decode.

Letters: B batch, L tokens, S memory tokens, D model, R places whose vectors are wanted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from polyformer.models.layer_positions import LayerPositions
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
    MixerFactory,
    Position,
    Residual,
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
            left = self.at.shape[-1] - count
            self.at = self.at[..., :left] if left else None
        for layer in self.layers:
            layer.rewind(count)


class Stack(nn.Module):
    """What encoder and decoder share: positions, the dropout on embeddings, the last norm.

    Args:
        options: What the user chose.
        num_layers: Number of blocks.
        causal: Whether a token may see only itself and earlier ones.

    Raises:
        ValueError: For no layers, or more items of a list than layers.
    """

    def __init__(self, options: StackOptions, num_layers: int, causal: bool) -> None:
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"a stack needs at least 1 layer, but has {num_layers}")
        self.options, self.shape = options, options.shape(causal)
        self.mixers = self.choose_mixers()
        for key, several in ((self.mixer_key, self.mixers), ("`model.positions`", options.positions)):
            if len(several) > num_layers:
                raise ValueError(f"{key} has {len(several)} items, but there are only {num_layers} layers to have them")
        self.positions = LayerPositions(options.layer_positions(self.shape), self.shape, num_layers)
        self.dropout = Dropout(options.dropout if options.embedding_dropout is None else options.embedding_dropout)
        self.norm = make_norm(options.norm, options.d_model) if options.norm_place == "pre" else nn.Identity()

    def choose_mixers(self) -> Sequence[MixerFactory]:
        """What makes the mixers of the layers, to be repeated."""
        return self.options.layer_mixers(self.shape)

    @property
    def mixer_key(self) -> str:
        """Where the mixers were chosen, for errors."""
        return "`model.mixers`" if self.options.mixers else "`model.mixer`"

    @cached_property
    def limit(self) -> int | None:
        """The longest sequence that its positions and mixers can take; None when there is no limit."""
        limits = [part.limit for part in self.modules() if isinstance(part, Position | Mixer)]
        return min((limit for limit in limits if limit is not None), default=None)

    def mixer(self, layer: int) -> Mixer:
        """The mixer of a layer, which must fit its position and the direction of the stack."""
        mixer = self.mixers[layer % len(self.mixers)](self.shape)
        try:
            check_fit(type(mixer), type(self.positions.of(layer)), self.shape.causal)
        except ValueError as error:
            raise ValueError(f"{self.mixer_key}: {error}") from None
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
        position = self.positions.of(0)  # the only one, if it acts on embeddings
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
            EncoderBlock(self.mixer(layer), options.feed_forward(self.shape), self.wrap) for layer in range(num_layers)
        )

    def forward(
        self,
        x: Tensor,
        placement: Placement = Placement(),
        state: StackState | None = None,
        places: Tensor | None = None,
    ) -> Tensor:
        """Mixes token embeddings.

        Args:
            x: (B, L, D) token embeddings, without positions.
            placement: Where the tokens are.
            state: What was remembered of earlier tokens; ``x`` continues them.
            places: (B, R) indices into the L tokens, where only these vectors are wanted: the last block computes no others.
                Not with a state.

        Returns:
            (B, L, D), or (B, R, D).
        """
        x, at, k_at = self.enter(x, placement.at, state)
        mask = Mask(self.shape.causal, placement.keep, placement.document)
        for number, block in enumerate(self.blocks):
            context = Context(mask, self.positions.of(number), at, k_at)
            wanted = places if block is self.blocks[-1] else None
            x = self.run(block, x, context, wanted, state.layers[number] if state else None)
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

    options: EncoderDecoderOptions

    def __init__(self, options: EncoderDecoderOptions) -> None:
        super().__init__(options, options.decoder_layers, causal=True)
        self.cross_positions = LayerPositions([options.cross_position], options.shape(causal=False), options.decoder_layers)
        self.blocks = nn.ModuleList(
            DecoderBlock(self.mixer(layer), self._cross(options), options.feed_forward(self.shape), self.wrap)
            for layer in range(options.decoder_layers)
        )

    def choose_mixers(self) -> Sequence[MixerFactory]:
        return self.options.decoder_mixers or super().choose_mixers()

    @property
    def mixer_key(self) -> str:
        if self.options.decoder_mixers:
            return "`model.decoder_mixers`"
        return f"{super().mixer_key}, in a decoder without `model.decoder_mixers`"

    def _cross(self, options: EncoderDecoderOptions) -> CrossMixer:
        cross, position = options.cross(self.shape), type(self.cross_positions.of(0))
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
            context = Context(Mask(causal=True), self.positions.of(number), at, k_at)
            cross = CrossContext(memory, self.cross_positions.of(number), at)
            x = self.run(block, x, context, cross, state.layers[number] if state else None)
        normed: Tensor = self.norm(x)
        return normed

    def start(self) -> StackState:
        """An empty state for decoding step by step."""
        return StackState([block.start() for block in self.blocks if isinstance(block, DecoderBlock)])
