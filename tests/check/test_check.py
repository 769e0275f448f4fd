"""`platform check`: what it says of configs, of checkpoints, of data that is not here, and of networks it does not know."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from polyformer.check import LAWS, Subject, of_checkpoint
from polyformer.check.decoding import mates, rescored
from polyformer.check.ledger import NEEDS, words_of
from polyformer.check.loss import metrics
from polyformer.check.pool import evaluation_pools
from polyformer.cli import main
from polyformer.data import sources
from polyformer.training import find_checkpoint, load_task, read_checkpoint

from ..cli.test_local_task import forget
from .small import broken, make, write_config, write_data

ROOT = Path(__file__).parents[2]
NETWORKS = sorted(path for path in (ROOT / "configs").rglob("*.yaml") if " train: " in path.read_text())
QUICK = {
    "translation/quickstart": ["--model.d_model", "32", "--data.train_count", "300"],
    "language_modeling/quickstart": ["--model.d_model", "32", "--data.limit_megabytes", "0.1",
                                     "--data.tokenizer.vocab_size", "400"],
    "classification/quickstart": ["--model.d_model", "32", "--data.lines", "60", "--data.tokenizer.vocab_size", "400"],
    "classification/listops": ["--model.d_model", "32", "--data.train_count", "60", "--data.evaluation_count", "20",
                               "--data.min_length", "20", "--data.max_length", "60"],
}  # fmt: skip
"""Configs that make their data themselves, and words that make less of it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("check")
    write_data(made)
    return made


def checked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code and what is said as JSON."""
    capsys.readouterr()
    code = main(["check", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def outcomes(report: dict[str, Any]) -> dict[str, str]:
    return {law["law"]: law["outcome"] for law in report["laws"]}


# ---- the ledger


def test_every_law_has_a_name_and_words_of_its_own() -> None:
    assert len({law.__name__ for law in LAWS}) == len({words_of(law) for law in LAWS}) == len(LAWS)
    assert all(0 < len(words_of(law)) < 66 for law in LAWS)


def test_laws_come_after_those_they_need() -> None:
    places = {law: place for place, law in enumerate(LAWS)}
    assert all(places[need] < places[law] for law, needs in NEEDS.items() for need in needs)


# ---- the command


@pytest.mark.parametrize("config", QUICK)
def test_configs_that_need_no_files_pass(folder: Path, capsys: pytest.CaptureFixture[str], config: str) -> None:
    assert main(["check", "--config", str(ROOT / "configs" / f"{config}.yaml"), *QUICK[config]]) == 0
    said = capsys.readouterr().out
    assert "FAIL" not in said and "0 broken" in said and "fresh weights, shaken, float32 on cpu" in said
    lines = [line for line in said.splitlines() if line.startswith(("pass", "warning", "-"))]
    assert len(lines) == len(LAWS)
    assert {line.find("<=") for line in lines} - {-1} == {max(line.find("<=") for line in lines)}  # one column


@pytest.mark.parametrize("config", NETWORKS, ids=lambda path: f"{path.parent.stem}-{path.stem}")
def test_the_networks_of_all_configs_pass_without_data(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, config: Path
) -> None:
    def unreachable(*_: Any) -> None:
        raise OSError("no hub here")

    monkeypatch.chdir(folder)
    monkeypatch.setattr(sources, "_load_hub", unreachable)
    monkeypatch.setattr(Subject, "reloaded", property(lambda subject: subject.task))  # loading takes longer than the rest
    model = yaml.safe_load(config.read_text())["model"]
    deep = max(len(own) if isinstance(own, list) else 1 for own in (model.get("mixers"), model.get("positions")))
    small = {"d_model": 4 * model.get("num_heads", 4)} | {key: deep for key in model if key.endswith("_layers")}
    words = [word for key, value in small.items() for word in (f"--model.{key}", str(value))]
    if config.stem != "sst2_snli":
        words += ["--data.tokenizer.vocab_size", "300"]
    code, report = checked(capsys, "--config", str(config), *words)
    found = outcomes(report)
    assert code == 0 and report["holds"] and "without data" in report["subject"][-1]
    assert found["batch_order"] == found["left_padding"] == found["seeing_nothing"] == "pass"
    assert found["parts"] == found["epoch"] == found["readable"] == "not applicable"


def test_a_checkpoint_is_judged_with_the_weights_it_has(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = folder / "run"
    words = ["--trainer.max_steps", "2", "--trainer.accelerator", "cpu"]
    assert main(["fit", "--config", write_config(folder, "LanguageModeling"), "--run", str(run), *words]) == 0
    code, report = checked(capsys, "--ckpt_path", str(run))
    assert code == 0 and "the weights of" in report["subject"][0]
    assert outcomes(report)["accumulation"] == outcomes(report)["metrics"] == "pass"
    place = find_checkpoint(str(run))
    subject = of_checkpoint(*load_task(place), str(place), torch.device("cpu"))
    stored = read_checkpoint(place)["state_dict"]
    assert all(torch.equal(value, stored[name]) for name, value in subject.task.state_dict().items())


def test_data_that_is_not_here_is_done_without(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = checked(capsys, "--config", write_config(folder, "Translation"), "--data.train", "nowhere.tsv")
    found = {law["law"]: law for law in report["laws"]}
    assert code == 0 and "nowhere.tsv" in report["subject"][-1] and "random tokens" in report["subject"][1]
    assert found["mates"]["outcome"] == "pass"
    assert found["parts"]["outcome"] == "not applicable" and found["parts"]["what"] == "the training data is not here"


def test_data_that_is_here_but_broken_is_a_finding(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "broken.tsv").write_text("one two\teins zwei\none column\n")
    words = ["--config", write_config(folder, "Translation"), "--data.train", str(folder / "broken.tsv")]
    assert main(["check", *words]) == 1
    said = capsys.readouterr().out
    assert "FAIL    The training data can be read" in said and "broken.tsv" in said and "1 broken" in said


def test_a_label_that_training_does_not_know_is_a_finding(folder: Path) -> None:
    (folder / "other.tsv").write_text("one two\ttwo one\tmost\n")
    assert broken(make(folder, "Classification", "--data.validation", str(folder / "other.tsv"))) == {"splits"}


def test_a_last_window_that_is_shorter_is_measured_by_its_own_end(folder: Path) -> None:
    (folder / "short.txt").write_text("one two three four five six seven eight nine ten\n" * 8)
    words = ["--model.max_length", "128", "--data.window", "128", "--data.stride", "64"]
    subject = make(folder, "LanguageModeling", *words, "--data.validation", str(folder / "short.txt"))
    (pool,) = evaluation_pools(subject.data, "validation")
    assert len(pool.places) == 2 and len(pool.source[[1]]["tokens"][0]) < 129
    assert metrics(subject).outcome == "pass"


def test_a_score_may_be_rounded_as_the_logits_that_it_comes_from(folder: Path) -> None:
    subject = make(folder, "LanguageModeling")
    with torch.no_grad():
        subject.probe.network.output.table.mul_(20.0)  # so that what is written is sure, and its score near 0
    largest = max(float(outputs.detach().abs().max()) for outputs in subject.probe.outputs(subject.texts))
    for result in (rescored(subject), mates(subject)):
        assert result.outcome == "pass" and result.tolerance is not None and result.tolerance > 1e-5 * largest > 1e-4


def test_a_length_that_the_position_cannot_tell_is_refused_as_by_fit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--config", write_config(folder, "Translation"), "--model.position", "Learned", "--model.max_length", "5"]
    assert main(["check", *words]) == 1
    assert "`model.max_length` is 5" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "say what is to be checked"),
        (["--config", "nowhere.yaml"], "nowhere.yaml: no such file"),
        (["--ckpt_path", "runs/one", "--model.d_model", "3"], "--model.d_model is for training"),
    ],
)
def test_a_command_line_that_is_wrong(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *words]) == 2
    assert message in capsys.readouterr().err


# ---- networks of other kinds

HEAD = """
from torch import nn, tensor
from torch.nn import functional as F

from polyformer.data import LabelledData
from polyformer.models import StackOptions
from polyformer.text import PAD
from polyformer.training import Loss, Task


class BagOfWords(Task):
    model_class = StackOptions
    data_class = LabelledData

    def __init__(self, assets, options):
        super().__init__(assets, options)
        self.network = nn.Embedding(len(assets.tokenizers["text"]), len(assets.labels["label"]))

    def loss(self, batch):
        scores = self.network(batch.tokens)SEEN
        return Loss(F.cross_entropy(scores.sum(dim=1), batch.target, reduction="sum"), tensor(len(batch)))
"""


@pytest.mark.parametrize(("seen", "fault"), [(".masked_fill((batch.tokens == PAD).unsqueeze(-1), 0.0)", None), ("", "padding")])
def test_a_network_of_its_own_is_judged_by_its_loss_and_data(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    seen: str,
    fault: str | None,
) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "bag_of_words.py").write_text(HEAD.replace("SEEN", seen))
    file = tmp_path / "bag.yaml"
    file.write_text(f"task: BagOfWords\ndata: {{train: {folder}/labelled.tsv, text: 0, label: 2, tokenizer: {{kind: word}}}}")
    monkeypatch.chdir(tmp_path)
    forget()
    code, report = checked(capsys, "--config", str(file))
    forget()
    found = outcomes(report)
    assert code == (1 if fault else 0) and [name for name in found if found[name] == "fail"] == ([fault] if fault else [])
    assert report["subject"][1] == "the network is of a kind of its own"
    assert found["parts"] == found["gradients"] == found["saved"] == found["epoch"] == "pass"
    assert found["causal"] == found["cached"] == found["right_padding"] == "not applicable"
