"""Work that one of several processes does while the others wait for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

__all__ = ["one_before_others"]


@contextmanager
def one_before_others(file: Path) -> Iterator[None]:
    """Lets the first process in; those that come meanwhile wait until it is done, and then go on side by side.

    A process that dies gives way by that. Where the file system knows no locks, nobody waits, and each does the work.

    Args:
        file: What the processes lock, the same for all of them.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(file)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        with lock:
            pass  # the first one is done
    except NotImplementedError:
        pass
    try:
        yield
    finally:
        lock.release()
