"""`platform predict` and `platform score`: lines in, lines out; on several devices where torchrun has started several ranks."""

import os
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import IO

import torch
from torch import distributed

from polyformer.cli.load import load
from polyformer.cli.quiet import quiet
from polyformer.cli.words import flag, option
from polyformer.data.lines import BYTE_ORDER_MARK, open_bytes
from polyformer.data.ranks import gather_objects
from polyformer.errors import UsageError
from polyformer.plain import to_json
from polyformer.training.contract import Answer, LineError
from polyformer.training.task import Task

__all__ = ["predict", "score"]

AT_ONCE = 512
"""Lines read before any is answered, so that batches are full; at the end of the input fewer are."""


def predict(words: list[str]) -> int:
    """Answers lines; with `--stream` each answer is printed while it is made."""
    return _stream(words) if flag(words, "--stream") else _answer(words, lambda task: task.answer)


def score(words: list[str]) -> int:
    """Scores lines."""
    return _answer(words, lambda task: task.score)


def _answer(words: list[str], method: Callable[[Task], Callable[[Sequence[str]], list[Answer]]]) -> int:
    """Each rank answers a share of the lines that are read at once, and the first one writes all in their order."""
    as_json = flag(words, "--json")
    with _ranks() as (rank, world), _opened(words, rank, world) as (task, lines, out):
        done = 0
        for chunk in _chunks(lines, AT_ONCE * world):
            begin, end = (len(chunk) * place // world for place in (rank, rank + 1))
            task.skip(begin)
            answers = _in_order(method(task), chunk[begin:end], done + begin)
            task.skip(len(chunk) - end)
            for answer in answers if rank == 0 else []:
                shown = to_json({"text": answer.text, **answer.details}) if as_json else answer.text
                out.write(shown.replace("\n", " ") + "\n")
            out.flush()
            done += len(chunk)
        _report(task, rank, world)
    return 0


def _in_order(answer: Callable[[Sequence[str]], list[Answer]], chunk: list[str], done: int) -> list[Answer]:
    """The answers of all ranks to their shares of the lines; a fault of one is a fault of all, since they would wait for it."""
    found: list[Answer] | ValueError
    try:
        found = _numbered(answer, chunk, done) if chunk else []
    except ValueError as error:
        found = error
    answers: list[Answer] = []
    for part in gather_objects([found]):
        if isinstance(part, ValueError):
            raise part
        answers += part
    return answers


@contextmanager
def _ranks() -> Iterator[tuple[int, int]]:
    """This process's rank and how many there are; where torchrun has started several, they can talk to each other."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield 0, 1
        return
    distributed.init_process_group("gloo")
    try:
        yield distributed.get_rank(), distributed.get_world_size()
    finally:
        distributed.destroy_process_group()


def _stream(words: list[str]) -> int:
    """Line breaks inside an answer are kept, and an empty line stands between two answers."""
    if flag(words, "--json"):
        raise UsageError("--stream prints text as it comes, --json whole answers: leave one of them out")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError("--stream prints text as it comes, so it is for one process: leave torchrun out")
    with _opened(words) as (task, lines, out):
        for number, line in enumerate(line for chunk in _chunks(lines, 1) for line in chunk):
            out.write("\n" if number else "")
            for piece in task.stream(line):
                out.write(piece)
                out.flush()
            out.write("\n")
        _report(task)
    return 0


@contextmanager
def _opened(words: list[str], rank: int = 0, world: int = 1) -> Iterator[tuple[Task, IO[bytes], IO[str]]]:
    """The task, the lines to answer, and where answers go, as the words say."""
    quiet()
    source, target = option(words, "--input"), option(words, "--output")
    if source and target and os.path.exists(source) and os.path.exists(target) and os.path.samefile(source, target):
        raise UsageError(f"--input and --output are the same file, {source}: it would be lost")
    if world > 1 and not source:
        raise UsageError("several ranks cannot share standard input: name a file by --input FILE")
    own = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
    device = option(words, "--device") or own
    with ExitStack() as stack:
        lines = stack.enter_context(_open(source)) if source else _standard_input()
        task, _ = load(words)
        task.to(device)
        written = target if rank == 0 else None
        out: IO[str] = stack.enter_context(open(written, "w", encoding="utf-8")) if written else sys.stdout
        yield task, lines, out


def _report(task: Task, rank: int = 0, world: int = 1) -> None:
    """What the task has to say of its answers, to standard error."""
    for number, lines in enumerate(gather_objects([task.remarks()])):
        for line in lines if rank == 0 else []:
            print(f"rank {number}: {line}" if world > 1 else line, file=sys.stderr)


def _numbered(answer: Callable[[Sequence[str]], list[Answer]], chunk: list[str], done: int) -> list[Answer]:
    """The answers to a chunk; an error about a line gets its number in the whole input."""
    try:
        return answer(chunk)
    except LineError as error:
        raise ValueError(f"line {done + error.line}: {error}") from None


def _open(path: str) -> IO[bytes]:
    try:
        return open_bytes(Path(path))
    except OSError as error:
        raise UsageError(f"--input {path}: {error.strerror}") from None


def _standard_input() -> IO[bytes]:
    return sys.stdin.buffer


def _chunks(lines: IO[bytes], at_once: int = AT_ONCE) -> Iterator[list[str]]:
    """The lines as text, many at a time; a person who types gets each answered at once.

    Raises:
        ValueError: For bytes that are no UTF-8, naming the line.
    """
    number, size = 0, 1 if lines.isatty() else at_once
    while raw := _some_of(lines, size):
        chunk = []
        for line in raw:
            number += 1
            line = line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
            try:
                chunk.append(line.decode("utf-8").rstrip("\r\n"))
            except UnicodeDecodeError as error:
                raise ValueError(f"line {number}: not UTF-8 at byte {error.start + 1}") from None
        yield chunk


def _some_of(lines: IO[bytes], count: int) -> list[bytes]:
    """The next lines. Raises ValueError where a compressed file is none, or ends too early."""
    try:
        return list(islice(lines, count))
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"--input {getattr(lines, 'name', '')}: this file cannot be read: {error}") from None
