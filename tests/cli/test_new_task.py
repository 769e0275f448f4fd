"""`platform new-task`: what it writes works at once, in any folder, and it never writes over anything."""

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from polyformer.cli import main
from polyformer.cli.settings import parse_settings
from polyformer.training.discovery import find_tasks

from .test_local_task import forget

ROOT = Path(__file__).parents[2]
HERE = ["tasks/spam_filter.py", "configs/spam_filter/quickstart.yaml", "tests/test_spam_filter.py"]
IN_A_CLONE = [*HERE[:2], "tests/tasks/test_spam_filter.py"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    forget()
    yield tmp_path
    forget()


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Python in a folder, as a user starts it: outside of the pytest that runs here."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "POLYFORMER"))}
    settings = {"OMP_NUM_THREADS": "1", "POLYFORMER_CACHE": str(folder / "cache")}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=folder, env={**environment, **settings}, capture_output=True, text=True)


# ---- it works


def test_a_new_head_passes_its_own_test(project: Path) -> None:
    assert main(["new-task", "SpamFilter"]) == 0
    ran = run(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", HERE[2])
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "6 passed" in ran.stdout


def test_the_command_finds_it_where_it_is_not_importable(project: Path) -> None:
    """The console script, unlike `python -m pytest`, has no path to the working directory."""
    assert main(["new-task", "SpamFilter"]) == 0
    code = "import sys; sys.path.remove(''); from polyformer.cli import main as run; sys.exit(run(sys.argv[1:]))"
    ran = run(project, "-c", code, "fit", "--config", HERE[1], "--keys")
    assert ran.returncode == 0, ran.stderr
    assert "model.pooling = " in ran.stdout


@pytest.mark.parametrize("name", ["spam_filter", "SpamFilter"])
def test_either_way_of_writing_the_name(project: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new-task", name]) == 0
    said = capsys.readouterr().out
    assert files(project) == sorted(HERE) and all(file in said for file in HERE)
    assert f"python -m pytest {HERE[2]}" in said and f"platform fit --config {HERE[1]}" in said
    for file in HERE:
        text = (project / file).read_text()
        assert "SpamFilter" in text and "StarRating" not in text and "star_rating" not in text
    assert find_tasks()["SpamFilter"].data_class.__name__ == "SpamFilterData"
    _, settings = parse_settings(["--config", HERE[1]])
    assert settings.task.class_path == "tasks.spam_filter.SpamFilter"
    assert settings.data.class_path == "tasks.spam_filter.SpamFilterData"


def test_what_is_written_is_in_the_style_of_the_library(project: Path) -> None:
    assert main(["new-task", "sentence_order_prediction"]) == 0
    ran = run(project, "-m", "ruff", "check", "--no-cache", "--config", str(ROOT / "pyproject.toml"), ".")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_file_of_ones_own_is_read_instead(project: Path) -> None:
    assert main(["new-task", "SpamFilter"]) == 0
    (project / "mine.tsv").write_text("text\tlabel\na fair offer\t2\nwin a prize\t10\n")
    parser, settings = parse_settings(["--config", HERE[1], "--data.train", "mine.tsv"])
    data = parser.build(settings).data
    assert [example["text"] for example in data.examples("train")] == ["a fair offer", "win a prize"]
    assert data.contents("validation") is None
    assert parser.build(settings).make_task(data.assets).steps == ["2", "10"]


def test_made_examples_are_in_one_split_only(project: Path) -> None:
    assert main(["new-task", "SpamFilter"]) == 0
    parser, settings = parse_settings(["--config", HERE[1]])
    data = parser.build(settings).data
    splits = [[example["text"] for example in data.examples(split)] for split in ("train", "validation", "test")]
    texts = [text for split in splits for text in split]
    assert len(set(texts)) == len(texts) and [len(split) for split in splits[1:]] == [500, 500]


# ---- in a clone


@pytest.fixture
def clone(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folders of a clone whose tasks are found as the installed ones are."""
    for folder in ("src/platform/polyformer", "tasks", "configs", "tests/tasks"):
        (project / folder).mkdir(parents=True)
    bundled = importlib.import_module("polyformer.tasks")
    monkeypatch.setattr(bundled, "__path__", [*bundled.__path__, str(project / "tasks")])
    yield project
    sys.modules.pop("polyformer.tasks.spam_filter", None)
    vars(bundled).pop("spam_filter", None)


def test_in_a_clone_it_is_one_of_the_library(clone: Path) -> None:
    assert main(["new-task", "SpamFilter"]) == 0
    assert files(clone) == sorted(IN_A_CLONE)
    _, settings = parse_settings(["--config", IN_A_CLONE[1]])
    assert settings.data.class_path == "polyformer.tasks.spam_filter.SpamFilterData"


def test_a_clone_that_is_not_installed_is_refused(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.import_module("polyformer.tasks"), "__path__", [str(clone / "elsewhere")])
    assert main(["new-task", "SpamFilter"]) == 2
    assert "not from this clone: first `pip install -e .`, or work in another folder" in capsys.readouterr().err
    assert files(clone) == []


# ---- what is refused


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("spam-filter", "must be letters and digits in snake_case or CamelCase"),
        ("2nd", "must be letters and digits in snake_case or CamelCase"),
        ("spamFilter", "must be letters and digits in snake_case or CamelCase"),
        ("a/b", "must be letters and digits in snake_case or CamelCase"),
        ("", "must be letters and digits in snake_case or CamelCase"),
        ("class", "NAME must not be a word of Python's own, but is class"),
        ("None", "NAME must not be a word of Python's own, but is None"),
        ("translation", "there is a task Translation already, in polyformer.tasks.translation"),
        ("Labelled", "a task Labelled would need a class LabelledData, which there is already"),
        ("task", "a task Task would need a class Task, which there is already"),
        ("Iterator", "a task Iterator would need a class Iterator, which there is already"),
    ],
)
def test_a_name_that_will_not_do(project: Path, name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new-task", name]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1
    assert files(project) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [([], "name the task"), (["--help-me"], "unknown option --help-me"), (["a", "b"], "unknown option b")],
)
def test_a_command_line_that_is_wrong(
    project: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new-task", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("file", HERE)
def test_nothing_is_written_over(project: Path, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    (project / file).parent.mkdir(parents=True)
    (project / file).write_text("mine")
    assert main(["new-task", "SpamFilter"]) == 2
    assert f"{file} exists already, and nothing is overwritten" in capsys.readouterr().err
    assert files(project) == [file] and (project / file).read_text() == "mine"


def test_a_file_where_a_folder_is_needed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "tasks").write_text("mine")
    assert main(["new-task", "SpamFilter"]) == 2
    assert "tasks/spam_filter.py: cannot be written" in capsys.readouterr().err
