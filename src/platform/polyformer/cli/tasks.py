"""`platform tasks`."""

import inspect
import sys

from rich.console import Console
from rich.table import Table

from polyformer.cli.words import refuse_rest
from polyformer.training.discovery import find_tasks

__all__ = ["tasks"]

WIDTH = 200  # where no terminal has one


def tasks(words: list[str]) -> int:
    """Lists the tasks found."""
    refuse_rest(words, [])
    table = Table("task", "model", "data", "from", box=None)
    found = find_tasks()
    for name, kind in sorted(found.items()):
        table.add_row(name, kind.model_class.__name__, kind.data_class.__name__, inspect.getfile(kind))
    console = Console()
    console.print(table, width=None if console.is_terminal else WIDTH)
    for line in found.broken:
        print(line, file=sys.stderr)
    return 0
