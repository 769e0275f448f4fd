"""The HTML page: whole by itself, and as a real browser shows it."""

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from polyformer.cli import main
from polyformer.experiments.comparison import compare_runs
from polyformer.experiments.page import as_page

from .made_up import made_up

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "headless_shell")
SIZE = 1000, 1400


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """Three rows, one of them with a name that must be escaped, two with outputs on the same examples."""
    for name, bleu in (("Rotary", 31.0), ("Learned", 30.0), ("No<b>Position", 33.0)):
        outputs = [{"input": f"a <i>{at}", "reference": f"b c {at}", "output": f"{name} c {at}"} for at in range(12)]
        for seed in (0, 1):
            made_up(tmp_path / "runs", f"{name}{seed}", name, seed, {"test/bleu": bleu + seed / 8}, examples=outputs)
    assert main(["compare", str(tmp_path / "runs"), "--output", str(tmp_path / "page.html")]) == 0
    return tmp_path / "page.html"


class Reader(HTMLParser):
    """Counts what is open, and keeps what is referred to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.places: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img"):
            self.open.append(tag)
        self.places += [value or "" for name, value in attributes if name in ("src", "href", "data")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(text)
    assert not reader.open
    assert reader.places and all(place.startswith("data:image/svg+xml;base64,") for place in reader.places)
    assert "@import" not in text and "url(" not in text
    assert "No&lt;b&gt;Position" in text and "<b>" not in text and "<i>" not in text


def test_refusals_are_on_the_page(tmp_path: Path) -> None:
    runs = [made_up(tmp_path, name, name, fingerprints={"test": name, "tokenizers": {}}) for name in ("A", "B")]
    assert "the test data differ" in as_page(compare_runs(runs), "title")


def browser() -> str:
    """A browser that runs without a display; the test is skipped where there is none."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        api = pytest.importorskip("playwright.sync_api", reason="no chromium on the path, and no playwright")
        with api.sync_playwright() as play:
            found = play.chromium.executable_path
        if not Path(found).exists():
            pytest.skip("playwright has no browser; `playwright install chromium` fetches one")
    return found


def test_a_browser_draws_it_and_sorts_the_table(page: Path, tmp_path: Path) -> None:
    """The page with a click on a title, as the browser has it afterwards; and a picture that is not blank."""
    program = browser()
    click = "document.querySelectorAll('table.sortable th button')[2].click();"
    report = "document.title = [...document.images].map(one => one.naturalWidth > 100).join();"
    clicked = tmp_path / "clicked.html"
    text = page.read_text(encoding="utf-8")
    clicked.write_text(text.replace("</body>", f"<script>{click} onload = () => {{ {report} }};</script></body>"))
    words = [program, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    words += ["--virtual-time-budget=3000", "--window-size={},{}".format(*SIZE)]
    done = subprocess.run([*words, "--dump-dom", clicked.as_uri()], capture_output=True, text=True, timeout=300, check=True)
    assert "<title>true</title>" in done.stdout
    cells = re.findall(r'<td class="words">(Rotary|Learned|No&lt;b&gt;Position)</td><td>2</td>', done.stdout)
    assert cells == ["Learned", "Rotary", "No&lt;b&gt;Position"]
    shot = tmp_path / "page.png"
    subprocess.run([*words, f"--screenshot={shot}", page.as_uri()], capture_output=True, timeout=300, check=True)
    from matplotlib.image import imread

    picture = imread(shot)
    assert picture.shape[:2] == SIZE[::-1]
    assert picture[..., :3].std() > 0.05
