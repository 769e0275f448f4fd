"""A data set of the hub as a stream: its own files are what is dealt out to ranks."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import pytest

from polyformer.data.sources import hub_parts, read_hub

from .test_text_stream import WORDS, plain, stream

ROWS, PARTS = 40, 4


class Rows:
    """What the hub gives: rows as they come, from one of its files on."""

    features = None
    num_shards = PARTS

    def __init__(self, numbers: range = range(ROWS), lost: int | None = None) -> None:
        self.numbers, self.lost = numbers, lost

    def __iter__(self) -> Iterator[dict[str, str]]:
        for at in self.numbers:
            if at == self.lost:
                raise ConnectionError("no route to host")
            yield {"text": f"the cat {WORDS[at % 14]} {at}"}

    def skip(self, count: int) -> "Rows":
        return Rows(self.numbers[count:], self.lost)

    def shard(self, num_shards: int, index: int) -> "Rows":
        size = ROWS // num_shards
        return Rows(self.numbers[index * size : (index + 1) * size], self.lost)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the hub is asked for."""
    calls: list[Any] = []

    def load_dataset(*arguments: Any, **options: Any) -> Rows:
        calls.append((arguments, options))
        return Rows()

    monkeypatch.setattr("polyformer.data.stream.CHUNK", 60)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return calls


def test_its_files_are_shared_out(tmp_path: Path, asked: list[Any]) -> None:
    location = "hub:some/text@small:train"
    assert hub_parts(location) == [f"{location}#{part}/{PARTS}" for part in range(PARTS)]
    data = stream(tmp_path, train=location)
    assert data.contents("train") == [location]
    found = []
    for rank in range(2):
        loader = data.training_loader(rank, 2)
        texts = [data.text_tokenizer.decode(row) for batch in islice(loader, 4) for row in batch.tokens.tolist()]
        found.append({int(word) for text in texts for word in text.split() if word.isdigit()})
        assert len({place for share in loader.streams.values() for stream in share for place in stream.places}) == PARTS
    assert set(map(str, asked)) == {str((("some/text", "small"), {"split": "train", "streaming": True}))}
    assert min(map(len, found)) > 5


def test_it_is_resumed(tmp_path: Path, asked: list[Any]) -> None:
    def fresh() -> Any:
        return stream(tmp_path, train="hub:some/text:train").training_loader(0, 1)

    first = plain(list(islice(fresh(), 9)))
    loader = fresh()
    list(islice(loader, 5))
    resumed = fresh()
    resumed.load_state_dict(loader.state_dict())
    assert plain(list(islice(resumed, 4))) == first[5:]


def test_a_lost_connection_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: Rows(lost=3))
    with pytest.raises(ValueError, match=r"hub:a/b:train, after row 3: cannot be read on: no route to host"):
        list(read_hub("hub:a/b:train", {"text": "text"}, streaming=True))
