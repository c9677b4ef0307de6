"""Save, load, list, attach, pin and drop checkpoints, on every store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from programs.checkpoint_writers import as_loaded, checkpoints_of, fields_of, list_checkpoints, texts
from programs.side_effects import Open

import duramen
from duramen.checkpoints.checkpoints import Checkpoints
from duramen.checkpoints.manifest import BytesField
from duramen.errors import CheckpointConflict, InvalidInput, KeyMissing, LeaseLost, StoreReadOnly
from duramen.ports import BookmarkQuery
from duramen.runtime import drive
from duramen.testing.clock import FakeClock

KEY = bytes(range(32))


@pytest.fixture
def cp(dm: duramen.Duramen) -> Checkpoints:
    return checkpoints_of(dm)


def save(cp: Checkpoints, number: int, session: str = "s", name: str = "main", **options: Any) -> Any:
    options = {"id": f"c{number}", **options}
    return drive(cp.save(session, name, fields_of(number), {"n": number}, **options))


def load(cp: Checkpoints, session: str = "s", name: str = "main", **which: Any) -> Any:
    return drive(cp.load(session, name, **which))


def expect(loaded: Any, number: int) -> None:
    """Check that this is checkpoint `number`, complete and undamaged."""
    assert loaded is not None
    assert (loaded.id, loaded.note, loaded.skipped) == (f"c{number}", {"n": number}, ())
    assert loaded.fields == as_loaded(fields_of(number))


# -- saving and loading


@pytest.mark.promise("C3")
def test_every_checkpoint_can_be_loaded_by_position_time_and_id(open_one: Open, clock: FakeClock) -> None:
    cp, saved = checkpoints_of(open_one()), []
    assert load(cp) is None
    for number in range(15):
        saved.append(save(cp, number))
        open_one().session("s").append("note", number)
        clock.advance(10)
    for reader in (cp, checkpoints_of(open_one())):
        expect(load(reader), 14)
        for number, one in enumerate(saved):
            expect(load(reader, id=one.id), number)
            expect(load(reader, at=one.position), number)
            expect(load(reader, at=one.position + 1), number)
            expect(load(reader, until=one.time), number)
            expect(load(reader, until=one.time + 9_999_999), number)
        assert load(reader, at=0) is None
        assert load(reader, until=saved[0].time - 1) is None
        assert load(reader, id="c15") is None
        assert load(reader, id="c5", at=saved[4].position) is None
        expect(load(reader, at=2**63), 14)
        expect(load(reader, until=2**70), 14)
        assert load(reader, at=-5) is None
    assert [one.position for one in saved] == list(range(1, 31, 2))
    assert load(cp, id="c7").time == saved[7].time


@pytest.mark.promise("C3", "J1", "J14")
def test_a_new_process_continues_from_the_stored_checkpoints(open_one: Open) -> None:
    for number in range(12):
        cp = checkpoints_of(open_one())
        if number:
            expect(load(cp), number - 1)
        save(cp, number)
    cp = checkpoints_of(open_one())
    for number in range(12):
        expect(load(cp, id=f"c{number}"), number)
    assert open_one().verify().ok


@pytest.mark.promise("C3")
def test_two_writers_with_caches_can_alternate(open_one: Open) -> None:
    writers = [checkpoints_of(open_one()), checkpoints_of(open_one())]
    for number in range(16):
        save(writers[number % 3 % 2], number)
    for number in range(16):
        for cp in writers:
            expect(load(cp, id=f"c{number}"), number)


def test_notes_and_attached_data_are_redacted_and_returned_as_stored(cp: Checkpoints) -> None:
    note = {"digest": "mine", "note": {"digest": b"x"}, "t": (1, 2), "password": "hunter22", "n": None}
    saved = drive(cp.save("s", "main", {}, note))
    assert saved.note == {**note, "password": "[redacted]"}
    assert load(cp).note == saved.note
    drive(cp.attach("s", "main", saved.id, note, type="writes"))
    assert [one.data for one in drive(cp.attachments("s", "main", saved.id))] == [saved.note]


def test_an_id_names_the_last_state_saved_under_it(cp: Checkpoints) -> None:
    for number in (1, 2, 3):
        save(cp, number, id="same" if number != 2 else None)
    assert load(cp, id="same").fields == as_loaded(fields_of(3))
    assert [one.note["n"] for one in list_checkpoints(cp, "s", "main")] == [3, 2]


def test_sessions_and_names_are_separate(cp: Checkpoints) -> None:
    pairs = [("s", "main"), ("s", "other"), ("t", "main"), ("s", "näme #+"), ("s", "main#x"), ("s", "%")]
    for number, (session, name) in enumerate(pairs):
        save(cp, number, session, name)
        drive(cp.attach(session, name, f"c{number}", {"n": number}, type="writes"))
    for number, (session, name) in enumerate(pairs):
        expect(load(cp, session, name), number)
        assert [one.data["n"] for one in drive(cp.attachments(session, name, f"c{number}"))] == [number]
    assert drive(cp.names("s")) == sorted(name for session, name in pairs if session == "s")
    assert drive(cp.names("s", "main")) == ["main", "main#x"]
    assert drive(cp.names("nowhere")) == []


def test_checkpoints_are_listed_newest_first(cp: Checkpoints) -> None:
    for number in range(120):
        drive(cp.save("s", "main", {}, {"n": number}, id=f"c{number}"))

    def numbers(**options: Any) -> list[int]:
        return [one.note["n"] for one in list_checkpoints(cp, "s", "main", **options)]

    assert numbers() == list(range(119, -1, -1))
    assert numbers(limit=3) == [119, 118, 117]
    assert numbers(limit=0) == []
    assert numbers(before="c2") == [1, 0]
    assert numbers(before="c105", limit=2) == [104, 103]
    assert numbers(before="c0") == []
    assert numbers(before="unknown") == []
    assert list_checkpoints(cp, "s", "other") == []


def test_fields_of_listed_checkpoints_load_after_others_are_dropped(cp: Checkpoints) -> None:
    for number in range(6):
        save(cp, number)
    loaded = list_checkpoints(cp, "s", "main")
    drive(cp.drop("s", "main", ["c0", "c2", "c4"], reason="test"))
    for one in loaded:
        if one.id in ("c1", "c3", "c5"):
            complete = drive(cp.load_fields(one))
            assert complete.fields == as_loaded(fields_of(one.note["n"]))


@pytest.mark.parametrize(
    "wrong",
    [
        {"session": ""},
        {"session": "a\0b"},
        {"name": ""},
        {"name": "a\0"},
        {"name": "x" * 513},
        {"name": "\ud800"},
        {"name": 7},
        {"name": "+x"},
        {"id": "a\0b"},
        {"id": ""},
        {"id": "y" * 513},
        {"id": 0},
        {"expires": 2**63},
        {"expires": -1},
        {"fields": {"x": b"raw"}},
        {"fields": {"x": {"y": [1]}}},
    ],
)
def test_invalid_arguments_of_save_are_rejected(cp: Checkpoints, dm: duramen.Duramen, wrong: dict[str, Any]) -> None:
    given = {"session": "s", "name": "main", "fields": {}, "note": {}, **wrong}
    with pytest.raises(InvalidInput):
        drive(cp.save(**given))
    assert list(dm.sessions()) == []


# -- conflicts


@pytest.mark.promise("J6", "M1")
def test_saving_after_a_checkpoint_that_is_not_the_newest_conflicts(open_one: Open) -> None:
    one, two = checkpoints_of(open_one()), checkpoints_of(open_one())
    save(one, 0, after=None)
    save(two, 1, after="c0")
    for after in (None, "c0", "c7"):
        with pytest.raises(CheckpointConflict) as refused:
            save(one, 2, after=after)
        assert (refused.value.expected, refused.value.found) == (after, "c1")
        assert (refused.value.session, refused.value.name) == ("s", "main")
    assert [saved.id for saved in list_checkpoints(one, "s", "main")] == ["c1", "c0"]
    save(one, 2, after="c1")
    save(two, 3)
    expect(load(one), 3)
    with pytest.raises(CheckpointConflict) as refused:
        save(one, 9, name="other", after="c3")
    assert refused.value.found is None


@pytest.mark.promise("X16")
def test_a_save_with_an_expired_lease_is_rejected(open_one: Open, clock: FakeClock) -> None:
    dm = open_one()
    cp, lease = checkpoints_of(dm), dm.session("s").lease("one", seconds=5)
    assert lease is not None
    save(cp, 0, fence=lease.fence)
    clock.advance(6)
    with pytest.raises(LeaseLost):
        save(cp, 1, fence=lease.fence)
    expect(load(cp), 0)
    save(cp, 2)
    expect(load(cp), 2)


# -- attachments and pins


@pytest.mark.promise("C2")
def test_attachments_are_returned_in_order(open_one: Open) -> None:
    cp = checkpoints_of(open_one())
    drive(cp.attach("s", "main", "c1", {"task": 0}, type="writes"))  # before the checkpoint itself
    save(cp, 1)
    for number in range(1, 4):
        drive(
            cp.attach("s", "main", "c1", {"task": number}, type="writes", fields={"w": texts(["word " * 30] * number)})
        )
    for reader in (cp, checkpoints_of(open_one())):
        loaded = drive(reader.attachments("s", "main", "c1"))
        assert [one.data["task"] for one in loaded] == [0, 1, 2, 3]
        assert [one.fields and len(one.fields["w"]) for one in loaded] == [None, 1, 2, 3]
        assert [one.position for one in loaded] == sorted(one.position for one in loaded)
        assert drive(reader.attachments("s", "main", "c2")) == []
    expect(load(cp), 1)


@pytest.mark.promise("C6")
def test_pins_persist_and_change_nothing_else(open_one: Open) -> None:
    one, two = checkpoints_of(open_one()), checkpoints_of(open_one())
    for number in range(3):
        save(one, number, pinned=number == 0, expires=5)
    assert drive(two.pin("s", "main", "c1", True))
    assert drive(two.pin("s", "main", "c0", False))
    assert [saved.pinned for saved in list_checkpoints(one, "s", "main")] == [False, True, False]
    drive(two.drop("s", "main", ["c0"], reason="test"))
    assert drive(one.pin("s", "main", "c2", True))
    assert not drive(one.pin("s", "main", "c0", True))
    assert not drive(one.pin("s", "unknown", "c2", True))
    for number in (1, 2):
        loaded = load(one, id=f"c{number}")
        assert loaded.pinned
        (row,) = drive(one._journal.store.bookmarks("default", "s", BookmarkQuery("main", f"c{number}")))
        assert row.expires == 5
        expect(loaded, number)


# -- dropping


@pytest.mark.promise("C6", "L1")
def test_dropped_checkpoints_are_removed_and_the_others_are_unchanged(open_one: Open) -> None:
    cp = checkpoints_of(open_one())
    for number in range(20):
        save(cp, number)
        save(cp, number, name="other")
        drive(cp.attach("s", "main", f"c{number}", {"n": number}, type="w", fields={"w": texts([f"w{number} " * 30])}))
    dropped = [f"c{number}" for number in range(20) if number % 3]
    assert drive(cp.drop("s", "main", [*dropped, "unknown"], reason="test")) == len(dropped)
    assert drive(cp.drop("s", "main", dropped, reason="test")) == 0
    for reader in (cp, checkpoints_of(open_one())):
        assert [one.id for one in list_checkpoints(reader, "s", "main")] == [f"c{n}" for n in range(18, -1, -3)]
        for number in range(20):
            expect(load(reader, id=f"c{number}", name="other"), number)
            writes = drive(reader.attachments("s", "main", f"c{number}"))
            if number % 3:
                assert load(reader, id=f"c{number}") is None
                assert writes == []
            else:
                expect(load(reader, id=f"c{number}"), number)
                assert writes[0].fields == {"w": [f"w{number} ".encode() * 30]}
    save(cp, 20)
    expect(load(cp), 20)
    assert open_one().verify().ok


@pytest.mark.promise("L1")
def test_dropping_all_leaves_no_bytes_in_the_files(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with duramen.open(path) as dm:
        cp = checkpoints_of(dm)
        for number in range(3):
            for name in ("main", "other"):
                planted = {"big": BytesField(b"planted in a state " * 9), "list": texts([f"{number} planted " * 9])}
                note = {"text": "planted in a note " * 3000, "n": number}
                drive(cp.save("s", name, planted, note, id=f"c{number}"))
                drive(cp.attach("s", name, f"c{number}", note, type="writes", fields=planted))
        drive(cp.attach("s", "main", "never saved", {"text": "planted without a checkpoint"}, type="writes"))
        for name in ("main", "other"):
            assert drive(checkpoints_of(dm).drop("s", name, None, reason="test")) == 3
            assert load(cp, name=name) is None
        assert dm.verify().ok
    assert not files_with(tmp_path, b"planted")


# -- subjects and keys


@pytest.mark.promise("G1", "G3")
@pytest.mark.parametrize("sealed", [False, True])
def test_erasing_a_subject_leaves_no_bytes_in_the_files(tmp_path: Path, sealed: bool) -> None:
    path = tmp_path / "agent.db"
    key: Any = {"key": KEY} if sealed else {}
    with duramen.open(path, **key) as dm:
        cp = checkpoints_of(dm)
        save(cp, 0)
        for number in range(3):
            state = {
                "big": BytesField(b"ada was planted here " * 9),
                "list": texts(["ada was planted here " * 9] * number),
            }
            drive(cp.save("s", "main", state, {"text": "ada was planted here"}, id=f"ada{number}", subject="ada"))
        drive(cp.save("s", "main", {"x": BytesField(b"bob was there " * 9)}, {}, id="bob", subject="bob"))
        if sealed:
            assert not files_with(tmp_path, b"planted here")
        assert load(cp, id="ada2").fields["list"] == [b"ada was planted here " * 9] * 2
        report = dm.erase("ada")
        assert (report.payloads, report.checkpoints, report.key_destroyed) == (3, 3, sealed)
        assert not files_with(tmp_path, b"planted here")
        assert [one.id for one in list_checkpoints(cp, "s", "main")] == ["bob", "c0"]
        assert load(cp, id="ada1") is None
        assert load(cp).fields == {"x": b"bob was there " * 9}
        expect(load(cp, id="c0"), 0)
        drive(cp.save("s", "main", {"big": BytesField(b"ada is back " * 20)}, {}, id="ada0", subject="ada"))
        assert load(cp).fields == {"big": b"ada is back " * 20}
        assert dm.verify().ok
    with duramen.open(path, **key) as dm:
        assert dm.erase("bob").checkpoints == 1
        assert not files_with(tmp_path, b"bob was")
        expect(load(checkpoints_of(dm), id="c0"), 0)
    if sealed:
        with pytest.raises(KeyMissing):
            duramen.open(path)


@pytest.mark.promise("G3")
@pytest.mark.parametrize("reopen", [False, True])
def test_chunks_shared_with_an_erased_subject_stay_readable(open_one: Open, reopen: bool) -> None:
    cp = checkpoints_of(open_one())
    for number in range(8):
        drive(cp.save("s", "main", fields_of(7), {"n": 7}, id=f"c{number}", subject="ada" if number % 2 == 0 else None))
        cp = checkpoints_of(open_one()) if reopen else cp
    assert open_one().erase("ada").checkpoints == 4
    for reader in (cp, checkpoints_of(open_one())):
        for number in (1, 3, 5, 7):
            assert load(reader, id=f"c{number}").fields == as_loaded(fields_of(7))
    save(cp, 8)
    expect(load(cp), 8)


@pytest.mark.promise("G2")
def test_checkpoints_stay_readable_after_key_rotation(tmp_path: Path) -> None:
    path, keys = tmp_path / "agent.db", [duramen.new_key() for _ in range(2)]
    with duramen.open(path) as dm:
        save(checkpoints_of(dm), 0)
        save(checkpoints_of(dm), 1, subject="ada")
    with duramen.open(path, key=keys[0]) as dm:  # sealed from here on
        expect(load(checkpoints_of(dm)), 1)
        save(checkpoints_of(dm), 2)
        save(checkpoints_of(dm), 3, subject="ada")
        dm.rotate_key(keys[1])
        save(checkpoints_of(dm), 4)
    with duramen.open(path, key=keys[1], readonly=True) as dm:
        for number in range(5):
            expect(load(checkpoints_of(dm), id=f"c{number}"), number)
    with duramen.open(path, key=keys[1]) as dm:
        cp = checkpoints_of(dm)
        assert drive(cp.drop("s", "main", ["c0", "c3"], reason="test")) == 2
        for number in (1, 2, 4):
            expect(load(cp, id=f"c{number}"), number)
        assert dm.erase("ada").checkpoints == 1
        assert [one.id for one in list_checkpoints(cp, "s", "main")] == ["c4", "c2"]


def test_a_readonly_handle_loads_but_does_not_save_or_drop(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with duramen.open(path) as dm:
        save(checkpoints_of(dm), 7)
        drive(checkpoints_of(dm).attach("s", "main", "c7", {"n": 1}, type="writes"))
    with duramen.open(path, readonly=True) as dm:
        cp = checkpoints_of(dm)
        expect(load(cp), 7)
        assert [one.data for one in drive(cp.attachments("s", "main", "c7"))] == [{"n": 1}]
        with pytest.raises(StoreReadOnly):
            save(cp, 8)
        with pytest.raises(StoreReadOnly):
            drive(cp.drop("s", "main", None, reason="test"))


def files_with(folder: Path, planted: bytes) -> list[str]:
    return [file.name for file in folder.iterdir() if planted in file.read_bytes()]
