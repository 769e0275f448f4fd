"""The configs that come with Polyformer, which are found from any folder."""

from importlib.util import find_spec
from pathlib import Path

__all__ = ["shipped", "shipped_names"]


def shipped(path: str) -> str:
    """The path itself, unless there is no such file and a config of that name comes with Polyformer: then the path of that.

    >>> shipped("configs/translation/quickstart.yaml").endswith("configs/translation/quickstart.yaml"), shipped("mine.yaml")
    (True, 'mine.yaml')
    """
    return str(_root() / path) if not Path(path).is_file() and path in shipped_names() else path


def shipped_names() -> list[str]:
    """Their names, as `configs/translation/quickstart.yaml`."""
    return sorted(file.relative_to(_root()).as_posix() for file in _root().glob("configs/*/*.yaml"))


def _root() -> Path:
    """What they lie in: the folder of `tasks`, which is the package, or the clone that was installed in place."""
    spec = find_spec("polyformer.tasks")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parents[1]
