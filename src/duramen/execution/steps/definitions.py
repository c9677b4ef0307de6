"""Tasks and steps as users declare them, with retries and the handling of steps in doubt."""

from __future__ import annotations

import enum
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import update_wrapper
from hashlib import blake2b
from types import CodeType, MethodType
from typing import Any, Generic, Literal, ParamSpec, TypeVar, overload

from ...errors import InvalidInput, shown
from ...journal.events import check_flag, check_name, check_seconds, check_whole
from ..waits.current_run import current

P = ParamSpec("P")
R = TypeVar("R")
Doubt = Literal["rerun", "ask", "fail"]


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a failing step is tried, and how long to wait between attempts.

    Attributes:
        attempts: attempts in total, including the first.
        first: seconds to wait after the first attempt.
        factor: multiplies the wait after each further attempt.
        most: longest wait in seconds.
        jitter: random part of the wait: 0.2 varies it by up to 20 % in both directions.
        on: only errors of these classes are retried.
    """

    attempts: int = 3
    first: float = 1.0
    factor: float = 2.0
    most: float = 300.0
    jitter: float = 0.2
    on: tuple[type[Exception], ...] = (Exception,)

    def __post_init__(self) -> None:
        check_whole("attempts", self.attempts, 1)
        for name in ("first", "factor", "most", "jitter"):
            check_seconds(name, getattr(self, name))
        if self.jitter > 1:
            raise InvalidInput(f"`jitter` cannot be {shown(self.jitter)}", hint="give a number from 0 to 1")
        on = self.on if isinstance(self.on, tuple) else (self.on,)
        if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in on):
            raise InvalidInput(f"`on` cannot be {shown(self.on)}", hint="give a tuple of exception classes")
        object.__setattr__(self, "on", on)

    def pause(self, attempt: int, chance: float) -> float:
        """Seconds to wait after attempt number `attempt`. `chance` is a random number between 0 and 1."""
        pause = min(self.most, self.first * self.factor ** min(attempt - 1, 64))
        return pause * (1 + self.jitter * (2 * chance - 1))


@dataclass(frozen=True, slots=True)
class Happened:
    """Returned by a check: the step happened, and `value` is its result."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class CannotTell:
    """Returned by a check that cannot determine whether the step happened. A person has to decide."""

    reason: str = "its check cannot tell"


class RateLimited(Exception):
    """Raise this in a step when the remote service asks to wait. The step is called again after `retry_after` seconds.
    This does not count as an attempt."""

    def __init__(self, retry_after: float) -> None:
        check_seconds("retry_after", retry_after)
        super().__init__(f"rate limited; try again in {retry_after:g} s")
        self.retry_after = retry_after


class Kind(enum.Enum):
    """Whether a function is plain or async."""

    PLAIN = "plain"
    ASYNC = "async"


def _plain_name(what: str, name: str) -> str:
    name = check_name(what, name)
    if set("#@:") & set(name):
        raise InvalidInput(f"the {what} name {shown(name)} contains #, @ or :", hint="choose a name without them")
    return name


def _checked_version(version: object) -> str:
    """The version of a task as text. Small numbers are accepted too."""
    if isinstance(version, (int, float)) and not isinstance(version, bool) and abs(version) < 1e18:
        version = str(version)
    return check_name("version", version)


def _name_of(function: Any) -> str:
    name = getattr(function, "__name__", None)
    if not isinstance(name, str):
        raise InvalidInput(f"{shown(function)} has no name", hint="give name=")
    return name


def kind_of(function: Any, what: str) -> Kind:
    """Whether a function is plain or async. Raises `InvalidInput` for classes, generators and other objects."""
    if not callable(function) or inspect.isclass(function):
        raise InvalidInput(f"a {what} cannot be {shown(function)}", hint="decorate a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidInput(
            f"the generator {shown(function.__name__)} cannot be a {what}",
            hint="return the whole result, and call duramen.emit(chunk) inside a step to stream parts of it",
        )
    return Kind.ASYNC if inspect.iscoroutinefunction(function) else Kind.PLAIN


class Step(Generic[P, R]):
    """A function whose calls inside a run are journaled: the intent before the call, the outcome after it. Outside a
    run it is an ordinary function."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        check: Callable[..., Any] | None = None,
        in_doubt: Doubt | None = None,
        irreversible: bool = False,
        retry: Retry | int | None = None,
        timeout: float | None = None,
        undo: Callable[..., Any] | None = None,
    ) -> None:
        self.kind = kind_of(function, "step")
        self.function = function
        self.name = _plain_name("step", _name_of(function) if name is None else name)
        self.check = check
        self.undo: Step[..., Any] | None = _as_undo_step(undo, self.name)
        self.irreversible = check_flag("irreversible", irreversible)
        self.timeout = None if timeout is None else check_seconds("timeout", timeout, above=True)
        self.retry = _as_retry(retry)
        self.takes_key = _takes_key(function)
        self.in_doubt: Doubt = in_doubt or ("ask" if irreversible and check is None else "rerun")
        self.costly = irreversible or self.in_doubt != "rerun"
        """Doubt about this step would need a person, so its outcome is synced at once."""
        self._check_options()
        update_wrapper(self, function)

    def _check_options(self) -> None:
        if self.in_doubt not in ("rerun", "ask", "fail"):
            raise InvalidInput(f"`in_doubt` cannot be {shown(self.in_doubt)}", hint='use "rerun", "ask" or "fail"')
        for what, function in (("check", self.check), ("undo", self.undo)):
            if function is not None and not callable(function):
                raise InvalidInput(f"`{what}` cannot be {shown(function)}", hint="give a function")
            if function is not None and self.kind is Kind.PLAIN and _is_async(function):
                raise InvalidInput(
                    f"the plain step {shown(self.name)} has an async {what}", hint="make both plain, or both async"
                )
        if self.irreversible and self.check is None and not self.takes_key:
            raise InvalidInput(
                f"the irreversible step {shown(self.name)} has neither a key nor a check, so after a crash duramen "
                "could not determine whether it happened",
                hint="add the parameter `*, key` and send it to the service as idempotency key, or declare check=",
            )

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Step[P, R]: ...
    @overload
    def __get__(self, instance: object, owner: Any = None) -> Callable[..., R]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        run = current()
        if run is None:
            if self.takes_key and "key" not in kwargs:
                kwargs["key"] = new_step_key()
            return self.function(*args, **kwargs)
        key = kwargs.get("key") if self.takes_key else None
        return run.call(self, key, args, kwargs)  # type: ignore[no-any-return]

    def keyed(self, key: str) -> Callable[..., R]:
        """This step, identified by the caller's key (such as a tool-call id) instead of by its number."""
        key = check_name("step key", key)

        def call(*args: Any, **kwargs: Any) -> R:
            run = current()
            if self.takes_key:
                kwargs["key"] = key
            if run is None:
                return self.function(*args, **kwargs)
            return run.call(self, key, args, kwargs)  # type: ignore[no-any-return]

        return call


def _as_undo_step(undo: Callable[..., Any] | None, name: str) -> Step[..., Any] | None:
    """The undo function of a step, as a step."""
    if undo is None or isinstance(undo, Step):
        return undo
    return Step(undo, name=f"undo {name[:400]}")


def _as_retry(retry: object) -> Retry | None:
    if retry is None or isinstance(retry, Retry):
        return retry
    if isinstance(retry, int) and not isinstance(retry, bool):
        return Retry(attempts=retry)
    raise InvalidInput(f"`retry` cannot be {shown(retry)}", hint="give duramen.Retry(…), or a number of attempts")


def new_step_key() -> str:
    """A random key for a step that is called outside a run."""
    import uuid

    return uuid.uuid4().hex


def _takes_key(function: Callable[..., Any]) -> bool:
    try:
        parameter = inspect.signature(function).parameters.get("key")
    except (TypeError, ValueError):  # some built-in functions have no signature
        return False
    return parameter is not None and parameter.kind is parameter.KEYWORD_ONLY


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function.function if isinstance(function, Step) else function)


class Task(Generic[P, R]):
    """A function that can be run durably. Calling it inside a run starts a child run; outside a run it is an ordinary
    function."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        version: str | None = None,
        deadline: float | None = None,
    ) -> None:
        self.kind = kind_of(function, "task")
        self.function = function
        self.name = _plain_name("task", _name_of(function) if name is None else name)
        self.version = None if version is None else _checked_version(version)
        self.deadline = None if deadline is None else check_seconds("deadline", deadline, above=True)
        self.code = code_hash(function)
        update_wrapper(self, function)
        _known[self.name, self.version] = self

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        run = current()
        if run is None:
            return self.function(*args, **kwargs)
        return run.call_child(self, args, kwargs)  # type: ignore[no-any-return]

    def start(self, *args: Any, **kwargs: Any) -> Any:
        """Start a child run that a worker executes. Returns a handle with `id` and `result()`. Only inside a run."""
        run = current()
        if run is None:
            raise InvalidInput(
                f"{self.name}.start() was called outside a run", hint="use dm.start(task, …) outside a run"
            )
        return run.start_child(self, args, kwargs)


_known: dict[tuple[str, str | None], Task[Any, Any]] = {}


def check_task(task: object) -> Task[..., Any]:
    """Return `task`. Raises `InvalidInput` unless it is a task."""
    if not isinstance(task, Task):
        raise InvalidInput(f"{shown(task)} is not a task", hint="decorate the function with @duramen.task")
    return task


def known_task(name: str, version: str | None) -> Task[Any, Any] | None:
    """The task with that name and version that was declared last in this process; None if there is none."""
    return _known.get((name, version))


def known_versions(name: str) -> list[str | None]:
    """The declared versions of a task in this process."""
    return [version for known, version in _known if known == name]


@overload
def step(function: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    check: Callable[..., Any] | None = None,
    in_doubt: Doubt | None = None,
    irreversible: bool = False,
    retry: Retry | int | None = None,
    timeout: float | None = None,
    undo: Callable[..., Any] | None = None,
) -> Callable[[Callable[P, R]], Step[P, R]]: ...
def step(function: Callable[P, R] | None = None, /, **options: Any) -> Any:
    """Make a function a step.

    Keyword Args:
        name: the name under which calls are journaled (default: the function's name).
        check: a function that finds out after a crash whether the step happened. It gets the step's arguments, and
            `key` if it takes one. It returns None if the step did not happen; otherwise the result,
            `Happened(result)` or `CannotTell()`.
        in_doubt: what to do without a check: "rerun" with the same key (the default), "ask" a person, or "fail".
        irreversible: the step must not be repeated by accident. It needs a key or a check; without a check, a person
            is asked.
        retry: how failures are retried: `Retry(…)`, or a number of attempts.
        timeout: seconds that one attempt may take. After a timeout the step is in doubt, as after a crash.
        undo: called with the step's result if the run later fails or is cancelled; the last step first.
    """
    return Step(function, **options) if function is not None else lambda real: Step(real, **options)


@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(
    *, name: str | None = None, version: str | None = None, deadline: float | None = None
) -> Callable[[Callable[P, R]], Task[P, R]]: ...
def task(function: Callable[P, R] | None = None, /, **options: Any) -> Any:
    """Make a function a task.

    Keyword Args:
        name: the name under which runs are stored (default: the function's name).
        version: a run continues only with the version that it was started with.
        deadline: seconds after which a run fails.
    """
    return Task(function, **options) if function is not None else lambda real: Task(real, **options)


def code_hash(function: Callable[..., Any]) -> str:
    """A fingerprint of a function's bytecode. Comments and line numbers do not change it."""
    code = getattr(function, "__code__", None)
    digest = blake2b(digest_size=8)
    if isinstance(code, CodeType):
        _feed(digest, code)
    return f"{sys.version_info[0]}.{sys.version_info[1]}:{digest.hexdigest()}"


def _feed(digest: Any, code: CodeType) -> None:
    digest.update(code.co_code)
    for names in (code.co_names, code.co_varnames, code.co_freevars):
        digest.update(repr(names).encode(errors="replace"))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _feed(digest, constant)
        elif not isinstance(constant, frozenset):  # the order of a set differs between processes
            digest.update(repr(constant).encode(errors="replace"))


def same_code(recorded: str | None, now: str) -> bool:
    """Whether two fingerprints agree. Fingerprints from different Python versions count as equal."""
    return recorded is None or recorded.split(":")[0] != now.split(":")[0] or recorded == now
