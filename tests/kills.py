"""Trainings that are killed at random moments and gone on with, against the same trainings left alone.

    python -m tests.kills --kills 20

Small trainings of three tasks on one and two ranks, with accumulation, averages, worker processes and streams among them. The
processes are forked from this one, whose imports are done. Every batch's example ids and loss, every logged figure and the
final weights must be those of the training that nobody killed, to the bit; and a rank must not outlive another for long.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyformer.cli import main
from polyformer.training.checkpoints import read_checkpoint
from polyformer.training.task import Task

from .cli.small import metrics_of, results_of
from .ranks import fork, free_port

__all__ = ["CASES", "CLASSIFIER", "STEPS", "Case", "survive", "write_data"]

STEPS = 24
PATIENCE, BOUND = 300.0, 30.0
"""Seconds that a training may take, and that a rank may outlive another."""

COMMON = f"""
trainer: {{max_steps: {STEPS}, val_check_interval: 8, log_every_n_steps: 1, accelerator: cpu, gradient_clip_val: 1.0,
  accumulate_grad_batches: ACCUMULATED}}
"""
TRANSLATION = """
task: {class_path: Translation, init_args: {search: {beam: 1}}}
model: {d_model: 16, num_heads: 2, encoder_layers: 1, decoder_layers: 1, dropout: 0.1}
data:
  class_path: SpelledNumbers
  init_args:
    train_count: 90
    evaluation_count: 11
    tokenizer: {kind: character}
    batches: {tokens: 200, evaluation_tokens: 150}
training: {averaging: {kind: best, count: 2}, keep: 2, save_every: 4, schedule: {class_path: Noam, init_args: {warmup: 9}}}
"""
LANGUAGE_MODEL = """
task: {class_path: LanguageModeling, init_args: {sampling: {max_tokens: 4}}}
model: {d_model: 16, num_heads: 2, num_layers: 1, max_length: 16, dropout: 0.1, position: Rotary}
data:
  class_path: TextStream
  init_args:
    train: FOLDER/train.txt
    validation: FOLDER/held_out.txt
    window: 16
    shuffle_windows: 24
    tokenizer: {kind: bpe, vocab_size: 320}
    batches: {tokens: 128, evaluation_tokens: 112}
training: {averaging: {kind: ema, decay: 0.9}, save_every: 3, schedule: {class_path: Cosine, init_args: {warmup: 4}}}
"""
CLASSIFIER = """
task: Classification
model: {d_model: 16, num_heads: 2, num_layers: 1, max_length: 32, dropout: 0.1}
data:
  train: FOLDER/train.tsv
  validation: FOLDER/held_out.tsv
  limits: {max_length: 16}
  tokenizer: {kind: word, min_frequency: 1}
  batches: {tokens: 128, evaluation_tokens: 100}
"""
CLASSIFICATION = (
    CLASSIFIER.replace("evaluation_tokens: 100", "evaluation_tokens: 100, workers: 1")
    + """
training: {averaging: {kind: swa, start: 0.4}, save_every: 5, patience: 9, optimizer: {class_path: FusedAdamW}}
"""
)
CASES = {
    "translation": TRANSLATION + COMMON.replace("ACCUMULATED", "2"),
    "language_modeling": LANGUAGE_MODEL + COMMON.replace("ACCUMULATED", "1"),
    "classification": CLASSIFICATION + COMMON.replace("ACCUMULATED", "3"),
}

Trace = dict[tuple[int, int, int], tuple[list[int], str]]
"""(rank, step, number of the batch in it) -> (example ids, loss as a hexadecimal number)."""


def write_data(folder: Path) -> None:
    """Texts and labelled lines."""
    chance, words = random.Random(0), ["the", "cat", "sat", "on", "a", "mat", "and", "dogs", "ran", "far", "away"]
    lines = [" ".join(chance.choices(words, k=chance.randint(3, 9))) for _ in range(240)]
    for name, part in (("train", lines[:200]), ("held_out", lines[200:])):
        (folder / f"{name}.txt").write_text("\n".join(part) + "\n")
        rows = [f"{line}\t{'cats' if 'cat' in line else 'none'}" for line in part]
        (folder / f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")


@contextmanager
def traced(folder: Path) -> Iterator[None]:
    """Processes forked within it write down each batch: to `trace-0.txt` the first rank, and so on."""
    step = Task.training_step

    def training_step(self: Task, batch: Any, batch_idx: int) -> Tensor:
        loss = step(self, batch, batch_idx)
        part = batch_idx % self.trainer.accumulate_grad_batches
        row = [self.trainer.global_step, part, batch.index.tolist(), float(loss.detach()).hex()]
        with (folder / f"trace-{self.global_rank}.txt").open("a") as file:
            file.write(json.dumps(row) + "\n")
        return loss

    Task.training_step = training_step  # type: ignore[method-assign]
    try:
        yield
    finally:
        Task.training_step = step  # type: ignore[method-assign]


def lines_of(folder: Path, rank: int) -> list[str]:
    file = folder / f"trace-{rank}.txt"
    return file.read_text().split("\n")[:-1] if file.exists() else []


def trace_of(folder: Path, ranks: int) -> Trace:
    """What was written down; a batch that was trained on twice must have been the same both times."""
    found: Trace = {}
    for rank in range(ranks):
        for step, part, index, loss in map(json.loads, lines_of(folder, rank)):
            known = found.setdefault((rank, step, part), (index, loss))
            assert known == (index, loss), f"rank {rank}, step {step}, batch {part}: {known} and then {(index, loss)}"
    return found


class Case:
    """One training in a folder of its own.

    Args:
        folder: Gets its run, what its ranks say, and traces.
        config: The training.
        ranks: How many processes it has.
    """

    def __init__(self, folder: Path, config: str, ranks: int) -> None:
        self.folder, self.ranks, self.run = folder, ranks, folder / "run"
        folder.mkdir(parents=True)
        self.file = folder / "case.yaml"
        self.file.write_text(config.replace("FOLDER", str(folder.parent)))

    @property
    def words(self) -> list[str]:
        """The command that begins or goes on."""
        way = ["--resume"] if self.run.is_dir() else ["--config", str(self.file)]
        return ["fit", "--run", str(self.run), *way, "--trainer.devices", str(self.ranks),
                "--trainer.strategy", "ddp" if self.ranks > 1 else "auto"]  # fmt: skip

    def start(self) -> dict[int, int]:
        """Begins or goes on in new processes; the ranks by their numbers."""
        words, port = self.words, free_port()
        with traced(self.folder):
            return {fork(words, self.folder, rank, self.ranks, port): rank for rank in range(self.ranks)}

    def wait(self, processes: dict[int, int], seconds: float = PATIENCE) -> dict[int, int]:
        """The exit codes of ranks; fails, and kills them, if they do not end in time."""
        left, codes, until = dict(processes), {}, time.monotonic() + seconds
        while left and time.monotonic() < until:
            for process in list(left):
                ended, status = os.waitpid(process, os.WNOHANG)
                if ended:
                    codes[left.pop(process)] = os.waitstatus_to_exitcode(status)
            time.sleep(0.005)
        for process in left:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        assert not left, f"ranks {sorted(left.values())} were still there after {seconds} s: {self.said()}"
        return codes

    def run_alone(self) -> None:
        """The whole training; of one rank in this process, so that all forked from it later have done their imports."""
        if self.ranks > 1:
            self.finish()
            return
        with traced(self.folder):
            assert main(self.words) == 0

    def finish(self) -> None:
        """Begins or goes on, to the end."""
        codes = self.wait(self.start())
        assert codes == dict.fromkeys(range(self.ranks), 0), self.said()

    def said(self) -> str:
        return "\n".join((self.folder / f"rank-{rank}.txt").read_text()[-3000:] for rank in range(self.ranks))

    def batches(self) -> list[str]:
        """Those that the first rank has been given so far, the ones that it was given again included."""
        return lines_of(self.folder, 0)


def survive(folder: Path, config: str, ranks: int, kills: int, chance: random.Random) -> list[str]:
    """Kills a training so many times, and compares what comes out with what comes out of one that is left alone.

    Returns:
        A line for each kill.
    """
    whole, parted = Case(folder / "whole", config, ranks), Case(folder / "parted", config, ranks)
    whole.run_alone()
    said = []
    for left in range(kills, 0, -1):
        missing = len(whole.batches()) - len(set(parted.batches()))
        said.append(kill_once(parted, missing // left, chance))
    parted.finish()
    assert "damaged" not in (parted.run / "log.txt").read_text()
    traces = [trace_of(case.folder, ranks) for case in (whole, parted)]
    assert traces[0] == traces[1], "the examples or losses of a batch differ"
    assert metrics_of(parted.run) == metrics_of(whole.run), "the logged figures differ"
    results = [results_of(case.run) for case in (whole, parted)]
    for name in ("metrics", "steps", "tokens"):
        assert results[0][name] == results[1][name], f"{name} differ"
    for name in ("last", "best"):
        ends = [read_checkpoint(case.run / "checkpoints" / f"{name}.ckpt")["state_dict"] for case in (whole, parted)]
        assert all(torch.equal(value, ends[1][key]) for key, value in ends[0].items()), f"the weights of {name} differ"
    return said


def has_ended(process: int) -> bool:
    """Whether a process has, which can still be waited for after this."""
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def kill_once(case: Case, batches: int, chance: random.Random) -> str:
    """Starts a training and kills one rank, or all, at a random moment: at any batch, in a validation, or in a save.

    Args:
        case: The training.
        batches: Within how many from now on.
        chance: Decides.
    """
    before = len(case.batches())
    processes = case.start()
    wanted, victims = before + chance.randint(1, max(2, batches)), sorted(processes)
    if len(victims) > 1 and chance.random() < 0.7:
        victims = [chance.choice(victims)]
    until = time.monotonic() + PATIENCE
    while len(case.batches()) < wanted and time.monotonic() < until and not any(map(has_ended, processes)):
        time.sleep(0.001)
    time.sleep(chance.random() * 0.05)
    for process in victims:
        os.kill(process, signal.SIGKILL)
    begun = time.monotonic()
    codes = case.wait(processes, BOUND)
    seconds = time.monotonic() - begun
    for process, rank in processes.items():
        if process not in victims and codes[rank]:
            assert "another rank has ended" in case.said(), case.said()
    names = ", ".join(str(processes[process]) for process in victims)
    made = len(case.batches()) - before
    return f"rank {names} of {case.ranks} killed after {made} batches of a session; all ended in {seconds:.1f} s"


def kill_many() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    kinds = [(name, ranks) for ranks in (1, 2) for name in CASES]
    shares: dict[tuple[str, int], int] = defaultdict(int)
    for number in range(arguments.kills):
        shares[kinds[number % len(kinds)]] += 1
    with tempfile.TemporaryDirectory() as place:
        os.environ["POLYFORMER_CACHE"] = str(Path(place) / "cache")
        for (name, ranks), kills in shares.items():
            folder = Path(place) / f"{name}-{ranks}"
            folder.mkdir()
            write_data(folder)
            begun = time.monotonic()
            for line in survive(folder, CASES[name], ranks, kills, random.Random(f"{arguments.seed} {name} {ranks}")):
                print(f"{name}: {line}")
            seconds = time.monotonic() - begun
            print(f"{name}, {ranks} ranks: the same to the bit after {kills} kills, {seconds:.0f} s", flush=True)
    print(f"{arguments.kills} kills survived")


if __name__ == "__main__":
    sys.exit(kill_many())
