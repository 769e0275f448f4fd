"""Running the trainings of a sweep, each as a process of its own, and going on where that was ended."""

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from polyformer.experiments.runs import Run
from polyformer.experiments.sweep import Cell
from polyformer.experiments.sweep_folder import SweepFolder

__all__ = ["Onlooker", "SweepRunner"]

PATIENCE = 0.1  # seconds between two looks at processes
GRACE = 30.0  # seconds that a training has to end by itself
SHOWN = 4  # metrics in a line


@dataclass(frozen=True)
class _Job:
    """A training that runs; it holds the lock as well as we do, so that nobody else trains there even if we are killed.

    Args:
        cell: What is trained.
        slot: Its place among those that run at once.
        process: Which trains it.
        lock: The open file.
        began: In seconds of the clock that only goes forward.
        printed: Bytes that earlier attempts had left in its output.
    """

    cell: Cell
    slot: int
    process: subprocess.Popen[bytes]
    lock: IO[bytes]
    began: float
    printed: int


class Onlooker:
    """Looks on while cells are trained; this one does nothing."""

    def despairs_of(self, cell: Cell) -> dict[str, float] | None:
        """Why a training that runs is to be ended early, in figures; None: let it go on."""
        return None

    def sees_end_of(self, cell: Cell) -> None:
        """Told when a training has come to its end, whether finished, failed or ended early."""


class SweepRunner:
    """Trains the cells of a sweep that have not finished.

    Args:
        folder: Where.
        command: What `platform` is: the words of a command line before its own.
        parallel: How many trainings run at once; cores are shared out among them, and so are the devices that
            CUDA_VISIBLE_DEVICES names.
        say: Told what happens, a line at a time.
        onlooker: May end trainings early.
    """

    def __init__(
        self,
        folder: SweepFolder,
        command: Sequence[str],
        parallel: int,
        say: Callable[[str], None],
        onlooker: Onlooker | None = None,
    ) -> None:
        self.folder, self.command, self.parallel, self.say = folder, command, parallel, say
        self.onlooker = onlooker or Onlooker()
        self._running: list[_Job] = []
        self._despaired: dict[str, tuple[float, dict[str, float]]] = {}
        self._failed: list[Cell] = []
        self._done = self._total = 0

    def run(self, cells: Sequence[Cell]) -> list[Cell]:
        """Trains them in their order; one that fails does not stop the others.

        Returns:
            The cells that failed.

        Raises:
            KeyboardInterrupt: If it was stopped; the trainings have ended then, and can be gone on with.
        """
        self.folder.accept(cells)
        left = [cell for cell in cells if not self.folder.is_over(cell)]
        return self.run_as_they_come(left, len(cells), len(cells) - len(left))

    def run_as_they_come(self, cells: Iterable[Cell], total: int, done: int) -> list[Cell]:
        """The same for cells that have been accepted; each is asked for when there is room for it.

        Args:
            cells: Those left.
            total: How many there are in all.
            done: How many of them have finished before.
        """
        self._total, self._done, self._failed = total, done, []
        if done:
            self.say(f"{done} of {total} cells have finished already")
        with _stopped_alike():
            try:
                self._work(iter(cells))
            except BaseException:
                self._stop()
                raise
        return self._failed

    def _work(self, cells: Iterator[Cell]) -> None:
        """What others still train takes a place as well, since it takes its share of the machine."""
        waiting: list[Cell] = []
        while True:
            waiting = [cell for cell in waiting if not self._begin(cell)]
            while len(self._running) + len(waiting) < self.parallel and (cell := next(cells, None)) is not None:
                if not self._begin(cell):
                    waiting.append(cell)
                    self.say(f"{cell.name}: still trained by a process of an earlier sweep; waiting for it")
            if not waiting and not self._running:
                return
            time.sleep(PATIENCE)
            for job in list(self._running):
                if job.process.poll() is None:
                    self._watch(job)
                else:
                    self._running.remove(job)
                    self._end(job)

    def _watch(self, job: _Job) -> None:
        """Ends a training that is despaired of: by a signal that lets it save what it has, and if it does not, by force."""
        until, _ = self._despaired.get(job.cell.name, (None, {}))
        if until is None and (why := self.onlooker.despairs_of(job.cell)) is not None:
            self._despaired[job.cell.name] = time.monotonic() + GRACE, why
            job.process.send_signal(signal.SIGTERM)
        elif until is not None and time.monotonic() > until:
            job.process.kill()

    def _begin(self, cell: Cell) -> bool:
        """Starts a training, unless somebody else is at it."""
        lock = self.folder.lock_of(cell).open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return False
        if self.folder.is_over(cell):  # by the process that was waited for
            lock.close()
            self._done += 1
            self.onlooker.sees_end_of(cell)
            return True
        self.folder.clear(cell)
        words = self.folder.words_for(cell)
        slot = min(set(range(self.parallel)) - {job.slot for job in self._running})
        with self.folder.output_of(cell).open("ab") as output:
            printed = output.seek(0, os.SEEK_END)
            process = subprocess.Popen(
                [*self.command, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment(slot),
                pass_fds=[lock.fileno()],
                start_new_session=True,  # so that Ctrl-C reaches it once, from us
            )
        self._running.append(_Job(cell, slot, process, lock, time.monotonic(), printed))
        self.say(f"{cell.name}: {'goes on' if '--resume' in words else 'begins'} (process {process.pid})")
        return True

    def _environment(self, slot: int) -> dict[str, str]:
        """The environment of a training: of the run alone, and with its share of the machine."""
        own = {name: value for name, value in os.environ.items() if name not in ("POLYFORMER_RUN", "LOCAL_RANK", "NODE_RANK")}
        if self.parallel > 1:
            own.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // self.parallel)))
            devices = [device for device in own.get("CUDA_VISIBLE_DEVICES", "").split(",") if device]
            if devices:
                own["CUDA_VISIBLE_DEVICES"] = devices[slot % len(devices)]
        return own

    def _end(self, job: _Job) -> None:
        """Says how a training came out."""
        seconds, (_, why) = time.monotonic() - job.began, self._despaired.pop(job.cell.name, (0.0, {}))
        is_finished = job.process.returncode == 0 and self.folder.is_finished(job.cell)
        if why and not is_finished:
            self.folder.mark_pruned(job.cell, why)
        job.lock.close()
        if is_finished or why:
            self._done += 1
            how = "done in" if is_finished else "ended early after"
            said = _words(_figures(Run(self.folder.run_of(job.cell))) if is_finished else why)
            self.say(f"{job.cell.name}: {how} {seconds:.0f} s, {self._done} of {self._total}  {said}")
        else:
            self._say_failure(job)
        self.onlooker.sees_end_of(job.cell)

    def _say_failure(self, job: _Job) -> None:
        self._failed.append(job.cell)
        output = self.folder.output_of(job.cell)
        own = output.read_bytes()[job.printed :].decode(encoding="utf-8", errors="replace")
        lines = [line for line in own.splitlines() if line.strip()]
        why = next((line for line in reversed(lines) if line.startswith("platform: ")), lines[-1] if lines else "no output")
        self.say(f"{job.cell.name}: FAILED with exit code {job.process.returncode}: {why}; all of it: {output}")

    def _stop(self) -> None:
        """Ends all trainings, as Ctrl-C would."""
        for job in self._running:
            job.process.send_signal(signal.SIGINT)
        until = time.monotonic() + GRACE
        for job in self._running:
            try:
                job.process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                job.process.kill()
                job.process.wait()
            job.lock.close()


def _figures(run: Run) -> dict[str, float]:
    """The first metrics of the test, or of the validation."""
    for split in ("test/", "val/"):
        found = {name: value for name, value in run.metrics.items() if name.startswith(split) and name.count("/") == 1}
        if found:
            return dict(list(found.items())[:SHOWN])
    return {}


def _words(figures: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in figures.items())


@contextmanager
def _stopped_alike() -> Iterator[None]:
    """Makes the other signals that end a process end it as Ctrl-C does."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
