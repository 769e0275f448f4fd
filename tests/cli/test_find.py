"""`platform find` from the command line."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from polyformer.cli import main
from polyformer.tasks.translation import Translation
from polyformer.training import finding

from .small import SMALL


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(SMALL)


def found(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, float]:
    """The key and the value that the command prints."""
    assert main(["find", words[0], "--config", "small.yaml", *words[1:], "--debug"]) == 0
    key, value = capsys.readouterr().out.split()
    return key, float(value)


def test_a_rate_that_can_be_given_to_fit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The schedule is left out; groups keep their own rates; nothing but the picture is left."""
    rates: list[list[float]] = []
    plain = Translation.on_before_optimizer_step

    def step(self: Translation, optimizer: Any) -> None:
        rates.append([group["lr"] for group in optimizer.param_groups])
        plain(self, optimizer)

    monkeypatch.setattr(Translation, "on_before_optimizer_step", step)
    words = ["--low", "1e-5", "--high", "10", "--steps", "60"]
    words += ["--training.tuning.layer_decay", "0.5", "--training.schedule", "Noam"]
    key, rate = found(capsys, "rate", *words)
    assert key == "--training.optimizer.lr" and 3e-4 < rate < 0.3
    assert rates[0][0] == pytest.approx(1e-5) and {round(own / rates[0][0], 3) for own in rates[0]} == {1.0, 0.5, 0.25}
    assert all(after[0] / before[0] == pytest.approx(1e6 ** (1 / 60)) for before, after in pairwise(rates))
    assert sorted(path.name for path in Path().iterdir()) == ["rate.png", "small.yaml"]
    assert Path("rate.png").read_bytes().startswith(b"\x89PNG")


def test_no_rate_is_made_up() -> None:
    test = finding.RateTest()
    test.rates, test.losses = [10.0**step for step in range(20)], [2.0 + step for step in range(20)]
    assert test.suggestion() is None


def test_tokens_that_fit_in_memory(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "peak_memory", lambda: 500_000_000)
    key, tokens = found(capsys, "tokens", "--memory", "0.503")
    assert key == "--data.batches.tokens" and 100 < tokens < 13 * 400
    assert main(["find", "tokens", "--config", "small.yaml", "--memory", "0.4"]) == 1
    assert "not even the smallest batch fits" in capsys.readouterr().err


def test_steps_are_made_where_too_much_is_an_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    plain, tried = Translation.loss, []

    def loss(self: Translation, batch: Any) -> Any:
        tried.append(int(batch.target[:, 1:].ne(0).sum()))
        if tried[-1] > 1200:
            raise torch.OutOfMemoryError
        return plain(self, batch)

    monkeypatch.setattr(Translation, "loss", loss)
    monkeypatch.setattr(finding, "ESTIMATED", ())
    monkeypatch.setattr(finding, "SHARE", 2)
    assert found(capsys, "tokens") == ("--data.batches.tokens", 800.0)
    assert tried[0] == tried[1] < tried[2] == tried[3] < 1200 < tried[4]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "say what to find: platform find rate or tokens"),
        (["token"], "did you mean tokens?"),
        (["rate"], "no task is given: use --config FILE"),
        (["rate", "--config", "small.yaml", "--hihg", "1"], "unknown key --hihg"),
        (["rate", "--config", "small.yaml", "--low", "none"], "--low must be a number above 0, but is none"),
        (["rate", "--config", "small.yaml", "--low", "2"], "--low must be below --high (1), but is 2"),
        (["rate", "--config", "small.yaml", "--steps", "3"], "--steps must be a whole number of at least 20, but is 3"),
        (["rate", "--config", "small.yaml", "--output", "a.gif"], "--output a.gif: must be a picture's name"),
        (["tokens", "--config", "small.yaml", "--memory", "-1"], "--memory must be a number above 0, but is -1"),
    ],
)
def test_mistakes_are_named(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["find", *words]) == 2
    assert message in capsys.readouterr().err
