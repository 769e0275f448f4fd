"""Text as it comes: documents to shuffled windows, without ever holding more than a block of them.

Letters: N windows, W tokens in a window.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyformer.data.ahead import ahead
from polyformer.data.documents import Document, Piece, cut
from polyformer.data.encoding import CHUNK, encode_text
from polyformer.text import EOS, Tokenizer

__all__ = ["Place", "StreamLoader", "WindowStream"]

Ids = NDArray[Any]
Read = Callable[[str, int], Iterator[Document]]


class Place(NamedTuple):
    """A place in the tokens of an epoch.

    Args:
        file: the number of the file in the epoch's order.
        document: the number of the document in the file.
        token: the number of the token in the document, of which the first is the `EOS` before it.
    """

    file: int = 0
    document: int = 0
    token: int = 0


class _Mark(NamedTuple):
    """Where a document begins among the tokens since the start."""

    at: int
    file: int
    document: int


@dataclass(frozen=True)
class WindowStream:
    """Blocks of windows, cut from documents as they are read.

    Args:
        places: the files, or the hub's data sets.
        read: a file's documents from a number on.
        tokenizer: gives the tokens.
        window: tokens in a window.
        block: windows in a block; the last one of an epoch has fewer.
        seed: decides the order of the files, together with the epoch.
        keep_empty: whether documents that hold only spaces are kept.
    """

    places: Sequence[str]
    read: Read
    tokenizer: Tokenizer
    window: int
    block: int
    seed: int = 0
    keep_empty: bool = False

    def blocks(self, epoch: int, start: Place) -> Iterator[tuple[Place, Ids]]:
        """(N, W + 1) windows, one after another, and the place where the first begins; from a block's place on."""
        ids: Ids = np.array([EOS], dtype=np.int64)
        origin, at = 0, start.token  # of the first id held, and of the next block, among the tokens since the start
        marks: list[_Mark] = []
        whole = self.block * self.window
        for pieces, fresh in self._encoded(epoch, start):
            marks += _marks(pieces, fresh, origin + len(ids))
            ids = np.concatenate([ids, fresh])
            while origin + len(ids) - at > whole:
                yield _place(marks, at), self._cut(ids[at - origin :], self.block)
                at += whole
            kept = min(at - origin, len(ids) - 1)
            ids, origin = ids[kept:], origin + kept
            marks = marks[_last(marks, at) :]
        count = (origin + len(ids) - 1 - at) // self.window
        if count > 0:
            yield _place(marks, at), self._cut(ids[at - origin :], count)

    def _cut(self, ids: Ids, count: int) -> Ids:
        return np.lib.stride_tricks.sliding_window_view(ids, self.window + 1)[:: self.window][:count].copy()

    def _encoded(self, epoch: int, start: Place) -> Iterator[tuple[list[tuple[int, int, Piece]], Ids]]:
        """Pieces of about a million characters in all, and their ids, which end in `EOS` where a document does."""
        pieces: list[tuple[int, int, Piece]] = []
        size = 0
        for numbered in self._pieces(epoch, start):
            pieces.append(numbered)
            size += len(numbered[2].text)
            if size >= CHUNK:
                yield pieces, self._encode(pieces)
                pieces, size = [], 0
        if pieces:
            yield pieces, self._encode(pieces)

    def _encode(self, pieces: list[tuple[int, int, Piece]]) -> Ids:
        return encode_text(self.tokenizer, [piece for _, _, piece in pieces], empty="keep")[0]

    def _pieces(self, epoch: int, start: Place) -> Iterator[tuple[int, int, Piece]]:
        """Each piece with the numbers of its file and document."""
        order = np.random.Generator(np.random.PCG64([self.seed, epoch])).permutation(len(self.places))
        for file in range(start.file, len(order)):
            first = start.document if file == start.file else 0
            for document, blocks in enumerate(self.read(self.places[order[file]], first), first):
                for piece in cut(blocks):
                    if self.keep_empty or not (piece.begins and piece.ends) or piece.text.strip():
                        yield file, document, piece


def _marks(pieces: list[tuple[int, int, Piece]], ids: Ids, at: int) -> Iterator[_Mark]:
    """The documents that begin in these ids, whose first is at `at`; each begins at the `EOS` before it."""
    ends = np.flatnonzero(ids == EOS).tolist()
    ended = 0
    for file, document, piece in pieces:
        if piece.begins:
            yield _Mark(at - 1 if not ended else at + ends[ended - 1], file, document)
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
    return Place(mark.file, mark.document, at - mark.at)


class StreamLoader:
    """Batches of a stream, shuffled within its blocks; every rank reads all of it, and takes its part of each batch.

    Each `iter()` is an epoch, as with `BatchLoader`. Windows at the end of an epoch that fill no batch are left out.

    Args:
        stream: gives the windows; its blocks hold whole batches.
        count: windows in a batch, over all ranks.
        prepare: rows, "tokens" (N, W + 1) and "index" (N,), and the epoch -> what is served.
        rank: which part of each batch is ours.
        world: the number of parts.
        limit: batches after which an epoch ends, if not with the text.
        threaded: whether a thread prepares the next block meanwhile. Changes no result.

    Raises ValueError when the text does not fill a single batch.
    """

    def __init__(
        self,
        stream: WindowStream,
        count: int,
        prepare: Callable[[dict[str, Any], int], Any],
        *,
        rank: int = 0,
        world: int = 1,
        limit: int | None = None,
        threaded: bool = False,
    ) -> None:
        assert stream.block % count == 0
        self.stream, self.count, self.prepare = stream, count, prepare
        self.rank, self.world, self.limit, self.threaded = rank, world, limit, threaded
        self._state = _beginning(0)
        self._restored = False

    def state_dict(self) -> dict[str, int]:
        """The position: the epoch, its block and where that begins, and the batches served of it and of the epoch."""
        return dict(self._state)

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Makes the next `iter()` begin at a position."""
        self._state, self._restored = dict(state), True

    def __iter__(self) -> Iterator[Any]:
        if self._state["served"] and not self._restored:  # left early
            self._state = _beginning(self._state["epoch"] + 1)
        self._restored = False
        epoch = self._state["epoch"]
        batches = self._batches(self._state)
        if self.threaded:
            batches = ahead(batches, self.stream.block // self.count)
        following = next(batches, None)
        if following is None:
            text = f"{self.count} windows of {self.stream.window} tokens (`data.batches.tokens`, `data.window`)"
            raise ValueError(f"the training text is too short for a single batch of {text}")
        while following is not None:
            rows, state = following
            following = None if state["served"] == self.limit else next(batches, None)
            self._state = state if following is not None else _beginning(epoch + 1)
            yield self.prepare(rows, epoch)

    def _batches(self, state: dict[str, int]) -> Iterator[tuple[dict[str, Any], dict[str, int]]]:
        """The batches from a position on, each with the position after it."""
        epoch, served, first = state["epoch"], state["served"], state["batch"]
        start = Place(state["file"], state["document"], state["token"])
        for block, (place, windows) in enumerate(self.stream.blocks(epoch, start), state["block"]):
            chance = np.random.Generator(np.random.PCG64([self.stream.seed, epoch, block]))
            order = chance.permutation(len(windows))
            for batch in range(first, len(windows) // self.count):
                chosen = order[batch * self.count : (batch + 1) * self.count][self.rank :: self.world]
                rows = {"tokens": windows[chosen].astype(np.int64), "index": block * self.stream.block + chosen}
                served += 1
                after = {"epoch": epoch, "served": served, "block": block, "batch": batch + 1, **place._asdict()}
                yield rows, after
            first = 0


def _beginning(epoch: int) -> dict[str, int]:
    return {"epoch": epoch, "served": 0, "block": 0, "batch": 0, **Place()._asdict()}
