"""Text as it comes: documents to windows, without ever holding more than a block of them.

Letters: N windows, W tokens in a window.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyformer.data.documents import Document, Piece, cut
from polyformer.data.encoding import CHUNK, encode_text
from polyformer.text import EOS, Tokenizer

__all__ = ["Place", "Share", "ShuffledWindows", "WindowStream"]

Ids = NDArray[Any]
Read = Callable[[str, int], Iterator[Document]]


class Place(NamedTuple):
    """A place in a share of a text that is read again and again.

    Args:
        epoch: how often the share has been read before.
        file: the number of the file in the share's order.
        document: the number of the document in the file.
        token: the number of the token in the document, of which the first is the `EOS` before it.
    """

    epoch: int = 0
    file: int = 0
    document: int = 0
    token: int = 0


class Share(NamedTuple):
    """One of several shares of a text.

    Args:
        number: which one, from 0.
        of: how many there are.
    """

    number: int = 0
    of: int = 1


WHOLE = Share()


class _Mark(NamedTuple):
    """Where a document begins among the tokens since the start."""

    at: int
    epoch: int
    file: int
    document: int


class _Numbered(NamedTuple):
    """A piece of text, and where it is from."""

    epoch: int
    file: int
    document: int
    piece: Piece


@dataclass(frozen=True)
class WindowStream:
    """Windows cut from documents as they are read, without end: when a share is at its end, it begins anew.

    In each epoch the files are put in another order, which is the same for all shares, and dealt out in turn. The last ones,
    where there are not as many left as shares, are in all of them, each with its own documents: that of number i goes to
    share i modulo their number. So in an epoch each document is in exactly one share.

    Args:
        places: the files, or parts of the hub's data sets.
        read: a file's documents from a number on.
        tokenizer: gives the tokens.
        window: tokens in a window.
        block: windows in a block.
        seed: decides the order of the files, together with the epoch.
        share: the part of the documents that is read.
        keep_empty: whether documents that hold only spaces are kept.
    """

    places: Sequence[str]
    read: Read
    tokenizer: Tokenizer
    window: int
    block: int
    seed: tuple[int, ...] = (0,)
    share: Share = WHOLE
    keep_empty: bool = False

    def blocks(self, start: Place) -> Iterator[tuple[Place, Ids]]:
        """(block, W + 1) windows, one after another, and the place where the first begins; from a block's place on.

        Raises ValueError where the share holds less than a window.
        """
        ids: Ids = np.array([EOS], dtype=np.int64)
        origin, at = 0, start.token  # of the first id held, and of the next block, among the tokens since the start
        marks: list[_Mark] = []
        whole, begun = self.block * self.window, -1 if start != Place() else 0  # where a whole epoch began, if one did
        for pieces, fresh in self._encoded(start):
            for mark in _marks(pieces, fresh, origin + len(ids)):
                if marks and mark.epoch != marks[-1].epoch:
                    begun = self._measured(begun, mark.at)
                marks.append(mark)
            ids = np.concatenate([ids, fresh])
            while origin + len(ids) - at > whole:
                block = ids[at - origin : at - origin + whole + 1]
                yield _place(marks, at), self._cut(block)
                at += whole
            kept = min(at - origin, len(ids) - 1)
            ids, origin = ids[kept:], origin + kept
            marks = marks[_last(marks, at) :]

    def _measured(self, begun: int, at: int) -> int:
        """Where the next epoch begins. Raises ValueError where the one before had less than a window."""
        if begun >= 0 and at - begun < self.window:
            raise ValueError(
                f"share {self.share.number + 1} of {self.share.of} of the training text has only {at - begun:,} tokens, less "
                f"than one window (`data.window`: {self.window}); fewer `data.readers` make larger shares"
            )
        return at

    def _cut(self, ids: Ids) -> Ids:
        return np.lib.stride_tricks.sliding_window_view(ids, self.window + 1)[:: self.window].copy()

    def _encoded(self, start: Place) -> Iterator[tuple[list[_Numbered], Ids]]:
        """Pieces of about a million characters in all, and their ids, which end in `EOS` where a document does."""
        pieces: list[_Numbered] = []
        size = 0
        for numbered in self._pieces(start):
            if size >= CHUNK or (pieces and numbered.epoch != pieces[-1].epoch):
                yield pieces, encode_text(self.tokenizer, [one.piece for one in pieces], empty="keep")[0]
                pieces, size = [], 0
            pieces.append(numbered)
            size += len(numbered.piece.text) + 1

    def _pieces(self, start: Place) -> Iterator[_Numbered]:
        """All pieces of text from a place on, epoch after epoch. Raises ValueError for an epoch without any."""
        for epoch in count(start.epoch):
            found, resumed = False, epoch == start.epoch
            for file, (place, first, step) in enumerate(self._files(epoch)):
                if not resumed or file >= start.file:
                    begin = start.document if resumed and file == start.file and start.document else first
                    for document, piece in self._pieces_of(place, begin, step):
                        found = True
                        yield _Numbered(epoch, file, document, piece)
            if not found and (not resumed or start == Place()):
                raise ValueError(
                    f"share {self.share.number + 1} of {self.share.of} of the training text has no document; fewer "
                    "`data.readers` make larger shares, and `TextData` shares out windows of any text"
                )

    def _files(self, epoch: int) -> Iterator[tuple[str, int, int]]:
        """The files of the share in an epoch, each with its first document and the step from one to the next."""
        order = np.random.Generator(np.random.PCG64([*self.seed, epoch])).permutation(len(self.places))
        number, shares = self.share
        dealt = len(order) // shares * shares
        for file in order[number:dealt:shares]:
            yield self.places[file], 0, 1
        for file in order[dealt:]:
            yield self.places[file], number, shares

    def _pieces_of(self, place: str, begin: int, step: int) -> Iterator[tuple[int, Piece]]:
        """The pieces of every so many documents of a file, with the documents' numbers."""
        for document, blocks in enumerate(self.read(place, begin), begin):
            if (document - begin) % step:
                for _ in blocks:  # of another share
                    pass
                continue
            for piece in cut(blocks):
                if self.keep_empty or not (piece.begins and piece.ends) or piece.text.strip():
                    yield document, piece


def _marks(pieces: list[_Numbered], ids: Ids, at: int) -> Iterator[_Mark]:
    """The documents that begin in these ids, whose first is at `at`; each begins at the `EOS` before it."""
    ends = np.flatnonzero(ids == EOS).tolist()
    ended = 0
    for epoch, file, document, piece in pieces:
        if piece.begins:
            yield _Mark(at - 1 if not ended else at + ends[ended - 1], epoch, file, document)
        ended += piece.ends


def _last(marks: list[_Mark], at: int) -> int:
    """The number of the last mark that is not after a place."""
    low, high = 0, len(marks)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if marks[middle].at <= at else (low, middle)
    return low


def _place(marks: list[_Mark], at: int) -> Place:
    mark = marks[_last(marks, at)]
    return Place(mark.epoch, mark.file, mark.document, at - mark.at)


class ShuffledWindows:
    """The windows of a stream, shuffled within its blocks; goes on from any position.

    Args:
        stream: gives the windows.
        served: how many have been given before.
        place: where the block of the last one of these begins.
    """

    def __init__(self, stream: WindowStream, served: int = 0, place: Place = Place()) -> None:  # noqa: B008 - a tuple
        self.stream, self.served, self.place = stream, served, place
        self._windows = self._shuffled()

    def __next__(self) -> tuple[int, Ids]:
        """The next window, (W + 1,), and its number among all of the stream's."""
        return next(self._windows)

    def _shuffled(self) -> Iterator[tuple[int, Ids]]:
        size = self.stream.block
        first = max(self.served - 1, 0) // size
        skipped = self.served - first * size
        for block, (place, windows) in enumerate(self.stream.blocks(self.place), first):
            self.place = place
            key = [*self.stream.seed, self.stream.share.number, block]
            order = np.random.Generator(np.random.PCG64(key)).permutation(size)
            for at in order[skipped:].tolist():
                self.served += 1
                yield block * size + at, windows[at]
            skipped = 0
