"""Which weights decay, Muon beside AdamW, and means of weights."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from polyformer.models import DecoderOnly, DecoderOnlyOptions
from polyformer.nn import LSTM, FullAttention
from polyformer.training import MuonAdamW, parameter_groups

OPTIONS = DecoderOnlyOptions(d_model=8, num_heads=2, num_layers=1, dropout=0.0)


def names_of(model: nn.Module, group: dict[str, Any]) -> set[str]:
    known = {id(parameter): name for name, parameter in model.named_parameters()}
    return {known[id(parameter)].rpartition(".")[2] for parameter in group["params"]}


@pytest.mark.parametrize(("decayed", "count"), [("matrices", 1), ("matrices_and_embeddings", 2), ("all", 3)])
def test_decay_touches_only_what_is_asked_for(decayed: Any, count: int) -> None:
    model = DecoderOnly(11, OPTIONS)
    groups = parameter_groups(model, decayed)
    assert [names_of(model, group) for group in groups] == [{"weight"}, {"table"}, {"weight", "bias"}]
    assert ["weight_decay" in group for group in groups] == [False] * count + [True] * (3 - count)
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))


def steps(optimizer: torch.optim.Optimizer, model: nn.Module, count: int) -> None:
    for _ in range(count):
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()


def loss(model: Any) -> torch.Tensor:
    return functional.cross_entropy(model.logits(model(torch.tensor([[4, 5, 6]])))[0], torch.tensor([5, 6, 7]))


@pytest.mark.parametrize("count", [1, 3])
def test_muon_moves_matrices_and_adam_the_rest_as_torch_does(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch's products in float32 too; biases in attention are left out: that of the keys has no gradient but rounding."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    torch.manual_seed(0)
    options = replace(OPTIONS, mixer=partial(FullAttention, bias=False))
    ours, theirs = DecoderOnly(11, options), DecoderOnly(11, options)
    theirs.load_state_dict(ours.state_dict())
    optimizer = MuonAdamW(parameter_groups(ours), lr=0.01, weight_decay=0.1)
    steps(optimizer, ours, count)
    matrices, tables, vectors = parameter_groups(theirs)
    muon = torch.optim.Muon([matrices], lr=0.01, momentum=0.95, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    adam = torch.optim.AdamW([tables, vectors], lr=0.01, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.1)
    for _ in range(count):
        theirs.zero_grad()
        loss(theirs).backward()
        muon.step()
        adam.step()
    for (name, one), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6, msg=name)


def test_muon_goes_on_from_a_checkpoint_and_follows_a_schedule() -> None:
    torch.manual_seed(0)
    whole, parted = DecoderOnly(11, OPTIONS), DecoderOnly(11, OPTIONS)
    parted.load_state_dict(whole.state_dict())
    straight, first = MuonAdamW(parameter_groups(whole), lr=0.01), MuonAdamW(parameter_groups(parted), lr=0.01)
    schedules = [torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)) for optimizer in (straight, first)]
    for model, optimizer, schedule in ((whole, straight, schedules[0]), (parted, first, schedules[1])):
        steps(optimizer, model, 1)
        schedule.step()
    steps(straight, whole, 2)
    second = MuonAdamW(parameter_groups(parted), lr=1.0)
    second.load_state_dict(first.state_dict())
    assert {group["lr"] for part in second.parts for group in part.param_groups} == {0.005}
    steps(second, parted, 2)
    for one, other in zip(whole.parameters(), parted.parameters(), strict=True):
        assert torch.equal(one, other)


def test_recurrent_matrices_are_matrices_and_their_biases_are_biases() -> None:
    model = DecoderOnly(11, replace(OPTIONS, mixer=LSTM))
    matrices, tables, vectors = parameter_groups(model)
    assert {"weight_ih_l0", "weight_hh_l0"} <= names_of(model, matrices) and names_of(model, tables) == {"table"}
    assert {"bias_ih_l0", "bias_hh_l0"} <= names_of(model, vectors) and vectors["weight_decay"] == 0.0
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    steps(MuonAdamW([matrices, tables, vectors], lr=0.01), model, 1)
    assert all(not torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
