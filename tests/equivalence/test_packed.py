"""Documents in one row give what each gives in a row of its own."""

import torch

from polyformer.models import Encoder, Placement

from .cases import D_MODEL, Case, close, over_language_models

ROWS = ((70, 41, 9), (1, 117, 2))
"""The documents of two rows in tokens, so long that chunks and windows end inside and outside of them."""


@over_language_models
@torch.no_grad()
def test_packed_documents_equal_separate_ones(case: Case) -> None:
    stack = case.build().stack
    assert isinstance(stack, Encoder)
    texts = [[torch.randn(length, D_MODEL) for length in lengths] for lengths in ROWS]
    at = torch.stack([torch.cat([torch.arange(length) for length in lengths]) for lengths in ROWS])  # (2, L)
    document = torch.stack([torch.arange(3).repeat_interleave(torch.tensor(lengths)) for lengths in ROWS])  # (2, L)
    packed = stack(torch.stack([torch.cat(row) for row in texts]), Placement(at=at, document=document))
    for row, lengths, out in zip(texts, ROWS, packed, strict=True):
        for text, part in zip(row, out.split(lengths), strict=True):
            close(part, stack(text[None])[0], f"{len(text)} of {lengths}")
