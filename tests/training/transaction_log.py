"""What a run of Weights & Biases left on disk, read with its own protobuf records."""

import json
import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from wandb.proto.wandb_internal_pb2 import Record

__all__ = ["config_of", "history_of", "records_of", "summary_of"]

FILE_HEADER, RECORD_HEADER, BLOCK = 7, 7, 32768
WHOLE, LAST = 1, 4  # kinds of a record's part
PATIENCE = 60.0


def records_of(run: Path) -> list[Any]:
    """The records in the one `.wandb` file of a run's folder, which is a log in the format of LevelDB.

    W&B's own process may write the last of them a moment after a run was finished.
    """
    (file,) = run.glob("*.wandb")
    latest = time.monotonic() + PATIENCE
    while True:
        records = [Record.FromString(record) for record in _whole_records(file.read_bytes())]
        if any(record.HasField("exit") for record in records) or time.monotonic() > latest:
            return records
        time.sleep(0.05)


def _whole_records(content: bytes) -> Iterator[bytes]:
    assert content[:4] == b":W&B"
    at, parts = FILE_HEADER, b""
    while at + RECORD_HEADER <= len(content):
        room = BLOCK - at % BLOCK
        if room < RECORD_HEADER:
            at += room
            continue
        _, length, kind = struct.unpack("<IHB", content[at : at + RECORD_HEADER])
        parts += content[at + RECORD_HEADER : at + RECORD_HEADER + length]
        at += RECORD_HEADER + length
        if kind in (WHOLE, LAST):
            yield parts
            parts = b""


def history_of(records: list[Any]) -> list[dict[str, Any]]:
    """The rows that were logged."""
    return [_values(record.history.item) for record in records if record.HasField("history")]


def config_of(records: list[Any]) -> dict[str, Any]:
    """The config, later values over earlier ones."""
    begun = [item for record in records if record.HasField("run") for item in record.run.config.update]
    return _values(begun + [item for record in records if record.HasField("config") for item in record.config.update])


def summary_of(records: list[Any]) -> dict[str, Any]:
    """The summary, later values over earlier ones."""
    return _values([item for record in records if record.HasField("summary") for item in record.summary.update])


def _values(items: Iterable[Any]) -> dict[str, Any]:
    """Values by name; those with names of several parts in dictionaries."""
    found: dict[str, Any] = {}
    for item in items:
        *places, name = list(item.nested_key) or [item.key]
        inner = found
        for place in places:
            inner = inner.setdefault(place, {})
        inner[name] = json.loads(item.value_json)
    return found
