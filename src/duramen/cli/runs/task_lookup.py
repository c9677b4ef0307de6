"""From `module:attribute` to tasks, queues and schedules."""

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
class Found:
    """What a worker is to serve."""

    tasks: list[Task[..., Any]] = field(default_factory=list)
    queues: list[Queue] = field(default_factory=list)
    schedules: list[Schedule] = field(default_factory=list)

    def add(self, value: Any) -> bool:
        """Take a value in, once; False if it is nothing of ours."""
        places: list[tuple[type[Any], list[Any]]]
        places = [(Task, self.tasks), (Queue, self.queues), (Schedule, self.schedules)]
        for kind, known in places:
            if isinstance(value, kind):
                if not any(one is value for one in known):
                    known.append(value)
                return True
        return False

    def task(self, name: str, version: str | None) -> Task[..., Any] | None:
        """The task of that name and version."""
        chosen = [*self.tasks, *(one.task for one in self.schedules)]
        return next((one for one in chosen if (one.name, one.version) == (name, version)), None)


def find(places: Sequence[str]) -> Found:
    """What these places hold. The current directory can be imported from, as with `python -m`."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    found = Found()
    for place in places:
        name, colon, attribute = place.partition(":")
        module = _imported(name, place)
        if not colon:
            _take(found, vars(module).values(), place)
            continue
        value = _attribute(module, attribute, place)
        if not found.add(value):
            _take_list(found, value, place)
    return found


def _imported(name: str, place: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")) or name.endswith(".py"):
        raise InvalidInput(
            f"{place!r} names no module",
            hint="write module:attribute as in Python: agents.trip:book, not a file's path",
        )
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # whatever the module does, it is not here
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise InvalidInput(
                f"there is no module {name!r}", hint="go to the folder that holds it, or set PYTHONPATH"
            ) from None
        told = error.message if isinstance(error, DuramenError) else error
        raise InvalidInput(
            f"importing {name!r} failed with {type(error).__name__}: {told}",
            hint=f'try it alone: python -c "import {name}"',
        ) from error


def _attribute(module: ModuleType, attribute: str, place: str) -> Any:
    value: Any = module
    for part in attribute.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise InvalidInput(f"there is no {place!r}: {_offer(module)}", hint="name one that is there") from None
    return value


def _offer(module: ModuleType) -> str:
    tasks = [name for name, value in vars(module).items() if isinstance(value, Task)]
    return f"its tasks are {', '.join(tasks)}" if tasks else "the module has no tasks"


def _take(found: Found, values: Iterable[Any], place: str) -> None:
    """All that a module declares."""
    taken = [found.add(value) for value in list(values)]
    if not any(taken):
        raise InvalidInput(f"module {place!r} has no tasks", hint="decorate a function with @duramen.task")


def _take_list(found: Found, value: Any, place: str) -> None:
    """A list, all of whose members must be ours: a misspelt one must not be left out in silence."""
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise InvalidInput(f"{place!r} is no task", hint="name a @duramen.task function, or a list of them")
    for one in value:
        if not found.add(one):
            raise InvalidInput(f"{place!r} holds {one!r}, which is no task", hint="list tasks, queues and schedules")
