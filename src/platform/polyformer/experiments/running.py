"""Running the trainings of a sweep, each as a process of its own, and going on where that was ended."""

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from polyformer.experiments.runs import Run
from polyformer.experiments.sweep import Cell
from polyformer.experiments.sweep_folder import SweepFolder

__all__ = ["SweepRunner"]

PATIENCE = 0.1  # seconds between two looks at processes
GRACE = 30.0  # seconds that a training has to end by itself
SHOWN = 4  # metrics in a line


@dataclass(frozen=True)
class _Job:
    """A training that runs; it holds the lock as well as we do, so that nobody else trains there even if we are killed."""

    cell: Cell
    slot: int
    process: subprocess.Popen[bytes]
    lock: IO[bytes]
    began: float


class SweepRunner:
    """Trains the cells of a sweep that have not finished.

    Args:
        folder: Where.
        command: What `platform` is: the words of a command line before its own.
        parallel: How many trainings run at once; cores are shared out among them, and so are the devices that
            CUDA_VISIBLE_DEVICES names.
        say: Told what happens, a line at a time.
    """

    def __init__(self, folder: SweepFolder, command: Sequence[str], parallel: int, say: Callable[[str], None]) -> None:
        self.folder, self.command, self.parallel, self.say = folder, command, parallel, say
        self._running: list[_Job] = []
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
        waiting = [cell for cell in cells if not self.folder.is_finished(cell)]
        self._total, self._done, self._failed = len(cells), len(cells) - len(waiting), []
        if self._done:
            self.say(f"{self._done} of {self._total} cells have finished already")
        with _stopped_alike():
            try:
                self._work(waiting)
            except BaseException:
                self._stop()
                raise
        return self._failed

    def _work(self, waiting: list[Cell]) -> None:
        told: set[str] = set()
        while waiting or self._running:
            for cell in list(waiting):
                if len(self._running) == self.parallel:
                    break
                if self._begin(cell):
                    waiting.remove(cell)
                elif cell.name not in told:
                    told.add(cell.name)
                    self.say(f"{cell.name}: still trained by a process of an earlier sweep; waiting for it")
            time.sleep(PATIENCE)
            for job in [job for job in self._running if job.process.poll() is not None]:
                self._running.remove(job)
                self._end(job)

    def _begin(self, cell: Cell) -> bool:
        """Starts a training, unless somebody else is at it."""
        lock = self.folder.lock_of(cell).open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return False
        if self.folder.is_finished(cell):  # by the process that was waited for
            lock.close()
            self._done += 1
            return True
        self.folder.clear(cell)
        words = self.folder.words_for(cell)
        slot = min(set(range(self.parallel)) - {job.slot for job in self._running})
        with self.folder.output_of(cell).open("ab") as output:
            process = subprocess.Popen(
                [*self.command, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment(slot),
                pass_fds=[lock.fileno()],
                start_new_session=True,  # so that Ctrl-C reaches it once, from us
            )
        self._running.append(_Job(cell, slot, process, lock, time.monotonic()))
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
        job.lock.close()
        seconds = time.monotonic() - job.began
        if job.process.returncode == 0 and self.folder.is_finished(job.cell):
            self._done += 1
            said = _figures(Run(self.folder.run_of(job.cell)))
            self.say(f"{job.cell.name}: done in {seconds:.0f} s, {self._done} of {self._total}  {said}")
            return
        self._failed.append(job.cell)
        output = self.folder.output_of(job.cell)
        lines = [line for line in output.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
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


def _figures(run: Run) -> str:
    """The first metrics of the test, or of the validation."""
    for split in ("test/", "val/"):
        found = {name: value for name, value in run.metrics.items() if name.startswith(split) and name.count("/") == 1}
        if found:
            return "  ".join(f"{name} {value:.4g}" for name, value in list(found.items())[:SHOWN])
    return ""


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
