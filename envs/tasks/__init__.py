"""The tasks. A task is one module of this package that registers itself; nothing else has to know of it."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable

from agents.errors import UserError, nearest
from envs.tasks.base import Outcome, Task

__all__ = ["Outcome", "Task", "register_task", "task_class"]

_TASKS: dict[str, type[Task]] = {}


def register_task(name: str) -> Callable[[type[Task]], type[Task]]:
    """Return a class decorator that makes a `Task` known by a name.

    Args:
        name: what `Morphology.task` and the keyword `task` of the environments say.

    Raises:
        ValueError: another task has the name.
    """

    def register(cls: type[Task]) -> type[Task]:
        if name in _TASKS:
            raise ValueError(f"envs: the task {name!r} is registered already")
        _TASKS[name] = cls
        return cls

    return register


@functools.cache
def _discover() -> None:
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"envs.tasks.{module.name}")


def task_class(name: str) -> type[Task]:
    """Return the task of a name.

    Raises:
        UserError: there is none.
    """
    _discover()
    if name not in _TASKS:
        raise UserError(f"unknown task {name!r}: {nearest(name, tuple(_TASKS))}")
    return _TASKS[name]
