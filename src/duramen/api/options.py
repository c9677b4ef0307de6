"""The keyword options of the public methods, and checks that several methods share."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from ..errors import InvalidInput, shown
from ..models import load_model
from ..ports import Model, TokenCounter

if TYPE_CHECKING:
    from ..execution.workers.schedules import Schedule
    from ..execution.workers.worker import Queue

ALL = 2**31
"""The limit of lists without a limit."""


class AppendOptions(TypedDict, total=False):
    """Options of the methods that append events.

    Attributes:
        key: idempotency key. A second append with the same key in this session stores nothing and returns the first
            event.
        expected: the last position of the session that the writer expects. `PositionConflict` if it is another one.
        subject: the person that the data is about. `erase` removes the data.
        fence: the fencing number of the writer's lease. `LeaseLost` if it is not the current one.
    """

    key: str | None
    expected: int | None
    subject: str | None
    fence: int | None


class ReadOptions(TypedDict, total=False):
    """Which events to read.

    Attributes:
        start: the first position, included. Default: 1.
        stop: the last position, included. Default: the end of the session.
        types: one event type, or several. Default: all.
        backwards: newest first. Default: False.
        limit: the maximum number of events. Default: no limit.
    """

    start: int
    stop: int | None
    types: str | Iterable[str] | None
    backwards: bool
    limit: int | None


class WindowChanges(TypedDict, total=False):
    """Settings of the context window that one call overrides. See `Window`."""

    budget: int
    threshold: float
    max_items: int
    keep_last: int
    mask_above: int | None
    mask_to: int
    summaries: float
    counter: TokenCounter | str | None
    model: Model | str | None


class CheckpointParts(TypedDict, total=False):
    """What a checkpoint holds in addition to its values.

    Attributes:
        next: what the agent does next.
        pending: tasks that have started and not ended.
        config: the configuration that produced the state.
        writes: what the last step wrote.
        step: the number of the step.
        kind: why the checkpoint was saved: "manual" (the default), "subtask", "irreversible" or "periodic".
        pin: protect the checkpoint from `expire`. Default: False.
        after: the id of the checkpoint that must be the newest one, or None if there must be none. Otherwise the call
            raises `CheckpointConflict`. Default: not checked.
        subject: the person that the state is about. `erase` removes the state.
        fence: the fencing number of the writer's lease. `LeaseLost` if it is not the current one.
    """

    next: Any
    pending: Any
    config: Any
    writes: Any
    step: int | None
    kind: str
    pin: bool
    after: str | None
    subject: str | None
    fence: int | None


class StartOptions(TypedDict, total=False):
    """Options of `start`.

    Attributes:
        id: the id of the run. Starting the same id again changes nothing. Default: a random id.
        kwargs: keyword arguments of the task.
        session: the session that the run is journaled in. Default: a session with the id of the run.
        subject: the person that the run is about. `erase` removes the data of the run.
        queue: the queue whose limits apply. Only workers that serve this queue execute the run.
        queue_key: a key within the queue, such as a customer.
        priority: runs with a higher priority are executed first. Default: 0.
        delay: seconds before a worker may execute the run. Default: 0.
    """

    id: str
    kwargs: dict[str, Any]
    session: str
    subject: str
    queue: str
    queue_key: str
    priority: int
    delay: float


class RunFilter(TypedDict, total=False):
    """Which runs to list.

    Attributes:
        status: one status of `RunStatus`, or several.
        task: the name of the task.
        queue: the name of the queue.
        parent: the id of the run that started them.
        session: the session that they are journaled in.
        limit: the maximum number of runs. Default: 100.
    """

    status: str | Iterable[str]
    task: str
    queue: str
    parent: str
    session: str
    limit: int


class WorkOptions(TypedDict, total=False):
    """Options of `work`.

    Attributes:
        concurrency: how many runs are executed at the same time. Default: 8 threads; 64 on an event loop.
        queues: the queues to serve, with their limits.
        schedules: recurring runs to start.
        until_idle: return when no run is due. Default: False, which works until `stop_working`.
    """

    concurrency: int
    queues: Sequence[Queue]
    schedules: Sequence[Schedule]
    until_idle: bool


class Scope(TypedDict, total=False):
    """Which memories to use. Memories of the workspace are always included.

    Attributes:
        subject: also the memories about this person.
        session: also the memories of this session.
        everyone: all memories, of all persons and sessions. Default: False.
    """

    subject: str | None
    session: str | None
    everyone: bool


class RecallOptions(Scope, total=False):
    """How to search memories.

    Attributes:
        limit: the maximum number of hits. Default: 10.
        kinds: one kind of memory, or several. Default: all.
        metadata: only memories whose metadata has these values.
        since: only memories that hold or happened at or after this time.
        until: only memories that hold or happened at or before this time.
        threshold: the minimum likeness to the query, from 0 to 1. Default: 0.
        diversity: how much the hits should differ from each other, from 0 to 1. Default: 0.
        half_life: the age at which recency counts half, in seconds or as a timedelta. A shorter one favours newer
            memories more. Default: 90 days.
    """

    limit: int
    kinds: str | Iterable[str] | None
    metadata: Mapping[str, Any] | None
    since: dt.datetime | None
    until: dt.datetime | None
    threshold: float
    diversity: float
    half_life: float | dt.timedelta | None


def check_options(call: str, given: Mapping[str, Any], known: type) -> None:
    """Raise `InvalidInput` for options that the call does not have, so that a misspelt option is not ignored."""
    names = known.__annotations__
    unknown = given.keys() - names.keys()
    if unknown:
        valid = ", ".join(sorted(names))
        raise InvalidInput(f"{call}() got an unknown option {shown(min(unknown))}", hint=f"valid options: {valid}")


def model_of(model: Model | str | None) -> Model | None:
    """The model of an argument: a model is returned unchanged, a name is loaded. Raises `InvalidInput`."""
    if isinstance(model, str):
        return load_model(model)
    if model is not None and not hasattr(model, "complete"):
        raise InvalidInput(
            f"an object of type {type(model).__name__} is not a model",
            hint="give an object with a complete() method, or a name such as openai:NAME@URL",
        )
    return model
