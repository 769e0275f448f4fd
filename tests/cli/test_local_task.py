"""A head in the user's own folder: found, trained, used there, and refused elsewhere."""

import sys
from pathlib import Path
from typing import Any

import pytest

from polyformer.cli import main

from .small import SMALL

HEAD = '''
"""Translation that shouts."""

from collections.abc import Sequence

from polyformer.tasks.translation import Translation
from polyformer.training import Answer

__all__ = ["Shouting"]


class Shouting(Translation):
    """Answers in capitals.

    Args:
        assets: Tokenizers "source" and "target".
        options: The network.
        ending: What follows each answer.
    """

    def __init__(self, assets, options, ending: str = "!") -> None:
        super().__init__(assets, options)
        self.ending = ending

    def answer(self, lines: Sequence[str]) -> list[Answer]:
        return [Answer(answer.text.upper() + self.ending) for answer in super().answer(lines)]
'''


def forget() -> None:
    """Lets `tasks` be imported anew: pytest itself imports the library's folder under that name."""
    for name in [name for name in sys.modules if name == "tasks" or name.startswith("tasks.")]:
        del sys.modules[name]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "shouting.py").write_text(HEAD)
    config = SMALL.replace(SMALL.splitlines()[1], "task: {class_path: Shouting, init_args: {ending: '?'}}")
    (tmp_path / "shouting.yaml").write_text(config)
    forget()
    yield tmp_path
    forget()


def test_a_local_head_lives(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks"]) == 0
    assert "Shouting" in capsys.readouterr().out
    assert main(["fit", "--config", "shouting.yaml", "--run", "loud", "--trainer.max_steps", "2", "--debug"]) == 0
    assert (project / "runs" / "loud" / "results.json").is_file()
    (project / "lines").write_text("forty-two\n")
    use = ["predict", "--ckpt_path", str(project / "runs" / "loud"), "--input", str(project / "lines")]
    assert main([*use, "--debug"]) == 0
    said = capsys.readouterr().out
    assert said.endswith("?\n") and said == said.upper()
    (project / "elsewhere").mkdir()
    monkeypatch.chdir(project / "elsewhere")
    forget()
    assert main(use) == 1
    assert "refused, since it names `tasks.shouting.Shouting`" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:[\\s\\S]*Hit failing import")  # of classes that other tests have left behind
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import torch\n\nclass Mine(Task):\n    pass\n", "broken.py:3: cannot be imported: NameError: name 'Task'"),
        ("import torch\ndef answer(:\n", "broken.py:2: cannot be imported: SyntaxError: "),
        ("import json\njson.loads('{')\n", "broken.py:2: cannot be imported: JSONDecodeError: "),
        ("import not_installed\n", "broken.py:1: cannot be imported: ModuleNotFoundError: No module named 'not_installed'"),
    ],
)
def test_a_broken_file_stops_only_what_needs_it(
    project: Path, capsys: pytest.CaptureFixture[str], code: str, said: str
) -> None:
    (project / "tasks" / "broken.py").write_text(code)
    assert main(["tasks"]) == 0
    shown = capsys.readouterr()
    assert "Shouting" in shown.out and said in shown.err and len(shown.err.splitlines()) == 1
    assert main(["fit", "--config", "shouting.yaml", "--keys"]) == 0
    capsys.readouterr()
    assert main(["fit", "--config", "shouting.yaml", "--task", "Whispering", "--run", "quiet"]) == 2
    refused = capsys.readouterr().err
    assert "`task` is Whispering, but there is no such task" in refused and said in refused
