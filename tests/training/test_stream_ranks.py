"""Text that is streamed by two ranks, each of which reads its own share: the steps of one rank, also where it is resumed."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from polyformer.cli import main

from ..cli.small import metrics_of
from ..ranks import run_on_ranks

CONFIG = """
task: LanguageModeling
model: {d_model: 16, num_heads: 2, num_layers: 1, max_length: 16, dropout: 0.0}
data:
  class_path: TextStream
  init_args:
    train: FOLDER/shards
    validation: FOLDER/shards/0.txt
    window: 16
    shuffle_windows: 12
    readers: 4
    tokenizer: {kind: byte}
    batches: {tokens: 112, evaluation_tokens: 200}
training: {optimizer: {class_path: SGD, init_args: {lr: 0.5}}, schedule: Constant}
trainer: {max_steps: 8, val_check_interval: 4, log_every_n_steps: 1, accelerator: cpu, accumulate_grad_batches: 2}
"""


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyformer.data.stream.CHUNK", 300)
    (tmp_path / "shards").mkdir()
    for number in range(6):  # four whole files, and two that all shares have documents of
        lines = (f"{number} {'the cat sat on the mat'[at % 7 :]} {at}" for at in range(12 + 5 * number))
        (tmp_path / "shards" / f"{number}.txt").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "stream.yaml").write_text(CONFIG.replace("FOLDER", str(tmp_path)))


def losses_of(run: Path) -> list[tuple[str, str, str]]:
    return [(row["step"], row["train/loss"], row["val/loss"]) for row in metrics_of(run)]


def close(one: list[tuple[str, str, str]], two: list[tuple[str, str, str]]) -> None:
    assert len(one) == len(two) == 10
    for row, other in zip(one, two, strict=True):
        for value, same in zip(row, other, strict=True):
            assert value == same or float(same) == pytest.approx(float(value), rel=1e-5)


def test_the_steps_are_those_of_one_rank_and_a_stopped_run_goes_on_with_any_number(tmp_path: Path) -> None:
    def words(name: str, *more: Any) -> list[str]:
        return ["fit", "--config", str(tmp_path / "stream.yaml"), "--run", str(tmp_path / name), "--debug", *more]

    def resumed(name: str, *more: str) -> list[str]:
        return ["fit", "--run", str(tmp_path / name), "--resume", "--trainer.max_steps", "8", "--debug", *more]

    assert main(words("alone")) == 0
    run_on_ranks(words("together"), tmp_path)
    close(losses_of(tmp_path / "alone"), losses_of(tmp_path / "together"))
    run_on_ranks(words("parted", "--trainer.max_steps", "4"), tmp_path)
    shutil.copytree(tmp_path / "parted", tmp_path / "fewer")
    run_on_ranks(resumed("parted"), tmp_path)
    assert losses_of(tmp_path / "parted") == losses_of(tmp_path / "together")
    assert main(resumed("fewer", "--trainer.devices", "1", "--trainer.strategy", "auto")) == 0
    close(losses_of(tmp_path / "alone"), losses_of(tmp_path / "fewer"))
