"""Rules that documents cannot enforce: who may import whom, what is public, how long a file may be."""

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import polyformer

PACKAGE = Path(polyformer.__path__[0])
TASKS = Path(importlib.import_module("polyformer.tasks").__path__[0])
MAY_IMPORT = {
    "nn": set(),
    "models": {"nn"},
    "text": set(),
    "data": {"text"},
    "decoding": {"nn"},
    "training": {"nn", "models", "text", "data", "decoding"},
    "check": {"nn", "models", "text", "data", "decoding", "training"},
    "experiments": set(),
    "tasks": {"nn", "models", "text", "data", "decoding", "training"},
}
LIGHTNING = {"training", "data", "cli"}


def sources() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).parts[0], path
    for path in sorted(TASKS.rglob("*.py")):
        yield "tasks", path


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            yield node.module or ""


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_imports_go_one_way(folder: str) -> None:
    checked = 0
    for here, path in sources():
        for name in imported(path) if here == folder else ():
            parts = name.split(".")
            checked += 1
            if parts[0] == "polyformer" and len(parts) > 1 and parts[1] in {*MAY_IMPORT, "cli"} - {folder}:
                assert parts[1] in MAY_IMPORT[folder], f"{path} imports {name}"
            if parts[0] == "lightning":
                assert folder in LIGHTNING, f"{path} imports {name}"
    assert checked


def modules() -> list[str]:
    found = [module.name for module in pkgutil.walk_packages(polyformer.__path__, "polyformer.")]
    return [*found, *(module.name for module in pkgutil.iter_modules([str(TASKS)], "polyformer.tasks."))]


@pytest.mark.parametrize("name", modules())
def test_public_names_are_listed_and_documented(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} has no docstring"
    if name == "polyformer.tasks":
        return
    for public in module.__all__:
        value = getattr(module, public)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, f"{name}.{public} has no docstring"


def test_files_are_short() -> None:
    long = [f"{path}: {count}" for _, path in sources() if (count := len(path.read_text().splitlines())) > 300]
    assert not long


def test_the_source_folder_does_not_shadow_the_standard_library() -> None:
    assert not (PACKAGE.parent / "__init__.py").exists()


WRONG = [["fit"], ["fit", "--config", "no.yaml"], ["test"], ["predict", "--ckpt_path", "no"], ["sweep", "no.yaml"], ["scroe"]]


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import polyformer", "torch lightning datasets numpy yaml"),
        ("from polyformer.cli import main; main(['--help']); main(['find', '--help'])", "torch lightning datasets numpy yaml"),
        (f"from polyformer.cli import main; assert all(map(main, {WRONG}))", "torch lightning datasets numpy"),
        ("from polyformer.cli import main; main(['compare', 'nowhere'])", "torch lightning datasets matplotlib"),
    ],
)
def test_the_start_is_light(code: str, heavy: str) -> None:
    """What takes seconds to import is imported once there is something to do."""
    check = f"import sys; {code}; heavy = set({heavy.split()}) & set(sys.modules); assert not heavy, heavy"
    subprocess.run([sys.executable, "-c", check], check=True, capture_output=True)
