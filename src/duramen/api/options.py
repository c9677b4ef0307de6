"""The keyword options of the public methods, and the checks that several of them share."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from ..errors import InvalidInput
from ..models import load_model
from ..ports import Model, TokenCounter

if TYPE_CHECKING:
    from ..execution.workers.schedules import Schedule
    from ..execution.workers.worker import Queue

ALL = 2**31
"""The default limit of lists that show everything."""


class AppendOptions(TypedDict, total=False):
    """Options of an append.

    key         idempotency key: a repeat in this session returns the first answer
    expected    the position that the writer expects to be the last; `PositionConflict` if it is not
    subject     the person whom the data is about; erasing that person removes it
    fence       the number of the writer's lease; `LeaseLost` if it is not the current one
    """

    key: str | None
    expected: int | None
    subject: str | None
    fence: int | None


class ReadOptions(TypedDict, total=False):
    """Which events to read.

    start, stop     the first and the last position, both included
    types           an event type, or several
    backwards       newest first
    limit           at most so many
    """

    start: int
    stop: int | None
    types: str | Iterable[str] | None
    backwards: bool
    limit: int | None


class WindowChanges(TypedDict, total=False):
    """The settings of a context window that one call changes. See `Window`."""

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

    next        what comes next
    pending     tasks that are under way
    config      what the state was made with
    writes      what the last step wrote
    step        the number of the step
    kind        why it is made: "manual", "subtask", "irreversible" or "periodic"
    pin         keep it whatever the policy says
    after       the id of the checkpoint that must be the newest (None: there must be none)
    subject     the person whom the state is about; erasing that person removes it
    fence       the number of the writer's lease
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
    """Options of `start`, in addition to the task and its positional arguments.

    id          the run's name: a second start under it changes nothing (random)
    kwargs      keyword arguments of the task
    session     the session whose journal the run is written to (one of its own)
    subject     the person whom the run is about; erasing that person removes its data
    queue       the queue whose limits apply; only workers of that queue take the run up
    queue_key   the key in the queue, such as a customer
    priority    runs with a higher one are taken up first (0)
    delay       seconds before it may be taken up (0)
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
    """Which runs to list: by `status` (one or several), `task`, `queue`, `parent` and `session`; at most `limit`."""

    status: str | Iterable[str]
    task: str
    queue: str
    parent: str
    session: str
    limit: int


class WorkOptions(TypedDict, total=False):
    """Options of a worker, in addition to its tasks.

    concurrency     runs at the same time (8 threads; 64 on an event loop)
    queues          the queues that it works on, with their limits
    schedules       recurring work
    until_idle      return when nothing is due any more (False: work until stopped)
    """

    concurrency: int
    queues: Sequence[Queue]
    schedules: Sequence[Schedule]
    until_idle: bool


class Scope(TypedDict, total=False):
    """Which memories are meant: those that everyone in the workspace may know, and

    subject         those about this person
    session         those that belong to this session alone
    everyone        everything that is remembered, of all persons and sessions
    """

    subject: str | None
    session: str | None
    everyone: bool


class RecallOptions(Scope, total=False):
    """How to search.

    limit           at most so many (10)
    kinds           a kind, or several
    metadata        only what has these values
    since, until    only what holds or happened from and to then
    threshold       only what is that much like the query, from 0 to 1 (0)
    diversity       how much hits are to differ from each other, from 0 to 1 (0)
    half_life       after how long newness counts half, in seconds or as a timedelta (90 days): of two that fit equally
                    the newer one comes first, the more so the shorter this is
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
    """Refuse options that a call does not have: a misspelt one must not be ignored."""
    names = known.__annotations__
    unknown = given.keys() - names.keys()
    if unknown:
        valid = ", ".join(sorted(names))
        raise InvalidInput(f"{call}() got an unknown option {min(unknown)!r}", hint=f"valid options: {valid}")


def model_of(model: Model | str | None) -> Model | None:
    """The model that an argument stands for: itself, or the one of that name."""
    if isinstance(model, str):
        return load_model(model)
    if model is not None and not hasattr(model, "complete"):
        raise InvalidInput(f"{model!r} is not a model", hint="give a model, or a name such as openai:NAME@URL")
    return model
