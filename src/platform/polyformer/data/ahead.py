"""Making items before they are asked for."""

from collections.abc import Iterator
from contextlib import suppress
from queue import Full, Queue
from threading import Event, Thread
from typing import Any, TypeVar

__all__ = ["ahead"]

Item = TypeVar("Item")

PATIENCE = 0.1  # seconds until a thread that nobody listens to notices


def ahead(items: Iterator[Item], count: int) -> Iterator[Item]:
    """The same items in the same order, made by a thread that is at most `count` of them ahead.

    What is raised while making them is raised here. The thread ends when this is closed.

    >>> list(ahead(iter("abc"), 2))
    ['a', 'b', 'c']
    """
    made: Queue[tuple[str, Any]] = Queue(count)
    closed = Event()
    thread = Thread(target=_make, args=(items, made, closed), daemon=True)
    thread.start()
    try:
        while True:
            kind, value = made.get()
            if kind == "error":
                raise value
            if kind == "end":
                return
            yield value
    finally:
        closed.set()
        thread.join()


def _make(items: Iterator[Any], made: "Queue[tuple[str, Any]]", closed: Event) -> None:
    try:
        for item in items:
            _put(made, ("item", item), closed)
            if closed.is_set():
                return
        _put(made, ("end", None), closed)
    except BaseException as error:
        _put(made, ("error", error), closed)


def _put(made: "Queue[tuple[str, Any]]", what: tuple[str, Any], closed: Event) -> None:
    while not closed.is_set():
        with suppress(Full):
            made.put(what, timeout=PATIENCE)
            return
