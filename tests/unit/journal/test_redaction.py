"""Credentials never reach the journal. Data that only looks like a credential is stored unchanged."""

from __future__ import annotations

import copy
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import duramen
from duramen import Redactor
from duramen.journal.redaction import REDACTED

pytestmark = pytest.mark.promise("G6")
PLANTED = "hunter2-S3cret"
LONG = "q7Zt" * 9


def stored(data: Any, **settings: Any) -> Any:
    """The data that an append stores."""
    with duramen.open("memory:", **settings) as dm:
        answer = dm.session("s").append("note", data)
        (event,) = dm.session("s").events()
        assert event.data == answer.data, "append returns the stored data, not the given data"
        return event.data


def leaks(data: Any, planted: str = PLANTED) -> bool:
    text = repr(stored(data))
    return planted in text or planted[:7] in text


# -- by name


@pytest.mark.parametrize(
    "name",
    [
        *("password", "Password", "PASSWORD", "dbPassword", "DB_PASSWORD", "db-password", "passwd", "passphrase"),
        *("secret", "client_secret", "clientSecret", "AWS_SECRET_ACCESS_KEY", "aws_access_key", "credentials"),
        *("token", "access_token", "refreshToken", "id_token", "X-Auth-Token", "csrf_token", "HF_TOKEN", "botToken"),
        *("api_key", "apikey", "apiKey", "X-Api-Key", "OPENAI_API_KEY", "x-goog-api-key", "privateKey", "ssh_key"),
        *("Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie", "cookies", "jwt", "otp", "pin", "cvv"),
        *("passwords", "api_keys", "apiKeys", "private_keys"),
    ],
)
def test_values_under_credential_names_are_redacted(name: str) -> None:
    for value in (PLANTED, PLANTED.encode(), bytearray(PLANTED.encode()), [PLANTED], (PLANTED,), {PLANTED}):
        assert not leaks({name: value})
    assert stored({name: PLANTED}) == {name: REDACTED}
    assert stored({"deep": [{"er": ({name: PLANTED},)}]}) == {"deep": [{"er": ({name: REDACTED},)}]}
    assert not leaks({name: {"user": PLANTED, "more": [{"x": PLANTED}]}})


@pytest.mark.parametrize(
    "data",
    [
        {"max_tokens": 5, "maxTokens": "5", "tokens": ["a", "b"], "prompt_tokens": 3, "completion_tokens": "7"},
        {"next_page_token": PLANTED, "nextPageToken": PLANTED, "continuationToken": PLANTED, "stop_token": "x"},
        {"token_count": "3", "token_limit": "5", "token_type": "word", "tokenizer": "bpe", "total_tokens": 10},
        {"required": ["password", "token"], "names": ["api_key", "secret"], "field": "password"},
        {"password": None, "secret": 7, "token": 0.5, "api_key": True, "cookie": ""},
        {"password_policy": "long", "password_hint": "my dog", "secret_name": "db", "api_key_id": "k"},
        {"key": "value", "keys": ["a"], "monkey": "b", "author": "c", "authority": "d", "spinning": "e"},
        "Never share your password or your API key; a secret stays a secret. The token is in the vault.",
        "How do I reset my password? Use a bearer token, or basic auth.",
        "The basic responsibilities of a manager, the basic telecommunications course, the bearer acknowledges it.",
        ["password", "hunter"],
        ("user", "Ada"),
        [["name", "Ada"], ["authorization", "is a word in a table"]],
        'He said: "yes": and "no": too',
        "https://example.com/path?q=a:b@c and mailto:ada@example.com and git@github.com:a/b",
        "task-1234567890123456789012345 and risk-abcdefghijklmnopqrstuvwxyz",
    ],
    ids=lambda data: repr(data)[:40],
)
def test_harmless_data_is_not_redacted(data: Any) -> None:
    assert stored(data) == data


def test_a_tool_schema_with_a_password_field_is_not_redacted() -> None:
    field = {"type": "string", "description": "The user's password"}
    schema = {"type": "object", "properties": {"password": field, "api_key": {"type": "string"}}}
    assert stored({"tools": [{"input_schema": schema}]}) == {"tools": [{"input_schema": schema}]}


def test_the_object_of_the_caller_is_not_modified() -> None:
    data = {"password": PLANTED, "headers": [["cookie", PLANTED]], "text": f"Bearer {LONG}"}
    before = copy.deepcopy(data)
    stored(data)
    assert data == before


# -- headers


@pytest.mark.parametrize(
    "data",
    [
        {"headers": {"Authorization": PLANTED, "Accept": "text/html"}},
        {"headers": [["authorization", PLANTED], ["accept", "text/html"]]},
        {"headers": [("authorization", PLANTED), ("accept", "text/html")]},
        {"headers": (("authorization", PLANTED),)},
        {"headers": (["authorization", PLANTED],)},
        {"headers": [[b"authorization", PLANTED.encode()]]},
        {"headers": [(b"X-Api-Key", PLANTED.encode())]},
        {"headers": {b"authorization": PLANTED.encode()}},
        {"request_headers": [["Cookie", PLANTED]]},
        {"responseHeaders": [["Set-Cookie", PLANTED]]},
        {"headers": [{"name": "Authorization", "value": PLANTED}]},
        {"headers": [{"name": "Authorization", "value": PLANTED, "sensitive": True}]},
        [("Authorization", PLANTED)],
        [{"name": "api_key", "value": [PLANTED]}],
    ],
    ids=lambda data: repr(data)[:50],
)
def test_credential_headers_are_redacted_in_every_shape(data: Any) -> None:
    assert not leaks(data)


def test_other_headers_are_not_redacted() -> None:
    pairs = [["accept", "text/html"], ["cookie", PLANTED], ["x", "y", "z"], "odd", ["one"]]
    assert stored({"headers": pairs}) == {"headers": [["accept", "text/html"], ["cookie", REDACTED], *pairs[2:]]}
    plain = [{"name": "city", "value": "Hamburg"}]
    assert stored(plain) == plain


# -- inside text

ARGUMENTS = {"user": "ada", "password": PLANTED, "n": 1}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(ARGUMENTS),
        json.dumps(ARGUMENTS, separators=(",", ":")),
        json.dumps(ARGUMENTS, indent=4),
        json.dumps(ARGUMENTS, separators=(" , ", " : ")),
        json.dumps(ARGUMENTS, separators=(",", "   :   ")),
        "call(" + repr(ARGUMENTS) + ")",
        json.dumps({"arguments": json.dumps(ARGUMENTS)}),
        json.dumps({"arguments": json.dumps({"password": PLANTED})}),
        json.dumps([{"function": {"name": "login", "arguments": json.dumps({"body": json.dumps(ARGUMENTS)})}}]),
        json.dumps({"code": f"login({ARGUMENTS!r})"}),
        json.dumps({"password": f'start"{PLANTED}'}),
        json.dumps({"password": f"start\\{PLANTED}\\"}),
        json.dumps({"password": f"ü\n{PLANTED}"}),
        json.dumps({"password": [PLANTED], "note": "x"}),
        json.dumps({"credentials": {"user": PLANTED}}),
        json.dumps({"headers": {"Authorization": PLANTED}}),
        json.dumps({"headers": [["Authorization", PLANTED]]}),
        json.dumps({"headers": [{"name": "Authorization", "value": PLANTED}]}),
    ],
    ids=lambda text: text[:60],
)
def test_credentials_in_json_inside_text_are_redacted(text: str) -> None:
    assert not leaks(text)
    assert not leaks({"tool_calls": [{"function": {"name": "login", "arguments": text}}]})


def test_the_rest_of_the_json_is_unchanged() -> None:
    text = '{"user":"ada",  "password": "' + PLANTED + '", "n":1}'
    assert stored(text) == '{"user":"ada",  "password": "' + REDACTED + '", "n":1}'
    harmless = '{"max_tokens":"5", "required":["password"], "next_page_token":"abc"}'
    assert stored(harmless) == harmless


@pytest.mark.parametrize(
    "text",
    [
        *(f"Bearer {LONG}", f"bearer  {LONG}", f"curl -H 'Authorization: Bearer {LONG}'", f"BEARER\t{LONG}"),
        *(f"Basic {LONG}==", f"authorization: basic {LONG}=="),
        *(f"sk-{LONG}", f"sk-ant-api03-{LONG}", f"sk-proj-{LONG}", f"sk_live_{LONG}", f"rk_test_{LONG}"),
        *(f"ghp_{LONG}", f"gho_{LONG}", f"github_pat_{LONG}", f"glpat-{LONG}", f"xoxb-12345-{LONG}"),
        *("AKIA" + "Z7" * 8, "ASIA" + "Z7" * 8, "AIza" + "q7Zt_" * 7, f"eyJ{LONG}.eyJ{LONG}.{LONG}"),
        f"-----BEGIN RSA PRIVATE KEY-----\n{LONG}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{LONG}\n{LONG}",
    ],
    ids=lambda text: text[:20],
)
def test_well_known_token_formats_are_redacted_anywhere(text: str) -> None:
    planted = text[-24:-6]
    assert not leaks(text, planted)
    assert not leaks({"log": f"before {text} after"}, planted)
    assert not leaks(["x" * 40_000 + f" {text} "], planted), "also in text that is stored as a blob"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ada:{PLANTED}@db.example.com:5432/x?sslmode=require",
        f"https://ada:{PLANTED}@example.com/",
        f"redis://:{PLANTED}@localhost:6379/0",
        f"amqp://ada:p@{PLANTED}@localhost",
        f"mongodb+srv://ada:{PLANTED}@cluster0.example.net/x",
    ],
)
def test_passwords_in_urls_are_redacted(url: str) -> None:
    assert not leaks(f"connect to {url} please")
    assert "connect to " in stored(f"connect to {url} please")
    assert REDACTED in stored(url)


@pytest.mark.parametrize(
    "text",
    [
        *("a-" * 20_000 + " ://", "a." * 20_000 + "://", '"a' * 20_000 + '":', "sk-" * 20_000, "Bearer " * 20_000),
        *('"password": ' * 20_000, "http://a:" * 20_000, "eyJ" + "a" * 40_000, "-----BEGIN PRIVATE KEY-----" * 5_000),
        *('{"a": ' * 5_000 + '"password": "x"', "\\" * 40_000 + '":'),
    ],
    ids=lambda text: text[:12],
)
def test_no_text_makes_redaction_slow(text: str) -> None:
    started = time.process_time()
    Redactor().text(text)
    assert time.process_time() - started < 1.0


# -- configuration


def test_names_can_be_added_and_exempted() -> None:
    own = Redactor(extra=["Membership"], keep=["token", "X-Api-Key"])
    data = {"membership": PLANTED, "token": "Hel", "x-api-key": "public", "password": PLANTED}
    expected = {"membership": REDACTED, "token": "Hel", "x-api-key": "public", "password": REDACTED}
    assert stored(data, redact=own) == expected
    assert stored(json.dumps(data), redact=own) == json.dumps(expected)


def test_redaction_by_value_can_be_disabled() -> None:
    data = {"text": f"Bearer {LONG}", "password": PLANTED}
    assert stored(data, redact=Redactor(values=False)) == {"text": f"Bearer {LONG}", "password": REDACTED}


def test_redaction_can_be_disabled() -> None:
    data = {"password": PLANTED, "text": f"Bearer {LONG}", "headers": [["cookie", PLANTED]]}
    assert stored(data, redact=False) == data


# -- end to end


@duramen.register(name="test_redaction.Login")
@dataclass
class Login:
    user: str
    password: str
    log: list[str]


def test_planted_secrets_are_in_no_file(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    key = f"sk-proj-{LONG}"
    with duramen.open(path) as dm:
        session = dm.session("s")
        session.append("request", {"headers": {"Authorization": PLANTED}, "body": json.dumps(ARGUMENTS)})
        session.append("login", Login("ada", PLANTED, [f"used {key}"]), subject="ada")
        session.append_all([duramen.Draft("note", {"password": PLANTED * 10_000}), duramen.Draft("note", [key])])
        session.append("large", {"output": "x" * 100_000 + f" {key} ", "rows": [{"token": PLANTED}] * 5_000})
        for file in tmp_path.iterdir():
            assert PLANTED.encode() not in file.read_bytes(), file
            assert LONG.encode() not in file.read_bytes(), file
        login = next(session.events(types="login")).data
        assert login == Login("ada", REDACTED, [f"used {REDACTED}"])
    assert {PLANTED.encode() in file.read_bytes() for file in tmp_path.iterdir()} == {False}
