"""Laws about the data: what is served, and what becomes of text."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np

from polyformer.check.law import NotApplicable, Result, counted, several
from polyformer.check.pool import has_split, parts_of
from polyformer.check.subject import Subject
from polyformer.data import DataModule, ExampleData, TextData
from polyformer.text import UNK, Tokenizer

__all__ = ["epoch", "measured_once", "odd_texts", "ranks", "readable", "rest", "round_trip", "splits"]

TEXTS, LONGEST = 200, 400
"""How many examples of each part have their texts cut into tokens and put together again, and how many characters of them."""
ODD = {"double spaces": "two  spaces", "emoji": "ok 👍🏽", "Chinese": "你好世界", "combining marks": "e\u0301a n\u0303o"}
LOSSLESS = ("bpe", "byte_bpe", "unigram", "byte")


def readable(subject: Subject) -> Result:
    """The training data can be read."""
    if subject.reading.data is None:
        if subject.reading.broken:
            return Result("fail", subject.reading.broken)
        raise NotApplicable(subject.reading.missing)
    reports = [f"{name} {report}".strip() for name, report in _reports(subject.data)]
    return Result("pass", "; ".join(reports))


def _reports(data: DataModule) -> Iterator[tuple[str, str]]:
    return ((name, str(part.loaded("train").report)) for name, part in parts_of(data).items())


def splits(subject: Subject) -> Result:
    """Validation and test data are read, every label known."""
    problems, read = [], []
    for name, part in parts_of(subject.data).items():
        for split in ("validation", "test"):
            try:
                read += [f"{name} {split}".strip()] if has_split(part, split) else []
            except (OSError, ValueError) as error:
                problems.append(str(error).partition("\n")[0])
    if not problems and not read:
        raise NotApplicable("there is no validation or test data")
    return counted(problems, ", ".join(read))


def epoch(subject: Subject) -> Result:
    """An epoch has each example exactly once."""
    return _over_ranks(subject.data, 1)


def ranks(subject: Subject) -> Result:
    """Two ranks share an epoch, with as many steps each."""
    return _over_ranks(subject.data, 2)


def _over_ranks(data: DataModule, world: int) -> Result:
    problems, told = [], []
    for name, part in parts_of(data).items():
        wrong, unit = _expected(part)
        try:
            served = [_served(part, rank, world) for rank in range(world)]
        except ValueError as error:
            raise NotApplicable(str(error)) from error
        steps = [len(batches) for batches in served]
        found = [place for batches in served for batch in batches for place in batch]
        problems += [f"{name} ranks have {' and '.join(map(str, steps))} steps".strip()] if len(set(steps)) > 1 else []
        problems += [f"{name} {problem}".strip() for problem in wrong(part, found)]
        told.append(f"{several(len(found), unit)} in {several(steps[0], 'step')}")
    return counted(problems, "; ".join(told))


def _served(data: DataModule, rank: int, world: int) -> list[list[int]]:
    """The places of the examples in each training batch of a rank, in the first epoch."""
    return list(_loader(data, rank, world))


def _loader(data: DataModule, rank: int, world: int) -> Any:
    """What serves the places of training examples, which are not read."""
    loader: Any = data.training_loader(rank, world)
    loader.rows, loader.prepare, loader.workers = _Nothing(), lambda rows, epoch: rows["index"], 0
    return loader


def rest(subject: Subject) -> Result:
    """An epoch that is gone on with has the rest of it."""
    problems, told = [], []
    for name, part in parts_of(subject.data).items():
        _, unit = _expected(part)
        whole, begun, again = (_loader(part, 0, 1) for _ in range(3))
        served = list(whole)
        first = list(islice(begun, len(served) // 2))
        again.load_state_dict(begun.state_dict())
        rest = list(again)
        problems += [f"{name} other {unit}s are served".strip()] if first + rest != served else []
        told.append(f"the last {several(len(rest), 'step')} of {len(served):,}")
    return counted(problems, "; ".join(told))


class _Nothing:
    """Columns that nobody reads."""

    def __getitem__(self, places: list[int]) -> dict[str, Any]:
        return {}


def _each_once(data: Any, found: Sequence[int]) -> list[str]:
    return _wrong(Counter(found), len(data.dataset("train")))


def _wrong(counts: Counter[int], total: int) -> list[str]:
    """What is wrong with how often the examples below a number were served."""
    left, more = total - sum(place < total for place in counts), sum(count > 1 for count in counts.values())
    return [
        *([f"{left:,} of {total:,} examples are left out"] if left else []),
        *([f"{more:,} of {total:,} examples come more than once"] if more else []),
    ]


def _windows(data: Any, found: Sequence[int]) -> list[str]:
    """Windows must not overlap, and less than a batch of them may be left out, since all batches are full."""
    total, window = len(data.loaded("train")) - 1, data.window
    starts = np.sort(np.array(found, dtype=np.int64) % total)
    gaps = np.diff(np.append(starts, starts[0] + total))
    overlapping, left = int((gaps < window).sum()), total // window - len(found)
    batch = max(map(len, data.training_plan(1).plan(0)))
    return [
        *([f"{overlapping:,} windows overlap with the next"] if overlapping else []),
        *([f"{left:,} of {total // window:,} windows are left out"] if left >= batch else []),
    ]


Wrong = Callable[[Any, Sequence[int]], list[str]]
EXPECTED: tuple[tuple[type[DataModule], Wrong, str], ...] = (
    (TextData, _windows, "window"),
    (ExampleData, _each_once, "example"),
)
"""Kinds of data, what is wrong with the places that an epoch of it has served, and what these are of."""


def _expected(data: DataModule) -> tuple[Wrong, str]:
    if getattr(data, "sources", ()):
        raise NotApplicable("sources that are mixed by weights are not gone through at the same pace")
    for kind, wrong, unit in EXPECTED:
        if isinstance(data, kind) and data.batches_per_epoch() is not None:
            return wrong, unit
    raise NotApplicable("nobody knows beforehand what is in an epoch of this data")


def measured_once(subject: Subject) -> Result:
    """Each validation example is measured exactly once."""
    problems, told = [], []
    for name, part in parts_of(subject.data).items():
        if not has_split(part, "validation"):
            continue
        loader: Any = part.evaluation_loader("validation")
        loader.rows, loader.prepare, loader.workers = _Nothing(), lambda rows, epoch: rows["index"], 0
        plan = loader.batches
        total = len(part.dataset("validation")) if isinstance(part, ExampleData) else plan.windows
        shared = [plan.split(batch, rank, 2).tolist() for batch in plan.plan(0) for rank in range(2)]
        for ways, served in (("1 rank", list(loader)), ("2 ranks", shared)):
            problems += [f"{name} {ways}: {problem}".strip() for problem in _wrong(Counter(chain(*served)), total)]
        told.append(f"{total:,} {name}".strip())
    if not told:
        raise NotApplicable("there is no validation data")
    return counted(problems, f"{' and '.join(told)}, by 1 rank and by 2")


def round_trip(subject: Subject) -> Result:
    """Texts come back from their tokens."""
    fates: Counter[str] = Counter()
    lost: list[str] = []
    for tokenizer, text in _texts(subject.data):
        fate = _fate(tokenizer, text)
        fates[fate] += 1
        if fate == "changed":
            lost.append(text[:40])
    if lost:
        return counted([f"{text!r} does not come back" for text in lost], "")
    told = ", ".join(f"{count} {fate}" for fate, count in sorted(fates.items()))
    return Result("pass" if set(fates) <= {"as they were"} else "warning", f"{several(fates.total(), 'text')}: {told}")


def _fate(tokenizer: Tokenizer, text: str) -> str:
    """What becomes of a text that is cut and put together again."""
    ids = tokenizer.encode(text)
    back = tokenizer.decode(ids)
    if back == text:
        return "as they were"
    if back.casefold().split() == text.casefold().split():
        return "but for case and spaces"
    return "with unknown words" if UNK in ids or tokenizer.kind not in LOSSLESS else "changed"


def _texts(data: DataModule) -> Iterator[tuple[Tokenizer, str]]:
    """Training texts, each with the tokenizer that reads it."""
    for part in parts_of(data).values():
        tokenizers = part.assets.tokenizers
        if isinstance(part, TextData):
            yield from ((tokenizers["text"], piece.text[:LONGEST]) for piece in islice(part.pieces("train"), TEXTS))
        elif isinstance(part, ExampleData):
            for example in islice(part.examples("train"), TEXTS):
                names = [name for name in getattr(part, "fields", part.counted) if name in example]
                yield from ((tokenizers.get(name, next(iter(tokenizers.values()))), example[name][:LONGEST]) for name in names)


def odd_texts(subject: Subject) -> Result:
    """Double spaces, emoji, Chinese and marks come back."""
    made = {tokenizer.fingerprint: tokenizer for tokenizer in subject.data.assets.tokenizers.values()}
    open_ended = [tokenizer for tokenizer in made.values() if tokenizer.kind not in ("word", "word_punctuation")]
    if not open_ended:
        raise NotApplicable("a vocabulary of words holds the words that it has seen")
    lost = [(name, one) for one in open_ended for name, text in ODD.items() if one.decode(one.encode(text)) != text]
    is_promised = any(tokenizer.kind in LOSSLESS for _, tokenizer in lost)
    problems = dict.fromkeys(f"{name} do not come back" for name, _ in lost)
    kinds = " and ".join(sorted({tokenizer.kind for tokenizer in open_ended}))
    return counted([*problems], kinds, "fail" if is_promised else "warning")
