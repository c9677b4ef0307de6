"""Nobody is told what is not theirs: workspaces, persons, sessions, whatever is said, recalled, forgotten or erased."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs.memory_handles import contents, open_memory

import duramen
from duramen.errors import UnknownMemory

KEY = bytes(range(32))
SPACES = ("north", "south")
PEOPLE = (None, "ada", "bob")
SESSIONS = ("s", "t")


@pytest.fixture(scope="module", params=["sqlite", "sealed", "postgres", "bound"])
def handles(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[duramen.Duramen]]:
    """Two workspaces in one store, each with two handles: the second one is another process as far as caches go."""
    if request.param == "postgres":
        address = str(request.getfixturevalue("module_url"))
    elif request.param == "bound":
        address, _ = request.getfixturevalue("module_bound_urls")
    else:
        address = str(tmp_path_factory.mktemp("isolation") / "agent.db")
    key = KEY if request.param == "sealed" else None
    with ExitStack() as stack:
        yield [
            stack.enter_context(open_memory(address, workspace=space, key=key, embedder="none"))
            for space in SPACES
            for _ in range(2)
        ]


@dataclass(frozen=True)
class Said:
    """What somebody said where; `who` may recall it: everybody (None), a person or a session."""

    space: int
    text: str
    subject: str | None
    session: str
    scope: str

    @property
    def who(self) -> Any:
        return {"workspace": None, "subject": ("subject", self.subject), "session": ("session", self.session)}[
            self.scope
        ]


@st.composite
def said(draw: st.DrawFn) -> Said:
    subject = draw(st.sampled_from(PEOPLE))
    scopes = ["workspace", "session", *(["subject"] if subject else [])]
    text = draw(st.sampled_from(["sun", "sun moon", "sun stars"]))
    return Said(draw(st.integers(0, 1)), text, subject, draw(st.sampled_from(SESSIONS)), draw(st.sampled_from(scopes)))


Key = tuple[int, Any, str | None, str]


def key_of(one: Said) -> Key:
    return (one.space, one.who, one.subject, one.text)


def visible(model: dict[Key, str], space: int, subject: str | None, session: str | None) -> list[str]:
    """What a handle may tell."""
    who = {None, ("subject", subject), ("session", session)}
    return sorted(text for (where, whose, _, text) in model if where == space and whose in who)


def check(dm: duramen.Duramen, model: dict[Key, str], space: int) -> None:
    for subject in PEOPLE:
        for session in (None, *SESSIONS, "elsewhere"):
            whose: Any = {"subject": subject, "session": session}
            expected = visible(model, space, subject, session)
            assert sorted(contents(dm.memory.recall("sun", limit=100, **whose))) == expected
            assert sorted(contents(dm.memory.list(**whose))) == expected
            if session is not None:
                shown = dm.session(session).recall("sun", subject=subject, limit=100, budget=20_000, recent=0)
                assert sorted(contents(shown.knowledge)) == expected
    mine = sorted(text for (where, *_, text) in model if where == space)
    assert sorted(contents(dm.memory.recall("sun", limit=100, everyone=True))) == mine


ACTIONS = st.lists(
    st.one_of(
        said(),
        st.tuples(st.just("forget"), st.integers(0, 1), st.integers(0, 20)),
        st.tuples(st.just("erase"), st.integers(0, 1), st.sampled_from(["ada", "bob"])),
        st.tuples(
            st.just("tool"), st.integers(0, 1), st.sampled_from(PEOPLE), st.sampled_from(SESSIONS), st.integers(0, 9)
        ),
    ),
    max_size=12,
)


@pytest.mark.promise("G4", "G3")
@settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ACTIONS)
def test_every_handle_tells_what_is_its_own(handles: list[duramen.Duramen], actions: list[Any]) -> None:
    model: dict[Key, str] = {}
    for dm in handles[::2]:
        for one in list(dm.memory.list(everyone=True)):
            dm.memory.forget(one.id)
    for action in actions:
        if isinstance(action, Said):
            session = handles[2 * action.space].session(action.session)
            made = session.remember(action.text, subject=action.subject, scope=action.scope)
            model[key_of(action)] = made.id
        elif action[0] == "forget":
            _, space, which = action
            _forget(handles, model, space, which)
        elif action[0] == "erase":
            _, space, person = action
            handles[2 * space].erase(person)
            model = {key: id for key, id in model.items() if (key[0], key[2]) != (space, person)}
        else:
            _, space, subject, name, which = action
            model = _use_tool(handles[2 * space], model, space, subject, name, which)
    for number, dm in enumerate(handles):
        check(dm, model, number // 2)


def _forget(handles: list[duramen.Duramen], model: dict[Key, str], space: int, which: int) -> None:
    """Forget what a memory of either workspace says, in this one."""
    ids = sorted(set(model.values()))
    if not ids:
        return
    id = ids[which % len(ids)]
    gone = [key for key, made in model.items() if made == id and key[0] == space]
    try:
        handles[2 * space].memory.forget(id)
    except UnknownMemory:
        assert gone == []
    else:
        assert gone
        for key in gone:
            del model[key]


def _use_tool(
    dm: duramen.Duramen, model: dict[Key, str], space: int, subject: str | None, name: str, which: int
) -> dict[Key, str]:
    """A model forgets by reference whatever there is: only what it may be told goes."""
    every = sorted(dm.memory.list(everyone=True), key=lambda one: one.source)
    if not every:
        return model
    chosen = every[which % len(every)]
    allowed = chosen.id in {one.id for one in dm.memory.list(subject=subject, session=name)}
    told = dm.session(name).use_memory_tool("forget", {"ref": chosen.source}, subject=subject)
    assert told.startswith("Forgotten" if allowed else "That did not work")
    return {key: id for key, id in model.items() if not (allowed and key[0] == space and id == chosen.id)}


@pytest.mark.promise("G4")
def test_the_same_words_in_two_workspaces_are_two_memories(tmp_path: Path, any_address: str) -> None:
    if any_address == "memory:":
        return
    with open_memory(any_address, workspace="north") as north, open_memory(any_address, workspace="south") as south:
        for dm in (north, south):
            dm.session("s").remember("the sun is up", key="sun", fresh=True)
        (mine,), (theirs,) = north.memory.list(), south.memory.list()
        assert (mine.id, mine.source) == (theirs.id, theirs.source), "nothing but the workspace tells them apart"
        for _ in range(3):
            north.memory.recall("sun")
        north.memory.remember("the sun is down", key="sun")
        assert north.memory.forget(mine.id).payloads == 1
        (theirs,) = south.memory.list()
        assert (theirs.content, theirs.times, theirs.current) == ("the sun is up", 1, True)
        found = south.memory.recall("sun")
        assert (contents(found), found.waiting) == (["the sun is up"], 0)
        assert "access" not in found.hits[0].parts
        with pytest.raises(UnknownMemory):
            south.memory.get(next(iter(north.memory.list())).id)
        assert south.memory.forget_before(theirs.recorded.replace(year=9000), everyone=True).memories == 1
        assert contents(north.memory.recall("sun")) == ["the sun is down"]
        assert north.verify().ok
        assert south.verify().ok


@pytest.mark.promise("G4")
def test_a_session_named_like_a_person_is_no_person(tmp_path: Path) -> None:
    with open_memory("memory:", embedder="none") as dm:
        dm.session("ada").remember("in the session", scope="session")
        dm.session("x").remember("about the person", subject="ada")
        assert contents(dm.memory.recall("the", subject="ada")) == ["about the person"]
        assert contents(dm.memory.recall("the", session="ada")) == ["in the session"]
        assert contents(dm.memory.recall("the")) == []
