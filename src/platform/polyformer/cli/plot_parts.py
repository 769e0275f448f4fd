"""Positions and mixers as arrays, measured from the modules themselves, so that a picture of them cannot be wrong.

Letters: L tokens, S keys, H heads, D model, K width per head, N tokens that look.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import polyformer.nn
from polyformer.experiments.plots import ByDistance, Sight, Turning, Vectors
from polyformer.models import Decoder, DecoderOnlyOptions, Encoder, EncoderDecoderOptions, StackOptions
from polyformer.models.layer_positions import LayerPositions
from polyformer.nn import Context, Mask, Mixer, NoPosition, Position, Shape
from polyformer.nn.mixer import public_subclasses

__all__ = ["all_positions", "all_sights", "made_stacks", "positions_of", "sights_of", "stacks_of"]

T = TypeVar("T")
Stack = Encoder | Decoder
Panel = Vectors | Turning | ByDistance

D_MODEL, NUM_HEADS = 256, 4
DOORS = ("embed", "rotate", "bias")
ROWS = 32  # tokens whose sight is measured at once
SMALL: dict[str, dict[str, Any]] = {
    "SlidingWindow": {"window": 6},
    "BigBird": {"block": 2},
    "Reformer": {"bucket": 6, "hashes": 1},
}
"""Options that fit into a small picture, for mixers whose defaults see more than that."""


def stacks_of(network: nn.Module) -> dict[str, Stack]:
    """The stacks in a network, by their names in it."""
    stacks = ((name, module) for name, module in network.named_modules() if isinstance(module, (Encoder, Decoder)))
    return {name.rpartition(".")[2]: stack for name, stack in stacks}


def made_stacks(options: StackOptions) -> dict[str, Stack]:
    """The stacks that options describe, with fresh weights."""
    if isinstance(options, EncoderDecoderOptions):
        return {"encoder": Encoder(options, options.encoder_layers), "decoder": Decoder(options)}
    layers: int = getattr(options, "num_layers")  # noqa: B009 - those of encoders alone and of decoders alone
    return {"stack": Encoder(options, layers, causal=isinstance(options, DecoderOnlyOptions))}


# ---- positions


def all_positions(length: int) -> list[Panel]:
    """Every position that there is, with its defaults: first those without weights, then the others with fresh ones."""
    shape = Shape(D_MODEL, NUM_HEADS, max_length=length)
    several = [(any(True for _ in position.parameters()), position) for position in (kind(shape) for kind in _kinds(Position))]
    several.sort(key=lambda pair: (pair[0], [door not in type(pair[1]).doors() for door in DOORS]))
    titled = [(position, type(position).__name__ + (" (untrained)" if trains else "")) for trains, position in several]
    return [panel for position, title in titled for panel in _panels(position, title, length)]


def positions_of(stacks: Mapping[str, Stack], length: int) -> list[Panel]:
    """The positions of stacks, layer by layer where layers have their own.

    Raises:
        ValueError: If no position says anything.
    """
    panels: list[Panel] = []
    for name, stack in stacks.items():
        several = {name: stack.positions}
        if isinstance(stack, Decoder):
            several[f"{name} cross"] = stack.cross_positions
        for place, positions in several.items():
            for where, position in _placed(place, positions):
                panels += _panels(position, f"{where}, {type(position).__name__}", length)
    if not panels:
        raise ValueError(f"there is nothing to draw: {' and '.join(stacks)} have NoPosition")
    return panels


def _placed(place: str, positions: LayerPositions) -> Iterator[tuple[str, Position]]:
    """Each position of a stack, and where it is: in all layers, or in some."""
    for number, position in enumerate(positions):
        layers = [str(layer) for layer, used in enumerate(positions.numbers) if used == number]
        assert isinstance(position, Position)
        yield place if len(positions) == 1 else f"{place} {','.join(layers)}", position


@torch.no_grad()
def _panels(position: Position, title: str, length: int) -> Iterator[Panel]:
    """What a position does at each of its doors, measured at as many indices as it has."""
    length = length if position.limit is None else min(length, position.limit)
    position = deepcopy(position).cpu()
    doors, shape, at = type(position).doors(), position.shape, torch.arange(length)
    if "embed" in doors:
        table = position.embed(torch.zeros(1, length, shape.d_model), at)[0]  # (L, D)
        yield Vectors(title, table.numpy())
    if "rotate" in doors:
        features = torch.eye(shape.d_head)[:, None, None]  # (K, 1, 1, K): their mean is that over all vectors
        turned = position.rotate(features.expand(-1, 1, length, -1), at)[:, 0]  # (K, L, K)
        products = (turned * turned[:, :1]).sum(dim=-1).mean(dim=0)  # (L,)
        yield Turning(title, (products / products[0]).numpy())
    if "bias" in doors:
        yield _biases(position, title, length)


def _biases(position: Position, title: str, length: int) -> ByDistance:
    """Met by each feature of a query and its opposite, which is all there is to know of a bias that is linear in it."""
    shape = position.shape
    k_at = torch.arange(length if shape.causal else 2 * length - 1)
    q_at = torch.tensor([length - 1])
    features = torch.eye(shape.d_head)[:, None, None].expand(-1, shape.num_heads, 1, -1)  # (K, H, 1, K)
    keys = torch.zeros(2 * shape.d_head, shape.num_heads, len(k_at), shape.d_head)
    bias = position.bias(torch.cat((features, -features)), keys, q_at, k_at)
    assert bias is not None
    along, against = bias.squeeze(2).expand(2 * shape.d_head, -1, -1).chunk(2)  # (K, H, S) each
    mean, deviation = ((along + against) / 2).mean(dim=0), ((along - against) / 2).norm(dim=0)
    return ByDistance(title, (k_at - q_at).numpy(), mean.numpy(), deviation.numpy())


# ---- mixers


def all_sights(length: int) -> list[Sight]:
    """What every mixer that there is lets see, in an encoder and in a decoder."""
    sights: list[Sight] = []
    for kind in _kinds(Mixer):
        given = SMALL.get(kind.__name__, {})
        for causal, direction in ((False, "both"), (True, "causal")):
            options = ", ".join(f"{name} {value}" for name, value in given.items())
            title = "\n".join([kind.__name__, *([options] if given else []), "causal" if causal else "both ways"])
            if direction not in kind.directions:
                sights.append(Sight(title, None, f"cannot run {direction}"))
                continue
            shape = Shape(D_MODEL, NUM_HEADS, max_length=length, causal=causal)
            sights.append(Sight(title, seen_by(kind(shape, **given), NoPosition(shape), causal, length)))
    return sights


def sights_of(stacks: Mapping[str, Stack], length: int) -> list[Sight]:
    """What the mixer of each layer lets see."""
    sights: list[Sight] = []
    for name, stack in stacks.items():
        for layer, block in enumerate(stack.blocks):
            mixer: Mixer = block.mixer.inner  # type: ignore[assignment]
            title = f"{name} {layer}\n{type(mixer).__name__}"
            most = length if stack.limit is None else min(length, stack.limit)
            sights.append(Sight(title, seen_by(mixer, stack.positions.of(layer), stack.shape.causal, most)))
    return sights


def seen_by(mixer: Mixer, position: Position, causal: bool, length: int) -> NDArray[np.bool_]:
    """Which tokens what a mixer gives for each token depends on: those that it has a gradient from.

    Args:
        mixer: Any mixer; it is left as it is.
        position: What tells it where tokens are.
        causal: Whether it runs in a decoder.
        length: Number of tokens, of random vectors.

    Returns:
        (L, L), a row for each token that looks.
    """
    mixer = deepcopy(mixer).cpu().double().eval()  # what is far away may count little
    position = deepcopy(position).cpu().double().eval()
    at = torch.arange(length)
    context = Context(Mask(causal=causal), position, at, at)
    generator = torch.Generator().manual_seed(0)
    width = position.shape.d_model
    x = torch.randn(1, length, width, dtype=torch.float64, generator=generator)
    direction = torch.randn(width, dtype=torch.float64, generator=generator)
    rows = []
    for looking in at.split(ROWS):
        copies = x.expand(len(looking), -1, -1).clone().requires_grad_()
        mixed = mixer(copies, context)[torch.arange(len(looking)), looking]  # (N, D)
        (gradient,) = torch.autograd.grad((mixed @ direction).sum(), copies)
        rows.append((gradient != 0.0).any(dim=-1))
    return torch.cat(rows).numpy()


def _kinds(base: type[T]) -> list[type[T]]:
    """Polyformer's public classes of a kind, and the user's own."""
    ours = set(polyformer.nn.__all__)
    return [kind for kind in public_subclasses(base) if kind.__name__ in ours or not kind.__module__.startswith("polyformer.")]
