"""Saves, drops, forks and erasures by several writers, in any order, give the same result as a simple model."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from programs.checkpoint_writers import as_loaded, checkpoints_of, list_checkpoints, texts

import duramen
from duramen.checkpoints.checkpoints import Checkpoints
from duramen.checkpoints.manifest import BytesField
from duramen.errors import CheckpointConflict, SessionExists, UnknownSession
from duramen.runtime import drive

sessions = st.sampled_from(["a", "b", "c"])
names = st.sampled_from(["main", "main", "sub:1"])
ids = st.sampled_from(["1", "2", "3", "4", "5"])
writers = st.integers(0, 2)
words = st.integers(0, 9).map(lambda number: f"{number} said " * (4 + number * 5))
subjects = st.sampled_from([None, None, None, "ada"])


@dataclass
class ModelCheckpoint:
    """A checkpoint in the model."""

    id: str
    position: int
    state: dict[str, Any]
    subject: str | None
    writes: list[tuple[int, Any]] = field(default_factory=list)


class CheckpointMachine(RuleBasedStateMachine):
    """Two handles and three caches on one store, compared with lists in memory."""

    def __init__(self, address: str, key: Any) -> None:
        super().__init__()
        self._stack = ExitStack()
        workspace = uuid.uuid4().hex
        self.dm = self.other = self._stack.enter_context(duramen.open(address, workspace=workspace, **key))
        if address != "memory:":
            self.other = self._stack.enter_context(duramen.open(address, workspace=workspace, **key))
        self.writers = [checkpoints_of(self.dm), checkpoints_of(self.other), checkpoints_of(self.dm)]
        self.model: dict[tuple[str, str], list[ModelCheckpoint]] = {}
        self.lists: dict[tuple[str, str], list[str]] = {}
        self.parents: dict[str, tuple[str, int]] = {}

    def teardown(self) -> None:
        assert self.dm.verify().ok
        for session, name in self.model:
            for cp in (*self.writers, checkpoints_of(self.other)):
                self._compare(cp, session, name)
        self._stack.close()

    # -- the model

    def visible(self, session: str, name: str, upto: int = 2**60) -> list[ModelCheckpoint]:
        """The checkpoints of a session under a name, oldest first. Of several with one id, the newest counts."""
        shown = [saved for saved in self.model.get((session, name), []) if saved.position <= upto]
        own = {saved.id for saved in shown}
        if session in self.parents:
            parent, at = self.parents[session]
            shown = [saved for saved in self.visible(parent, name, min(at, upto)) if saved.id not in own] + shown
        return shown

    def _compare(self, cp: Checkpoints, session: str, name: str) -> None:
        shown = self.visible(session, name)
        assert [one.id for one in list_checkpoints(cp, session, name)] == [saved.id for saved in reversed(shown)]
        newest = drive(cp.load(session, name))
        assert (newest and (newest.id, newest.fields, newest.skipped)) == (
            (shown[-1].id, shown[-1].state, ()) if shown else None
        )
        for saved in shown:
            loaded = drive(cp.load(session, name, id=saved.id))
            assert loaded is not None
            assert (loaded.position, loaded.fields) == (saved.position, saved.state)

    # -- the operations

    @initialize()
    def begin(self) -> None:
        self.save(0, "a", "main", "1", ["append", ["0 said "]], b"", None, True)

    @rule(
        writer=writers,
        session=sessions,
        name=names,
        id=ids,
        edit=st.one_of(
            st.tuples(st.just("append"), st.lists(words, min_size=1, max_size=3)),
            st.tuples(st.sampled_from(["trim", "edit", "clear", "same"]), st.integers(0, 9)),
        ),
        leaf=st.sampled_from([b"", b"small", b"large " * 30, b"larger " * 60]),
        subject=subjects,
        blind=st.booleans(),
    )
    def save(
        self, writer: int, session: str, name: str, id: str, edit: Any, leaf: bytes, subject: str | None, blind: bool
    ) -> None:
        kind, given = edit
        talk = self.lists.get((session, name), [])
        at = given % (len(talk) + 1) if isinstance(given, int) else 0
        edited = [*talk[:at], f"edited {len(talk)} " * 9, *talk[at + 1 :]]
        results: dict[str, list[str]] = {"trim": talk[at:], "edit": edited, "clear": [], "same": talk}
        talk = [*talk, *given][-40:] if kind == "append" else results[kind]
        fields = {"talk": texts(talk), "leaf": BytesField(leaf), "deep": {"again": texts(talk[:3])}}
        shown = self.visible(session, name)
        after: Any = {} if blind else {"after": shown[-1].id if shown else None}
        saved = drive(self.writers[writer].save(session, name, fields, {}, id=id, subject=subject, **after))
        self.lists[session, name] = talk
        own = self.model.setdefault((session, name), [])
        own[:] = [saved for saved in own if saved.id != id]
        own.append(ModelCheckpoint(id, saved.position, as_loaded(fields), subject))

    @rule(writer=writers, session=sessions, name=names, wrong=ids)
    def save_after_an_old_checkpoint(self, writer: int, session: str, name: str, wrong: str) -> None:
        shown = self.visible(session, name)
        if shown and shown[-1].id != wrong:
            with pytest.raises(CheckpointConflict) as refused:
                drive(self.writers[writer].save(session, name, {"x": texts(["lost " * 30])}, {}, after=wrong))
            assert (refused.value.expected, refused.value.found) == (wrong, shown[-1].id)

    @rule(writer=writers, session=sessions, name=names, ids_to_drop=st.none() | st.sets(ids, min_size=1, max_size=3))
    def drop(self, writer: int, session: str, name: str, ids_to_drop: set[str] | None) -> None:
        own = self.model.get((session, name), [])
        removed = [saved for saved in own if ids_to_drop is None or saved.id in ids_to_drop]
        assert drive(self.writers[writer].drop(session, name, ids_to_drop, reason="test")) == len(removed)
        if own:
            own[:] = [saved for saved in own if saved not in removed]

    @rule(writer=writers, session=sessions, name=names, id=ids, words=st.lists(words, max_size=2))
    def attach(self, writer: int, session: str, name: str, id: str, words: list[str]) -> None:
        own = [saved for saved in self.model.get((session, name), []) if saved.id == id]
        if own:
            fields = {"w": texts([*self.lists.get((session, name), [])[:4], *words])}
            data = {"n": len(own[0].writes)}
            drive(self.writers[writer].attach(session, name, id, data, type="writes", fields=fields))
            loaded = drive(self.writers[(writer + 1) % 3].attachments(session, name, id))
            assert loaded[-1].data == data
            assert loaded[-1].fields == as_loaded(fields)
            own[0].writes.append((data["n"], as_loaded(fields)))

    @rule(session=sessions, new=st.sampled_from(["b", "c"]), back=st.integers(0, 4))
    def fork(self, session: str, new: str, back: int) -> None:
        at = max(0, self.dm.session(session).head().position - back)
        try:
            self.dm.session(session).fork(new, at=at)
        except (SessionExists, UnknownSession):
            return
        if at:
            self.parents[new] = (session, at)

    @rule(other=st.booleans())
    def erase(self, other: bool) -> None:
        removed = [saved for own in self.model.values() for saved in own if saved.subject == "ada"]
        report = (self.other if other else self.dm).erase("ada")
        assert report.checkpoints == len(removed)
        for own in self.model.values():
            own[:] = [saved for saved in own if saved.subject != "ada"]

    @rule(writer=writers)
    def forget(self, writer: int) -> None:
        self.writers[writer] = checkpoints_of(self.other if writer == 1 else self.dm)

    @rule(writer=writers, session=sessions, name=names)
    def compare(self, writer: int, session: str, name: str) -> None:
        self._compare(self.writers[writer], session, name)

    @invariant()
    def names_with_checkpoints_are_listed(self) -> None:
        for session in ("a", "b", "c"):
            wanted = {name for name in ("main", "sub:1") if self.visible(session, name)}
            assert wanted <= set(drive(self.writers[0].names(session)))


@pytest.mark.promise("C3", "C6", "X22", "G3")
@pytest.mark.parametrize("sealed", [False, True])
def test_any_order_of_operations_gives_the_same_result_as_the_model(
    any_address: str, sealed: bool, everything: bool
) -> None:
    limits = settings(
        max_examples=(60 if any_address == "memory:" else 10) // (1 if everything else 3),
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    machine: Any = partial(CheckpointMachine, any_address, {"key": bytes(range(32))} if sealed else {})
    run_state_machine_as_test(machine, settings=limits)
