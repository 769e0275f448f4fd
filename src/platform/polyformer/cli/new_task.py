"""`platform new-task`: a head that works, to be changed into one's own."""

import ast
import builtins
import importlib
import keyword
import re
from collections.abc import Iterator
from pathlib import Path

from polyformer.cli.words import refuse_rest
from polyformer.errors import UsageError

__all__ = ["new_task"]

TEMPLATES = Path(__file__).parent / "templates"
MODULE, CLASS = "star_rating", "StarRating"
"""What the templates are named, and so what is replaced in them."""


def new_task(words: list[str]) -> int:
    """Writes a head, its config and its test."""
    name = words.pop(0) if words and not words[0].startswith("-") else None
    refuse_rest(words, [])
    if name is None:
        raise UsageError("name the task: `platform new-task NAME`, such as spam_filter or SpamFilter")
    module, kind = names_of(name)
    places = _places(module)
    for place in places.values():
        if place.exists():
            raise UsageError(f"{place} exists already, and nothing is overwritten; choose another name")
    contents = {place: _filled(template, module, kind) for template, place in places.items()}
    _refuse_taken(kind, contents[places["task.py"]])
    for place, text in contents.items():
        _write(place, text)
    task, config, test = places.values()
    print(f"{task}: the task {kind}, which works as it is; change it from the top down")
    print(f"{config}: how it is trained\n{test}: its test")
    print(f"go on:\n  python -m pytest {test} # after: pip install pytest\n  platform fit --config {config}")
    return 0


def names_of(name: str) -> tuple[str, str]:
    """The module and the class of a task.

    Raises:
        UsageError: For a name that cannot be both.

    >>> names_of("spam_filter"), names_of("NERTagger")
    (('spam_filter', 'SpamFilter'), ('ner_tagger', 'NERTagger'))
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*|[A-Z][A-Za-z0-9]*", name):
        raise UsageError(
            f"NAME must be letters and digits in snake_case or CamelCase, such as spam_filter or SpamFilter, but is {name!r}"
        )
    if name[0].isupper():
        module, kind = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower(), name
    else:
        module, kind = name, "".join(part.capitalize() for part in name.split("_"))
    if keyword.iskeyword(module) or keyword.iskeyword(kind):
        raise UsageError(f"NAME must not be a word of Python's own, but is {name}")
    return module, kind


def _places(module: str) -> dict[str, Path]:
    """Where each template is written, from the working directory: a clone of Polyformer, or a project of the user's.

    Raises:
        UsageError: In a clone whose tasks are not those that are installed, since nothing would be found there.
    """
    is_clone = Path("src", "platform", "polyformer").is_dir()
    installed = [Path(place).resolve() for place in importlib.import_module("polyformer.tasks").__path__]
    if is_clone and Path("tasks").resolve() not in installed:
        raise UsageError(
            f"the Polyformer that is installed reads its tasks from {installed[0]}, not from this clone: first "
            "`pip install -e .`, or work in another folder"
        )
    return {
        "task.py": Path("tasks", f"{module}.py"),
        "quickstart.yaml": Path("configs", module, "quickstart.yaml"),
        "test.py": Path("tests", *(["tasks"] if is_clone else []), f"test_{module}.py"),
    }


def _filled(template: str, module: str, kind: str) -> str:
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    return text.replace(MODULE, module).replace(CLASS, kind)


def _refuse_taken(kind: str, text: str) -> None:
    """Raises UsageError if a class of the new file has the name of a task or of anything else it would hide."""
    from polyformer.training.discovery import find_tasks

    tasks = find_tasks()
    if kind in tasks:
        raise UsageError(f"there is a task {kind} already, in {tasks[kind].__module__}; choose another name")
    used = {*dir(builtins), *_public_names(), *_imported_names(text)}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.name in used:
            raise UsageError(f"a task {kind} would need a class {node.name}, which there is already; choose another name")


def _public_names() -> Iterator[str]:
    for folder in ("data", "models", "nn", "text", "training"):
        yield from importlib.import_module(f"polyformer.{folder}").__all__


def _imported_names(text: str) -> Iterator[str]:
    for node in ast.parse(text).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name for alias in node.names)


def _write(place: Path, text: str) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{place}: cannot be written: {error.strerror}") from None
