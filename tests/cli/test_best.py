"""Which weights count as the best: those of one step, or a mean of several."""

from pathlib import Path

import pytest
import torch

from polyformer.cli import main

from .small import fit, metrics_of, results_of


def test_the_mean_of_steps_is_that_of_their_weights(tmp_path: Path) -> None:
    """Before its start the weights themselves are validated and kept."""
    words = ["--training.save_every", "1", "--trainer.val_check_interval", "5", "--training.monitor", "val/loss"]
    assert fit(tmp_path, *words, name="plain") == 0
    averaged = ["--training.averaging.kind", "swa", "--training.averaging.start", "0.75", "--trainer.max_steps", "10"]
    assert fit(tmp_path, *words, *averaged, name="swa") == 0
    rows = [[row for row in metrics_of(tmp_path / name) if row["val/loss"]] for name in ("plain", "swa")]
    assert rows[0][0] == rows[1][0] and rows[0][-1] != rows[1][-1]
    content = torch.load(tmp_path / "swa" / "checkpoints" / "last.ckpt", weights_only=True)
    weights: list[dict[str, torch.Tensor]] = []
    for step in (8, 9, 10):
        assert fit(tmp_path, *words, "--trainer.max_steps", str(step), name=f"plain{step}") == 0
        weights.append(torch.load(tmp_path / f"plain{step}" / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"])
    for name, value in content["state_dict"].items():
        torch.testing.assert_close(value, sum(part[name] for part in weights) / 3, rtol=1e-5, atol=1e-6)  # type: ignore[operator]
        assert torch.equal(content["current_model_state"][name], weights[-1][name])


def test_of_the_same_figure_the_lower_loss_is_the_better_one(tmp_path: Path) -> None:
    """At first nothing is translated right, and BLEU is 0 at each validation."""
    assert fit(tmp_path, "--training.monitor", "val/exact_match", "--training.keep", "2") == 0
    rows = [row for row in metrics_of(tmp_path / "run") if row["val/loss"]]
    assert {row["val/exact_match"] for row in rows} == {"0.0"} and float(rows[1]["val/loss"]) < float(rows[0]["val/loss"])
    assert torch.load(tmp_path / "run" / "checkpoints" / "best.ckpt", weights_only=True)["global_step"] == int(rows[1]["step"])


@pytest.mark.parametrize("kind", ["last", "best"])
def test_a_finished_mean_can_be_gone_on_with(tmp_path: Path, kind: str) -> None:
    assert fit(tmp_path, "--training.averaging.kind", kind) == 0
    assert main(["fit", "--run", str(tmp_path / "run"), "--resume", "--trainer.max_steps", "12", "--debug"]) == 0
    assert results_of(tmp_path / "run")["steps"] == 12


@pytest.mark.parametrize("kind", ["last", "best"])
def test_the_mean_of_checkpoints(tmp_path: Path, kind: str) -> None:
    words = ["--training.averaging.kind", kind, "--training.averaging.count", "2", "--training.monitor", "val/loss"]
    assert fit(tmp_path, *words, "--training.keep", "2") == 0
    folder = tmp_path / "run" / "checkpoints"
    files = {"best.ckpt", "last.ckpt", "previous.ckpt", "step-5.ckpt", "step-10.ckpt"}
    assert {path.name for path in folder.iterdir()} == files
    parts = [torch.load(folder / f"step-{step}.ckpt", weights_only=True)["state_dict"] for step in (5, 10)]
    best = torch.load(folder / "best.ckpt", weights_only=True)["state_dict"]
    means = all(torch.allclose(best[name], (parts[0][name] + parts[1][name]) / 2) for name in best)
    ends = all(torch.equal(best[name], parts[1][name]) for name in best)
    assert means or ends
    said = (tmp_path / "run" / "log.txt").read_text()
    assert ("kept as best" in said) == means and ("not better" in said) == ends
