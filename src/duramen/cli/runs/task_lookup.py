"""Finds tasks, queues and schedules by `module:attribute`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from ...errors import DuramenError, InvalidInput
from ...execution.steps.definitions import Task
from ...execution.workers.schedules import Schedule
from ...execution.workers.worker import Queue


@dataclass(slots=True)
class Declarations:
    """The tasks, queues and schedules that a worker is started with."""

    tasks: list[Task[..., Any]] = field(default_factory=list)
    queues: list[Queue] = field(default_factory=list)
    schedules: list[Schedule] = field(default_factory=list)

    def add(self, value: Any) -> bool:
        """Add a task, queue or schedule, once. Returns False if the value is none of them."""
        kinds: list[tuple[type[Any], list[Any]]]
        kinds = [(Task, self.tasks), (Queue, self.queues), (Schedule, self.schedules)]
        for kind, known in kinds:
            if isinstance(value, kind):
                if not any(one is value for one in known):
                    known.append(value)
                return True
        return False

    def task(self, name: str, version: str | None) -> Task[..., Any] | None:
        """The task of this name and version."""
        tasks = [*self.tasks, *(one.task for one in self.schedules)]
        return next((one for one in tasks if (one.name, one.version) == (name, version)), None)


def load_declarations(places: Sequence[str]) -> Declarations:
    """Import tasks, queues and schedules by name. Modules in the current directory are found, as with `python -m`."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    declarations = Declarations()
    for place in places:
        name, colon, attribute = place.partition(":")
        module = _import_module(name, place)
        if not colon:
            _add_module(declarations, vars(module).values(), place)
            continue
        value = _attribute(module, attribute, place)
        if not declarations.add(value):
            _add_list(declarations, value, place)
    return declarations


def _import_module(name: str, place: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")) or name.endswith(".py"):
        raise InvalidInput(
            f"{place!r} is not the name of a module",
            hint="give a module such as agents.trip, or module:attribute such as agents.trip:book, not a path",
        )
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # importing a module may raise anything
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise InvalidInput(
                f"there is no module {name!r}", hint="change to the folder that contains it, or set PYTHONPATH"
            ) from None
        cause = error.message if isinstance(error, DuramenError) else error
        raise InvalidInput(
            f"importing {name!r} failed with {type(error).__name__}: {cause}",
            hint=f'see the whole error with: python -c "import {name}"',
        ) from error


def _attribute(module: ModuleType, attribute: str, place: str) -> Any:
    value: Any = module
    for part in attribute.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise InvalidInput(
                f"there is no {place!r}: {_known_tasks(module)}", hint="give the name of a task in the module"
            ) from None
    return value


def _known_tasks(module: ModuleType) -> str:
    tasks = [name for name, value in vars(module).items() if isinstance(value, Task)]
    return f"its tasks are {', '.join(tasks)}" if tasks else "the module has no tasks"


def _add_module(declarations: Declarations, values: Iterable[Any], place: str) -> None:
    """Add everything that a module declares."""
    added = [declarations.add(value) for value in list(values)]
    if not any(added):
        raise InvalidInput(f"module {place!r} has no tasks", hint="decorate a function with @duramen.task")


def _add_list(declarations: Declarations, value: Any, place: str) -> None:
    """Add a list. Every member must be a task, queue or schedule. Raises `InvalidInput` for others."""
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise InvalidInput(
            f"{place!r} is not a task", hint="give a function decorated with @duramen.task, or a list of them"
        )
    for one in value:
        if not declarations.add(one):
            raise InvalidInput(
                f"{place!r} holds {repr(one)[:80]}, which is not a task", hint="list only tasks, queues and schedules"
            )
