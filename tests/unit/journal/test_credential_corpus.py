"""How many credentials redaction finds in text, and how many harmless texts it touches."""

from __future__ import annotations

import time

import pytest
from programs.credentials import Sample, credentials, harmless

from duramen import Redactor
from duramen.journal.redaction import REDACTED

pytestmark = pytest.mark.promise("G11")
REDACTOR = Redactor()


def leaks(sample: Sample) -> bool:
    """Whether eight characters of a credential are left."""
    left = REDACTOR.text(sample.text)
    pieces = [secret[at : at + 8] for secret in sample.secrets for at in range(max(1, len(secret) - 7))]
    return any(piece in left for piece in pieces)


@pytest.mark.parametrize("held_out", [False, True], ids=["tuned", "held out"])
def test_nine_of_ten_credentials_and_kinds_are_found(held_out: bool) -> None:
    samples = [sample for sample in credentials() if sample.held_out is held_out]
    missed = [sample for sample in samples if leaks(sample)]
    kinds = {sample.kind for sample in samples}
    assert len(samples) == 100
    assert len(missed) <= 10, missed
    assert len({sample.kind for sample in missed}) <= len(kinds) // 10, missed


@pytest.mark.parametrize("held_out", [False, True], ids=["tuned", "held out"])
def test_fewer_than_one_in_a_hundred_harmless_texts_is_touched(held_out: bool) -> None:
    texts = [text for text, held in harmless() if held is held_out]
    touched = [text for text in texts if REDACTOR.text(text) != text]
    assert len(texts) == 500
    assert len(touched) < 5, touched


def test_what_was_redacted_is_not_redacted_again() -> None:
    for sample in credentials():
        once = REDACTOR.text(sample.text)
        assert REDACTOR.text(once) == once


@pytest.mark.parametrize(
    "text",
    [
        *(
            "日本: aB3dE5gH7",
            "{'日本': 'y'}",
            "member no = aB3dE5gH7",
            '{"cvv": "123"}',
            "{'jwt' : 'x1'}",
            '{"x": "\\ud83d"}',
        ),
        *('{"a": "line\\nghp_aB3dE5gH7jK9mN1pQ3sT5vW7"}', '{"url": "https:\\/\\/ada:hunter2@db\\/x"}', "redis://:pw@h"),
        *('{"password": "$ecret"}', '{"password": "*a"}', "password:hunter2", "İ password: hunter2x"),
    ],
)
def test_odd_forms_are_found(text: str) -> None:
    redactor = Redactor(extra=["日本", "member no", ""])
    assert (REDACTED in redactor.text(text)) is ("ud83d" not in text)


@pytest.mark.parametrize(
    "text",
    [
        *("password-reset:user4711", "refresh_token:0b7c5a3e-1c4d-4e8f-9a6b-2d3c4e5f6a7b", "token:v2", "auth:user4711"),
        *("sk-learn-contrib-estimators-and-pipelines", "npm_config_some_long_setting_of_the_registry", "pin: 13"),
    ],
)
def test_names_with_colons_and_long_identifiers_stay(text: str) -> None:
    assert REDACTOR.text(text) == text


def test_credentials_are_found_inside_long_text_json_and_other_scripts() -> None:
    found = [sample for sample in credentials() if not leaks(sample) and "\n" not in sample.text]
    lines = "\n".join(f"{number}. {sample.text}" for number, sample in enumerate(found))
    left = REDACTOR.text(lines)
    assert [sample for sample in found if any(secret in left for secret in sample.secrets)] == []
    keys = [sample for sample in found if "token" in sample.kind and " " not in sample.secrets[0]][:20]
    for sample in keys:
        assert not leaks(sample._replace(text=f"密钥{sample.text}。谢谢"))


@pytest.mark.parametrize(
    "unit",
    [
        *(
            "ghp_aB3dE5gH7jK9mN1pQ3sT5vW7 ",
            'password="\\"',
            "password='",
            'token=\\"',
            "Authorization: Bearer ",
            "Cookie: ",
        ),
        *("://a:$", "\\", "\\n", "curl -u a:", "mysql -p", "login ", "IDENTIFIED BY '", "AKIA", "key", "a_", "pass "),
        *("-----BEGIN ", "Private-Lines: 1 ", "1//0", ":AA", "password: [", "--password ", "secret is ", "<password>"),
        *('"password": "', '\\"token\\": \\"', "ŉ password=", "x" * 15 + " ", "x" * 25 + "."),
    ],
    ids=repr,
)
def test_the_time_grows_with_the_length_of_the_text(unit: str) -> None:
    started = time.process_time()
    REDACTOR.text(unit * (200_000 // len(unit)))
    assert time.process_time() - started < 1.5
