"""Means of weights leave buffers alone: the mean of two draws of random features would be no draw."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from polyformer.nn import Performer, Shape
from polyformer.training.averaging import CheckpointMean, MovingMean, StepMean


def test_the_mean_of_checkpoints_has_the_newest_buffers(tmp_path: Path) -> None:
    averaging = CheckpointMean(tmp_path, "best", 3, "val/loss", "min")
    averaging.kept = [(0.1, 30), (0.2, 10), (0.3, 20)]  # the best first, as it keeps them
    for _, step in averaging.kept:
        weights = {"weight": torch.tensor([float(step)]), "drawn": torch.tensor([float(step)])}
        torch.save(weights, tmp_path / f".weights-{step}.pt")
    mean = averaging.mean({"drawn"})
    assert mean["weight"].item() == pytest.approx(20.0) and mean["drawn"].item() == 30.0


@pytest.mark.parametrize("averaging", [MovingMean(0.9), StepMean(1)], ids=lambda callback: type(callback).__name__)
def test_a_mean_of_steps_has_the_newest_buffers(averaging: MovingMean | StepMean) -> None:
    network = Performer(Shape(d_model=8, num_heads=2), features=4)
    averaged = torch.optim.swa_utils.AveragedModel(network, use_buffers=averaging._use_buffers, **averaging._kwargs)
    before: Tensor = network.output.weight.detach().clone()
    averaged.update_parameters(network)
    network.redraw(torch.Generator().manual_seed(1))
    with torch.no_grad():
        network.output.weight.add_(1.0)
    averaged.update_parameters(network)
    inner = averaged.module
    assert isinstance(inner, Performer) and isinstance(inner.output, nn.Linear)
    assert torch.equal(inner.drawn, network.drawn)
    assert not torch.equal(inner.output.weight, before) and not torch.equal(inner.output.weight, network.output.weight)
