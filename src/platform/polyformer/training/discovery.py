"""Finding tasks: the bundled ones, and those in a `tasks/` folder where the user works."""

import importlib
import pkgutil
import sys
from pathlib import Path
from types import ModuleType

from polyformer.training.task import Task

__all__ = ["find_tasks", "local_modules"]

BUNDLED = "polyformer.tasks"


def find_tasks() -> dict[str, type[Task]]:
    """Every task by its class name, the user's own last.

    Raises:
        ValueError: If two tasks have one name.
    """
    bundled = importlib.import_module(BUNDLED)
    names = [f"{BUNDLED}.{module.name}" for module in pkgutil.iter_modules(bundled.__path__)]
    found: dict[str, type[Task]] = {}
    for module in (importlib.import_module(name) for name in [*names, *local_modules()]):
        for name, kind in _tasks_of(module).items():
            if name in found and found[name] is not kind:
                raise ValueError(f"two tasks are named {name}: {found[name].__module__} and {kind.__module__}; rename one")
            found[name] = kind
    return found


def local_modules() -> list[str]:
    """The modules in `tasks/` of the working directory, importable from now on; none where that folder is the library's own."""
    folder = Path.cwd() / "tasks"
    bundled = [Path(place).resolve() for place in importlib.import_module(BUNDLED).__path__]
    if not folder.is_dir() or folder.resolve() in bundled or (folder / "translation.py").exists():
        return []
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return [f"tasks.{module.name}" for module in pkgutil.iter_modules([str(folder)])]


def _tasks_of(module: ModuleType) -> dict[str, type[Task]]:
    own = (value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__)
    return {kind.__name__: kind for kind in own if issubclass(kind, Task)}
