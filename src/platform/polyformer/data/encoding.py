"""Text to one long sequence of token ids, with `EOS` after each document; large texts on several processes.

The worker processes import this module, so it imports little.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import astuple, dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from polyformer.data.documents import Piece, byte_count
from polyformer.data.reading import Unread, said_of_unread
from polyformer.text import EOS, UNK, Tokenizer

__all__ = ["Empty", "Encoded", "TextReport", "available_cores", "chunks_of", "encode_pieces", "encode_text", "ids_dtype"]

Empty = Literal["drop", "keep"]
Ids = NDArray[np.unsignedinteger]
Encoded = tuple[Ids, "TextReport"]

CHUNK = 2**20  # characters encoded at a time
POOL_FROM = 2**25  # characters from which on other processes are worth their start
UNPREFIXED = ("character", "byte")  # kinds for which a space is a token of its own


@dataclass(frozen=True)
class TextReport:
    """What became of a text. Two add up.

    Args:
        documents: how many documents are in it.
        tokens: how many tokens are predicted in it, the end of each document included.
        words: words between spaces, and the end of each document.
        bytes: bytes of UTF-8, and one for the end of each document.
        unknown: how many tokens are `UNK`.
        empty_dropped: documents that hold only spaces, which were left out.
        blank_lines: lines without anything in files whose lines are objects.
        damaged_lines: lines that could not be read, and were passed over.
        damaged_files: files that could not be read to their end.

    >>> print(TextReport(documents=2, tokens=1200, words=900, bytes=5000, unknown=1, empty_dropped=1))
    2 documents, 1,200 tokens, 900 words, 5,000 bytes, 1 unknown; dropped: 1 empty
    """

    documents: int = 0
    tokens: int = 0
    words: int = 0
    bytes: int = 0
    unknown: int = 0
    empty_dropped: int = 0
    blank_lines: int = 0
    damaged_lines: int = 0
    damaged_files: int = 0

    def __add__(self, other: "TextReport") -> "TextReport":
        return TextReport(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    def __str__(self) -> str:
        names = ("documents", "tokens", "words", "bytes", "unknown")
        said = ", ".join(f"{getattr(self, name):,} {name}" for name in names)
        said += f"; dropped: {self.empty_dropped:,} empty" if self.empty_dropped else ""
        return said + said_of_unread(Unread(self.blank_lines, self.damaged_lines, self.damaged_files))


def ids_dtype(tokenizer: Tokenizer) -> np.dtype[np.unsignedinteger]:
    """Two bytes where all ids fit into them, otherwise four."""
    return np.dtype(np.uint16 if len(tokenizer) <= 2**16 else np.uint32)


def available_cores() -> int:
    """How many cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def encode_text(tokenizer: Tokenizer, pieces: Sequence[Piece], empty: Empty = "drop") -> Encoded:
    """(N,) the ids of pieces of documents in their order, with `EOS` after each document, and what is in them."""
    dropped = [piece.begins and piece.ends and empty == "drop" and not piece.text.strip() for piece in pieces]
    kept = [piece for piece, drop in zip(pieces, dropped, strict=True) if not drop]
    prefixed = tokenizer.kind not in UNPREFIXED
    # A piece from within a document begins with the space that the tokenizer is about to put before it.
    texts = [piece.text[1:] if prefixed and _follows_space(piece) else piece.text for piece in kept]
    flat: list[int] = []
    for piece, encoded in zip(kept, tokenizer.encode_batch(texts), strict=True):
        flat += encoded
        if piece.ends:
            flat.append(EOS)
    ids = np.array(flat, dtype=ids_dtype(tokenizer))
    documents = sum(piece.ends for piece in kept)
    return ids, TextReport(
        documents=documents,
        tokens=len(ids),
        words=sum(len(piece.text.split()) for piece in kept) + documents,
        bytes=sum(byte_count(piece.text) for piece in kept) + documents,
        unknown=int(np.count_nonzero(ids == UNK)),
        empty_dropped=sum(dropped),
    )


def _follows_space(piece: Piece) -> bool:
    return not piece.begins and piece.text.startswith(" ")


def encode_pieces(
    pieces: Iterable[Piece],
    tokenizer: Tokenizer,
    empty: Empty = "drop",
    processes: int | None = None,
    pool_from: int = POOL_FROM,
) -> Iterator[Encoded]:
    """`encode_text` of many pieces, in parts of about a million characters and in their order.

    Args:
        pieces: all documents, cut.
        tokenizer: gives the ids.
        empty: what happens to documents that hold only spaces.
        processes: how many encode at once; all cores if None. Changes no result.
        pool_from: characters encoded in this process, before others are started.

    Raises ValueError when a process ends unexpectedly.
    """
    processes = available_cores() if processes is None else processes
    chunks = chunks_of(pieces)
    done = 0
    while processes == 1 or done < pool_from:
        chunk = next(chunks, None)
        if chunk is None:
            return
        done += sum(len(piece.text) for piece in chunk)
        yield encode_text(tokenizer, chunk, empty)
    yield from _in_pool(chunks, tokenizer, empty, processes)


def chunks_of(pieces: Iterable[Piece], characters: int = CHUNK) -> Iterator[list[Piece]]:
    """Pieces together, at least so many characters of them at a time. Each piece also counts for its own overhead."""
    chunk: list[Piece] = []
    size = 0
    for piece in pieces:
        chunk.append(piece)
        size += len(piece.text) + 20
        if size >= characters:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _in_pool(chunks: Iterator[list[Piece]], tokenizer: Tokenizer, empty: Empty, processes: int) -> Iterator[Encoded]:
    """Encodes in other processes; only a few chunks are on their way at a time."""
    context = multiprocessing.get_context("spawn")  # a fork would inherit the tokenizer's threads, which can deadlock
    pool = ProcessPoolExecutor(processes, context, _start_worker, (tokenizer.to_json(), empty))
    waiting: deque[Future[Encoded]] = deque()
    try:
        for chunk in chunks:
            texts = [piece.text for piece in chunk]  # pickled many times faster than pieces
            ends = bytes(piece.begins + 2 * piece.ends for piece in chunk)
            waiting.append(pool.submit(_encode_in_worker, texts, ends))
            if len(waiting) > 2 * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise ValueError("a process that encodes text ended unexpectedly; `data.processes: 1` does without others") from None
    finally:
        pool.shutdown(cancel_futures=True)


WORKER: dict[str, tuple[Tokenizer, Empty]] = {}


def _start_worker(tokenizer: str, empty: Empty) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are what uses the cores
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the parent to stop us
    threading.Thread(target=_end_with_parent, daemon=True).start()
    WORKER["encode"] = Tokenizer.from_json(tokenizer), empty


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _encode_in_worker(texts: list[str], ends: bytes) -> Encoded:
    tokenizer, empty = WORKER["encode"]
    pieces = [Piece(text, bool(end & 1), bool(end & 2)) for text, end in zip(texts, ends, strict=True)]
    return encode_text(tokenizer, pieces, empty)
