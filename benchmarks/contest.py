"""Contests: the same work for several contenders, in turns, each turn in a fresh process.

A machine that is shared drifts, so a rate means little; a ratio within a round, in which every contender had its turn,
means more, and the median of such ratios over rounds is what is reported. A fresh process makes the peak of memory
honest.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

__all__ = ["Contest", "Turn", "answer_turn", "hold", "machine", "options", "peak_megabytes", "play", "table"]

Turn = dict[str, Any]
"""What one contender did in one round: its "rate" and "peak" megabytes, or "missing" with the reason."""

Contest = tuple[str, dict[str, Any], str]
"""A title, the job, whose "work" says who takes part, and what its rate counts per second."""


def options(description: str | None, contenders: dict[str, list[str]]) -> argparse.ArgumentParser:
    """The options that every benchmark has.

    Args:
        description: What the benchmark is.
        contenders: Who takes part in each kind of work.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    everybody = sorted({name for names in contenders.values() for name in names})
    parser.add_argument("--work", nargs="+", choices=[*contenders], default=[*contenders])
    parser.add_argument("--contenders", nargs="+", choices=everybody, help="all, if not given")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6, help="timed steps or batches in a turn")
    parser.add_argument("--warm-up", type=int, default=2, help="steps or batches before them")
    parser.add_argument("--precision", nargs="+", choices=["float32", "bf16"], default=["float32"], help="of training")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="where to write every turn")
    parser.add_argument("--turn", help=argparse.SUPPRESS)
    return parser


def hold(
    script: str, contests: list[Contest], contenders: dict[str, list[str]], packages: list[str], arguments: argparse.Namespace
) -> None:
    """Plays contests and prints their tables, the machine before them.

    Args:
        script: The benchmark's own file, see :func:`play`.
        contests: What is played, one after another; "steps" and "warm_up" are added to their jobs.
        contenders: Who takes part in each kind of work; Polyformer is "polyformer".
        packages: Whose versions are told.
        arguments: Of :func:`options`.
    """
    about = machine(arguments.threads, packages)
    print("\n".join(f"{name:<11}{value}" for name, value in about.items()))
    results: list[dict[str, Any]] = []
    for title, job, unit in contests:
        job = {**job, "steps": arguments.steps, "warm_up": arguments.warm_up}
        allowed = contenders[job["work"]]
        chosen = [name for name in allowed if not arguments.contenders or name in arguments.contenders]
        turns = play(Path(script).resolve(), job, chosen, arguments.rounds, arguments.threads)
        lines = table(turns, "polyformer", unit)
        print("\n" + "\n".join([f"{title}; medians of {arguments.rounds} rounds", *lines]), flush=True)
        results.append({"title": title, "job": job, "turns": turns})
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": about, "contests": results}, indent=1))


def play(script: Path, job: dict[str, Any], contenders: list[str], rounds: int, threads: int) -> dict[str, list[Turn]]:
    """Lets every contender do the job once per round, in turn; who is missing at first is not asked again.

    Args:
        script: Is run as ``script --turn JOB`` and answers with :func:`answer_turn`.
        job: What to do; "contender" and "round" are added.
        contenders: Their names.
        rounds: Number of rounds.
        threads: Threads of every contender.
    """
    turns: dict[str, list[Turn]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name in contenders[number % len(contenders) :] + contenders[: number % len(contenders)]:
            if turns[name] and "missing" in turns[name][0]:
                continue
            turn = _turn(script, {**job, "contender": name, "round": number, "threads": threads})
            turns[name].append(turn)
            said = turn.get("missing") or f"{turn['rate']:.1f} per second, {turn['peak']:.0f} MB"
            print(f"  round {number + 1}, {name}: {said}", file=sys.stderr, flush=True)
    return turns


def _turn(script: Path, job: dict[str, Any]) -> Turn:
    threads = str(job["threads"])
    quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}
    environment = {**os.environ, **quiet, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    command = [sys.executable, str(script), "--turn", json.dumps(job)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = ran.stdout.strip().splitlines()
    if ran.returncode or not lines:
        last = (ran.stderr.strip().splitlines() or [f"exit code {ran.returncode}"])[-1]
        return {"missing": f"failed: {last}"}
    answer: Turn = json.loads(lines[-1])
    return answer


def answer_turn(turn: Turn) -> None:
    """Prints, from within a turn's process, what it did."""
    print(json.dumps({"peak": peak_megabytes(), **turn}), flush=True)


def peak_megabytes() -> float:
    """The most memory this process ever held.

    Linux tells it per program as VmHWM; `ru_maxrss` there also remembers the parent that the process was forked from.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024


def machine(threads: int, packages: list[str]) -> dict[str, str]:
    """What a figure depends on besides the code."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    named = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    flags = next((line.split(":")[1].split() for line in lines if line.startswith("flags")), [])
    wide = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags]
    return {
        "processor": f"{named[0] if named else platform.processor() or platform.machine()} ({' '.join(wide)})",
        "cores": str(os.cpu_count()),
        "threads": str(threads),
        "load": f"{os.getloadavg()[0]:.1f} when this began",
        "python": platform.python_version(),
        "packages": ", ".join(f"{name} {_version(name)}" for name in packages),
        "time": time.strftime("%Y-%m-%d %H:%M"),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def table(turns: dict[str, list[Turn]], ours: str, unit: str) -> list[str]:
    """The contest as lines of text: rates, memory, and their ratios to the best of the peers.

    Args:
        turns: From :func:`play`.
        ours: What the names of contenders begin with that are no peers.
        unit: What the rate counts per second.
    """
    ran = {name: done for name, done in turns.items() if done and all("missing" not in turn for turn in done)}
    peers = [name for name in ran if not name.startswith(ours)]
    fastest = max(peers, key=lambda name: median(turn["rate"] for turn in ran[name]), default=None)
    leanest = min(peers, key=lambda name: median(turn["peak"] for turn in ran[name]), default=None)
    lines = [f"{'contender':<28}{unit + '/s':>18}{'x best peer':>13}{'peak MB':>10}{'x least peer':>14}   notes"]
    for name, done in turns.items():
        if name not in ran:
            reason = next(turn["missing"] for turn in done if "missing" in turn)
            lines.append(f"{name:<28}{'-':>18}{'-':>13}{'-':>10}{'-':>14}   {reason}")
            continue
        rate, peak = (median(turn[key] for turn in done) for key in ("rate", "peak"))
        faster = _ratio(done, ran[fastest], "rate") if fastest else "-"
        leaner = _ratio(done, ran[leanest], "peak") if leanest else "-"
        lines.append(f"{name:<28}{rate:>18.1f}{faster:>13}{peak:>10.0f}{leaner:>14}   {_note(done)}")
    return lines


def _ratio(ours: list[Turn], theirs: list[Turn], key: str) -> str:
    """The median over rounds of the ratio within a round."""
    return f"{median(one[key] / other[key] for one, other in zip(ours, theirs, strict=True)):.2f}"


def _note(turns: list[Turn]) -> str:
    first, last = turns[0], turns[-1]
    if "first_loss" in first:
        size = f"{first['parameters'] / 1e6:.2f} M parameters, " if "parameters" in first else ""
        return f"{size}loss {first['first_loss']:.2f} -> {first['last_loss']:.2f}"
    return f"{last['written']} tokens written in the last round"
