"""A corpus as one flat array of token ids on disk, made once and then memory-mapped."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from polyformer.data.cache import cache_folder, key_digest, new_folder
from polyformer.data.documents import Piece
from polyformer.data.encoding import Empty, Encoded, TextReport, encode_pieces, ids_dtype
from polyformer.data.pace import pace
from polyformer.data.reading import Reading
from polyformer.text import EOS, Tokenizer

__all__ = ["TextArray", "TextArrays", "encoded_text"]


@dataclass(frozen=True)
class TextArray:
    """Token ids on disk: `EOS`, then each document and an `EOS`. The first one is the start from which all is predicted.

    Args:
        path: the file of ids.
        dtype: the type of an id, "uint16" or "uint32".
        report: what is in it.
    """

    path: Path
    dtype: str
    report: TextReport

    def __len__(self) -> int:
        """Ids in the file: one more than there are to be predicted."""
        return self.path.stat().st_size // np.dtype(self.dtype).itemsize

    @property
    def ids(self) -> NDArray[np.unsignedinteger]:
        """(N,) the ids. Mapped anew each time: pages once read would otherwise count as this process's memory for ever."""
        return np.memmap(self.path, dtype=self.dtype, mode="r")


@dataclass(frozen=True)
class TextArrays:
    """The texts of several sources.

    Args:
        arrays: each of them.
    """

    arrays: list[TextArray]

    @property
    def report(self) -> TextReport:
        """What is in all of them."""
        return sum((array.report for array in self.arrays), TextReport())


def encoded_text(
    pieces: Iterable[Piece],
    tokenizer: Tokenizer,
    key: Mapping[str, Any],
    name: str,
    *,
    empty: Empty = "drop",
    processes: int | None = None,
    total_bytes: int | None = None,
    reading: Reading | None = None,
) -> TextArray:
    """The ids of a text, from the cache if the same were encoded before. Never holds more than a few megabytes of it.

    Args:
        pieces: all documents, cut; read only where they are not in the cache.
        tokenizer: gives the ids; part of the key.
        key: everything else that the text depends on, in plain values.
        name: what is being encoded, for the progress bar and messages.
        empty: what happens to documents that hold only spaces; part of the key.
        processes: how many encode at once, see `encode_pieces`.
        total_bytes: how long the text is, where that is known, for the progress bar.
        reading: counts what `pieces` leaves out.

    Raises ValueError when there is no text.
    """
    whole = {"key": key, "tokenizer": tokenizer.fingerprint, "empty": empty, "format": 1}
    folder = cache_folder() / "texts" / key_digest(whole)
    dtype = ids_dtype(tokenizer)
    if not folder.is_dir():
        with new_folder(folder) as fresh:
            report = _write_ids(fresh / "ids.bin", encode_pieces(pieces, tokenizer, empty, processes), name, dtype, total_bytes)
            report = report if reading is None else replace(report, **asdict(reading.unread))
            (fresh / "report.json").write_text(json.dumps(asdict(report)), encoding="utf-8")
            (fresh / "key.json").write_text(json.dumps(whole, indent=1), encoding="utf-8")
    report = TextReport(**json.loads((folder / "report.json").read_text(encoding="utf-8")))
    return TextArray(folder / "ids.bin", dtype.name, report)


def _write_ids(path: Path, parts: Iterator[Encoded], name: str, dtype: np.dtype[Any], total_bytes: int | None) -> TextReport:
    report = TextReport()
    with (
        path.open("wb") as file,
        tqdm(desc=f"encoding {name}", total=total_bytes, unit="B", unit_scale=True, **pace()) as bar,
    ):
        file.write(np.array([EOS], dtype).tobytes())
        for ids, part in parts:
            file.write(ids.tobytes())
            report += part
            bar.update(part.bytes)
    if not report.documents:
        raise ValueError(f"{name}: no text is left ({report})" if report.empty_dropped else f"{name}: there is no text in it")
    return report
