"""Every config becomes a model; every misspelt key is refused by name."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from polyformer.cli.settings import parse_settings
from polyformer.errors import UsageError
from polyformer.experiments.description import sweep_of
from polyformer.text import Assets, TokenizerSettings, train_tokenizer
from polyformer.training import parameter_groups

ROOT = Path(__file__).parent.parent
SWEEPS = sorted((ROOT / "configs" / "compare").glob("*.yaml"))
CONFIGS = sorted({*(ROOT / "configs").rglob("*.yaml")} - {*SWEEPS})
QUICKSTART = str(ROOT / "configs" / "translation" / "quickstart.yaml")


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_every_config_instantiates(config: Path) -> None:
    instantiates(["--config", str(config)])


@pytest.mark.parametrize("sweep", SWEEPS, ids=lambda path: path.stem)
def test_the_first_and_the_last_training_of_every_sweep_instantiate(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    cells = sweep_of(yaml.safe_load(sweep.read_text()), sweep.stem, str(sweep)).cells
    assert len(cells) > 1
    for cell in (cells[0], cells[-1]):
        instantiates(cell.words)


def instantiates(words: list[str]) -> None:
    parser, settings = parse_settings(words)
    built = parser.build(settings)
    small = replace(built.options, d_model=2 * built.options.num_heads)
    tokenizer = train_tokenizer(["abc"], TokenizerSettings(kind="character", min_frequency=1))
    roles = ["label", *(f"{part}/label" for part in getattr(built.data, "parts", ()))]
    assets = Assets(dict.fromkeys(("source", "target", "text"), tokenizer), {role: ["no", "yes"] for role in roles})
    task = replace(built, options=small).make_task(assets)
    assert sum(parameter.numel() for parameter in task.parameters())
    assert built.recipe.optimizer(parameter_groups(task, built.recipe.decayed))
    again, reparsed = parse_settings(words)
    assert again.plain(reparsed) == parser.plain(settings)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model.d_modl", "3"], "unknown key --model.d_modl; did you mean model.d_model?"),
        (["--model.position", "Rotry"], "`model.position` is Rotry, but there is no such class"),
        (["--model.position", "Relativ"], "did you mean Relative?"),
        (["--model.position", "Relative", "--model.position.clp", "3"], "unknown key model.position.clp"),
        (["--trainer.max_stps", "3"], "did you mean trainer.max_steps?"),
        (["--data.languag", "german"], "unknown key data.languag"),
        (["--training.schedule", "Noan"], "did you mean Noam?"),
        (["--task", "Translaton"], "did you mean Translation?"),
        (["--task.label_smothing", "0.1"], "unknown key task.label_smothing"),
        (["--model.d_model", "wide"], "`model.d_model` must be a whole number, but is wide"),
        (["--training.optimizer.lr", "fast"], "`training.optimizer.lr` must be a number, but is fast"),
        (["--data.batches.tokens", "many"], "`data.batches.tokens` must be a whole number, but is many"),
        (["--model.norm", "layernorm"], "`model.norm` must be layer_norm, rms_norm or none, but is layernorm"),
        (["--model.tied", "some"], "`model.tied` must be all, target or none, but is some"),
        (
            ["--training.averaging", "ema"],
            "`training.averaging` has keys of its own, and is given by them: training.",
        ),
        (["--data.tokenizer", "bpe"], "`data.tokenizer` has keys of its own, and is given by them: data.tokenizer."),
        (["--training.tuning.low_rank", "{rank: x}"], "`training.tuning.low_rank.rank` must be a whole number, but is x"),
        (["--model.encoder_layer", "3"], "unknown key --model.encoder_layer; did you mean model.encoder_layers?"),
        (["--vocab_size", "3"], "unknown key --vocab_size; did you mean data.tokenizer.vocab_size?"),
        (["--config", "missing.yaml"], "missing.yaml: no such file"),
        (["--data", "PairData", "--data.train_count", "3"], "unknown key data.train_count"),
        (["--sed", "1"], "unknown key --sed"),
        (
            ["--model.mixer", "LSTM", "--model.mixer.num_kv_heads", "3"],
            "unknown key model.mixer.num_kv_heads, which FullAttention has: choose it by --model.mixer FullAttention",
        ),
        (["--data", "3"], "`data` is 3, but there is no such class; known are"),
        (["--data", "[3]"], "`data` must be the name of a class, or `class_path` and `init_args`, but is \\[3\\]"),
        (["--training.patience", "long"], "`training.patience` must be a whole number or null, but is long"),
        (["--data.batches", "{token: 3}"], "unknown key data.batches.token; did you mean data.batches.tokens?"),
    ],
)
def test_mistakes_are_named(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("?", r"\?").replace("(", r"\(")):
        parse_settings(["--config", QUICKSTART, *words])


def test_a_kind_within_a_class_is_told_in_words() -> None:
    words = ["--config", "configs/classification/quickstart.yaml", "--data.limits.stride", "long"]
    with pytest.raises(UsageError, match=r"`data\.limits\.stride` must be a whole number or null, but is long"):
        parse_settings(words)


@pytest.mark.parametrize(("value", "said"), [("null", "null"), ("[3]", r"\[3\]")])
def test_a_value_where_keys_are_expected_is_named(value: str, said: str) -> None:
    parser, settings = parse_settings(["--config", "configs/classification/quickstart.yaml", "--data.limits", value])
    message = rf"`data\.limits` is {said}, but has keys of its own, and is given by them: data\.limits\.max_length"
    with pytest.raises(ValueError, match=message):
        parser.build(settings)


def test_a_misspelt_key_in_a_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("task: Translation\nmodel: {d_modl: 3}\n")
    with pytest.raises(UsageError, match=r"unknown key model\.d_modl; did you mean model\.d_model\?"):
        parse_settings(["--config", str(file)])


@pytest.mark.parametrize(
    ("content", "message"),
    [("task: [", r"wrong\.yaml:1: not valid YAML"), ("- 1\n", "must hold keys"), ("model: {}\n", "no task is given")],
)
def test_a_broken_file_is_named(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(content)
    with pytest.raises(UsageError, match=message):
        parse_settings(["--config", str(file)])


def test_a_number_written_without_a_point_is_a_number(tmp_path: Path) -> None:
    """YAML 1.1 reads 1e-3 as a string."""
    file = tmp_path / "rate.yaml"
    file.write_text("task: Translation\ntraining: {optimizer: {class_path: FusedAdamW, init_args: {lr: 1e-3}}}\n")
    parser, settings = parse_settings(["--config", str(file)])
    optimizer = parser.build(settings).recipe.optimizer([torch.nn.Parameter(torch.zeros(2))])
    assert optimizer.param_groups[0]["lr"] == 1e-3


@pytest.mark.parametrize("in_file", [True, False])
def test_a_class_takes_no_arguments_of_the_default_it_replaces(tmp_path: Path, in_file: bool) -> None:
    """A constant rate would otherwise warm up for the 4,000 steps of the default schedule."""
    file = tmp_path / "constant.yaml"
    file.write_text("task: Translation\n" + ("training: {schedule: Constant, optimizer: AdamW}\n" if in_file else ""))
    words = [] if in_file else ["--training.schedule", "Constant", "--training.optimizer=AdamW"]
    _, settings = parse_settings(["--config", str(file), *words])
    assert settings.training.schedule.init_args.warmup == 0
    assert settings.training.optimizer.init_args.eps == 1e-8


@pytest.mark.parametrize("words", [["--data", "SpelledNumbers"], ["--data=SpelledNumbers"]], ids=str)
def test_data_of_another_class_has_its_own_defaults(words: list[str]) -> None:
    _, settings = parse_settings(["--task", "Translation", *words])
    assert settings.data.init_args.tokenizer.kind == "character"
