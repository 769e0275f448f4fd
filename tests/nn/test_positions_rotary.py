"""Rotary positions for longer texts than trained: each scaling keeps what its paper says it keeps, and is found by name."""

import math
from typing import Any

import pytest
import torch
import yaml

from polyformer.nn import LinearScaling, NTKScaling, Rotary, RotaryScaling, Shape, YaRNScaling
from polyformer.training.build import TaskParser, check_classes, task_class

from ..equivalence.cases import close

SHAPE = Shape(128, 2)  # 32 pairs of features per head
PLAIN = Rotary(SHAPE).speeds
LENGTH = 256


@pytest.mark.parametrize("scaling", [LinearScaling(1.0), NTKScaling(1.0), YaRNScaling(1.0, LENGTH)])
def test_texts_as_long_as_trained_change_nothing(scaling: RotaryScaling) -> None:
    assert Rotary(SHAPE, scaling=scaling).speeds == pytest.approx(PLAIN)
    assert scaling.growth == 1.0


def test_linear_scaling_is_an_index_divided() -> None:
    heads, at = torch.randn(1, 2, 5, 64), torch.arange(5)
    close(Rotary(SHAPE, scaling=LinearScaling(4.0)).rotate(heads, 4 * at), Rotary(SHAPE).rotate(heads, at))


@pytest.mark.parametrize("factor", [2.0, 4.0, 8.0])
def test_ntk_scaling_keeps_the_fastest_and_interpolates_the_slowest(factor: float) -> None:
    speeds = Rotary(SHAPE, scaling=NTKScaling(factor)).speeds
    assert speeds[0] == 1.0 and speeds[-1] == pytest.approx(PLAIN[-1] / factor)
    shares = [plain / speed for plain, speed in zip(PLAIN, speeds, strict=True)]
    assert shares == sorted(shares)


@pytest.mark.parametrize("factor", [2.0, 4.0, 8.0])
def test_yarn_keeps_what_turns_often_and_interpolates_what_does_not(factor: float) -> None:
    speeds = Rotary(SHAPE, scaling=YaRNScaling(factor, LENGTH)).speeds
    turns = [LENGTH * speed / (2.0 * math.pi) for speed in PLAIN]
    for pair, (speed, plain) in enumerate(zip(speeds, PLAIN, strict=True)):
        assert plain / factor <= speed * (1 + 1e-9) and speed <= plain * (1 + 1e-9)
        if turns[pair] >= 32.0:
            assert speed == pytest.approx(plain)
        if turns[max(pair - 1, 0)] <= 1.0:  # the ramp ends at a whole pair
            assert speed == pytest.approx(plain / factor)
    assert turns[0] > 32.0 and turns[-1] < 1.0


@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_yarn_sharpens_the_whole_logit(fraction: float) -> None:
    """By (0.1 ln s + 1)^2, the paper's 1 / t, what is not turned included."""
    scaling = YaRNScaling(16.0, LENGTH)
    position = Rotary(SHAPE, fraction=fraction, scaling=scaling)
    q, k, at = torch.randn(1, 2, 3, 64), torch.randn(1, 2, 3, 64), torch.zeros(3, dtype=torch.long)
    logits = position.rotate(q, at) @ position.rotate(k, at).transpose(-1, -2)
    close(logits, (0.1 * math.log(16.0) + 1.0) ** 2 * (q @ k.transpose(-1, -2)))
    angles = Rotary(SHAPE, fraction=fraction)
    angles.speeds = position.speeds
    far = torch.tensor([0, 40, 1000])
    close(position.rotate(q, far), (0.1 * math.log(16.0) + 1.0) * angles.rotate(q, far))


def test_a_length_in_which_nothing_turns_is_interpolated_whole() -> None:
    speeds = Rotary(SHAPE, scaling=YaRNScaling(4.0, 2)).speeds
    assert speeds[1:] == pytest.approx([speed / 4.0 for speed in PLAIN[1:]])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LinearScaling(0.5), "`factor` of LinearScaling must be at least 1, but is 0.5"),
        (lambda: NTKScaling(0.0), "`factor` of NTKScaling must be at least 1, but is 0.0"),
        (lambda: YaRNScaling(2.0, 0), "`trained_length` of YaRNScaling must be at least 1, but is 0"),
        (lambda: YaRNScaling(2.0, 9, 1.0, 4.0), "`beta_slow` of YaRNScaling must be above 0 and below `beta_fast` .1.0., but"),
    ],
)
def test_impossible_scalings_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


WORDS = ["--data.train", "a.txt", "--data.validation", "b.txt", "--model.max_length", "256", "--model.position", "Rotary"]


def stored(parser: TaskParser, words: list[str]) -> dict[str, Any]:
    """What a checkpoint keeps of settings."""
    settings = parser.plain(parser.parse(words))
    used = {key: settings[key] for key in ("task", "model", "data", "seed")}
    check_classes(used, "here")
    return used


def position_of(parser: TaskParser, words: list[str]) -> Any:
    options = parser.build(parser.parse(words), training=False).options
    return options.position(options.shape(causal=True))


def test_a_scaling_is_found_by_name_stored_and_laid_over_what_is_stored() -> None:
    parser = TaskParser(task_class("LanguageModeling"))
    key = "--model.position.scaling"
    yarn = [key, "YaRNScaling", f"{key}.factor", "4", f"{key}.trained_length", "256"]
    expected = Rotary(Shape(256, 4), scaling=YaRNScaling(4.0, 256))
    kept = stored(parser, WORDS + yarn)
    plain = stored(parser, WORDS)
    assert plain["model"]["position"]["init_args"]["scaling"] is None
    for words in (
        WORDS + yarn,
        [*WORDS, key, "{class_path: YaRNScaling, init_args: {factor: 4, trained_length: 256}}"],
        ["--config", yaml.safe_dump(kept)],
        ["--config", yaml.safe_dump(plain), *yarn],
    ):
        made = position_of(parser, words)
        assert made.speeds == expected.speeds and made.growth == expected.growth
    with pytest.raises(ValueError, match=r"^`factor` of LinearScaling must be at least 1, but is 0.5$"):
        position_of(parser, [*WORDS, key, "LinearScaling", f"{key}.factor", "0.5"])
