"""Fonts that have the characters of a text: one of the machine's where matplotlib's own has no Chinese."""

import unicodedata
from collections.abc import Iterable

from matplotlib.font_manager import findfont, findSystemFonts, fontManager
from matplotlib.ft2font import FT2Font

__all__ = ["font_advice", "fonts_for"]

OWN = "DejaVu Sans"  # comes with matplotlib


def fonts_for(texts: Iterable[str]) -> tuple[list[str], str]:
    """Fonts that together show texts, and the characters that none here has.

    Those of the machine are looked through only if they are needed, and as they are now: one that has just been installed is
    found.

    >>> fonts_for(["straight on", "geradeaus"])
    (['DejaVu Sans'], '')
    """
    wanted = {character for text in texts for character in text}
    needed = {ord(character) for character in wanted if unicodedata.category(character)[0] not in "CZ"}
    needed -= FT2Font(findfont(OWN)).get_charmap().keys()
    families, found = [OWN], _system_fonts() if needed else {}
    while found and needed:
        best = min(found, key=lambda path: (-len(needed & found[path][1]), " SC" not in found[path][0], path))
        family, characters = found.pop(best)
        if not needed & characters:
            break
        fontManager.addfont(best)
        families.append(family)
        needed -= characters
    return families, "".join(map(chr, sorted(needed)))


def _system_fonts() -> dict[str, tuple[str, set[int]]]:
    """A font's file -> its name and characters, of those that can be drawn in any size."""
    found: dict[str, tuple[str, set[int]]] = {}
    for path in findSystemFonts():
        try:
            font = FT2Font(path)
        except (OSError, RuntimeError):
            continue  # no font after all, or of a kind that cannot be read
        if font.scalable:
            found[path] = font.family_name, set(font.get_charmap())
    return found


def font_advice(missing: str) -> str:
    """What to do about characters that no font has.

    >>> font_advice("\\u4f60\\u597d").partition(":")[0]
    'no font here has 2 of the characters, such as \\u4f60'
    """
    return (
        f"no font here has {len(missing)} of the characters, such as {missing[0]}: they are drawn as boxes. Install one that "
        "has them, for Chinese and Japanese by `apt install fonts-noto-cjk` (Debian, Ubuntu) or "
        "`dnf install google-noto-sans-cjk-fonts` (Fedora), and draw again"
    )
