"""A causal stack lets nothing back from the future; the others let it."""

import torch

from polyformer.nn import Dropout, FullAttention, Mask

from .cases import D_MODEL, Case, Subject, close, over_one_norm, over_one_norm_causal

LENGTH = 5


def influence(case: Case) -> torch.Tensor:
    """(L, L): how much output i depends on input j."""
    subject = case.build()
    x, memory = torch.randn(1, LENGTH, D_MODEL, requires_grad=True), subject.memory(1)
    out = subject(x, memory) @ torch.randn(D_MODEL)  # (1, L); a norm would hide a plain sum
    rows = [torch.autograd.grad(out[0, i], x, retain_graph=True)[0][0].abs().sum(-1) for i in range(LENGTH)]
    return torch.stack(rows)


def within_reach(case: Case) -> torch.Tensor:
    """(L, L) bool: what the outputs depend on, if every layer sees what its mask shows, and each token itself."""
    stack, at = case.build().stack, torch.arange(LENGTH)
    reach = torch.eye(LENGTH)
    for block in stack.blocks:
        seen = block.mixer.inner.narrowed(Mask(stack.shape.causal)).dense(at, at)[0, 0]
        reach = torch.maximum(seen.float(), torch.eye(LENGTH)) @ reach
    return reach > 0.0


@over_one_norm
def test_no_gradient_from_the_future(case: Case) -> None:
    dependence = influence(case)
    seen = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    seen = seen if case.kind == "encoder" else seen.tril()
    assert bool((dependence[~seen] == 0.0).all())
    assert bool((dependence.diagonal() > 0.0).all())
    if issubclass(case.mixer.kind, FullAttention):
        assert torch.equal(dependence > 0.0, within_reach(case))


@over_one_norm_causal
@torch.no_grad()
def test_a_prefix_does_not_know_what_follows(case: Case) -> None:
    subject = case.build()
    x, memory = torch.randn(2, LENGTH, D_MODEL), subject.memory(2)
    close(subject(x, memory)[:, :3], subject(x[:, :3], memory))


@over_one_norm
def test_evaluation_equals_training_without_dropout(case: Case) -> None:
    subject = Subject(case.make().eval())
    x, memory = torch.randn(2, LENGTH, D_MODEL), subject.memory(2)
    with torch.no_grad():
        evaluated = subject(x, memory)
    subject.stack.train()
    close(subject(x, memory), evaluated)


@over_one_norm
def test_training_drops_when_told_to(case: Case) -> None:
    subject = Subject(case.make().eval())
    for module in subject.stack.modules():
        if isinstance(module, Dropout):
            module.probability = 0.5
    x, memory = torch.randn(2, LENGTH, D_MODEL), subject.memory(2)
    evaluated = subject(x, memory)
    close(subject(x, memory), evaluated)
    subject.stack.train()
    assert not torch.allclose(subject(x, memory), evaluated, atol=1e-2)
