"""A task that begins with another's weights: what is loaded, what is refused, and what becomes of the frozen parts."""

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from polyformer.cli import main
from polyformer.training import load_task, read_checkpoint

from ..cli.small import metrics_of, results_of
from ..tasks.test_classification import one_label, sentence, write

LANGUAGE_MODEL = """
task: LanguageModeling
model: {d_model: 16, num_heads: 2, num_layers: 2, max_length: 32, dropout: 0.0}
data:
  train: FOLDER/text.txt
  validation: FOLDER/text.txt
  window: 32
  tokenizer: {kind: word, min_frequency: 1}
  batches: {tokens: 256}
training: {optimizer: {class_path: FusedAdamW, init_args: {lr: 0.01}}, schedule: Constant}
trainer: {max_steps: 6, val_check_interval: 6, log_every_n_steps: 2, accelerator: cpu}
"""
MASKED = LANGUAGE_MODEL.replace("LanguageModeling", "MaskedLanguageModeling").replace("window: 32", "max_length: 32")
MODEL = ["--model.num_layers", "2"]
STILL = ["--training.optimizer.init_args.lr", "0", "--trainer.max_steps", "1"]
TRANSLATION = """
task: Translation
model: {d_model: 16, num_heads: 2, encoder_layers: 2, decoder_layers: 1, dropout: 0.0, tied: TIED}
data:
  train: [FOLDER/text.txt, FOLDER/text.txt]
  tokenizer: {kind: word, min_frequency: 1, joint: JOINT}
  batches: {tokens: 400}
training: {optimizer: {class_path: FusedAdamW, init_args: {lr: 0.01}}, schedule: Constant}
trainer: {max_steps: 2, log_every_n_steps: 1, accelerator: cpu}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder with labelled texts, plain text and two configs."""
    made = tmp_path_factory.mktemp("runs")
    write(made, one_label)
    chance = random.Random(5)
    (made / "text.txt").write_text("".join(sentence(chance, "fine", "strange") + "\n" for _ in range(80)))
    for name, text in (("lm", LANGUAGE_MODEL), ("mlm", MASKED)):
        (made / f"{name}.yaml").write_text(text.replace("FOLDER", str(made)))
    return made


def fit(folder: Path, config: str, run: str, *words: str) -> Path:
    assert main(["fit", "--config", str(folder / config), "--run", str(folder / run), *words, "--debug"]) == 0
    return folder / run


@pytest.fixture(scope="module")
def first(folder: Path) -> Path:
    """A language model."""
    return fit(folder, "lm.yaml", "lm")


@pytest.fixture(scope="module")
def masked(folder: Path) -> Path:
    """A masked language model."""
    return fit(folder, "mlm.yaml", "mlm")


def weights(run: Path, name: str = "last") -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = read_checkpoint(run / "checkpoints" / f"{name}.ckpt")["state_dict"]
    return state


def is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.view(torch.int32), other.view(torch.int32))


def frozen(run: Path, before: Path, name: str = "best") -> set[str]:
    """The weights of a run that are, to the bit, those of another's checkpoint."""
    given = weights(before, name)
    return {name for name, value in weights(run).items() if name in given and is_same(value, given[name])}


# ---- what is loaded


@pytest.mark.parametrize(("kind", "left"), [("lm", "output +99 new, 352 not used"), ("mlm", "head +304 not used")])
def test_a_classifier_begins_with_a_language_model(folder: Path, kind: str, left: str, request: Any) -> None:
    """With a rate of zero nothing moves, so that everything loaded can be found again."""
    first = request.getfixturevalue({"lm": "first", "mlm": "masked"}[kind])
    run = fit(folder, "small.yaml", f"from_{kind}", "--model.init_from", str(first), *MODEL, *STILL)
    taken = {name for name in weights(first) if name.startswith(("network.embedding", "network.stack"))}
    assert frozen(run, first) == taken and len(taken) > 20
    task, _ = load_task(run / "checkpoints" / "best.ckpt")
    before, _ = load_task(first / "checkpoints" / "best.ckpt")
    assert task.assets.tokenizers["text"].fingerprint == before.assets.tokenizers["text"].fingerprint
    assert task.assets.labels["label"] == ["bad", "good", "plain"]
    log = (run / "log.txt").read_text()
    assert f"begun with the weights of {first}/checkpoints/best.ckpt (step 6):" in log
    assert f"text is read by the tokenizer of {first}/checkpoints/best.ckpt (word, 22 tokens): the keys of" in log
    for line in ("embedding +352 loaded", "stack +6,592 loaded", left):
        assert re.search(rf"  {line}$", log, re.MULTILINE)


@pytest.mark.parametrize(
    ("kind", "tied", "joint"), [("first", "all", "true"), ("first", "target", "false"), ("masked", "all", "true")]
)
def test_the_encoder_of_a_translator_begins_with_an_encoder_alone(
    folder: Path, kind: str, tied: str, joint: str, request: Any
) -> None:
    first = request.getfixturevalue(kind)
    text = TRANSLATION.replace("TIED", tied).replace("JOINT", joint).replace("FOLDER", str(folder))
    (folder / "translation.yaml").write_text(text)
    words = ["--model.init_from", str(first), "--training.optimizer.init_args.lr", "0"]
    run = fit(folder, "translation.yaml", f"{kind}_translator_{tied}", *words)
    given, own = weights(first, "best"), weights(run)
    pairs = {name: name.replace("network.stack", "network.encoder") for name in given if ".stack." in name}
    pairs["network.embedding.table"] = "network.source_embedding.table"
    assert len(pairs) > 20 and all(is_same(given[one], own[other]) for one, other in pairs.items())
    words = ["--model.init_from", str(run), *MODEL, "--trainer.max_steps", "1", "--training.optimizer.init_args.lr", "0"]
    again = weights(fit(folder, "small.yaml", f"from_{kind}_translator_{tied}", *words))
    assert all(is_same(given[name], again[name]) for name in pairs)
    assert kind == "first" or re.search("  head +304 not used$", (run / "log.txt").read_text(), re.MULTILINE)


def test_each_side_of_a_translator_keeps_its_tokenizer(folder: Path, first: Path) -> None:
    """Tables of the same size for other tokens are not taken for each other."""
    chance = random.Random(6)
    (folder / "other.txt").write_text("".join(sentence(chance, "fein", "seltsam") + "\n" for _ in range(80)))
    text = TRANSLATION.replace("TIED", "target").replace("JOINT", "false").replace("FOLDER", str(folder))
    text = text.replace(f"{folder}/text.txt]", f"{folder}/other.txt]")
    (folder / "sides.yaml").write_text(text)
    still = ["--training.optimizer.init_args.lr", "0"]
    new = fit(folder, "sides.yaml", "sides", "--model.init_from", str(first), *still)
    assert re.search(r"  target_embedding +[\d,]+ new$", (new / "log.txt").read_text(), re.MULTILINE)
    again = fit(folder, "sides.yaml", "sides_again", "--model.init_from", str(new), *still)
    assert {name for name, value in weights(again).items() if is_same(value, weights(new)[name])} == set(weights(new))
    tokenizers = [load_task(run / "checkpoints" / "last.ckpt")[0].assets.tokenizers for run in (first, new, again)]
    assert tokenizers[0]["text"].fingerprint == tokenizers[1]["source"].fingerprint == tokenizers[2]["source"].fingerprint
    assert tokenizers[1]["target"].fingerprint == tokenizers[2]["target"].fingerprint != tokenizers[1]["source"].fingerprint


@pytest.mark.parametrize("longest", ["20", "40"])
def test_learned_places_in_common_are_loaded(folder: Path, longest: str) -> None:
    words = ["--model.position", "Learned", "--trainer.max_steps", "1", "--training.optimizer.init_args.lr", "0"]
    given = fit(folder, "small.yaml", f"places_before_{longest}", *words)
    words += ["--model.init_from", str(given), "--model.max_length", longest]
    run = fit(folder, "small.yaml", f"places_{longest}", *words)
    (name,) = (name for name in weights(run) if ".positions." in name)
    rows = min(int(longest), 32)
    assert is_same(weights(run)[name][:rows], weights(given)[name][:rows])
    assert f"the first {rows} of {longest} places of a learned position are loaded" in (run / "log.txt").read_text()


def test_differing_keys_are_said(folder: Path, first: Path) -> None:
    words = ["--model.init_from", str(first), "--model.num_heads", "4", "--model.position", "Rotary"]
    words += ["--trainer.max_steps", "1"]
    log = (fit(folder, "small.yaml", "differs", *words) / "log.txt").read_text()
    assert "`model.num_heads` is 4 here, but 2 in" in log and "`model.position` is Rotary here, but Sinusoidal in" in log
    assert "`model.num_layers` is 1 here, but 2 in" in log and "not used" in log


def test_what_is_dropped_is_no_difference(folder: Path, first: Path) -> None:
    words = ["--model.init_from", str(first), "--model.mixer.dropout", "0.5", "--model.feed_forward.dropout", "0.5"]
    log = (fit(folder, "small.yaml", "dropped", *words, "--trainer.max_steps", "1") / "log.txt").read_text()
    assert "begun with the weights of" in log and " here, but " not in log.replace("`model.num_layers` is 1 here, but 2 in", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model.d_model", "12"], "none of its weights fits this model; network.embedding.table is"),
        (["--data.tokenizer.path", "other.json"], "is another tokenizer than the one that comes with `model.init_from`"),
        (
            ["--data.tokenizer.kind", "character"],
            "`data.tokenizer.kind` is character, but text is read by the one that comes with",
        ),
        (["--data.tokenizer.lowercase", "true"], "which keeps capitals: leave `data.tokenizer.lowercase` out"),
        (["--data.tokenizer.vocab_size", "9"], "which has 22 tokens: leave `data.tokenizer.vocab_size` out"),
        (["--model.init_from", "nowhere"], "nowhere: no such checkpoint or run folder"),
        (["--training.tuning.freeze", "[embeding]"], "has embeding, but this model has no such part; did you mean embedding?"),
        (["--training.tuning.freeze", "[encoder.0-2]"], "has encoder.0-2, but the layers of encoder are 0-0"),
        (["--training.tuning.freeze", "[pooling.0]"], "has pooling.0, but pooling has no layers"),
        (["--training.tuning.freeze", "[network, pooling, output]"], "leaves nothing to train"),
        (["--training.tuning.unfreeze_every", "3"], "`training.tuning.unfreeze_every` needs `training.tuning.freeze`"),
        (["--training.tuning.layer_decay", "0"], "`training.tuning.layer_decay` must be above 0 and at most 1, but is 0.0"),
        (["--training.tuning.freeze", "[network, encoder.0]", "--training.tuning.unfreeze_every", "2"], "within network"),
        (["--training.tuning.low_rank.rank", "2", "--training.averaging.kind", "ema"], "do not go together"),
        (["--training.tuning.low_rank.layers", "[project]"], "`training.tuning.low_rank.layers` (project) needs"),
        (["--training.tuning.low_rank.rank", "-1"], "`training.tuning.low_rank.rank` must be at least 0, but is -1"),
        (["--training.tuning.low_rank", "{rank: 2, layers: [embedding]}"], "(embedding) has no linear layers"),
    ],
)
def test_mistakes_are_named(folder: Path, first: Path, words: list[str], message: str, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(folder)
    assert main(["tokenizer", "train", "--input", "text.txt", "--output", "other.json", "--kind", "character"]) == 0
    given = ["fit", "--config", "small.yaml", "--run", "refused", "--model.init_from", str(first), *words]
    assert main(given) == 1
    assert message in capsys.readouterr().err.splitlines()[-1] and not (folder / "runs" / "refused").exists()


# ---- what is trained


def names_in(run: Path, *parts: str) -> set[str]:
    return {name for name in weights(run) if name.startswith(tuple(f"network.{part}" for part in parts))}


def test_frozen_parts_stay_to_the_bit(folder: Path, first: Path) -> None:
    words = ["--model.init_from", str(first), *MODEL, "--training.tuning.freeze", "[embedding, encoder.0]",
             "--training.optimizer.init_args.weight_decay", "0.3", "--trainer.max_steps", "5"]  # fmt: skip
    run = fit(folder, "small.yaml", "frozen", *words)
    assert frozen(run, first) == names_in(run, "embedding", "stack.blocks.0.")
    content = read_checkpoint(run / "checkpoints" / "last.ckpt")
    kept = sum(len(state) > 0 for state in content["optimizer_states"][0]["state"].values())
    assert kept == len(weights(run)) - len(frozen(run, first))
    results = results_of(run)
    assert 0 < results["trained_parameters"] < results["parameters"]
    assert f"({results['trained_parameters']:,} trained)" in (run / "log.txt").read_text()


def test_frozen_parts_drop_nothing(folder: Path, first: Path) -> None:
    """Dropout in a frozen part would make losses differ between runs of other seeds of the same order."""
    words = ["--model.init_from", str(first), "--model.dropout", "0.5", "--model.output_dropout", "0", *MODEL]
    words += ["--training.tuning.freeze", "[network]", "--trainer.max_steps", "2", "--trainer.val_check_interval", "1"]
    runs = [fit(folder, "small.yaml", f"quiet_{way}", *words, *more) for way, more in (("on", ()), ("off", OFF))]
    assert [row["train/loss"] for row in metrics_of(runs[0])] == [row["train/loss"] for row in metrics_of(runs[1])]


OFF = ("--model.dropout", "0.0")


def test_parts_begin_to_train_from_the_top(folder: Path, first: Path) -> None:
    words = ["--model.init_from", str(first), *MODEL, "--training.tuning.freeze", "[embedding, encoder.0-1]"]
    for steps, still in ((2, ["embedding", "stack.blocks"]), (4, ["embedding", "stack.blocks.0"]), (6, ["embedding"]), (7, [])):
        more = ["--training.tuning.unfreeze_every", "2", "--trainer.max_steps", str(steps)]
        run = fit(folder, "small.yaml", f"thawing_{steps}", *words, *more)
        assert frozen(run, first) == (names_in(run, *still) if still else set())


def test_a_step_of_several_batches_is_one_step_for_thawing(folder: Path, first: Path) -> None:
    words = ["--model.init_from", str(first), *MODEL, "--training.tuning.freeze", "[embedding, encoder.0-1]"]
    words += ["--training.tuning.unfreeze_every", "2", "--trainer.accumulate_grad_batches", "3"]
    words += ["--trainer.gradient_clip_val", "0.1"]
    run = fit(folder, "small.yaml", "thawing_accumulated", *words, "--trainer.max_steps", "4")
    assert frozen(run, first) == names_in(run, "embedding", "stack.blocks.0.")


def test_frozen_parts_stay_to_the_bit_in_a_moving_average(folder: Path, first: Path) -> None:
    words = ["--model.init_from", str(first), *MODEL, "--training.tuning.freeze", "[embedding, encoder.0]"]
    words += ["--training.averaging.kind", "ema", "--training.averaging.decay", "0.9", "--trainer.max_steps", "9"]
    run = fit(folder, "small.yaml", "frozen_mean", *words)
    given, averaged = weights(first, "best"), weights(run, "best")
    names = names_in(run, "embedding", "stack.blocks.0.")
    assert names and all(is_same(given[name], averaged[name]) for name in names)


def test_differences_train_in_frozen_parts(folder: Path, first: Path) -> None:
    words = ["--model.init_from", str(first), *MODEL, "--training.tuning.freeze", "[network]", "--trainer.max_steps", "3"]
    run = fit(folder, "small.yaml", "lora_alone", *words, "--training.tuning.low_rank.rank", "2")
    moved = {name: value for name, value in weights(run).items() if name.endswith(".0.up")}
    assert len(moved) == 8 and all(bool(value.any()) for value in moved.values())
    assert frozen(run, first) == {name for name in names_in(run, "") if "parametrizations" not in name}


@pytest.mark.parametrize("way", ["thaw", "low_rank", "layer_decay"])
def test_tuning_goes_on_where_it_stopped(folder: Path, first: Path, way: str) -> None:
    more = {
        "thaw": ["--training.tuning.freeze", "[embedding, encoder.0-1]", "--training.tuning.unfreeze_every", "2"],
        "low_rank": ["--training.tuning.low_rank.rank", "2"],
        "layer_decay": ["--training.tuning.layer_decay", "0.5"],
    }[way]
    words = ["--model.init_from", str(first), *MODEL, *more, "--trainer.val_check_interval", "3", "--model.dropout", "0.1"]
    whole = fit(folder, "small.yaml", f"{way}_whole", *words, "--trainer.max_steps", "6")
    parted = fit(folder, "small.yaml", f"{way}_parted", *words, "--trainer.max_steps", "3")
    assert main(["fit", "--run", str(parted), "--resume", "--trainer.max_steps", "6", "--debug"]) == 0
    one, other = weights(whole), weights(parted)
    assert one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one if one[name].dim())
    refused = ["fit", "--run", str(parted), "--resume", "--trainer.max_steps", "7", "--training.tuning.freeze", "[output]"]
    assert main(refused) == 1


def test_low_rank_differences_are_merged_when_used(folder: Path, first: Path) -> None:
    words = ["--model.init_from", str(first), *MODEL, "--training.tuning.low_rank", "{rank: 2, layers: [encoder.1, project]}"]
    run = fit(folder, "small.yaml", "low_rank", *words, "--trainer.max_steps", "8", "--training.tuning.freeze", "[embedding]")
    state = weights(run, "best")
    originals = {name for name in state if name.endswith("parametrizations.weight.original")}
    assert len(originals) == 4 + 1  # the four layers of block 1, and `project` of block 0
    for name in originals:
        assert is_same(state[name], weights(first, "best")[name.replace("parametrizations.weight.original", "weight")])
    task, _ = load_task(run / "checkpoints" / "best.ckpt")
    assert not any("parametrizations" in name for name in task.state_dict())
    name = next(name for name in originals if "blocks.1" in name).replace("parametrizations.weight.original", "weight")
    assert torch.linalg.matrix_rank(task.state_dict()[name] - weights(first, "best")[name], rtol=1e-4) == 2
    file = folder / "figures.json"
    assert main(["test", "--ckpt_path", str(run), "--json", str(file)]) == 0
    assert json.loads(file.read_text())["metrics"]["test/loss"] == pytest.approx(results_of(run)["metrics"]["test/loss"])
