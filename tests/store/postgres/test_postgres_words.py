"""Roles that PostgreSQL keeps to one workspace look words up in their index, too, and nothing of others is shown."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from programs.retrieval_corpus import ThemeEmbedder, fill, sentence
from programs.tenants import OURS, THEIRS
from psycopg import errors as pg

import duramen
from duramen.memory.extraction.words import number_of, terms
from duramen.memory.ranking.retrieval import Retrieval
from duramen.memory.ranking.search import Search
from duramen.ports import RetrievalQuery
from duramen.runtime import drive
from duramen.stores.postgres import retrieval as inside
from duramen.stores.postgres.connection import Connection
from duramen.stores.postgres.searchable import keys, secret_of

Roles = dict[str, str]
"""The addresses of one database for some roles."""


def opened(address: str, workspace: str) -> duramen.Duramen:
    """A handle that asks the store for candidates."""
    made = duramen.open(address, workspace=workspace, embedder=ThemeEmbedder())
    found: Any = made.memory._core._service.search._sources[0]
    assert isinstance(found, Retrieval)
    found.exact_limit = 20
    return made


def contents(found: Any) -> list[str]:
    return [hit.memory.content for hit in found.hits]


@pytest.fixture(scope="module")
def roles(module_bound_urls: tuple[str, str]) -> Roles:
    """The same words in two workspaces: for the owner of the tables, a role pinned to our workspace, one that only has
    rights, and somebody who sees everything. There are many more rows, so that plans show something."""
    owner, superuser = module_bound_urls
    for workspace in (OURS, THEIRS):
        with opened(owner, workspace) as dm:
            assert len(fill(dm, 300)) == 300
    found = {"owner": owner, "superuser": superuser}
    with psycopg.connect(superuser, autocommit=True) as connection:
        for name in ("agent", "pinned"):
            found[name] = _new_role(connection, superuser)
        pinned = psycopg.conninfo.conninfo_to_dict(found["pinned"])["user"]
        for table in ("worded", "searchable"):
            policy = f"CREATE POLICY tenant ON duramen.{table} AS RESTRICTIVE TO {pinned} USING (workspace = '{OURS}')"
            connection.execute(policy.encode())
        connection.execute(
            """
            INSERT INTO duramen.searchable SELECT (jsonb_populate_record(s, jsonb_build_object(
                'number', n, 'audience', '\\x' || lpad(to_hex(n), 8, '0'), 'terms', ARRAY[n, n + 1]))).*
            FROM duramen.searchable s, generate_series(1000000, 1020000) n
            WHERE s.ctid = (SELECT min(ctid) FROM duramen.searchable WHERE workspace = %s)
            """,
            (OURS,),
        )
        connection.execute("VACUUM ANALYZE duramen.searchable")
    return found


def _new_role(connection: Connection, url: str) -> str:
    role = f"words_{uuid.uuid4().hex}"
    info = connection.info
    connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'".encode())
    connection.execute(f"GRANT USAGE ON SCHEMA duramen TO {role}".encode())
    connection.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA duramen TO {role}".encode())
    return f"postgresql://{role}:{role}@{info.host}:{info.port}/{info.dbname}"


@pytest.fixture(scope="module")
def said() -> list[str]:
    """What each workspace was told."""
    chance = random.Random(1)
    return [f"{sentence(chance)} 1x{number}" for number in range(300)]


@pytest.fixture(params=["owner", "agent", "pinned"])
def bound(request: pytest.FixtureRequest, roles: Roles) -> Iterator[Connection]:
    """A connection to our workspace of each role that is bound."""
    with psycopg.connect(roles[request.param], autocommit=True) as connection:
        connection.execute("SELECT set_config('duramen.workspace', %s, false)", (OURS,))
        yield connection


def say(connection: Connection, words: list[int], together: list[int]) -> None:
    """As the store does, but for longer than a transaction."""
    for name, numbers in (("words", words), ("together", together)):
        connection.execute("SELECT set_config(%s, %s, false)", (f"duramen.{name}", str(numbers).translate(BRACES)))


BRACES = str.maketrans("[]", "{}")


def terms_of(roles: Roles, workspace: str) -> list[tuple[int, list[int]]]:
    """The numbers of all memories of a workspace, and of their words."""
    with psycopg.connect(roles["superuser"], autocommit=True) as connection:
        query = "SELECT number, terms FROM duramen.searchable WHERE workspace = %s AND number < 1000000 ORDER BY 1"
        return connection.execute(query, (workspace,)).fetchall()


# -- what is found


@pytest.mark.promise("B2", "G4")
@pytest.mark.parametrize("role", ["owner", "agent", "pinned"])
def test_who_is_bound_is_given_the_same_candidates(
    roles: Roles, role: str, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inside, "SCANNED", 50)
    monkeypatch.setattr(
        Search, "_count_recalls", lambda *_: None
    )  # what the one recalled would rank higher for the other
    with opened(roles["superuser"], OURS) as free, opened(roles[role], OURS) as bound:
        for number, together in enumerate((False, True) * 4):
            words = tuple(number_of(term) for term in terms(said[number])[3:6])
            asked = _retrieve(words, together)
            there, here = (
                drive(dm.memory._core._service.journal.store.retriever.retrieve(OURS, asked)) for dm in (free, bound)
            )
            assert here == there
            assert here.by_words
            assert here.mask_counts
        assert contents(bound.memory.recall(said[5])) == contents(free.memory.recall(said[5]))


@pytest.mark.promise("B2", "G4")
@pytest.mark.parametrize("together", [False, True])
def test_words_are_looked_up_in_their_index(bound: Connection, together: bool, said: list[str]) -> None:
    secret = secret_of(bound, OURS)
    assert secret is not None
    asked = _retrieve(tuple(number_of(term) for term in terms(said[7])), together)
    query, values = inside._written_words(OURS, asked, inside.Words(secret, True))
    say(bound, values["keys"], values["keys"] if together else [])
    with psycopg.ClientCursor(bound) as cursor:
        plan = "\n".join(row[0] for row in cursor.execute(f"EXPLAIN (COSTS OFF) {query}".encode(), values))
    assert "Bitmap Index Scan on searchable_terms" in plan, plan
    assert "Index Cond: ((terms && " in plan


@pytest.mark.promise("B2")
def test_words_of_one_audience_are_looked_up_in_no_other_index(roles: Roles, said: list[str]) -> None:
    with psycopg.connect(roles["superuser"], autocommit=True) as free:
        secret = secret_of(free, OURS)
        assert secret is not None
        asked = _retrieve(tuple(number_of(term) for term in terms(said[7])), False)._replace(audiences=(b"", b"other"))
        query, values = inside._written_words(OURS, asked, inside.Words(secret, False))
        with psycopg.ClientCursor(free) as cursor:
            free.execute("SET enable_seqscan = off")
            plan = "\n".join(row[0] for row in cursor.execute(f"EXPLAIN (COSTS OFF) {query}".encode(), values))
    assert "Bitmap Index Scan on searchable_terms" in plan, plan
    assert "searchable_pkey" not in plan, plan


# -- what is not


@pytest.mark.promise("G4")
def test_words_of_others_find_nothing(bound: Connection, roles: Roles) -> None:
    ours, theirs = terms_of(roles, OURS), terms_of(roles, THEIRS)
    say(bound, [one for _, numbers in ours for one in numbers], [])
    assert sorted(bound.execute(SEEN).fetchall()) == [(OURS, number) for number, _ in ours]
    assert bound.execute("SELECT count(*) FROM duramen.worded WHERE workspace <> %s", (OURS,)).fetchone() == (0,)
    say(bound, [one for _, numbers in theirs for one in numbers], [])
    assert bound.execute(SEEN).fetchall() == []
    say(bound, theirs[0][1], theirs[0][1])
    assert bound.execute(SEEN).fetchall() == []


@pytest.mark.promise("G4")
def test_which_numbers_the_words_of_others_have_cannot_be_known(roles: Roles) -> None:
    ours, theirs = ({one for _, numbers in terms_of(roles, whose) for one in numbers} for whose in (OURS, THEIRS))
    assert len(ours) == len(theirs) > 300  # of the same texts
    assert not ours & theirs
    with psycopg.connect(roles["owner"], autocommit=True) as connection:
        connection.execute("SELECT set_config('duramen.workspace', %s, false)", (OURS,))
        assert connection.execute("SELECT workspace FROM duramen.secrets").fetchall() == [(OURS,)]
        secret = secret_of(connection, OURS)
    assert secret is not None
    assert len(secret) == 32
    for salt in (secret, OURS.encode(), THEIRS.encode()):
        assert not theirs & set(keys(salt, 1, None, [number_of(term) for term in terms("baran cesel ditik fovom")]))


@pytest.mark.promise("G4")
def test_without_words_or_a_workspace_nothing_is_there(roles: Roles) -> None:
    with psycopg.connect(roles["owner"], autocommit=True) as connection:
        with pytest.raises(pg.UndefinedObject, match=r"duramen\.workspace"):
            connection.execute(SEEN)
        connection.execute("SELECT set_config('duramen.workspace', %s, false)", (OURS,))
        assert connection.execute(SEEN).fetchall() == []
        say(connection, [one for _, numbers in terms_of(roles, OURS) for one in numbers], [])
        assert connection.execute(SEEN).fetchall()
        connection.execute("SET duramen.words = ''")
        assert connection.execute(SEEN).fetchall() == []
        connection.execute("SET duramen.words = '{1} OR true'")
        with pytest.raises(pg.InvalidTextRepresentation):
            connection.execute(SEEN)


@pytest.mark.promise("G4")
def test_a_pinned_role_that_says_another_workspace_sees_nothing(roles: Roles) -> None:
    with psycopg.connect(roles["pinned"], autocommit=True) as connection:
        connection.execute("SELECT set_config('duramen.workspace', %s, false)", (THEIRS,))
        for workspace in (OURS, THEIRS):
            say(connection, [one for _, numbers in terms_of(roles, workspace) for one in numbers], [])
            assert connection.execute(SEEN).fetchall() == []


@pytest.mark.promise("G4")
def test_functions_in_a_query_are_shown_no_row_of_others(bound: Connection, roles: Roles) -> None:
    with psycopg.connect(roles["superuser"], autocommit=True) as connection:
        connection.execute(
            """
            CREATE OR REPLACE FUNCTION public.tell(workspace text, number bigint) RETURNS boolean
            LANGUAGE plpgsql COST 0.0000001 AS $$ BEGIN RAISE NOTICE '% %', number, workspace; RETURN true; END $$
            """
        )
    every = [one for workspace in (OURS, THEIRS) for _, numbers in terms_of(roles, workspace) for one in numbers]
    say(bound, every, [])
    told: list[str] = []
    bound.add_notice_handler(lambda notice: told.append(notice.message_primary or ""))
    bound.execute("SELECT count(*) FROM duramen.worded WHERE public.tell(workspace, number)")
    assert sorted(told) == sorted(f"{number} {OURS}" for number, _ in terms_of(roles, OURS))


@pytest.mark.promise("G4")
def test_nothing_is_written_through_it(bound: Connection, roles: Roles) -> None:
    before = [terms_of(roles, workspace) for workspace in (OURS, THEIRS)]
    say(bound, [one for found in before for _, numbers in found for one in numbers], [])
    assert bound.execute("DELETE FROM duramen.worded").rowcount == 0
    assert bound.execute("UPDATE duramen.worded SET kind = 'x'").rowcount == 0
    with pytest.raises(pg.InsufficientPrivilege):
        bound.execute("INSERT INTO duramen.worded SELECT * FROM duramen.worded LIMIT 1")
    assert [terms_of(roles, workspace) for workspace in (OURS, THEIRS)] == before


SEEN = "SELECT workspace, number FROM duramen.worded"


def _retrieve(words: tuple[int, ...], together: bool) -> RetrievalQuery:
    """Words alone, in all audiences."""
    return RetrievalQuery(
        generation=1,
        audiences=None,
        now=2**60,
        code=None,
        vector_limit=0,
        terms=words,
        term_weights=(1.0,) * len(words),
        lookup_terms=tuple(range(len(words))),
        require_all=together,
        scan_limit=3_000,
        word_limit=150,
        mean_length=10.0,
        corpus_size=10_000,
    )
