"""Which tokens of a text are hidden from a model that is to predict them (Devlin et al. 2019, section 3.1 and appendix A.1).

The mask is the id `PAD`, which no text holds, and which is real where it stands for a token: so vocabularies need no token
of its own for it, and a classifier takes weights over without a change. Its row of the embedding table becomes the mask's.

Letters: L tokens of a text, W words in it, V vocabulary, N rows of two texts.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyformer.text import PAD, SPECIALS

__all__ = ["Ids", "MaskingSettings", "OtherDocuments", "ending_of", "mask_words", "pieces_of", "split_in_two", "word_starts"]

Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]

FORMAT = 1
"""To be raised when texts are cut into words or pieces otherwise, since encoded texts are kept."""
HIDDEN, SWAPPED = 0.8, 0.1  # of the words chosen; the others are shown as they are, and predicted all the same
TRIES = 16  # draws of another document's text, before one is searched for
LONGEST_WORD = 20  # tokens; a longer run without a space, as in Thai, is no word, and each of its tokens counts for itself


@dataclass(frozen=True)
class MaskingSettings:
    """Which tokens a model is to predict. Of these 80 % are hidden, 10 % replaced by others, 10 % left as they are.

    Args:
        share: how many of the tokens, in the mean.
        whole_words: the tokens of a word are chosen together, and have the same fate; otherwise each for itself.

    >>> MaskingSettings().share
    0.15
    """

    share: float = 0.15
    whole_words: bool = True

    def __post_init__(self) -> None:
        if not 0.0 < self.share < 1.0:
            raise ValueError(f"`data.masking.share` must be above 0 and below 1, but is {self.share}")


def word_starts(ids: Ids, edges: tuple[bytes, bytes]) -> Flags:
    """(L,) whether a word begins at each token of a text.

    Args:
        ids: (L,) the tokens.
        edges: where words begin and end, as `Tokenizer.word_edges` tells.

    >>> word_starts(np.array([5, 6, 4, 4]), (bytes([0, 0, 0, 0, 0, 1, 0]), bytes([0, 0, 0, 0, 0, 0, 1]))).tolist()
    [True, False, True, False]
    """
    begins, ends = (np.frombuffer(edge, dtype=np.bool_) for edge in edges)
    starts = begins[ids]
    starts[1:] |= ends[ids[:-1]]
    starts[:1] = True
    words = np.cumsum(starts) - 1  # (L,)
    longer: Flags = np.bincount(words)[words] > LONGEST_WORD
    return starts | longer


def _choose(words: Ids, share: float, generator: np.random.Generator) -> Flags:
    """(W,) which words are to be predicted: in random order, as many as come nearest to a share of the tokens; at least one.

    Args:
        words: (L,) the number of the word that each token is of, at least one.
        share: of the tokens; what is left of a whole number is rounded at random, so that the mean is right.
        generator: decides.
    """
    sizes = np.bincount(words)  # (W,)
    wanted = share * len(words) + generator.random() - 0.5
    order = generator.permutation(len(sizes))
    nearest = int(np.abs(np.cumsum(sizes[order]) - wanted).argmin())
    chosen = np.zeros(len(sizes), dtype=np.bool_)
    chosen[order[: nearest + 1]] = True
    return chosen


def mask_words(ids: Ids, starts: Flags, share: float, size: int, generator: np.random.Generator) -> tuple[Ids, Ids]:
    """(L,) what the model reads, and (L,) what it is to predict: `PAD` where nothing.

    Args:
        ids: (L,) the tokens of a text, without marks.
        starts: (L,) whether a word begins at each of them.
        share: of the tokens that are to be predicted.
        size: the size of the vocabulary (V).
        generator: decides.

    >>> ids, starts = np.array([7, 8, 9]), np.array([True, False, False])
    >>> [part.tolist() for part in mask_words(ids, starts, 0.15, 10, np.random.default_rng(0))]
    [[0, 0, 0], [7, 8, 9]]
    """
    words = np.cumsum(starts) - 1  # (L,)
    chosen = _choose(words, share, generator)  # (W,)
    fate = generator.random(len(chosen))  # (W,)
    read = np.where((chosen & (fate < HIDDEN))[words], PAD, ids)
    swapped = (chosen & (fate >= HIDDEN) & (fate < HIDDEN + SWAPPED))[words]
    read[swapped] = generator.integers(len(SPECIALS), size, int(swapped.sum()))
    return read, np.where(chosen[words], ids, PAD)


def pieces_of(ids: Sequence[int], starts: Flags, most: int) -> Iterator[tuple[Sequence[int], Flags]]:
    """A text in pieces of at most `most` tokens and about equal length, each with where words begin in it.

    It is cut before words; only a word that is longer than a piece is cut itself.

    >>> [ids for ids, _ in pieces_of([5, 6, 7, 8, 9], np.array([True, True, True, False, True]), most=3)]
    [[5, 6], [7, 8, 9]]
    """
    at = 0
    while at < len(ids):
        left = len(ids) - at
        size = math.ceil(left / math.ceil(left / most))
        places = np.flatnonzero(starts[at + 1 : at + size + 1])
        end = at + (int(places[-1]) + 1 if size < left and len(places) else size)
        yield ids[at:end], starts[at:end]
        at = end


def split_in_two(ids: Sequence[int], starts: Flags) -> tuple[Sequence[int], Sequence[int]]:
    """The halves of a text, cut before the word nearest to its middle; the second half of a single token is empty.

    >>> split_in_two([5, 6, 7, 8, 9], np.array([True, True, False, True, True]))
    ([5, 6, 7], [8, 9])
    """
    places = np.flatnonzero(starts[1:]) + 1
    half = (len(ids) + 1) // 2
    middle = int(places[np.abs(places - half).argmin()]) if len(places) else half
    return ids[:middle], ids[middle:]


def ending_of(ids: Sequence[int], most: int, edges: tuple[bytes, bytes]) -> Sequence[int]:
    """The end of a text, at most so many tokens of it, from the beginning of a word on where one begins there.

    >>> ending_of([5, 6, 7, 8], 3, (bytes([0] * 7 + [1, 1]), bytes(9)))
    [7, 8]
    """
    if len(ids) <= most:
        return ids
    places = np.flatnonzero(word_starts(np.array(ids, dtype=np.int64), edges)[-most:])
    return ids[len(ids) - most + (int(places[0]) if len(places) else 0) :]


class OtherDocuments:
    """Finds examples of other documents whose second texts are as long, so that lengths do not tell which is which.

    Args:
        documents: (N,) the number of each example's document.
        lengths: (N,) tokens of each second text.

    Raises ValueError where there is only one document.

    >>> others = OtherDocuments(np.array([0, 0, 1]), np.array([5, 7, 6]))
    >>> [others.draw(number, np.random.default_rng(0)) for number in range(3)]
    [2, 2, 1]
    """

    def __init__(self, documents: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        if len(np.unique(documents)) < 2:
            raise ValueError("`data.next_sentence` needs at least two documents, but there is one (`data.document`)")
        self.order = np.argsort(lengths, kind="stable")
        self.documents, self.lengths = documents[self.order], lengths[self.order]
        self.place = np.argsort(self.order)

    def draw(self, number: int, generator: np.random.Generator) -> int:
        """An example of another document than that of the given one, with a second text that is no shorter if there is any."""
        own, place = self.documents[self.place[number]], self.place[number]
        first = int(np.searchsorted(self.lengths, self.lengths[place]))
        for other in generator.integers(first, len(self.order), TRIES):
            if self.documents[other] != own:
                return int(self.order[other])
        different = np.flatnonzero(self.documents != own)
        nearest = min(int(np.searchsorted(different, first)), len(different) - 1)
        return int(self.order[different[nearest]])
