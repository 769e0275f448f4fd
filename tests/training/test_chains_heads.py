"""Heads that begin with another task's weights: what is about other labels begins anew, everything else goes on."""

import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ..tasks.test_classification import one_label, sentence, write
from .test_chains import MASKED, STILL, fit, frozen, weights

ALONE = ["--data.validation", "null", "--data.test", "null", "--trainer.max_steps", "2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Labelled texts, the same with a label called otherwise, the same with numbers, and plain text."""
    made = tmp_path_factory.mktemp("runs")
    write(made, one_label)
    rows = [line.split("\t") for line in (made / "train.tsv").read_text().splitlines()[1:]]
    table(made / "renamed.tsv", [(text, label.replace("good", "great")) for text, label in rows])
    table(made / "count.tsv", [(text, str(len(text) % 5)) for text, _ in rows])
    chance = random.Random(5)
    (made / "text.txt").write_text("".join(sentence(chance, "fine", "strange") + "\n" for _ in range(80)))
    (made / "mlm.yaml").write_text(MASKED.replace("FOLDER", str(made)))
    return made


def table(file: Path, rows: list[tuple[str, str]]) -> None:
    file.write_text("".join(f"{text}\t{label}\n" for text, label in [("text", "label"), *rows]))


def told(run: Path, part: str) -> str:
    """What the table in the log says of a part."""
    found = re.search(rf"  {re.escape(part)} +(.*)$", (run / "log.txt").read_text(), re.MULTILINE)
    return found[1] if found else ""


@pytest.mark.parametrize("pooling", ["MeanMax", "AttentionPooling"])
def test_a_head_of_other_labels_begins_anew_and_pooling_goes_on(folder: Path, pooling: str) -> None:
    words = ["--model.pooling", pooling, *ALONE]
    given = fit(folder, "small.yaml", f"given_{pooling}", *words)
    words += ["--model.init_from", str(given), *STILL, "--data.train"]
    same = fit(folder, "small.yaml", f"same_{pooling}", *words, str(folder / "train.tsv"))
    other = fit(folder, "small.yaml", f"other_{pooling}", *words, str(folder / "renamed.tsv"))
    assert frozen(same, given, "last") == set(weights(given))
    assert frozen(other, given, "last") == {name for name in weights(given) if not name.startswith("output.")}
    assert told(other, "pooling") == ("288 loaded" if pooling == "AttentionPooling" else "")


def test_the_head_of_a_masked_model_goes_on_beside_another(folder: Path) -> None:
    first = fit(folder, "mlm.yaml", "mlm")
    run = fit(folder, "mlm.yaml", "mlm_and_next", "--model.init_from", str(first), "--data.next_sentence", "true", *STILL)
    assert frozen(run, first) == set(weights(first))
    assert (told(run, "head"), told(run, "next_sentence")) == ("304 loaded", "17 new")


def test_heads_go_on_where_a_part_is_added(folder: Path) -> None:
    """One part has other labels now and begins anew; a number with the same mean and deviation goes on."""
    given = fit(folder, several(folder, "three", mood="train", count="count", other="train"), "three")
    words = ["--model.init_from", str(given), *STILL]
    run = fit(folder, several(folder, "four", mood="train", count="count", other="renamed", new="train"), "four", *words)
    assert frozen(run, given, "last") == {name for name in weights(given) if not name.startswith("tasks.other.output.")}
    found = [told(run, f"tasks.{part}") for part in ("mood", "count", "other", "new")]
    assert found == ["99 loaded", "33 loaded", "99 new", "99 new"]


def several(folder: Path, name: str, **files: str) -> str:
    """A config of several parts, each with the table that it is trained on."""
    config = yaml.safe_load((folder / "small.yaml").read_text())
    common = {key: config["data"][key] for key in ("limits", "tokenizer", "batches")}
    kinds = {part: {"kind": "number" if file == "count" else "class"} for part, file in files.items()}
    parts = {part: {"train": str(folder / f"{file}.tsv"), "target": kinds[part], **common} for part, file in files.items()}
    config["data"] = {"class_path": "MixedData", "init_args": {"parts": {part: labelled(data) for part, data in parts.items()}}}
    config["task"] = {"class_path": "MultiTask", "init_args": {"tasks": dict.fromkeys(files, "Classification")}}
    config["trainer"] = {"max_steps": 6, "accelerator": "cpu"}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(config))
    return f"{name}.yaml"


def labelled(data: dict[str, Any]) -> dict[str, Any]:
    return {"class_path": "LabelledData", "init_args": data}
