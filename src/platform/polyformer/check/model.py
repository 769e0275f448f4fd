"""Laws about what a network makes of a text.

Letters: L tokens, D model, V vocabulary.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from polyformer.check.law import NotApplicable, Result, compared, counted, several
from polyformer.check.probe import Text
from polyformer.check.subject import Subject
from polyformer.nn import FullAttention, Mask, Mixer, recorded_weights

__all__ = [
    "batch_order",
    "causal",
    "evaluation",
    "finite",
    "left_padding",
    "packed",
    "right_padding",
    "seeing_nothing",
    "sparse",
    "too_long",
    "training_without_dropout",
    "unhidden",
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
def sparse(subject: Subject) -> Result:
    """Windows and blocks equal a mask over all pairs."""
    assert _narrowing(subject)
    pairs, text = [], subject.long_text
    for each in (*subject.texts, text):
        with recorded_weights():  # which only attention over all pairs has
            dense = subject.probe.outputs([each])[0]
        pairs.append((subject.probe.outputs([each])[0], dense))
    return compared(pairs, f"{several(len(pairs), 'text')} of up to {several(len(text.tokens), 'token')}")


@torch.no_grad()
def unhidden(subject: Subject) -> Result:
    """Windows and blocks that hide nothing are full attention."""
    mixers, text = [mixer for mixer in _narrowing(subject) if isinstance(mixer, FullAttention)], subject.texts[0]
    if not mixers:
        raise NotApplicable("mixers with windows or blocks are of a kind of their own")
    while not all(_shows_all(mixer, len(text.tokens)) for mixer in mixers):
        text = text.cut(len(text.tokens) - 1)
    (found,) = subject.probe.outputs([text])
    for mixer in mixers:
        mixer.forward = partial(FullAttention.forward, mixer)  # type: ignore[method-assign]
    try:
        (full,) = subject.probe.outputs([text])
    finally:
        for mixer in mixers:
            del mixer.forward
    return compared([(found, full)], several(len(text.tokens), "token"))


def _narrowing(subject: Subject) -> list[Mixer]:
    """The mixers that hide something besides what they are told to. Raises NotApplicable where there are none."""
    mixers = [mixer for mixer in subject.probe.mixers if type(mixer).narrowed is not Mixer.narrowed]
    if not mixers:
        raise NotApplicable("no mixer has windows or blocks")
    return mixers


def _shows_all(mixer: FullAttention, length: int) -> bool:
    """Whether a text of so many tokens is too short for anything to be hidden in it."""
    at, mask = torch.arange(length), Mask(mixer.shape.causal)
    return torch.equal(mixer.narrowed(mask).pairs(at, at), mask.pairs(at, at).expand(length, length))


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
    room, long = subject.probe.room, subject.long_text
    texts = [*subject.texts, long if room is None else long.cut(max(room // 2, room - PADDING[-1]))]
    longest = max(max(len(text.tokens), len(text.source)) for text in texts)
    amounts = sorted({amount if room is None else min(amount, room - longest) for amount in PADDING})
    pairs = (
        (subject.probe.outputs([text], **{side: amount})[0], exact)
        for text in texts
        for exact in subject.probe.outputs([text])
        for amount in amounts
    )
    places = " and ".join(map(str, amounts))
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
    if room is not None and (left := room - sum(len(text.tokens) for text in texts)) > 1:
        texts.append(subject.long_text.cut(left))
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
