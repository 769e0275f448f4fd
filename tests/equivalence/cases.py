"""The product that the equivalence tests run over, drawn from the classes that exist.

A new subclass of Position, Mixer or CrossMixer anywhere in ``polyformer.nn`` is part of it from its first day. What a
class needs besides its defaults stands in ``VARIANTS``.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from inspect import isabstract
from itertools import product
from typing import Any, Literal, cast

import pytest
import torch
from torch import Tensor, nn

import polyformer.nn
from polyformer.models import Decoder, Encoder, EncoderDecoderOptions, StackState
from polyformer.nn import CrossMixer, Memory, Mixer, NormKind, NormPlace, Position, YaRNScaling, check_fit
from polyformer.nn.mixer import public_subclasses

Kind = Literal["encoder", "causal", "decoder", "crossed"]

D_MODEL, NUM_HEADS, NUM_LAYERS, MAX_LENGTH = 8, 2, 2, 128

VARIANTS: dict[str, list[dict[str, object]]] = {
    "BigBird": [{"block": 2, "global_blocks": 1, "random_blocks": 1}],
    "Convolution": [{"kernel": 3}],
    "CrossAttention": [{}, {"num_kv_heads": 1}],
    "FullAttention": [{}, {"num_kv_heads": 1}],
    "Linformer": [{"rank": 3}],
    "Performer": [{"features": 8}],
    "Reformer": [{"bucket": 2, "hashes": 2}, {"bucket": 32, "hashes": 2}],
    "Relative": [{"clip": 3}, {"clip": 2, "values": True}],
    "Rotary": [{}, {"fraction": 0.5, "scaling": YaRNScaling(2.0, trained_length=4)}],
    "SlidingWindow": [{"window": 3}, {"window": 2, "global_tokens": 1, "num_kv_heads": 1}],
    "T5Bias": [{"buckets": 8, "max_distance": 6}],
}
"""Constructor options by class name, small, so that they matter in short texts; other classes are tried with their defaults."""

NORMS: list[tuple[NormPlace, NormKind]] = [
    ("pre", "layer_norm"),
    ("pre", "rms_norm"),
    ("post", "layer_norm"),
    ("post", "rms_norm"),
]


@dataclass(frozen=True)
class Part:
    """A class and the options it is made with."""

    kind: Any
    options: tuple[tuple[str, object], ...] = ()

    @property
    def factory(self) -> Any:
        return partial(self.kind, **dict(self.options))

    def __str__(self) -> str:
        options = ((name, value if isinstance(value, int | float) else type(value).__name__) for name, value in self.options)
        return "-".join([self.kind.__name__, *(f"{name}={value}" for name, value in options)])


@dataclass(frozen=True)
class Case:
    """One stack of the product; as a decoder it looks at a memory, "crossed" with a position of its own for that."""

    kind: Kind
    position: Part
    mixer: Part
    cross: Part
    cross_position: Part
    place: NormPlace
    norm: NormKind

    def __str__(self) -> str:
        names = [self.kind, str(self.position), str(self.mixer), self.place, self.norm]
        return "-".join(names + ([str(self.cross), str(self.cross_position)] if self.kind == "crossed" else []))

    def build(self, dtype: torch.dtype = torch.float32) -> "Subject":
        """A stack in evaluation, its weights far from any symmetry; always the same one, so leave it as it is."""
        return _built(self, dtype)

    def make(self) -> Encoder | Decoder:
        """A new stack."""
        options = EncoderDecoderOptions(
            d_model=D_MODEL,
            num_heads=NUM_HEADS,
            max_length=MAX_LENGTH,
            dropout=0.0,
            position=self.position.factory,
            mixer=self.mixer.factory,
            cross=self.cross.factory,
            cross_position=self.cross_position.factory,
            norm=self.norm,
            norm_place=self.place,
            encoder_layers=NUM_LAYERS,
            decoder_layers=NUM_LAYERS,
        )
        is_encoder = self.kind in ("encoder", "causal")
        stack = Encoder(options, NUM_LAYERS, causal=self.kind == "causal") if is_encoder else Decoder(options)
        shake(stack)
        return stack


@dataclass
class Subject:
    """A stack under test; calls it the same way whether it takes a memory or not."""

    stack: Encoder | Decoder

    @property
    def causal(self) -> bool:
        return self.stack.shape.causal

    def memory(self, count: int, length: int = 4) -> Memory | None:
        """Something to look at for ``count`` sentences; the last token of every second one is padding."""
        if isinstance(self.stack, Encoder):
            return None
        keep = torch.ones(count, length, dtype=torch.bool)
        keep[::2, -1] = False
        dtype = next(self.stack.parameters()).dtype
        return Memory(torch.randn(count, length, D_MODEL, dtype=dtype), torch.arange(length), keep)

    def __call__(self, x: Tensor, memory: Memory | None = None, state: StackState | None = None) -> Tensor:
        if isinstance(self.stack, Encoder):
            return cast(Tensor, self.stack(x, state=state))
        return cast(Tensor, self.stack(x, memory, state))


@cache
def _built(case: Case, dtype: torch.dtype) -> Subject:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(1)
        return Subject(case.make().to(dtype).eval().requires_grad_(False))


def shake(module: nn.Module) -> None:
    """Random weights everywhere, so that no bias is 0, no norm is 1, and attention is far from uniform."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))


def rows_of(memory: Memory | None, rows: Tensor) -> Memory | None:
    """The chosen sentences of a memory, each written out."""
    if memory is None:
        return None
    keep = None if memory.keep is None else memory.keep[rows]
    at = memory.at if memory.at.dim() == 1 else memory.at[rows]
    return Memory(memory.keys[rows], at, keep, None if memory.values is None else memory.values[rows])


def parts(base: type[Any]) -> list[Part]:
    """Every public class below ``base`` in ``polyformer.nn``, with each of its variants."""
    for module in pkgutil.walk_packages(polyformer.nn.__path__, "polyformer.nn."):
        importlib.import_module(module.name)
    kinds = [kind for kind in public_subclasses(base) if kind.__module__.startswith("polyformer.nn.") and not isabstract(kind)]
    return [Part(kind, tuple(variant.items())) for kind in kinds for variant in VARIANTS.get(kind.__name__, [{}])]


def fits(mixer: Part, position: Part, causal: bool = False) -> bool:
    """Whether the two go together, as the library itself says."""
    try:
        check_fit(mixer.kind, position.kind, causal)
    except ValueError:
        return False
    return True


POSITIONS, MIXERS, CROSSES = parts(Position), parts(Mixer), parts(CrossMixer)
PLAIN, EMBEDDED = Part(polyformer.nn.NoPosition), Part(polyformer.nn.Sinusoidal)
FULL, CROSS = Part(polyformer.nn.FullAttention), Part(polyformer.nn.CrossAttention)
LAYER_POSITIONS = [part for part in POSITIONS if not part.kind.doors() & {"embed"}]
"""Those that act on queries and keys, so that they mean something between a sequence and a memory."""


def _cases() -> Iterator[Case]:
    stacks: list[tuple[Kind, bool]] = [("encoder", False), ("causal", True), ("decoder", True)]
    for position, mixer, (kind, causal) in product(POSITIONS, MIXERS, stacks):
        if fits(mixer, position, causal) and _tells_more(mixer, position):
            for place, norm in NORMS if (mixer, position) == (FULL, PLAIN) else NORMS[::3]:
                yield Case(kind, position, mixer, CROSS, PLAIN, place, norm)
    for (place, norm), cross, beyond in product(NORMS[::3], CROSSES, LAYER_POSITIONS):
        if fits(cross, beyond):
            for position in dict.fromkeys((EMBEDDED, beyond)):
                yield Case("crossed", position, FULL, cross, beyond, place, norm)


def _tells_more(mixer: Part, position: Part) -> bool:
    """Positions that act on embeddings are the same to every mixer: one of them will do where it is not full attention."""
    return mixer.kind is FULL.kind or position == EMBEDDED or "embed" not in position.kind.doors()


CASES = list(_cases())


def _over(*kinds: Kind, norms: list[tuple[NormPlace, NormKind]] = NORMS) -> pytest.MarkDecorator:
    chosen = [case for case in CASES if case.kind in kinds and (case.place, case.norm) in norms]
    return pytest.mark.parametrize("case", chosen, ids=str)


over_causal = _over("causal", "decoder", "crossed")
over_encoders = _over("encoder", "causal")
over_decoders = _over("decoder", "crossed")
over_one_norm = _over("encoder", "causal", "decoder", "crossed", norms=NORMS[:1])
over_language_models = _over("causal", norms=NORMS[:1])
over_one_norm_causal = _over("causal", "decoder", "crossed", norms=NORMS[:1])


def close(actual: Tensor, expected: Tensor, where: str = "not equal") -> None:
    """Fails, saying ``where``, unless both agree up to what a different order of additions costs in float32."""
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5, msg=lambda text: f"{where}: {text}")
