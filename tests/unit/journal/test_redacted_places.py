"""Credentials are redacted wherever text is stored: in bytes, keys of dicts, actors and idempotency keys."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

import duramen
from duramen import Duramen, Redactor
from duramen.checkpoints.kv_items import KvItems
from duramen.journal.redaction import REDACTED
from duramen.runtime import drive

pytestmark = pytest.mark.promise("G11")
SECRET = "q7Zt" * 9
KEY, OTHER = f"ghp_{SECRET}", f"ghp_{SECRET[::-1]}"


def in_files(folder: pathlib.Path) -> bool:
    bodies = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    return any(secret.encode() in body for secret in (SECRET, SECRET[::-1]) for body in bodies)


def stored(dm: Duramen, data: Any) -> Any:
    dm.session("s").append("note", data)
    return list(dm.session("s").events())[-1].data


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (b"token: " + KEY.encode(), b"token: [redacted]"),
        (bytearray(KEY.encode()), b"[redacted]"),
        ({"body": b'{"password": "hunter2"}'}, {"body": b'{"password": "[redacted]"}'}),
        ({KEY: 1}, {REDACTED: 1}),
        ({KEY: 1, OTHER: 2, "a": 3}, {REDACTED: 1, f"{REDACTED} 2": 2, "a": 3}),
        ({KEY: 1, REDACTED: 2}, {f"{REDACTED} 2": 1, REDACTED: 2}),
        ({KEY.encode(): 1, OTHER.encode(): 2}, {REDACTED.encode(): 1, f"{REDACTED} 2": 2}),
        ({(KEY, 1): 1}, {(REDACTED, 1): 1}),
        ({"a": {KEY: {OTHER: "x"}}}, {"a": {REDACTED: {REDACTED: "x"}}}),
        (pathlib.PurePosixPath("/tmp") / KEY, pathlib.PurePosixPath("/tmp") / REDACTED),
        ({"password": {KEY: "x"}}, {"password": {REDACTED: REDACTED}}),
    ],
    ids=repr,
)
def test_bytes_keys_of_dicts_and_paths_are_redacted(dm: Duramen, given: Any, expected: Any) -> None:
    assert stored(dm, given) == expected
    assert SECRET not in repr(list(dm.session("s").events()))


@pytest.mark.parametrize(
    "data",
    [
        *(b"\x89PNG\r\n\x1a\n password=hunter2x", b"\x81\xa8password\xa7hunter2", b"", b"short", bytes(range(256))),
        *({"max_tokens": 5, "a-" * 30: 1}, {1: 2, None: 3, b"k": 4}, "grün".encode("latin-1")),
    ],
    ids=repr,
)
def test_binary_data_and_harmless_keys_stay(dm: Duramen, data: Any) -> None:
    assert stored(dm, data) == data


def test_bytes_and_keys_stay_if_only_names_count() -> None:
    with duramen.open("memory:", redact=Redactor(values=False)) as dm:
        assert stored(dm, {KEY: KEY.encode()}) == {KEY: KEY.encode()}


@pytest.mark.parametrize(
    "name",
    [
        *(
            KEY,
            f"Authorization: Bearer {SECRET}",
            f"password={SECRET}" * 40,
            f"key-{'0a' * 16}{KEY}",
            f'"token": "{KEY}',
        ),
        *(
            "https://ada:hunter2@example.com",
            "IDENTIFIED BY 'IDENTIFIED BY '-----BEGIN RSA PRIVATE KEY-----&=\\r" + KEY,
        ),
    ],
)
def test_the_stored_form_of_a_name_is_stable(name: str) -> None:
    redactor = Redactor()
    once = redactor.name(name)
    assert once != name
    assert (redactor.name(once), redactor.text(once)) == (once, once)
    assert redactor.name(name + "x") != once
    assert len(once) <= 512


def test_actors_are_redacted(tmp_path: pathlib.Path) -> None:
    with duramen.open(tmp_path / "agent.db") as dm:
        answer = dm.session("s").append("note", 1, actor=f"bot {KEY}")
        assert answer.actor == f"bot {REDACTED}"
        dm.memory.remember("The sky is blue", actor=KEY)
        assert [event.actor for event in dm.session("s").events()] == [f"bot {REDACTED}"]
        assert dm.verify().ok
    assert not in_files(tmp_path)


def test_an_idempotency_key_with_a_credential_still_counts_once(tmp_path: pathlib.Path) -> None:
    with duramen.open(tmp_path / "agent.db") as dm:
        session = dm.session("s")
        first = session.append("note", 1, key=f"https://example.com/?token={KEY}")
        again = session.append("note", 2, key=f"https://example.com/?token={KEY}")
        other = session.append("note", 3, key=f"https://example.com/?token={OTHER}")
        assert (first.position, again.position, other.position) == (1, 1, 2)
        assert first.key == again.key != other.key
        fork = session.fork("f")
        assert fork.append("note", 4, key=f"https://example.com/?token={KEY}").position == 1
    assert not in_files(tmp_path)


def test_signals_with_the_same_redacted_key_are_sent_once(dm: Duramen) -> None:
    @duramen.task
    def job() -> list[Any]:
        return [duramen.wait_for("go"), duramen.wait_for("go")]

    dm.start(job, id="r")
    for key in (KEY, KEY, OTHER):
        dm.signal("r", "go", key, key=key)
    sent = list(dm.session("r").events(types="signal.sent"))
    assert len(sent) == 2
    assert SECRET not in repr(sent)


def test_items_are_found_under_keys_with_credentials(tmp_path: pathlib.Path) -> None:
    with duramen.open(tmp_path / "agent.db") as dm:
        items = KvItems(dm._core._journal)
        for number, key in enumerate((KEY, OTHER)):
            drive(items.put(("users", key), key, {"n": number}))
        for number, key in enumerate((KEY, OTHER)):
            found = drive(items.get(("users", key), key))
            assert found is not None
            assert found.value == {"n": number}
            assert [item.value for item in drive(items.find(("users", key)))] == [{"n": number}]
        assert not in_files(tmp_path)
        assert drive(items.remove(("users", KEY), KEY))
        assert len(drive(items.find(()))) == 1
    assert not in_files(tmp_path)
