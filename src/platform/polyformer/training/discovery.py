"""Finding tasks: the bundled ones, and those in a `tasks/` folder where the user works."""

import importlib
import importlib.util
import pkgutil
import sys
import traceback
from pathlib import Path
from types import ModuleType

from polyformer.training.task import Task

__all__ = ["Tasks", "find_tasks", "local_files"]

BUNDLED = "polyformer.tasks"


class Tasks(dict[str, type[Task]]):
    """Tasks by their class names.

    Attributes:
        broken: A line for each file that could not be imported.
    """

    def __init__(self) -> None:
        super().__init__()
        self.broken: list[str] = []

    @property
    def warning(self) -> str:
        """The end of a message about a task that is missing: it may be in a file that is broken."""
        return "".join(f"; {line}" for line in self.broken)


def find_tasks() -> Tasks:
    """Every task by its class name, the user's own last; files of the user's that cannot be imported stop nothing.

    Raises:
        ValueError: If two tasks have one name.
    """
    bundled = importlib.import_module(BUNDLED)
    names = [f"{BUNDLED}.{module.name}" for module in pkgutil.iter_modules(bundled.__path__)]
    modules = [importlib.import_module(name) for name in names]
    found = Tasks()
    for path in local_files():
        try:
            modules.append(_load(path))
        except Exception as error:
            found.broken.append(_fault(path, error))
    for module in modules:
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
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _fault(path: Path, error: Exception) -> str:
    """File, line and reason of an error that a user's module raised while it was imported."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines = [error.lineno]
    place = f"{path}:{lines[-1]}" if lines else str(path)
    reason = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{place}: cannot be imported: {type(error).__name__}: {reason}"


def _tasks_of(module: ModuleType) -> dict[str, type[Task]]:
    own = (value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__)
    return {kind.__name__: kind for kind in own if issubclass(kind, Task)}
