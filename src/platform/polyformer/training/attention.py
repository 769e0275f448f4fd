"""The attention weights of a task's network on a text, with the tokens they are about.

Letters: N layers, H heads, L queries, S keys, D model.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from polyformer.data import batch_texts, pair_batches
from polyformer.models import DecoderOnly, EncoderDecoder, EncoderOnly
from polyformer.nn import Context, CrossContext, CrossMixer, Mask, Memory, Mixer, NoPosition, Shape, recorded_weights
from polyformer.nn.mixer import public_subclasses
from polyformer.text import BOS, EOS, SPECIALS
from polyformer.training.task import Task

__all__ = ["Attention", "attention_of"]

Names = tuple[list[str], list[str]]
"""How the tokens that are looked at are shown, and those that look."""

Recorded = dict[str, tuple[nn.Module, list[Tensor]]]
"""A mixer's name in its network -> the mixer, and the weights it recorded."""


@dataclass(frozen=True)
class Attention:
    """What the layers of one part of a network looked at.

    Args:
        weights: (N, H, L, S), of the layers that keep weights of tokens.
        layers: Their N numbers.
        others: The layers that keep none -> their mixers' names.
        source: The S tokens looked at.
        target: The L tokens that look; of a decoder's cross-attention those about to be written.
    """

    weights: Tensor
    layers: list[int]
    others: dict[int, str]
    source: list[str]
    target: list[str]


@torch.no_grad()
def attention_of(task: Task, text: str, target: str | None = None, part: str | None = None) -> Attention:
    """The attention of a network while it reads a text.

    Args:
        task: In evaluation mode, so that nothing is dropped.
        text: What is read; a pair of texts has a tab between them.
        target: What a translator writes; None: its own translation. Not for other tasks.
        part: Of a translator "cross", "encoder" or "decoder", of others "stack"; None: the first of these.

    Raises:
        ValueError: For a text without tokens, one that is too long, a part that is not there, and where no layer of it keeps
            attention weights, naming the mixers that do.
    """
    network, run, names = _reading(task, text, target)
    part = next(iter(names)) if part is None else part
    if part not in names:
        raise ValueError(f"`part` must be one of {', '.join(names)}, but is {part}")
    with recorded_by_mixer(network) as found:
        run()
    return _attention(found, part, names[part], task.options.shape(causal=False))


def _reading(task: Task, text: str, target: str | None) -> tuple[nn.Module, Callable[[], Any], dict[str, Names]]:
    """The network, its reading of a text, and for each of its parts how tokens are shown."""
    network, device = getattr(task, "network", None), task.device
    if isinstance(network, EncoderDecoder):
        target = task.answer([text])[0].text if target is None else target
        read, written = _pieces(task, "source", text), _pieces(task, "target", target)
        encode = [task.assets.tokenizers[role].encode(side) for role, side in (("source", text), ("target", target))]
        (batch,) = pair_batches([encode[0]], [encode[1]])
        batch = batch.to(device)
        read, begun, written = [*read, SPECIALS[EOS]], [SPECIALS[BOS], *written], [*written, SPECIALS[EOS]]
        names = {"cross": (read, written), "encoder": (read, read), "decoder": (begun, begun)}
        return network, partial(network, batch.source, batch.target[:, :-1], batch.source_keep), names
    if target is not None:
        raise ValueError(f"a target is for translators, but {type(task).__name__} reads a single text")
    if isinstance(network, DecoderOnly):
        shown = [SPECIALS[EOS], *_pieces(task, "text", text)]
        tokens = torch.tensor([[EOS, *task.assets.tokenizers["text"].encode(text)]], device=device)
        return network, partial(network, tokens), {"stack": (shown, shown)}
    if isinstance(network, EncoderOnly):
        parts = text.split("\t")
        shown = [SPECIALS[BOS], *(piece for one in parts for piece in (*_pieces(task, "text", one), SPECIALS[EOS]))]
        one = batch_texts([task.assets.tokenizers["text"].encode_batch(parts)], [0]).to(device)
        segment = None if network.segment_embedding is None else one.segment
        return network, partial(network, one.tokens, segment, one.keep), {"stack": (shown, shown)}
    raise ValueError(f"{type(task).__name__} has no network whose attention could be shown")


def _pieces(task: Task, role: str, text: str) -> list[str]:
    """The tokens of a text as they are shown, a space as a dot."""
    pieces: list[str] = task.assets.tokenizers[role].pieces(text)
    if not pieces and role != "target":
        raise ValueError(f"the text {text!r} has no tokens to look at")
    return [piece.replace("\u2581", "\u00b7") for piece in pieces]


@contextmanager
def recorded_by_mixer(network: nn.Module) -> Iterator[Recorded]:
    """Collects the attention weights of each mixer of a network that runs inside the block."""
    found: Recorded = {}
    with recorded_weights() as weights:

        def take(name: str, module: nn.Module, *_: Any) -> None:
            found[name] = module, list(weights)
            weights.clear()

        mixers = [(name, module) for name, module in network.named_modules() if isinstance(module, (Mixer, CrossMixer))]
        hooks = [module.register_forward_hook(partial(take, name)) for name, module in mixers]
        try:
            yield found
        finally:
            for hook in hooks:
                hook.remove()


def _attention(found: Recorded, part: str, names: Names, shape: Shape) -> Attention:
    """What was recorded in one part, whose mixers have names such as `decoder.blocks.0.cross.inner`."""
    stack, role = ("decoder", "cross") if part == "cross" else (part, "mixer")
    kept, others = dict[int, Tensor](), dict[int, str]()
    for name, (module, weights) in found.items():
        match = re.fullmatch(rf"{stack}\.blocks\.(\d+)\.{role}\.inner", name)
        if match is not None and len(weights) == 1 and keeps_weights(module, shape):
            kept[int(match[1])] = weights[0][0]
        elif match is not None:
            others[int(match[1])] = type(module).__name__
    if not kept:
        kinds: Sequence[type[nn.Module]] = public_subclasses(CrossMixer if role == "cross" else Mixer)
        able = [kind.__name__ for kind in kinds if keeps_weights(kind(shape), shape)]
        raise ValueError(
            f"{', '.join(sorted(set(others.values())))} in `{part}` keeps no attention weights of tokens; {' and '.join(able)} "
            "do. `platform plot masks` shows what any mixer can see"
        )
    return Attention(torch.stack(list(kept.values())).cpu(), list(kept), others, *names)


def keeps_weights(mixer: nn.Module, shape: Shape) -> bool:
    """Whether a mixer records a weight for each pair of tokens, found out by letting it mix a few."""
    like = next(mixer.parameters(), torch.zeros(()))
    for length in (2, 3):
        x, at = like.new_zeros(1, length, shape.d_model), torch.arange(length, device=like.device)
        memory = Memory(like.new_zeros(1, length + 1, shape.d_model), torch.arange(length + 1, device=like.device))
        position = NoPosition(shape)
        is_cross = isinstance(mixer, CrossMixer)
        context = CrossContext(memory, position, at) if is_cross else Context(Mask(), position, at, at)
        with recorded_weights() as weights:
            mixer(x, context)
        if [one.shape[-2:] for one in weights] != [(length, length + is_cross)]:
            return False
    return True
