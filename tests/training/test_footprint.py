"""What a step needs is told before the first one, near what it then takes."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from polyformer.cli.quiet import quiet
from polyformer.cli.settings import parse_settings
from polyformer.training import footprint
from polyformer.training.fitting import make_trainer
from polyformer.training.footprint import Footprint, MemoryEstimate
from polyformer.training.memory import device_memory

from .test_extent import KINDS

FACTOR = 1.5
WORDS = ["--model.d_model", "32", "--data.batches.tokens", "1500"]
SGD = ["--training.optimizer", "SGD"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = tmp_path_factory.mktemp("data")
    (made / "lines.txt").write_text("".join(f"a word and word {number}\n" for number in range(400)))
    for kind in ("translation", "text"):
        (made / f"{kind}.yaml").write_text(KINDS[kind].replace("FOLDER", str(made)))
    return made


def told(monkeypatch: pytest.MonkeyPatch) -> list[Footprint]:
    """Gets what is told of each training."""
    found: list[Footprint] = []
    plain = footprint.footprint_of

    def noted(*given: Any) -> Footprint:
        found.append(plain(*given))
        return found[-1]

    monkeypatch.setattr(footprint, "footprint_of", noted)
    return found


def train(file: Path, *words: str, **keys: Any) -> None:
    """Two steps and nothing else."""
    quiet()
    parser, settings = parse_settings(["--config", str(file), *WORDS, *words])
    built = parser.build(settings)
    built.data.total_batches = 2
    task = built.make_task(built.data.assets)
    trainer = make_trainer(None, max_steps=2, accelerator="cpu", limit_val_batches=0, callbacks=[MemoryEstimate()], **keys)
    trainer.fit(task, datamodule=built.data)


@pytest.mark.parametrize(
    ("kind", "words", "keys"),
    [
        ("translation", [], {}),
        ("text", ["--model.position", "T5Bias"], {"precision": "bf16-mixed"}),
        ("text", ["--data", "TextStream", "--data.shuffle_windows", "256", *SGD], {"accumulate_grad_batches": 2}),
    ],
    ids=["translation", "half", "stream"],
)
def test_the_estimate_is_near_the_peak(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str, words: list[str], keys: dict[str, Any]
) -> None:
    found = told(monkeypatch)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as measured:
        train(folder / f"{kind}.yaml", *words, **keys)
    events: Any = measured.profiler.kineto_results.events()  # type: ignore[union-attr]
    held = peak = 0
    for event in sorted((event for event in events if event.name() == "[memory]"), key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    assert found[0].total / FACTOR < peak < found[0].total * FACTOR, (str(found[0]), peak)


def test_what_will_not_fit_is_said_before(folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr(footprint, "device_memory", lambda device: 1_000_000)
    monkeypatch.setattr(logging.getLogger("polyformer"), "propagate", True)
    with caplog.at_level(logging.INFO, logger="polyformer"):
        train(folder / "translation.yaml")
    assert "memory of a training step: about" in caplog.text and "of 1 MB" in caplog.text
    assert "this will probably not fit: lower `data.batches.tokens` (1500)" in caplog.text


def test_memory_is_that_of_the_machine_or_of_its_container() -> None:
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024 if Path("/proc/meminfo").exists() else 2**60
    assert 2**28 < device_memory(torch.device("cpu")) <= total
