"""`platform tasks`."""

import inspect

from rich.console import Console
from rich.table import Table

from polyformer.cli.words import refuse_rest
from polyformer.training.discovery import find_tasks

__all__ = ["tasks"]


def tasks(words: list[str]) -> int:
    """Lists the tasks found."""
    refuse_rest(words, [])
    table = Table("task", "model", "data", "from", box=None)
    for name, kind in sorted(find_tasks().items()):
        table.add_row(name, kind.model_class.__name__, kind.data_class.__name__, inspect.getfile(kind))
    Console().print(table)
    return 0
