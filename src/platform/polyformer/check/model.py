"""Laws about what a network makes of a text.

Letters: L tokens, D model, V vocabulary.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from polyformer.check.law import NotApplicable, Result, compared, counted, several
from polyformer.check.probe import Text
from polyformer.check.subject import Subject

__all__ = [
    "batch_order",
    "causal",
    "evaluation",
    "finite",
    "left_padding",
    "packed",
    "right_padding",
    "seeing_nothing",
    "too_long",
    "training_without_dropout",
]

PADDING = (7, 64)
TRACED = 6
"""Tokens of the text whose gradients are looked at."""
LEAK = 1e-6
"""Share of the largest gradient that arithmetic alone may bring back from later tokens."""
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@torch.no_grad()
def finite(subject: Subject) -> Result:
    """Every output is a finite number."""
    outputs = subject.probe.outputs(subject.texts)
    bad = sum(int((~output.isfinite()).sum()) for output in outputs)
    count = sum(output.numel() for output in outputs)
    return counted([f"{bad:,} of {count:,} outputs are no finite numbers"] if bad else [], several(count, "output"))


def causal(subject: Subject) -> Result:
    """Nothing flows back from later tokens."""
    text = subject.texts[0].cut(TRACED)
    gradients = _gradients(subject, text)
    later = max(float(gradients[at, at + 1 :].abs().max()) for at in range(len(gradients) - 1))
    share = later / max(float(gradients.abs().max()), 1e-30)
    if share > LEAK:
        return Result("fail", "gradient of a later token, as a share of the largest", share, LEAK)
    with torch.no_grad():
        (whole,) = subject.probe.outputs([text])
        beginnings = [Text(text.tokens[:length], text.source) for length in range(1, len(text.tokens))]
        shorter = [subject.probe.outputs([beginning])[0] for beginning in beginnings]
    pairs = [(part, whole[: len(part)]) for part in shorter]
    return compared(pairs, f"{several(len(text.tokens), 'token')}: gradients, and outputs without the later ones")


def _gradients(subject: Subject, text: Text) -> Tensor:
    """(L, L, D) the gradient of something of output i by the embedding of token j."""
    with _leaves(subject.probe.embedding) as leaves:
        (outputs,) = subject.probe.outputs([text])
    seen = outputs @ torch.randn(outputs.shape[1], device=outputs.device)  # (L,)
    each = [torch.autograd.grad(one, leaves[-1], retain_graph=True)[0][0] for one in seen]
    return torch.stack(each)


@contextmanager
def _leaves(embedding: nn.Module) -> Iterator[list[Tensor]]:
    """Collects what an embedding gives, each made the beginning of a graph, so that gradients end there."""
    leaves: list[Tensor] = []

    def keep(module: nn.Module, given: object, output: Tensor) -> Tensor:
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    handle = embedding.register_forward_hook(keep)
    try:
        yield leaves
    finally:
        handle.remove()


@torch.no_grad()
def right_padding(subject: Subject) -> Result:
    """Padding on the right changes no output."""
    return _padded(subject, "right")


@torch.no_grad()
def left_padding(subject: Subject) -> Result:
    """Padding on the left changes no output."""
    return _padded(subject, "left")


def _padded(subject: Subject, side: str) -> Result:
    """Each text by itself, so that nothing but the padding can change it."""
    texts, room = [*subject.texts, subject.long_text], subject.probe.room
    longest = max(max(len(text.tokens), len(text.source)) for text in texts)
    amounts = [amount if room is None else min(amount, room - longest) for amount in PADDING]
    pairs = [
        (subject.probe.outputs([text], **{side: amount})[0], subject.probe.outputs([text])[0])
        for text in texts
        for amount in sorted({*amounts})
    ]
    places = " and ".join(map(str, sorted({*amounts})))
    return compared(pairs, f"{several(len(texts), 'text')} of up to {several(longest, 'token')}, {places} places")


@torch.no_grad()
def batch_order(subject: Subject) -> Result:
    """A batch equals its texts one by one, in any order."""
    probe, texts = subject.probe, subject.even_texts
    together, turned = probe.outputs(texts), probe.outputs(texts[::-1])[::-1]
    alone = [probe.outputs([text])[0] for text in texts]
    pairs = [*zip(together, alone, strict=True), *zip(turned, alone, strict=True)]
    return compared(pairs, f"{several(len(texts), 'text')} of {several(len(texts[0].tokens), 'token')}")


@torch.no_grad()
def packed(subject: Subject) -> Result:
    """Packed documents equal separate ones."""
    probe, room, texts = subject.probe, subject.probe.room, list(subject.texts)
    while room is not None and len(texts) > 1 and sum(len(text.tokens) for text in texts) > room:
        texts.pop(0)
    try:
        together = probe.packed(texts)
    except ValueError as error:
        raise NotApplicable(str(error)) from error
    alone = [probe.outputs([text])[0] for text in texts]
    return compared(zip(together, alone, strict=True), f"{several(len(texts), 'document')} in a row")


@torch.no_grad()
def evaluation(subject: Subject) -> Result:
    """Evaluation equals training without dropout."""
    evaluated = subject.probe.outputs(subject.texts)
    with training_without_dropout(subject.task):
        trained = subject.probe.outputs(subject.texts)
    return compared(zip(evaluated, trained, strict=True), several(len(evaluated), "text"))


@contextmanager
def training_without_dropout(module: nn.Module) -> Iterator[None]:
    """Training mode, with every probability of dropout set to 0; afterwards evaluation mode, and all as it was."""
    names = ("probability", "p", "dropout")  # as ours, torch's own, and torch's recurrent networks call it
    kept = [(part, name, vars(part)[name]) for part in module.modules() for name in names if name in vars(part)]
    kept = [entry for entry in kept if isinstance(entry[2], float)]
    module.train()
    try:
        for part, name, _ in kept:
            setattr(part, name, 0.0)
        yield
    finally:
        for part, name, value in kept:
            setattr(part, name, value)
        module.eval()


def seeing_nothing(subject: Subject) -> Result:
    """A text of padding alone stays finite, forward and backward."""
    texts = [text.cut(4) for text in subject.even_texts[:2]]
    problems = []
    for dtype in DTYPES:
        network = copy.deepcopy(subject.probe.network).to(dtype)
        outputs = type(subject.probe)(network).seeing_nothing(texts)
        outputs.float().square().mean().backward()
        gradients = [part.grad for part in network.parameters() if part.grad is not None]
        if not all(bool(part.isfinite().all()) for part in (outputs, *gradients)):
            problems.append(f"not in {str(dtype).removeprefix('torch.')}")
    return counted(problems, "float32, bfloat16 and float16")


@torch.no_grad()
def too_long(subject: Subject) -> Result:
    """A text that is too long is refused, with the key."""
    ways, problems = subject.probe.ways_to_be_too_long(), []
    if not ways:
        raise NotApplicable("neither positions nor mixers have a limit")
    for name, read in ways.items():
        try:
            read()
        except ValueError as error:
            if "max_length" not in str(error):
                problems.append(f"{name}: the message names no key: {error}")
        else:
            problems.append(f"{name} were accepted")
    return counted(problems, ", ".join(ways))
