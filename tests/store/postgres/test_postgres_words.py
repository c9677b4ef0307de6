"""Word search of roles that row level security restricts to one workspace."""

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
from duramen.stores.postgres import retrieval as retrieval_module
from duramen.stores.postgres.connection import Connection
from duramen.stores.postgres.searchable import keys, secret_of

Roles = dict[str, str]
"""The URLs of one database by role."""


def open_with_candidates(address: str, workspace: str) -> duramen.Duramen:
    """A handle that searches in the store."""
    dm = duramen.open(address, workspace=workspace, embedder=ThemeEmbedder())
    retrieval: Any = dm.memory._core._service.search._sources[0]
    assert isinstance(retrieval, Retrieval)
    retrieval.exact_limit = 20
    return dm


def contents(recalled: Any) -> list[str]:
    return [hit.memory.content for hit in recalled.hits]


@pytest.fixture(scope="module")
def roles(module_bound_urls: tuple[str, str]) -> Roles:
    """The URLs of the owner of the tables, a role pinned to our workspace, a role with rights only, and a superuser.

    Both workspaces have the same sentences. Many more rows make plans use indexes.
    """
    owner, superuser = module_bound_urls
    for workspace in (OURS, THEIRS):
        with open_with_candidates(owner, workspace) as dm:
            assert len(fill(dm, 300)) == 300
    urls = {"owner": owner, "superuser": superuser}
    with psycopg.connect(superuser, autocommit=True) as connection:
        for name in ("agent", "pinned"):
            urls[name] = _new_role(connection, superuser)
        pinned = psycopg.conninfo.conninfo_to_dict(urls["pinned"])["user"]
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
    return urls


def _new_role(connection: Connection, url: str) -> str:
    role = f"words_{uuid.uuid4().hex}"
    info = connection.info
    connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'".encode())
    connection.execute(f"GRANT USAGE ON SCHEMA duramen TO {role}".encode())
    connection.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA duramen TO {role}".encode())
    return f"postgresql://{role}:{role}@{info.host}:{info.port}/{info.dbname}"


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    """The sentences that `fill` stores in each workspace."""
    choices = random.Random(1)
    return [f"{sentence(choices)} 1x{number}" for number in range(300)]


@pytest.fixture(params=["owner", "agent", "pinned"])
def bound(request: pytest.FixtureRequest, roles: Roles) -> Iterator[Connection]:
    """A connection to our workspace for each restricted role."""
    with psycopg.connect(roles[request.param], autocommit=True) as connection:
        connection.execute("SELECT set_config('duramen.workspace', %s, false)", (OURS,))
        yield connection


def set_words(connection: Connection, words: list[int], all_words: list[int]) -> None:
    """Set the words of a search as the store does, but for the whole connection."""
    for name, numbers in (("words", words), ("together", all_words)):
        connection.execute("SELECT set_config(%s, %s, false)", (f"duramen.{name}", str(numbers).translate(BRACES)))


BRACES = str.maketrans("[]", "{}")


def terms_of(roles: Roles, workspace: str) -> list[tuple[int, list[int]]]:
    """The number of each memory of a workspace, and the numbers of its words."""
    with psycopg.connect(roles["superuser"], autocommit=True) as connection:
        query = "SELECT number, terms FROM duramen.searchable WHERE workspace = %s AND number < 1000000 ORDER BY 1"
        return connection.execute(query, (workspace,)).fetchall()


# -- what a restricted role finds


@pytest.mark.promise("B2", "G4")
@pytest.mark.parametrize("role", ["owner", "agent", "pinned"])
def test_a_restricted_role_gets_the_same_candidates(
    roles: Roles, role: str, sentences: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrieval_module, "SCANNED", 50)
    monkeypatch.setattr(
        Search, "_count_recalls", lambda *_: None
    )  # recalls of one handle would change the ranking of the other
    with (
        open_with_candidates(roles["superuser"], OURS) as unrestricted,
        open_with_candidates(roles[role], OURS) as bound,
    ):
        for number, all_words in enumerate((False, True) * 4):
            words = tuple(number_of(term) for term in terms(sentences[number])[3:6])
            word_query = _word_query(words, all_words)
            expected, result = (
                drive(dm.memory._core._service.journal.store.retriever.retrieve(OURS, word_query))
                for dm in (unrestricted, bound)
            )
            assert result == expected
            assert result.by_words
            assert result.mask_counts
        assert contents(bound.memory.recall(sentences[5])) == contents(unrestricted.memory.recall(sentences[5]))


@pytest.mark.promise("B2", "G4")
@pytest.mark.parametrize("all_words", [False, True])
def test_restricted_roles_use_the_index_of_words(bound: Connection, all_words: bool, sentences: list[str]) -> None:
    secret = secret_of(bound, OURS)
    assert secret is not None
    word_query = _word_query(tuple(number_of(term) for term in terms(sentences[7])), all_words)
    query, values = retrieval_module._written_words(OURS, word_query, retrieval_module.Words(secret, True))
    set_words(bound, values["keys"], values["keys"] if all_words else [])
    with psycopg.ClientCursor(bound) as cursor:
        plan = "\n".join(row[0] for row in cursor.execute(f"EXPLAIN (COSTS OFF) {query}".encode(), values))
    assert "Bitmap Index Scan on searchable_terms" in plan, plan
    assert "Index Cond: ((terms && " in plan


@pytest.mark.promise("B2")
def test_words_of_an_audience_use_only_the_index_of_words(roles: Roles, sentences: list[str]) -> None:
    with psycopg.connect(roles["superuser"], autocommit=True) as unrestricted:
        secret = secret_of(unrestricted, OURS)
        assert secret is not None
        word_query = _word_query(tuple(number_of(term) for term in terms(sentences[7])), False)._replace(
            audiences=(b"", b"other")
        )
        query, values = retrieval_module._written_words(OURS, word_query, retrieval_module.Words(secret, False))
        with psycopg.ClientCursor(unrestricted) as cursor:
            unrestricted.execute("SET enable_seqscan = off")
            plan = "\n".join(row[0] for row in cursor.execute(f"EXPLAIN (COSTS OFF) {query}".encode(), values))
    assert "Bitmap Index Scan on searchable_terms" in plan, plan
    assert "searchable_pkey" not in plan, plan


# -- what a restricted role does not find


@pytest.mark.promise("G4")
def test_words_of_another_workspace_match_nothing(bound: Connection, roles: Roles) -> None:
    ours, theirs = terms_of(roles, OURS), terms_of(roles, THEIRS)
    set_words(bound, [one for _, numbers in ours for one in numbers], [])
    assert sorted(bound.execute(VISIBLE_ROWS).fetchall()) == [(OURS, number) for number, _ in ours]
    assert bound.execute("SELECT count(*) FROM duramen.worded WHERE workspace <> %s", (OURS,)).fetchone() == (0,)
    set_words(bound, [one for _, numbers in theirs for one in numbers], [])
    assert bound.execute(VISIBLE_ROWS).fetchall() == []
    set_words(bound, theirs[0][1], theirs[0][1])
    assert bound.execute(VISIBLE_ROWS).fetchall() == []


@pytest.mark.promise("G4")
def test_the_numbers_of_words_differ_between_workspaces(roles: Roles) -> None:
    ours, theirs = ({one for _, numbers in terms_of(roles, whose) for one in numbers} for whose in (OURS, THEIRS))
    assert len(ours) == len(theirs) > 300  # both store the same sentences
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
def test_without_words_or_a_workspace_no_row_is_visible(roles: Roles) -> None:
    with psycopg.connect(roles["owner"], autocommit=True) as connection:
        with pytest.raises(pg.UndefinedObject, match=r"duramen\.workspace"):
            connection.execute(VISIBLE_ROWS)
        connection.execute("SELECT set_config('duramen.workspace', %s, false)", (OURS,))
        assert connection.execute(VISIBLE_ROWS).fetchall() == []
        set_words(connection, [one for _, numbers in terms_of(roles, OURS) for one in numbers], [])
        assert connection.execute(VISIBLE_ROWS).fetchall()
        connection.execute("SET duramen.words = ''")
        assert connection.execute(VISIBLE_ROWS).fetchall() == []
        connection.execute("SET duramen.words = '{1} OR true'")
        with pytest.raises(pg.InvalidTextRepresentation):
            connection.execute(VISIBLE_ROWS)


@pytest.mark.promise("G4")
def test_a_pinned_role_sees_nothing_in_another_workspace(roles: Roles) -> None:
    with psycopg.connect(roles["pinned"], autocommit=True) as connection:
        connection.execute("SELECT set_config('duramen.workspace', %s, false)", (THEIRS,))
        for workspace in (OURS, THEIRS):
            set_words(connection, [one for _, numbers in terms_of(roles, workspace) for one in numbers], [])
            assert connection.execute(VISIBLE_ROWS).fetchall() == []


@pytest.mark.promise("G4")
def test_functions_in_a_query_get_no_row_of_another_workspace(bound: Connection, roles: Roles) -> None:
    with psycopg.connect(roles["superuser"], autocommit=True) as connection:
        connection.execute(
            """
            CREATE OR REPLACE FUNCTION public.leak(workspace text, number bigint) RETURNS boolean
            LANGUAGE plpgsql COST 0.0000001 AS $$ BEGIN RAISE NOTICE '% %', number, workspace; RETURN true; END $$
            """
        )
    every = [one for workspace in (OURS, THEIRS) for _, numbers in terms_of(roles, workspace) for one in numbers]
    set_words(bound, every, [])
    notices: list[str] = []
    bound.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
    bound.execute("SELECT count(*) FROM duramen.worded WHERE public.leak(workspace, number)")
    assert sorted(notices) == sorted(f"{number} {OURS}" for number, _ in terms_of(roles, OURS))


@pytest.mark.promise("G4")
def test_the_view_of_words_cannot_be_written(bound: Connection, roles: Roles) -> None:
    before = [terms_of(roles, workspace) for workspace in (OURS, THEIRS)]
    set_words(bound, [one for rows in before for _, numbers in rows for one in numbers], [])
    assert bound.execute("DELETE FROM duramen.worded").rowcount == 0
    assert bound.execute("UPDATE duramen.worded SET kind = 'x'").rowcount == 0
    with pytest.raises(pg.InsufficientPrivilege):
        bound.execute("INSERT INTO duramen.worded SELECT * FROM duramen.worded LIMIT 1")
    assert [terms_of(roles, workspace) for workspace in (OURS, THEIRS)] == before


VISIBLE_ROWS = "SELECT workspace, number FROM duramen.worded"


def _word_query(words: tuple[int, ...], all_words: bool) -> RetrievalQuery:
    """A search by words alone in all audiences."""
    return RetrievalQuery(
        generation=1,
        audiences=None,
        now=2**60,
        code=None,
        vector_limit=0,
        terms=words,
        term_weights=(1.0,) * len(words),
        lookup_terms=tuple(range(len(words))),
        require_all=all_words,
        scan_limit=3_000,
        word_limit=150,
        mean_length=10.0,
        corpus_size=10_000,
    )
