"""`platform check` on every shipped config, with data of the right form made up here: a line for each, with the seconds by the
clock and those of processors.

    python benchmarks/check_configs.py
    python benchmarks/check_configs.py configs/language_modeling/gpt2_small.yaml --json checked.json

Models have their full size, with vocabularies as large as the configs ask for: the made-up text has words enough. What stands
in for the data of the hub or for files is given by --data keys alone; data that a config makes itself is made, ListOps less of
it. A config that begins with another run's weights begins with fresh ones.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
WORDS, LETTERS = 30_000, "abcdefghijklmnopqrstuvwxyz"
EVALUATED = 200
PLATFORM = [sys.executable, "-c", "import sys; from polyformer.cli import main; sys.exit(main())"]
OUTCOMES = ("pass", "warning", "not applicable", "fail")
FEWER = {"ListOps": ["--data.train_count", "400", "--data.evaluation_count", "100"]}
"""Data that configs make themselves, and words that make less of it."""


def main() -> int:
    arguments = options()
    heading = f"{'config':<44}{'parameters':>13}{'hold':>6}{'warn':>6}{'n/a':>5}{'broken':>8}{'seconds':>9}{'processor':>11}"
    print(heading, flush=True)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for path in arguments.configs or shipped():
            results[str(path)] = result = checked(path.resolve(), Path(folder))
            print(line(path, result), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))
    return int(any("said" in result or result["outcomes"].get("fail") for result in results.values()))


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", type=Path, help="all that are shipped, if not given")
    parser.add_argument("--json", type=Path, help="where to write every law's outcome")
    return parser.parse_args()


def shipped() -> list[Path]:
    """Every config of a training."""
    return [path for path in sorted((ROOT / "configs").rglob("*.yaml")) if path.parent.name != "compare"]


def checked(config: Path, folder: Path) -> dict[str, Any]:
    """What `platform check` finds, in a process and a folder of its own."""
    place = Path(tempfile.mkdtemp(dir=folder))
    words = stand_ins(yaml.safe_load(config.read_text()), place)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
    begin, used = time.perf_counter(), processor_seconds()
    command = [*PLATFORM, "check", "--json", "--config", str(config), *words]
    ran = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
    told = {"seconds": time.perf_counter() - begin, "processor": processor_seconds() - used}
    try:
        found = json.loads(ran.stdout)
    except json.JSONDecodeError:
        return {**told, "said": (ran.stderr.strip() or f"exit code {ran.returncode}").splitlines()[-1]}
    return {**told, **found, "outcomes": Counter(law["outcome"] for law in found["laws"])}


def processor_seconds() -> float:
    """What processes that have ended have used of all cores."""
    used = os.times()
    return used.children_user + used.children_system


def line(config: Path, result: dict[str, Any]) -> str:
    """A config's line of the table; beneath it the laws that are broken."""
    name = f"{config.parent.name}/{config.stem}"
    if "said" in result:
        return f"{name:<44}{result['said']}"
    parameters = result["subject"][0].partition("(")[2].partition(" ")[0]
    hold, warning, absent, broken = (result["outcomes"].get(outcome, 0) for outcome in OUTCOMES)
    told = f"{name:<44}{parameters:>13}{hold:>6}{warning:>6}{absent:>5}{broken:>8}{result['seconds']:>9.0f}"
    told += f"{result['processor']:>11.0f}"
    wrong = [f"\n    {law['says']}: {law['what']}" for law in result["laws"] if law["outcome"] == "fail"]
    return told + "".join(wrong)


def stand_ins(config: dict[str, Any], folder: Path) -> list[str]:
    """Made-up files in a folder, and the words that name them."""
    task, data = (config[key] for key in ("task", "data"))
    task = task if isinstance(task, str) else task["class_path"]
    kind, given = (data["class_path"], data["init_args"]) if "class_path" in data else ("", data)
    words = ["--model.init_from", "null"] if "init_from" in config["model"] else []
    if kind in FEWER or not {"train", "parts"}.intersection(given):
        return words + FEWER.get(kind, [])
    if kind == "MixedData":
        parts = {f"--data.parts.{name}": part["init_args"] for name, part in given["parts"].items()}
        return words + [word for key, part in parts.items() for word in files("Classification", part, key, folder)]
    return words + files(task, given, "--data", folder)


def files(task: str, given: dict[str, Any], key: str, folder: Path) -> list[str]:
    """Files for the splits that a config names, training data always, and the words that name them."""
    chance, words = random.Random(0), []
    ending, write = FORMS[task]
    for split in ("train", "validation", "test"):
        if split == "train" or given.get(split) is not None:
            path = folder / f"{key.strip('-')}.{split}.{'conllu' if 'word' in given else ending}"
            path.write_text(write(list(sentences(chance, split)), given))
            words += [f"{key}.{split}", str(path)]
    return words


def sentences(chance: random.Random, split: str) -> Iterator[list[str]]:
    """Sentences of words that come twice each in the training data, in which there is nothing to learn."""
    known = random.Random(1)
    words = ["".join(known.choices(LETTERS, k=known.randint(4, 9))) for _ in range(WORDS)]
    chosen = chance.sample(words * 2, 2 * WORDS) if split == "train" else chance.choices(words, k=12 * EVALUATED)
    while chosen:
        length = chance.randint(4, 20)
        yield chosen[:length]
        del chosen[:length]


def text(rows: Sequence[list[str]], given: dict[str, Any]) -> str:
    return "".join(" ".join(row) + "\n" for row in rows)


def table(rows: Sequence[list[str]], given: dict[str, Any]) -> str:
    """JSON lines with the columns that a config names: of a text or a pair of them, and of a label."""
    lines = []
    for number, row in enumerate(rows):
        cells: dict[str, Any] = {given.get("label", "label"): ["no", "yes", "maybe"][number % 3]}
        names = [given[name] for name in ("source", "target") if isinstance(given.get(name), str)]
        for name in names or [given.get("text", "text"), *([given["second"]] if "second" in given else [])]:
            outer, _, inner = name.rpartition(".")
            (cells.setdefault(outer, {}) if outer else cells)[inner] = " ".join(row)
        lines.append(json.dumps(cells) + "\n")
    return "".join(lines)


def columns(rows: Sequence[list[str]], given: dict[str, Any]) -> str:
    """A line for each word, of as many columns as CoNLL-2003 has or Universal Dependencies."""
    names = ["NOUN", "VERB", "X"] if "word" in given else ["O", "B-PER", "O", "B-LOC"]

    def written(number: int, word: str) -> str:
        label = names[number % len(names)]
        return f"{number + 1}\t{word}\t_\t{label}" + "\t_" * 6 if "word" in given else f"{word} X X {label}"

    return "\n\n".join("\n".join(written(*cell) for cell in enumerate(row)) for row in rows) + "\n\n"


def questions(rows: Sequence[list[str]], given: dict[str, Any]) -> str:
    """Paragraphs in the form of SQuAD, each with a question."""
    paragraphs = []
    for number, row in enumerate(rows):
        at, context = len(row) // 2, " ".join(row)
        answer = {"text": row[at], "answer_start": len(" ".join(row[:at])) + 1}
        asked = {"id": str(number), "question": f"Which {row[-1]}?", "answers": [answer]}
        paragraphs.append({"context": context, "qas": [asked]})
    return json.dumps({"version": "1.1", "data": [{"title": "made up", "paragraphs": paragraphs}]})


FORMS: dict[str, tuple[str, Callable[[Sequence[list[str]], dict[str, Any]], str]]] = {
    "Classification": ("jsonl", table),
    "LanguageModeling": ("txt", text),
    "MaskedLanguageModeling": ("jsonl", table),
    "QuestionAnswering": ("json", questions),
    "Tagging": ("txt", columns),
    "Translation": ("jsonl", table),
}
"""The ending of a task's files, and what stands in them."""


if __name__ == "__main__":
    sys.exit(main())
