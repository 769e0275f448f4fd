"""`platform fit --keys` and the configs that are found from anywhere."""

from pathlib import Path
from typing import Any

import pytest

from polyformer.cli import main
from polyformer.cli.keys import describe_keys
from polyformer.cli.settings import parse_settings
from polyformer.shipped import shipped, shipped_names

ROOT = Path(__file__).parents[2]
TRANSLATOR = "configs/translation/quickstart.yaml"


def keys_of(*words: str) -> dict[str, str]:
    """What is printed: each key with its value, and the help beneath it."""
    parser, settings = parse_settings([*words])
    found, key = {}, ""
    for line in describe_keys(parser.parser, settings):
        if line.startswith("    "):
            found[key] += f" {' '.join(line.split())}"
        else:
            key, _, value = line.partition(" = ")
            assert key not in found
            found[key] = value
    return found


def test_every_key_is_there_with_its_value_and_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    keys = keys_of("--config", TRANSLATOR, "--model.position", "Rotary")
    assert keys["model.position"].startswith("Rotary How the model is told where tokens are")
    assert "ALiBi" in keys["model.position"] and "FullAttention" not in keys["model.position"]
    assert keys["model.position.fraction"].startswith("1.0 ") and keys["training.optimizer.lr"].startswith("0.003 ")
    assert keys["data.tokenizer.vocab_size"].startswith("340 ") and keys["task.search.beam"].startswith("5 ")
    assert keys["model.norm"].endswith("One of layer_norm, rms_norm, none.") and keys["trainer.max_steps"].startswith("900 ")
    assert all(about.partition(" ")[2] for key, about in keys.items() if not key.startswith("trainer."))
    assert main(["fit", "--config", TRANSLATOR, "--keys"]) == 0
    assert "data.train_count = 8000\n" in capsys.readouterr().out


def test_a_printed_key_can_be_given() -> None:
    """All of them at once, with the values that they have: nothing is changed."""
    keys = keys_of("--config", TRANSLATOR)
    starts = ("training.optimizer.", "data.", "task.", "model.mixer.")
    given = {key: about.partition(" ")[0] for key, about in keys.items() if key.startswith(starts)}
    words = [word for key, value in given.items() if value[0] not in "[n" for word in (f"--{key}", value)]  # no lists, no null
    assert len(words) > 40 and keys_of("--config", TRANSLATOR, *words) == keys


def test_several_classes_in_a_list_have_their_keys() -> None:
    mixers = "[{class_path: SlidingWindow, init_args: {window: 7}}, FullAttention]"
    keys = keys_of("--config", TRANSLATOR, "--model.mixers", mixers)
    assert keys["model.mixers"].startswith("[SlidingWindow, FullAttention]") and keys["model.mixers.0.window"].startswith("7 ")


def test_configs_are_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert shipped_names() == sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("configs/*/*.yaml"))
    monkeypatch.chdir(tmp_path)
    assert parse_settings(["--config", TRANSLATOR])[1].model.d_model == 128
    assert parse_settings([f"--config={TRANSLATOR}"])[1].model.d_model == 128
    assert main(["sweep", "configs/compare/quickstart_translation.yaml", "--dry-run"]) == 0
    assert main(["fit", "--config", "confgs/translation/quickstart.yaml"]) == 2
    assert f"no such file; did you mean {TRANSLATOR}?" in capsys.readouterr().err
    (tmp_path / "configs" / "translation").mkdir(parents=True)
    (tmp_path / TRANSLATOR).write_text((ROOT / TRANSLATOR).read_text().replace("d_model: 128", "d_model: 64"))
    assert shipped(TRANSLATOR) == TRANSLATOR and parse_settings(["--config", TRANSLATOR])[1].model.d_model == 64
