"""Workspaces, subjects and sessions are isolated, whatever is remembered, recalled, forgotten or erased."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs.memory_handles import contents, open_memory

import duramen
from duramen.errors import UnknownMemory

KEY = bytes(range(32))
WORKSPACES = ("north", "south")
SUBJECTS = (None, "ada", "bob")
SESSIONS = ("s", "t")


@pytest.fixture(scope="module", params=["sqlite", "sealed", "postgres", "bound"])
def handles(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[duramen.Duramen]]:
    """Two workspaces in one store, two handles for each. The second handle has its own caches, like another process."""
    if request.param == "postgres":
        address = str(request.getfixturevalue("module_url"))
    elif request.param == "bound":
        address, _ = request.getfixturevalue("module_bound_urls")
    else:
        address = str(tmp_path_factory.mktemp("isolation") / "agent.db")
    key = KEY if request.param == "sealed" else None
    with ExitStack() as stack:
        yield [
            stack.enter_context(open_memory(address, workspace=workspace, key=key, embedder="none"))
            for workspace in WORKSPACES
            for _ in range(2)
        ]


@dataclass(frozen=True)
class Remembered:
    """One memory. `audience` may recall it: the whole workspace (None), a subject or a session."""

    workspace: int
    text: str
    subject: str | None
    session: str
    scope: str

    @property
    def audience(self) -> Any:
        return {"workspace": None, "subject": ("subject", self.subject), "session": ("session", self.session)}[
            self.scope
        ]


@st.composite
def remembered(draw: st.DrawFn) -> Remembered:
    subject = draw(st.sampled_from(SUBJECTS))
    scopes = ["workspace", "session", *(["subject"] if subject else [])]
    text = draw(st.sampled_from(["sun", "sun moon", "sun stars"]))
    return Remembered(
        draw(st.integers(0, 1)), text, subject, draw(st.sampled_from(SESSIONS)), draw(st.sampled_from(scopes))
    )


Key = tuple[int, Any, str | None, str]


def key_of(memory: Remembered) -> Key:
    return (memory.workspace, memory.audience, memory.subject, memory.text)


def visible(expected: dict[Key, str], workspace: int, subject: str | None, session: str | None) -> list[str]:
    """The texts that a handle may return."""
    audiences = {None, ("subject", subject), ("session", session)}
    return sorted(text for (place, audience, _, text) in expected if place == workspace and audience in audiences)


def check(dm: duramen.Duramen, expected: dict[Key, str], workspace: int) -> None:
    for subject in SUBJECTS:
        for session in (None, *SESSIONS, "elsewhere"):
            audience: Any = {"subject": subject, "session": session}
            texts = visible(expected, workspace, subject, session)
            assert sorted(contents(dm.memory.recall("sun", limit=100, **audience))) == texts
            assert sorted(contents(dm.memory.list(**audience))) == texts
            if session is not None:
                recalled = dm.session(session).recall("sun", subject=subject, limit=100, budget=20_000, recent=0)
                assert sorted(contents(recalled.knowledge)) == texts
    all_texts = sorted(text for (place, *_, text) in expected if place == workspace)
    assert sorted(contents(dm.memory.recall("sun", limit=100, everyone=True))) == all_texts


ACTIONS = st.lists(
    st.one_of(
        remembered(),
        st.tuples(st.just("forget"), st.integers(0, 1), st.integers(0, 20)),
        st.tuples(st.just("erase"), st.integers(0, 1), st.sampled_from(["ada", "bob"])),
        st.tuples(
            st.just("tool"), st.integers(0, 1), st.sampled_from(SUBJECTS), st.sampled_from(SESSIONS), st.integers(0, 9)
        ),
    ),
    max_size=12,
)


@pytest.mark.promise("G4", "G3")
def test_each_handle_recalls_only_what_it_may(handles: list[duramen.Duramen], everything: bool) -> None:
    @settings(deadline=None, max_examples=20 if everything else 5)
    @given(ACTIONS)
    def check_actions(actions: list[Any]) -> None:
        for dm in handles[::2]:
            for memory in list(dm.memory.list(everyone=True)):
                dm.memory.forget(memory.id)
        expected = _apply(handles, actions)
        for number, dm in enumerate(handles):
            check(dm, expected, number // 2)

    check_actions()


def _apply(handles: list[duramen.Duramen], actions: list[Any]) -> dict[Key, str]:
    """Do what the actions say. Returns the memories that should be left."""
    expected: dict[Key, str] = {}
    for action in actions:
        if isinstance(action, Remembered):
            session = handles[2 * action.workspace].session(action.session)
            made = session.remember(action.text, subject=action.subject, scope=action.scope)
            expected[key_of(action)] = made.id
        elif action[0] == "forget":
            _, workspace, index = action
            _forget(handles, expected, workspace, index)
        elif action[0] == "erase":
            _, workspace, subject = action
            handles[2 * workspace].erase(subject)
            expected = {key: id for key, id in expected.items() if (key[0], key[2]) != (workspace, subject)}
        else:
            _, workspace, subject, name, index = action
            expected = _use_tool(handles[2 * workspace], expected, workspace, subject, name, index)
    return expected


def _forget(handles: list[duramen.Duramen], expected: dict[Key, str], workspace: int, index: int) -> None:
    """Forget an id of either workspace in this one."""
    ids = sorted(set(expected.values()))
    if not ids:
        return
    id = ids[index % len(ids)]
    keys = [key for key, made in expected.items() if made == id and key[0] == workspace]
    try:
        handles[2 * workspace].memory.forget(id)
    except UnknownMemory:
        assert keys == []
    else:
        assert keys
        for key in keys:
            del expected[key]


def _use_tool(
    dm: duramen.Duramen, expected: dict[Key, str], workspace: int, subject: str | None, name: str, index: int
) -> dict[Key, str]:
    """A model asks to forget any memory by reference. Only one that it may recall is forgotten."""
    memories = sorted(dm.memory.list(everyone=True), key=lambda one: one.source)
    if not memories:
        return expected
    chosen = memories[index % len(memories)]
    allowed = chosen.id in {one.id for one in dm.memory.list(subject=subject, session=name)}
    answer = dm.session(name).use_memory_tool("forget", {"ref": chosen.source}, subject=subject)
    assert answer.startswith("Forgotten" if allowed else "That did not work")
    return {key: id for key, id in expected.items() if not (allowed and key[0] == workspace and id == chosen.id)}


@pytest.mark.promise("G4")
def test_the_same_text_in_two_workspaces_is_two_memories(any_address: str) -> None:
    if any_address == "memory:":
        return
    with open_memory(any_address, workspace="north") as north, open_memory(any_address, workspace="south") as south:
        for dm in (north, south):
            dm.session("s").remember("the sun is up", key="sun", fresh=True)
        (mine,), (theirs,) = north.memory.list(), south.memory.list()
        assert (mine.id, mine.source) == (theirs.id, theirs.source), "only the workspace differs"
        for _ in range(3):
            north.memory.recall("sun")
        north.memory.remember("the sun is down", key="sun")
        assert north.memory.forget(mine.id).payloads == 1
        (theirs,) = south.memory.list()
        assert (theirs.content, theirs.times, theirs.current) == ("the sun is up", 1, True)
        result = south.memory.recall("sun")
        assert (contents(result), result.waiting) == (["the sun is up"], 0)
        assert "access" not in result.hits[0].parts
        with pytest.raises(UnknownMemory):
            south.memory.get(next(iter(north.memory.list())).id)
        assert south.memory.forget_before(theirs.recorded.replace(year=9000), everyone=True).memories == 1
        assert contents(north.memory.recall("sun")) == ["the sun is down"]
        assert north.verify().ok
        assert south.verify().ok


@pytest.mark.promise("G4")
def test_a_session_named_like_a_subject_is_not_the_subject() -> None:
    with open_memory("memory:", embedder="none") as dm:
        dm.session("ada").remember("in the session", scope="session")
        dm.session("x").remember("about the subject", subject="ada")
        assert contents(dm.memory.recall("the", subject="ada")) == ["about the subject"]
        assert contents(dm.memory.recall("the", session="ada")) == ["in the session"]
        assert contents(dm.memory.recall("the")) == []
