"""The memory that training takes on a corpus that does not fit into it.

    python benchmarks/large_corpus.py --folder /tmp/large --gigabytes 2 --steps 200

Writes a corpus of made-up words into the folder (once), trains a small language model on it by the command, and prints the
highest resident memory of all processes together, while the text is encoded and while the model is trained. Pages that
processes share count once (they are divided among them, as Linux's "proportional set size" does).
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

MEGABYTE = 10**6
SHARD = 100  # megabytes in a file
WORDS, SYLLABLES = 60_000, ("ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu", "na", "pe", "ri", "so", "tu", "va")
LONGEST = 400  # words of a document


def main() -> None:
    arguments = parse()
    shards = write_corpus(arguments.folder, round(1000 * arguments.gigabytes))
    size = sum(shard.stat().st_size for shard in shards)
    print(f"{len(shards)} files, {size / MEGABYTE:,.0f} MB")
    peaks = train(arguments)
    for phase, (megabytes, seconds) in peaks.items():
        print(f"{phase:<10} {megabytes:>7,.0f} MB at most, {seconds:>6,.0f} s")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="for corpus, cache and run; about three times its size")
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--steps", type=int, default=200, help="of training")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def write_corpus(folder: Path, megabytes: int) -> list[Path]:
    """Files of documents, one a line, of words whose frequencies follow Zipf's law; those that are there stay."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 5, WORDS)
    words = np.array(["".join(generator.choice(SYLLABLES, length)) for length in lengths], dtype=object)
    shares = 1.0 / np.arange(1, WORDS + 1)
    cumulated = np.cumsum(shares / shares.sum())
    paths = [folder / f"part-{number:03}.txt" for number in range(-(-megabytes // SHARD))]
    for number, path in enumerate(paths):
        if not path.exists():
            most = min(SHARD, megabytes - number * SHARD) * MEGABYTE
            write_shard(path, words, cumulated, most, np.random.default_rng(number))
    return paths


def write_shard(path: Path, words: np.ndarray, cumulated: np.ndarray, most: int, generator: np.random.Generator) -> None:
    """A file of at least so many bytes."""
    temporary, written = path.with_suffix(".part"), 0
    with temporary.open("w", encoding="utf-8") as file:
        while written < most:
            drawn = words[np.searchsorted(cumulated, generator.random(int(generator.integers(20, LONGEST))))]
            written += file.write(" ".join(drawn) + "\n")
    temporary.replace(path)


def train(arguments: argparse.Namespace) -> dict[str, tuple[float, float]]:
    """The peak of memory in megabytes and the seconds of each phase: "encoding", then "training" from the first step on."""
    run = arguments.folder / "run"
    subprocess.run(["rm", "-rf", str(run)], check=True)
    environment = {**os.environ, "POLYFORMER_CACHE": str(arguments.folder / "cache")}
    config = Path(__file__).parent.parent / "configs" / "language_modeling" / "quickstart.yaml"
    words = ["fit", "--config", str(config), "--run", str(run), "--data", "TextData", "--data.window", "128"]
    words += ["--data.train", str(arguments.folder / "part-*.txt"), "--trainer.max_steps", str(arguments.steps)]
    program = "import sys; from polyformer.cli import main; sys.exit(main())"
    process = subprocess.Popen([sys.executable, "-c", program, *words], env=environment)
    peaks, began = {"encoding": (0.0, 0.0), "training": (0.0, 0.0)}, time.perf_counter()
    while process.poll() is None:
        phase = "training" if (run / "metrics.csv").exists() else "encoding"
        seconds = time.perf_counter() - began - (peaks["encoding"][1] if phase == "training" else 0.0)
        peaks[phase] = (max(peaks[phase][0], resident(process.pid)), seconds)
        time.sleep(0.5)
    if process.returncode:
        sys.exit(process.returncode)
    return peaks


def resident(process: int) -> float:
    """Megabytes that a process and all below it hold in memory."""
    total = 0
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        total = sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # it has just ended
        children = []
    return total / MEGABYTE + sum(resident(int(child)) for child in children)


if __name__ == "__main__":
    main()
