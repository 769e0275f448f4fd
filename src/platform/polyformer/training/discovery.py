"""Finding tasks: the bundled ones, and those in a `tasks/` folder where the user works."""

import importlib
import importlib.util
import pkgutil
import sys
from pathlib import Path
from types import ModuleType

from polyformer.training.task import Task

__all__ = ["find_tasks", "local_files"]

BUNDLED = "polyformer.tasks"


def find_tasks() -> dict[str, type[Task]]:
    """Every task by its class name, the user's own last.

    Raises:
        ValueError: If two tasks have one name.
    """
    bundled = importlib.import_module(BUNDLED)
    names = [f"{BUNDLED}.{module.name}" for module in pkgutil.iter_modules(bundled.__path__)]
    modules = [importlib.import_module(name) for name in names]
    found: dict[str, type[Task]] = {}
    for module in [*modules, *(_load(path) for path in local_files())]:
        for name, kind in _tasks_of(module).items():
            if name in found and found[name] is not kind:
                raise ValueError(f"two tasks are named {name}: {found[name].__module__} and {kind.__module__}; rename one")
            found[name] = kind
    return found


def local_files() -> list[Path]:
    """The modules in `tasks/` of the working directory; none where that folder is the library's own."""
    folder = Path.cwd() / "tasks"
    bundled = [Path(place).resolve() for place in importlib.import_module(BUNDLED).__path__]
    is_clone = (Path.cwd() / "src" / "platform" / "polyformer").is_dir()
    if not folder.is_dir() or folder.resolve() in bundled or is_clone:
        return []
    return sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")


def _load(path: Path) -> ModuleType:
    """A user's module, known as `tasks.NAME` whatever else is named `tasks` on this machine."""
    name = f"tasks.{path.stem}"
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    package = ModuleType("tasks")
    package.__path__ = [str(path.parent)]
    sys.modules.setdefault("tasks", package)  # the parser imports a class's packages one by one
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _tasks_of(module: ModuleType) -> dict[str, type[Task]]:
    own = (value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__)
    return {kind.__name__: kind for kind in own if issubclass(kind, Task)}
