"""The time and the memory that a corpus takes which does not fit into memory, in hundreds of compressed files.

    python benchmarks/large_corpus.py --folder /tmp/large --gigabytes 5 --steps 200

Writes a corpus of made-up words into the folder (once), as JSON lines in .gz files, and trains a small language model on it by
the command: first with nothing in the cache, so that the text is encoded by all cores; then again, from the cache; then as a
stream. Gigabytes are those of the text, without JSON around it and before compression. Printed are, for each run, the seconds
to the first step and of the whole, and the resident memory of all processes together while it is encoded and while it is
trained. Pages that processes share count once (they are divided among them, as Linux's "proportional set size" does).
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

MEGABYTE = 10**6
WORDS, SYLLABLES = 60_000, ("ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu", "na", "pe", "ri", "so", "tu", "va")
LONGEST = 400  # words of a document
POOL = 20_000  # documents that every file draws its own from, since making words up takes longer than writing them
EVERY = 2.0  # seconds from one look at the memory to the next


def main() -> None:
    arguments = parse()
    began = time.perf_counter()
    shards = write_corpus(arguments.folder, round(1000 * arguments.gigabytes), arguments.shard_megabytes)
    size = sum(shard.stat().st_size for shard in shards)
    print(f"corpus: {arguments.gigabytes:g} GB of text in {len(shards)} files, {size / MEGABYTE:,.0f} MB on disk, "
          f"written in {time.perf_counter() - began:,.0f} s", flush=True)  # fmt: skip
    for name, words in (("encoded", ["TextData"]), ("cached", ["TextData"]), ("streamed", ["TextStream"])):
        show(name, train(arguments, name, words))
    size = sum(file.stat().st_size for file in (arguments.folder / "cache").rglob("*") if file.is_file())
    print(f"cache: {size / MEGABYTE:,.0f} MB")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="for corpus, cache and run; about three times its size")
    parser.add_argument("--gigabytes", type=float, default=5.0, help="of text")
    parser.add_argument("--shard_megabytes", type=int, default=20, help="of text in a file")
    parser.add_argument("--kind", default="word", help="of tokenizer")
    parser.add_argument("--steps", type=int, default=200, help="of training")
    return parser.parse_args()


def write_corpus(folder: Path, megabytes: int, shard: int) -> list[Path]:
    """Files of documents of words whose frequencies follow Zipf's law; those that are there stay."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "shards" / f"part-{number:04}.jsonl.gz" for number in range(-(-megabytes // shard))]
    paths[0].parent.mkdir(exist_ok=True)
    documents = make_documents(np.random.default_rng(0)) if not all(path.exists() for path in paths) else []
    for number, path in enumerate(paths):
        if not path.exists():
            most = min(shard, megabytes - number * shard) * MEGABYTE
            write_shard(path, documents, most, np.random.default_rng(number))
    return paths


def make_documents(generator: np.random.Generator) -> list[tuple[bytes, int]]:
    """Lines of JSON, and how long the text in each is."""
    lengths = generator.integers(2, 10, WORDS)
    words = np.array(["".join(generator.choice(SYLLABLES, length)) for length in lengths], dtype=object)
    shares = 1.0 / np.arange(1, WORDS + 1)
    cumulated = np.cumsum(shares / shares.sum())
    texts = (
        " ".join(words[np.searchsorted(cumulated, generator.random(int(generator.integers(20, LONGEST))))]) for _ in range(POOL)
    )
    return [(json.dumps({"text": text}).encode() + b"\n", len(text)) for text in texts]


def write_shard(path: Path, documents: list[tuple[bytes, int]], most: int, generator: np.random.Generator) -> None:
    """A file of at least so many bytes of text."""
    temporary, written = path.with_suffix(".part"), 0
    with gzip.open(temporary, "wb", compresslevel=1) as file:
        while written < most:
            line, size = documents[int(generator.integers(len(documents)))]
            file.write(line)
            written += size
    temporary.replace(path)


def train(arguments: argparse.Namespace, name: str, data: list[str]) -> list[tuple[float, float, int]]:
    """(seconds since the start, megabytes, steps made) every few seconds, and at the end."""
    run = arguments.folder / name
    subprocess.run(["rm", "-rf", str(run)], check=True)
    environment = {**os.environ, "POLYFORMER_CACHE": str(arguments.folder / "cache")}
    config = Path(__file__).parent.parent / "configs" / "language_modeling" / "quickstart.yaml"
    words = ["fit", "--config", str(config), "--run", str(run), "--data", *data, "--data.window", "128"]
    words += ["--model.d_model", "64", "--model.num_layers", "1", "--data.tokenizer.kind", arguments.kind]
    words += ["--data.train", str(arguments.folder / "shards"), "--trainer.max_steps", str(arguments.steps)]
    words += ["--trainer.log_every_n_steps", "1", "--data.batches.tokens", "2048"]
    program = "import sys; from polyformer.cli import main; sys.exit(main())"
    process = subprocess.Popen([sys.executable, "-c", program, *words], env=environment)
    return watched(process, lambda: steps_of(run / "metrics.csv"))


def watched(process: subprocess.Popen[bytes], steps: Callable[[], int]) -> list[tuple[float, float, int]]:
    """What is seen of a process until it ends."""
    began, seen = time.perf_counter(), list[tuple[float, float, int]]()
    while process.poll() is None:
        made, megabytes = steps(), resident(process.pid)
        seen.append((time.perf_counter() - began, megabytes, made))
        time.sleep(EVERY if made else min(EVERY, 0.5))
    if process.returncode:
        sys.exit(process.returncode)
    return seen


def steps_of(file: Path) -> int:
    """The lines of a run's metrics so far, one for each step."""
    try:
        return max(file.read_bytes().count(b"\n") - 1, 0)
    except FileNotFoundError:
        return 0


def show(name: str, seen: list[tuple[float, float, int]]) -> None:
    """The seconds and the memory of a run, before its first step and in each fifth of the time after."""
    before, after = [row for row in seen if not row[2]], [row for row in seen if row[2]]
    print(f"{name}: first step after {after[0][0]:,.0f} s, all after {seen[-1][0]:,.0f} s")
    print(f"    before: at most {max(megabytes for _, megabytes, _ in before):,.0f} MB")
    parts = [part for part in np.array_split([megabytes for _, megabytes, _ in after], 5) if len(part)]
    print("    training: at most " + ", ".join(f"{part.max():,.0f}" for part in parts) + " MB", flush=True)


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
