"""Texts of which some tokens are hidden, as tensors.

Letters: B batch, L tokens in a row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from polyformer.data.masking import Ids
from polyformer.data.text_rows import LabelledBatch
from polyformer.text import BOS, EOS, PAD

__all__ = ["MaskedBatch", "masked_batch"]


@dataclass(frozen=True)
class MaskedBatch(LabelledBatch):
    """Texts of which some tokens are to be predicted: their ids are `target`, (B, L), which is `PAD` elsewhere.

    Args:
        follows: (B,), 1 where the second text follows the first and 0 where it is of another document; None where examples
            have one text, or nobody knows.
    """

    follows: Tensor | None = None


def masked_batch(batch: LabelledBatch, read: Sequence[Ids], target: Sequence[Ids]) -> MaskedBatch:
    """A batch whose texts are shown otherwise than they are.

    Args:
        batch: the texts as they are, which tell where a token is real.
        read: what stands for the tokens of each row, its texts joined, without marks.
        target: likewise, what is to be predicted.

    >>> from polyformer.data.text_rows import batch_texts
    >>> batch = masked_batch(batch_texts([[[5, 6]]], [0]), [np.array([5, PAD])], [np.array([PAD, 6])])
    >>> batch.tokens.tolist(), batch.target.tolist(), batch.keep
    ([[2, 5, 0, 3]], [[0, 0, 6, 0]], None)
    """
    is_text = (batch.tokens != PAD) & (batch.tokens != BOS) & (batch.tokens != EOS)  # (B, L)
    tokens, wanted = batch.tokens.clone(), torch.full_like(batch.tokens, PAD)
    tokens[is_text] = torch.from_numpy(np.concatenate(read))
    wanted[is_text] = torch.from_numpy(np.concatenate(target))
    return MaskedBatch(tokens, batch.keep, batch.segment, wanted, batch.index)
