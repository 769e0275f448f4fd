"""Pictures of arrays: what is drawn is what was given, whatever the tokens are, and the file is the same each time."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyformer.experiments.plots import (
    ByDistance,
    Growth,
    Sight,
    Turning,
    Vectors,
    attention_figure,
    font_advice,
    fonts,
    fonts_for,
    growth_figure,
    masks_figure,
    positions_figure,
    save_figure,
)

STARTS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


def weights(*shape: int) -> Any:
    drawn = np.random.default_rng(0).random(shape)
    return drawn / drawn.sum(axis=-1, keepdims=True)


def test_each_layer_and_head_has_its_panel() -> None:
    given = weights(2, 3, 4, 5)
    figure = attention_figure(given, list("abcde"), list("wxyz"))
    panels = figure.axes[:6]
    assert [panel.get_title() for panel in panels[:4]] == [
        "layer 0, head 0",
        "layer 0, head 1",
        "layer 0, head 2",
        "layer 1, head 0",
    ]
    for number, panel in enumerate(panels):
        (image,) = panel.images
        assert np.array_equal(image.get_array(), given[divmod(number, 3)])
        assert image.get_clim() == (0.0, given.max())
    assert [label.get_text() for label in panels[-1].get_xticklabels()] == list("abcde")
    assert [label.get_text() for label in panels[0].get_yticklabels()] == list("wxyz")
    assert panels[3].get_xlabel() == "source token" and panels[3].get_ylabel() == "token about to be written"


def test_a_text_that_looks_at_itself_is_told_from_two_that_are_alike() -> None:
    text = ["a", "b"]
    looks = [attention_figure(weights(1, 1, 2, 2), text, target).axes[0].get_ylabel() for target in (text, ["a", "b"])]
    assert looks == ["token that looks", "token about to be written"]


@pytest.mark.parametrize(
    "tokens", [["$x$", "\\frac", "100%"], [" ", "\u4f60", "\U0001f600"], ["a"] * 300], ids=["signs", "others", "many"]
)
def test_any_tokens_are_drawn(tokens: list[str], tmp_path: Path) -> None:
    save_figure(attention_figure(weights(1, 1, 2, len(tokens)), tokens, ["a", "b"]), tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 3000


@pytest.mark.parametrize("suffix", STARTS)
def test_the_same_picture_is_the_same_file(suffix: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_figure(masks_figure([Sight("causal", np.tri(5, dtype=bool))]), tmp_path / f"{name}{suffix}")
    first, second = ((tmp_path / f"{name}{suffix}").read_bytes() for name in ("a", "b"))
    assert first == second and first.startswith(STARTS[suffix])


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.gif: a picture's name must end in \.png, \.svg, \.pdf"):
        save_figure(masks_figure([Sight("causal", np.tri(5, dtype=bool))]), tmp_path / "a.gif")


def test_positions_have_the_panels_they_need() -> None:
    distance, heads = np.arange(-4, 5), np.arange(2.0)[:, None]
    slopes = ByDistance("slopes", distance, -heads * abs(distance), np.zeros((2, 9)))
    sizes = ByDistance("sizes", distance, np.zeros((2, 9)), np.ones((2, 9)))
    figure = positions_figure([Vectors("waves", np.eye(4)), Turning("turns", np.ones(4)), slopes, sizes])
    named = {axes.get_title(): axes for axes in figure.axes}
    assert {"waves: features", "waves: dot products", "turns: products", "slopes", "sizes"} <= set(named)
    assert np.array_equal(named["waves: dot products"].images[0].get_array(), np.eye(4))
    assert [line.get_ydata().tolist() for line in named["slopes"].lines] == slopes.mean.tolist()
    assert [line.get_ydata().tolist() for line in named["sizes"].lines] == [[1.0] * 9]  # the heads are alike
    assert named["sizes"].get_ylabel().endswith("deviation over queries")


def test_growth_is_drawn_for_each_contender() -> None:
    growths = [Growth(f"number {number}", [64, 128], [1.0, 2.0 + number], [3.0, 4.0]) for number in range(11)]
    time, memory = growth_figure(growths, "title").axes
    assert [line.get_ydata().tolist() for line in time.lines] == [growth.seconds for growth in growths]
    assert len({(line.get_color(), line.get_linestyle()) for line in memory.lines}) == 11


def test_fonts_are_chosen_for_what_they_show(monkeypatch: pytest.MonkeyPatch) -> None:
    han, thai = {ord("\u4f60"), ord("\u597d")}, {ord("\u0e01")}
    here = {
        "j.ttc": ("Noto Sans CJK JP", han),
        "s.ttc": ("Noto Sans CJK SC", han),
        "t.ttf": ("Thai", thai),
        "z.ttf": ("Zapf", {1}),
    }
    added: list[str] = []
    monkeypatch.setattr(fonts, "_system_fonts", lambda: here.copy())
    monkeypatch.setattr(fonts.fontManager, "addfont", added.append)
    families, missing = fonts_for(["\u4f60\u597d", "\u0e01", "\u10d0", "a b\n"])
    assert families == ["DejaVu Sans", "Noto Sans CJK SC", "Thai"] and added == ["s.ttc", "t.ttf"]
    assert missing == ""  # Georgian is in matplotlib's own
    monkeypatch.setattr(fonts, "_system_fonts", dict)
    assert fonts_for(["\u4f60\u597d"]) == (["DejaVu Sans"], "\u4f60\u597d")
    assert "apt install fonts-noto-cjk" in font_advice("\u4f60\u597d")
