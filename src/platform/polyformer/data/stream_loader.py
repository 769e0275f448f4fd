"""Batches of streams: every rank reads its own share of the text, and all of them together make up each batch.

Letters: N windows, W tokens in a window.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any

import numpy as np

from polyformer.data.ahead import ahead
from polyformer.data.ranks import gather_objects
from polyformer.data.stream import Place, ShuffledWindows, WindowStream

__all__ = ["StreamLoader", "source_of"]

GOLDEN = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio
Positions = dict[str, list[int]]


def source_of(number: int, weights: Sequence[float]) -> int:
    """Which source window `number` of a training is of: as often as the weights say, and spread evenly.

    The multiples of the golden ratio modulo 1 fall into each part of a circle as often as it is long; after N windows no
    source is more than a few windows from its share (Weyl 1916; the discrepancy grows with log N).

    >>> [source_of(number, [0.75, 0.25]) for number in range(8)]
    [0, 0, 0, 1, 0, 0, 0, 0]
    """
    at, above = (number * GOLDEN % 2**64) / 2**64 * sum(weights), 0.0
    for source, weight in enumerate(weights):
        above += weight
        if at < above:
            return source
    return len(weights) - 1


class StreamLoader:
    """Batches of shuffled windows, without end. Window n is of share n modulo the number of shares.

    A rank reads the shares whose number is its own modulo the number of ranks, and nothing else. So a batch is the same for
    every number of ranks that divides the number of shares, and the ranks need not talk to each other. A share that is
    shorter than others begins its next epoch earlier.

    Args:
        streams: number of the share -> the stream of each source; at least the shares of this rank.
        shares: how many shares there are over all ranks.
        weights: how often windows are of each source.
        size: windows in a batch, over all ranks.
        prepare: rows, "tokens" (N, W + 1) and "index" (N,), and 0 in place of an epoch -> what is served.
        rank: which windows of each batch are ours.
        world: the number of ranks.
        limit: batches that an `iter()` serves; without end if None.
        ahead: batches that a thread prepares meanwhile; 0 for no thread. Changes no result.
    """

    def __init__(
        self,
        streams: Mapping[int, Sequence[WindowStream]],
        shares: int,
        weights: Sequence[float],
        size: int,
        prepare: Callable[[dict[str, Any], int], Any],
        *,
        rank: int = 0,
        world: int = 1,
        limit: int | None = None,
        ahead: int = 0,
    ) -> None:
        assert shares % world == 0 and size >= world
        self.streams, self.shares, self.weights, self.size, self.prepare = streams, shares, weights, size, prepare
        self.rank, self.world, self.limit, self.ahead = rank, world, limit, ahead
        self._batches = 0
        self._positions: Positions = {}

    def state_dict(self) -> dict[str, Any]:
        """The position, over all ranks: batches served, and for "share.source" windows served and their block's place.

        All ranks must call it, since each knows its own shares alone.
        """
        positions = dict(gather_objects(list(self._positions.items())))
        return {"batches": self._batches, "readers": positions}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next `iter()` begin at a position."""
        self._batches, self._positions = state["batches"], self._own(state["readers"])

    def __iter__(self) -> Iterator[Any]:
        served = self._served()
        for rows, batches, positions in islice(ahead(served, self.ahead) if self.ahead else served, self.limit):
            self._batches, self._positions = batches, positions
            yield self.prepare(rows, 0)

    def _served(self) -> Iterator[tuple[dict[str, Any], int, Positions]]:
        """Our part of each batch from the position on, with the position after it."""
        readers = {
            (share, source): self._reader(share, source, stream)
            for share in range(self.rank, self.shares, self.world)
            for source, stream in enumerate(self.streams[share])
        }
        for batch in count(self._batches):
            first = batch * self.size
            tokens, index = [], []
            for number in range(first + (self.rank - first) % self.world, first + self.size, self.world):
                share, source = number % self.shares, source_of(number, self.weights)
                own, window = next(readers[share, source])
                tokens.append(window)
                index.append((own * self.shares + share) * len(self.weights) + source)
            positions = {f"{share}.{source}": [one.served, *one.place] for (share, source), one in readers.items()}
            yield {"tokens": np.stack(tokens), "index": np.array(index)}, batch + 1, positions

    def _reader(self, share: int, source: int, stream: WindowStream) -> ShuffledWindows:
        served, *place = self._positions.get(f"{share}.{source}", [0, *Place()])
        return ShuffledWindows(stream, served, Place(*place))

    def _own(self, positions: Positions) -> Positions:
        return {name: found for name, found in positions.items() if int(name.partition(".")[0]) % self.world == self.rank}
