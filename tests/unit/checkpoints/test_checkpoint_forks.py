"""A fork has the checkpoints from before the fork, and its own from then on."""

from __future__ import annotations

from typing import Any

import pytest
from programs.checkpoint_writers import as_loaded, checkpoints_of, fields_of, list_checkpoints, texts
from programs.side_effects import Open

from duramen.checkpoints.checkpoints import Checkpoints
from duramen.errors import CheckpointConflict
from duramen.runtime import drive


def save(cp: Checkpoints, number: int, session: str = "s", name: str = "main", **options: Any) -> Any:
    return drive(cp.save(session, name, fields_of(number), {"n": number}, id=f"c{number}", **options))


def load(cp: Checkpoints, session: str = "s", name: str = "main", **which: Any) -> Any:
    return drive(cp.load(session, name, **which))


def expect(loaded: Any, number: int) -> None:
    """Check that this is checkpoint `number`, complete and undamaged."""
    assert loaded is not None
    assert (loaded.id, loaded.skipped, loaded.fields) == (f"c{number}", (), as_loaded(fields_of(number)))


@pytest.mark.promise("X22")
def test_a_fork_inherits_checkpoints_and_then_diverges(open_one: Open) -> None:
    dm = open_one()
    cp = checkpoints_of(dm)
    for number in range(4):
        save(cp, number)
    drive(cp.attach("s", "main", "c3", {"n": 3}, type="writes"))
    fork_at = dm.session("s").head().position
    dm.session("s").fork("fork")
    dm.session("s").fork("early", at=2)
    save(cp, 4)
    save(cp, 4, name="newer")
    drive(cp.attach("s", "main", "c3", {"n": 4}, type="writes"))
    for reader in (cp, checkpoints_of(open_one())):
        expect(load(reader, "fork"), 3)
        expect(load(reader, "early"), 1)
        assert load(reader, "fork", id="c4") is None
        expect(load(reader, "fork", id="c0"), 0)
        expect(load(reader, "fork", at=2), 1)
        assert [one.id for one in list_checkpoints(reader, "early", "main")] == ["c1", "c0"]
        assert [one.data["n"] for one in drive(reader.attachments("fork", "main", "c3"))] == [3]
        assert drive(reader.names("fork")) == ["main"]
    with pytest.raises(CheckpointConflict):
        save(cp, 9, "fork", after=None)
    save(cp, 9, "fork", after="c3")
    dm.session("fork").fork("nested fork")
    save(cp, 10, "nested fork", after="c9")
    expect(load(cp, "fork"), 9)
    expect(load(cp, "nested fork"), 10)
    expect(load(cp, "nested fork", at=fork_at), 3)
    expect(load(cp), 4)
    assert [one.id for one in list_checkpoints(cp, "nested fork", "main")] == ["c10", "c9", "c3", "c2", "c1", "c0"]
    assert dm.verify().ok


@pytest.mark.promise("X22")
def test_a_fork_keeps_its_own_checkpoints_when_the_parent_drops_all(open_one: Open) -> None:
    dm = open_one()
    cp = checkpoints_of(dm)
    for number in range(3):
        save(cp, number)
    dm.session("s").fork("fork")
    save(cp, 3, "fork")
    save(cp, 1, "fork")  # an id that the fork inherited too
    assert [one.id for one in list_checkpoints(cp, "fork", "main")] == ["c1", "c3", "c2", "c0"]
    drive(cp.drop("s", "main", None, reason="test"))
    assert load(cp) is None
    expect(load(cp, "fork"), 1)
    expect(load(cp, "fork", id="c3"), 3)
    assert load(cp, "fork", id="c2") is None, "the parent's was dropped"
    save(cp, 4, "fork", after="c1")
    expect(load(checkpoints_of(open_one()), "fork"), 4)


@pytest.mark.promise("X22")
def test_nested_forks_see_the_checkpoints_before_each_fork(open_one: Open) -> None:
    dm = open_one()
    cp = checkpoints_of(dm)
    for depth in range(6):
        session = f"s{depth}"
        save(cp, depth, session)
        save(cp, 10 + depth, session)
        dm.session(session).fork(f"s{depth + 1}", at=dm.session(session).head().position - 1)
    for reader in (cp, checkpoints_of(open_one())):
        for depth in range(6):
            ids = [f"c{10 + depth}", *(f"c{number}" for number in range(depth, -1, -1))]
            assert [one.id for one in list_checkpoints(reader, f"s{depth}", "main")] == ids
            for number in range(depth + 1):
                expect(load(reader, f"s{depth}", id=f"c{number}"), number)
        expect(load(reader, "s6"), 5)
        assert load(reader, "s6", id="c15") is None


@pytest.mark.promise("X22")
def test_attachments_belong_to_the_session_that_they_were_made_in(open_one: Open) -> None:
    dm = open_one()
    cp = checkpoints_of(dm)
    save(cp, 0)
    dm.session("s").fork("fork")
    for session in ("s", "fork"):
        drive(cp.attach(session, "main", "c0", {"in": session}, type="writes", fields={"w": texts(["word " * 40])}))
        assert [one.data["in"] for one in drive(cp.attachments(session, "main", "c0"))] == [session]
    assert drive(cp.drop("fork", "main", ["c0"], reason="test")) == 0
    expect(load(cp, "fork"), 0)
    assert not drive(cp.pin("fork", "main", "c0", True))
    assert not load(cp).pinned
