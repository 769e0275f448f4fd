"""The examples in the documentation of the bundled tasks.

They are run from here, since collecting the files themselves would import each a second time, as `tasks.NAME`.
"""

import doctest
import importlib
import pkgutil

import pytest

TASKS = importlib.import_module("polyformer.tasks")
NAMES = [module.name for module in pkgutil.iter_modules(TASKS.__path__)]


@pytest.mark.parametrize("name", NAMES)
def test_examples_run(name: str) -> None:
    assert not doctest.testmod(importlib.import_module(f"polyformer.tasks.{name}")).failed
