"""Laws about reading and writing step by step.

Letters: N rows, L tokens, T tokens written, V vocabulary.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from polyformer.check.law import NotApplicable, Result, compared, several
from polyformer.check.probe import Composed, Probe, Text
from polyformer.check.subject import Subject

__all__ = ["cached", "chunked", "greedy", "mates", "onward", "reordered", "rescored"]

LONGEST = 8
"""Tokens that are written."""
SINGLE = 4
"""Tokens of a long text that come one by one at its end, after two large pieces and one between them."""
REORDERED = 4
"""Tokens of the texts whose rows change places."""
ORDERS = ((1, 0), (0, 0, 0, 1, 1, 1), (2, 0, 0, 4, 3, 3), (1, 3, 3, 0), (2, 2))
"""How two rows are reordered, step after step: changed, made beams, changed within them, and across them, and dropped."""


@torch.no_grad()
def cached(subject: Subject) -> Result:
    """Token by token equals the whole text."""
    texts = subject.even_texts
    return _in_pieces(subject, [1] * len(texts[0].tokens), texts)


@torch.no_grad()
def chunked(subject: Subject) -> Result:
    """Piece by piece equals the whole text."""
    length = len(subject.even_texts[0].tokens)
    first = (length + 1) // 2
    return _in_pieces(subject, [size for size in (first, 1, length - first - 1) if size > 0], subject.even_texts)


@torch.no_grad()
def onward(subject: Subject) -> Result:
    """A long text in pieces equals the whole."""
    text = subject.long_text
    length = len(text.tokens)
    sizes = [size for size in (length // 2, 1, length - length // 2 - 1 - SINGLE, *[1] * SINGLE) if size > 0]
    if sum(sizes) != length:
        raise NotApplicable(f"texts of {length} tokens are not long")
    return _in_pieces(subject, sizes, [text])


def _in_pieces(subject: Subject, sizes: list[int], texts: Sequence[Text]) -> Result:
    probe = subject.probe
    stepper, whole = probe.start(texts), torch.stack(probe.outputs(texts))  # (N, L, V)
    pieces = _tokens(texts, probe).split(sizes, dim=1)
    ends = torch.tensor(sizes).cumsum(0).tolist()
    pairs = [(stepper.step(piece), whole[:, end - 1]) for piece, end in zip(pieces, ends, strict=True)]
    return compared(pairs, f"{several(len(texts), 'text')} of {several(sum(sizes), 'token')} in {several(len(sizes), 'step')}")


def _tokens(texts: Sequence[Text], probe: Probe) -> Tensor:
    return torch.tensor([text.tokens for text in texts], device=probe.device)  # (N, L)


@torch.no_grad()
def reordered(subject: Subject) -> Result:
    """Rows that changed places equal rows read anew."""
    room, length = subject.probe.room, REORDERED
    if room is not None and room < length + len(ORDERS):
        raise NotApplicable(f"a text of {length} tokens and {len(ORDERS)} more is longer than {room}")
    pairs = list(_reordered(subject.probe, [text.cut(length) for text in subject.even_texts[:2]]))
    return compared(pairs, f"2 texts, {len(ORDERS)} changes")


def _reordered(probe: Probe, texts: list[Text]) -> Iterator[tuple[Tensor, Tensor]]:
    """The logits after each change, and those of the same texts read whole."""
    stepper = probe.start(texts)
    stepper.step(_tokens(texts, probe))
    for turn, order in enumerate(ORDERS):
        stepper.reorder(torch.tensor(order, device=probe.device))
        texts = [texts[row] for row in order]
        new = [text.tokens[(turn + row) % len(text.tokens)] for row, text in enumerate(texts)]
        texts = [Text((*text.tokens, token), text.source) for text, token in zip(texts, new, strict=True)]
        logits = stepper.step(torch.tensor(new, device=probe.device).unsqueeze(1))  # (N, V)
        yield logits, torch.stack([outputs[-1] for outputs in probe.outputs(texts)])


@torch.no_grad()
def greedy(subject: Subject) -> Result:
    """A beam of one takes the likeliest token."""
    probe, longest = subject.probe, _longest(subject)
    prompts = [probe.prompt(text) for text in _prompts(subject)]
    pairs = []
    for prompt, (composed, *_) in zip(prompts, probe.write(prompts, longest, 1), strict=True):
        logits = _following(probe, prompt, composed)[: composed.chosen]  # (T, V)
        logits[:, list(probe.symbols.never)] = -torch.inf
        taken = torch.tensor(composed.tokens[: composed.chosen], device=probe.device).unsqueeze(1)
        pairs.append((logits.gather(1, taken), logits.amax(dim=1, keepdim=True)))
    return compared(pairs, f"{several(len(prompts), 'text')}, at most {longest} tokens each")


@torch.no_grad()
def rescored(subject: Subject) -> Result:
    """What is written has the score that it has when read."""
    probe, longest = subject.probe, _longest(subject)
    prompts = [probe.prompt(text) for text in _prompts(subject)]
    pairs = []
    for width in probe.widths:
        for prompt, best in zip(prompts, probe.write(prompts, longest, width, width), strict=True):
            for composed in best:
                each = _following(probe, prompt, composed).double().log_softmax(dim=-1)  # (T, V)
                total = each.gather(1, torch.tensor(composed.tokens, device=probe.device).unsqueeze(1)).sum()
                pairs.append((torch.tensor(composed.log_probability), total.cpu()))
    beams = f"beams of {' and '.join(map(str, probe.widths))}" if len(probe.widths) > 1 else "greedy"
    return compared(pairs, f"{len(pairs)} hypotheses, {beams}", largest=subject.largest)


@torch.no_grad()
def mates(subject: Subject) -> Result:
    """Neither batch mates nor n-best change what is written."""
    probe, longest = subject.probe, _longest(subject)
    prompts = [probe.prompt(text) for text in _prompts(subject)]
    pairs = []
    for width in probe.widths:
        together = probe.write(prompts, longest, width, width)
        alone = [probe.write([prompt], longest, width)[0] for prompt in prompts]
        scores = ([best[0].log_probability for best in found] for found in (together, alone))
        pairs += [(torch.tensor(one), torch.tensor(other)) for one, other in zip(*scores, strict=True)]
    return compared(pairs, f"{several(len(prompts), 'text')}, together and alone", largest=subject.largest)


def _prompts(subject: Subject) -> list[Text]:
    """Texts of different lengths that leave room to write."""
    assert subject.probe.widths or subject.probe.start(subject.texts)
    room = subject.probe.room
    return [text if room is None else text.cut(max(1, room - LONGEST)) for text in subject.texts]


def _longest(subject: Subject) -> int:
    room = subject.probe.room
    return LONGEST if room is None else max(2, min(LONGEST, room // 2))


def _following(probe: Probe, prompt: Text, composed: Composed) -> Tensor:
    """(T, V) the logits of each token that was written, the whole being read at once."""
    (outputs,) = probe.outputs([Text((*prompt.tokens, *composed.tokens[:-1]), prompt.source)])
    return outputs[len(prompt.tokens) - 1 :]
