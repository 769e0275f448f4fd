"""The product itself: it misses no class, and pairs that cannot work are refused by name."""

import re
from itertools import product
from typing import Any

import pytest

from polyformer.models import Decoder, Encoder, EncoderDecoderOptions, StackOptions
from polyformer.nn import CrossMixer, Mixer, Position, SlidingWindow, T5Bias
from polyformer.nn.mixer import public_subclasses

from .cases import CASES, CROSSES, LAYER_POSITIONS, MIXERS, POSITIONS, Part, fits, parts


@pytest.mark.parametrize("base", [Position, Mixer, CrossMixer], ids=lambda base: base.__name__)
def test_every_class_is_part_of_the_product(base: type[Any]) -> None:
    drawn = {part.kind for case in CASES for part in (case.position, case.mixer, case.cross, case.cross_position)}
    ours: set[type] = {kind for kind in public_subclasses(base) if kind.__module__.startswith("polyformer.nn.")}
    assert ours and ours <= drawn


@pytest.mark.parametrize("base", [SlidingWindow, T5Bias])
def test_a_new_class_is_picked_up_by_existing(base: type[Any]) -> None:
    new = type("New", (base,), {"__module__": "polyformer.nn.new"})
    hidden = type("_New", (new,), {"__module__": "polyformer.nn.new"})
    found = [part.kind for part in parts(Mixer if issubclass(base, Mixer) else Position)]
    assert new in found and hidden not in found


@pytest.mark.parametrize("position", POSITIONS, ids=str)
def test_a_position_uses_one_door(position: Part) -> None:
    assert len(position.kind.doors()) == (0 if position.kind.__name__ == "NoPosition" else 1)


@pytest.mark.parametrize(("mixer", "position", "causal"), list(product(MIXERS, POSITIONS, [False, True])), ids=str)
def test_a_pair_is_built_or_refused_with_both_names(mixer: Part, position: Part, causal: bool) -> None:
    options = StackOptions(d_model=8, num_heads=2, position=position.factory, mixer=mixer.factory)
    if fits(mixer, position, causal):
        assert isinstance(Encoder(options, 1, causal).blocks[0].mixer.inner, mixer.kind)
    else:
        with pytest.raises(ValueError, match=f"`{mixer.kind.__name__}`"):
            Encoder(options, 1, causal)


@pytest.mark.parametrize(("cross", "position"), list(product(CROSSES, POSITIONS)), ids=str)
def test_a_cross_position_acts_or_is_refused(cross: Part, position: Part) -> None:
    options = EncoderDecoderOptions(d_model=8, num_heads=2, cross=cross.factory, cross_position=position.factory)
    if position in LAYER_POSITIONS and fits(cross, position):
        assert isinstance(Decoder(options).cross_positions[0], position.kind)
    else:
        with pytest.raises(ValueError, match=re.escape(position.kind.__name__)):
            Decoder(options)
