"""What users declare: tasks, steps, and what happens to a step that may have happened."""

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

from ...errors import InvalidInput
from ...journal.events import check_name
from ..waits.current_run import current

P = ParamSpec("P")
R = TypeVar("R")
Doubt = Literal["rerun", "ask", "fail"]


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a step is tried, and how long to wait in between: `first` seconds, then `factor` times more each time
    up to `most`, give or take the `jitter` part of it. Only errors of the classes in `on` are retried."""

    attempts: int = 3
    first: float = 1.0
    factor: float = 2.0
    most: float = 300.0
    jitter: float = 0.2
    on: tuple[type[Exception], ...] = (Exception,)

    def __post_init__(self) -> None:
        if not isinstance(self.attempts, int) or self.attempts < 1:
            raise InvalidInput(f"{self.attempts!r} cannot be `attempts`", hint="give a whole number from 1")
        if min(self.first, self.factor, self.most, self.jitter) < 0 or self.jitter > 1:
            raise InvalidInput("a retry cannot wait a negative time", hint="give numbers from 0; jitter at most 1")

    def pause(self, attempt: int, chance: float) -> float:
        """Seconds to wait after a failed attempt; `chance` lies between 0 and 1."""
        pause = min(self.most, self.first * self.factor ** min(attempt - 1, 64))
        return pause * (1 + self.jitter * (2 * chance - 1))


@dataclass(frozen=True, slots=True)
class Happened:
    """A check's answer: the step happened, and this is its result."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class CannotTell:
    """A check's answer: a person has to find out."""

    reason: str = "its check cannot tell"


class RateLimited(Exception):
    """Raise it in a step: the far side wants to be left alone for so many seconds. It does not count as an attempt."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"rate limited; try again in {retry_after:g} s")
        self.retry_after = retry_after


class Kind(enum.Enum):
    """How a function is called."""

    PLAIN = "plain"
    ASYNC = "async"


def _plain_name(what: str, name: str) -> str:
    if set("#@:") & set(check_name(what, name)):
        raise InvalidInput(f"{name!r} cannot be the {what}", hint="leave out #, @ and :")
    return name


def kind_of(function: Any, what: str) -> Kind:
    """Whether a function is plain or async; others are refused."""
    if not callable(function) or inspect.isclass(function):
        raise InvalidInput(f"{function!r} cannot be a {what}", hint="decorate a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidInput(
            f"the generator {function.__name__!r} cannot be a {what}",
            hint="return the whole result, and stream with duramen.emit(chunk) inside a step",
        )
    return Kind.ASYNC if inspect.iscoroutinefunction(function) else Kind.PLAIN


class Step(Generic[P, R]):
    """A function whose call inside a run is journaled: intent before, outcome after. Outside it just runs."""

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
        self.name = _plain_name("step", name or function.__name__)
        self.check = check
        self.undo: Step[..., Any] | None = _undoing(undo, self.name)
        self.irreversible = irreversible
        self.timeout = timeout
        self.retry = Retry(attempts=retry) if isinstance(retry, int) else retry
        parameter = inspect.signature(function).parameters.get("key")
        self.takes_key = parameter is not None and parameter.kind is parameter.KEYWORD_ONLY
        self.in_doubt: Doubt = in_doubt or ("ask" if irreversible and check is None else "rerun")
        self.costly = irreversible or self.in_doubt != "rerun"
        """Doubt about it would cost a person's time, so that its outcome is synced at once."""
        self._refuse_nonsense()
        update_wrapper(self, function)

    def _refuse_nonsense(self) -> None:
        if self.in_doubt not in ("rerun", "ask", "fail"):
            raise InvalidInput(f"{self.in_doubt!r} cannot be `in_doubt`", hint='"rerun", "ask" or "fail"')
        if self.timeout is not None and not self.timeout > 0:
            raise InvalidInput(f"{self.timeout!r} cannot be `timeout`", hint="give seconds above 0")
        for what, function in (("check", self.check), ("undo", self.undo)):
            if function is not None and not callable(function):
                raise InvalidInput(f"{function!r} cannot be `{what}`", hint="give a function")
            if function is not None and self.kind is Kind.PLAIN and _is_async(function):
                raise InvalidInput(
                    f"the plain step {self.name!r} has an async {what}", hint="make both plain, or both async"
                )
        if self.irreversible and self.check is None and not self.takes_key:
            raise InvalidInput(
                f"the irreversible step {self.name!r} has neither a key nor a check: after a crash nothing could "
                "tell whether it happened",
                hint="take `*, key` and hand it to the far side, or declare check=",
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
        return run.call(self, kwargs.get("key") if self.takes_key else None, args, kwargs)  # type: ignore[no-any-return]

    def keyed(self, key: str) -> Callable[..., R]:
        """This step under a key of the caller's, such as a tool-call id: it is known by that instead of by counting."""
        check_name("step key", key)

        def call(*args: Any, **kwargs: Any) -> R:
            run = current()
            if self.takes_key:
                kwargs["key"] = key
            if run is None:
                return self.function(*args, **kwargs)
            return run.call(self, key, args, kwargs)  # type: ignore[no-any-return]

        return call


def _undoing(undo: Callable[..., Any] | None, name: str) -> Step[..., Any] | None:
    """The step that undoes another."""
    if undo is None or isinstance(undo, Step):
        return undo
    return Step(undo, name=f"undo {name[:400]}")


def new_step_key() -> str:
    """A key for a step outside a run, where nothing is repeated."""
    import uuid

    return uuid.uuid4().hex


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function.function if isinstance(function, Step) else function)


class Task(Generic[P, R]):
    """A function that can be run durably. Called inside a run it is a child run; outside it just runs."""

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
        self.name = _plain_name("task", name or function.__name__)
        self.version = None if version is None else check_name("version", str(version))
        if deadline is not None and not deadline > 0:
            raise InvalidInput(f"{deadline!r} cannot be `deadline`", hint="give seconds above 0")
        self.deadline = deadline
        self.code = code_hash(function)
        update_wrapper(self, function)
        _known[self.name, self.version] = self

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        run = current()
        if run is None:
            return self.function(*args, **kwargs)
        return run.call_child(self, args, kwargs)  # type: ignore[no-any-return]

    def start(self, *args: Any, **kwargs: Any) -> Any:
        """Inside a run: start a child run for workers to take up; returns a handle with `result()`."""
        run = current()
        if run is None:
            raise InvalidInput(f"{self.name!r}.start is for use inside a run", hint="outside, use dm.start(task, …)")
        return run.start_child(self, args, kwargs)


_known: dict[tuple[str, str | None], Task[Any, Any]] = {}


def known_task(name: str, version: str | None) -> Task[Any, Any] | None:
    """The task of that name and version that was last declared in this process."""
    return _known.get((name, version))


def known_versions(name: str) -> list[str | None]:
    """The versions of a task that are declared in this process."""
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

    check           after a crash: asks the far side whether it happened. Gets the step's arguments (and `key`, if it
                    takes one); returns None (it did not), the result, `Happened(result)` or `CannotTell()`
    in_doubt        without a check: "rerun" under the same key (the default), "ask" a person, or "fail"
    irreversible    must not be repeated on a guess: needs a key or a check; without a check a person is asked
    retry           how failures are tried again: `Retry(…)`, or a number of attempts
    timeout         seconds that one attempt may take; what happened then is in doubt, and settled like after a crash
    undo            called with the step's result if the run fails or is cancelled later, in reverse order
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

    name        what runs of it are stored under (the function's name)
    version     a run continues only with the version that it was started with
    deadline    seconds after which a run fails
    """
    return Task(function, **options) if function is not None else lambda real: Task(real, **options)


def code_hash(function: Callable[..., Any]) -> str:
    """A fingerprint of what a function does: comments and line numbers do not count."""
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
        elif not isinstance(constant, frozenset):  # its order differs from process to process
            digest.update(repr(constant).encode(errors="replace"))


def same_code(recorded: str | None, now: str) -> bool:
    """Whether two fingerprints agree, as far as one Python version can tell."""
    return recorded is None or recorded.split(":")[0] != now.split(":")[0] or recorded == now
