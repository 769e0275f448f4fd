"""One command on several ranks, as torchrun starts it, forked from the process of the tests: its imports are done."""

import os
import socket
import sys
import time
import traceback
import warnings
from pathlib import Path

from polyformer.cli import main

__all__ = ["run_on_ranks"]

PATIENCE_SECONDS = 300


def run_on_ranks(words: list[str], folder: Path, count: int = 2, strategy: str | None = "ddp") -> None:
    """Runs ``platform WORDS`` on every rank, and fails with what the ranks have said unless all of them end well.

    Args:
        words: The command's, `--trainer.devices` and the strategy not among them.
        folder: Where what each rank says is kept, as `rank-0.txt` and so on.
        count: Number of ranks.
        strategy: What `trainer.strategy` is; None for a command that does not train.
    """
    words = [*words, "--trainer.devices", str(count), "--trainer.strategy", strategy] if strategy else words
    port = free_port()
    sys.stdout.flush()
    sys.stderr.flush()
    children = {fork(words, folder, rank, count, port): rank for rank in range(count)}
    codes, until = {}, time.monotonic() + PATIENCE_SECONDS
    while len(codes) < count and time.monotonic() < until and not any(codes.values()):
        process, status = os.waitpid(-1, os.WNOHANG)
        if process in children:
            codes[children[process]] = os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    for process, rank in children.items():
        if rank not in codes:
            os.kill(process, 9)
            os.waitpid(process, 0)
    said = "\n".join((folder / f"rank-{rank}.txt").read_text()[-3000:] for rank in range(count))
    assert codes == dict.fromkeys(range(count), 0), said


def fork(words: list[str], folder: Path, rank: int, count: int, port: int) -> int:
    """Starts one rank; its process number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads: those here hold nothing
        process = os.fork()
    if process:
        return process
    code = 1
    try:
        output = os.open(folder / f"rank-{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(output, stream)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "tests"}
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads were not forked, and would be waited for without end
        code = main(words)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
