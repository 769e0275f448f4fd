"""`platform plot` from the command line."""

import warnings
from pathlib import Path
from typing import Any

import pytest

from polyformer.cli import main
from polyformer.cli.pictures import model_pictures
from polyformer.experiments.plots import fonts_for
from polyformer.training import load_task

from .small import SMALL, fit

STARTS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("runs")
    assert fit(folder, "--trainer.max_steps", "1", "--trainer.val_check_interval", "1", "--model.position", "Relative") == 0
    return folder / "run"


@pytest.mark.parametrize(
    ("kind", "suffix", "words"),
    [
        ("positions", "png", ["--length", "20"]),
        ("attention", "pdf", ["--text", "forty-two", "--layers=0", "--heads", "mean"]),
    ],
)
def test_pictures_of_a_run(run: Path, tmp_path: Path, capsys: Any, kind: str, suffix: str, words: list[str]) -> None:
    output = tmp_path / f"drawn.{suffix}"
    assert main(["plot", kind, "--ckpt_path", str(run), *words, "--output", str(output), "--debug"]) == 0
    assert output.read_bytes().startswith(STARTS[suffix])
    assert capsys.readouterr().out.strip() == str(output)


def test_pictures_of_a_config_and_of_all_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL)
    words = ["--config", "small.yaml", "--model.mixer", "Convolution", "--length", "8"]
    assert main(["plot", "masks", *words, "--output", "masks.svg", "--debug"]) == 0
    assert main(["plot", "positions", "--length", "8", "--debug"]) == 0
    assert (tmp_path / "masks.svg").read_text().count("Convolution") == 2  # an encoder and a decoder of one layer
    assert (tmp_path / "positions.png").read_bytes().startswith(STARTS["png"])


@pytest.mark.skipif(fonts_for(["\u56db\u5341\u4e8c"])[1] != "", reason="no font here has Chinese characters")
def test_attention_to_chinese_is_written_with_chinese_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(figure: Any, output: Path) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="Glyph")  # of characters that are drawn as boxes
            figure.savefig(output)

    monkeypatch.setattr("polyformer.cli.plot.save_figure", draw)
    assert fit(tmp_path, "--trainer.max_steps", "1", "--data.language", "chinese") == 0
    words = ["--text", "forty-two", "--target", "\u56db\u5341\u4e8c", "--output", str(tmp_path / "drawn.png")]
    assert main(["plot", "attention", "--ckpt_path", str(tmp_path / "run"), *words, "--debug"]) == 0


def test_what_a_tracked_run_shows_of_its_model(run: Path) -> None:
    task, _ = load_task(run / "checkpoints" / "best.ckpt")
    task.example = "forty-two"
    figures = model_pictures(task)
    assert list(figures) == ["attention", "positions", "masks"]
    assert figures["attention"].axes[0].get_ylabel() == "token about to be written"
    assert [axes.get_title() for axes in figures["positions"].axes] == ["encoder, Relative", "decoder, Relative"]
    assert [axes.get_title() for axes in figures["masks"].axes] == [
        "encoder 0\nFullAttention: sees 100 %",
        "decoder 0\nFullAttention: sees 51 %",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "say what to draw: platform plot positions or masks or attention"),
        (["mask"], "did you mean masks?"),
        (["masks", "--lenght", "3"], "unknown option --lenght; did you mean --length?"),
        (["masks", "--length", "1"], "--length must be a whole number of at least 2, but is 1"),
        (["masks", "--output", "a.gif"], "--output a.gif: its name must end in .png, .svg, .pdf"),
        (["masks", "--output", "nowhere/a.png"], "there is no folder nowhere"),
        (["masks", "--config", "a.yaml", "--ckpt_path", "b"], "give --config or --ckpt_path, not both"),
        (["attention", "--ckpt_path", "b"], "--text TEXT is missing"),
        (["attention", "--text", "b"], "--ckpt_path PATH is missing"),
    ],
)
def test_mistakes_are_named(words: list[str], message: str, capsys: Any) -> None:
    assert main(["plot", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--layers", "3"], "--layers has 3, but must be of 0"),
        (["--heads", "first"], "--heads must be numbers such as 0,2 or 0-2, but is first"),
        (["--part", "stack"], "`part` must be one of cross, encoder, decoder, but is stack"),
    ],
)
def test_parts_that_are_not_there_are_named(run: Path, words: list[str], message: str, capsys: Any) -> None:
    assert main(["plot", "attention", "--ckpt_path", str(run), "--text", "six", "--target", "sechs", *words]) in (1, 2)
    assert message in capsys.readouterr().err


def test_the_help_is_short(capsys: Any) -> None:
    assert main(["plot", "--help"]) == main(["plot", "masks", "-h"]) == 0
    once = capsys.readouterr().out.splitlines()
    assert once[0].startswith("platform plot positions") and len(once) < 60
