"""Search for memories inside PostgreSQL: one statement by words and one by vector, each with all filters.

A search covers one audience, a few, or the whole workspace. In a small corpus every code is compared. The codes of an
audience are adjacent in the index of the primary key. In a large workspace the index of the extension `vector` returns
the nearest codes. Both statements are planned with their values, because the best plan depends on the audience.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import repeat
from typing import Any, NamedTuple

from ...ports import (
    Candidate,
    Change,
    CorpusSample,
    Generation,
    RetrievalQuery,
    RetrievalResult,
    SampledMemory,
    SearchFields,
)
from ...runtime import run_blocking
from . import searchable
from .connection import Connection, Work, execute_planned
from .memories import M, locked_rows, read_change, read_generations
from .searchable import DRAWN, DRAWS, S, completed, keys, written_bits
from .vector_index import VectorIndex

SCANNED = 60_000
"""Up to this many memories, all codes are compared and the index is not used."""
ALL_SCANNED = 300_000
"""Without an index, up to this many memories can be searched."""
_SAMPLED_SESSIONS = 20
_FEW_AUDIENCES = 16
_LOOK_EVERY = 60.0


class Words(NamedTuple):
    """How to look up words: the secret with which they are hashed, and whether row level security applies (`bound`).
    Then the words are given in settings of the connection."""

    secret: bytes
    bound: bool


class PostgresRetriever:
    """Implements `Retriever`."""

    def __init__(self, do: Work, write: Work, vector_index: VectorIndex) -> None:
        self._do, self._write = do, write
        self._vector_index = vector_index
        self._ready: set[tuple[str, int]] = set()
        self._indexed: dict[tuple[str, int], tuple[float, str | None]] = {}
        self._bound: bool | None = None
        self._secrets: dict[str, bytes] = {}

    async def sample_corpus(
        self, workspace: str, generation: int, audiences: Sequence[bytes] | None, least: int, most: int
    ) -> CorpusSample | None:
        asked: dict[str, Any] = {"workspace": workspace, "generation": generation, "upto": least + 1, "most": most}
        asked["audiences"] = None if audiences is None else list(audiences)

        def work(connection: Connection) -> CorpusSample | None:
            if not self._is_ready(connection, workspace, generation):
                return None
            found: Any = connection.execute(_within(S.sample_corpus, audiences).encode(), asked, binary=True).fetchone()
            drawn, hidden, *columns = found
            if hidden or not _is_more(connection, asked, drawn, audiences, least):
                return None
            some = list(map(SampledMemory, *(column or () for column in columns)))
            return CorpusSample(drawn * DRAWS // DRAWN, some, _session_length(connection, asked, some))

        return await self._do(work)

    def _is_ready(self, connection: Connection, workspace: str, generation: int) -> bool:
        if (workspace, generation) not in self._ready:
            if connection.execute(S.is_searched, (workspace, generation)).fetchone() is None:
                return False
            self._ready.add((workspace, generation))
        return True

    async def retrieve(self, workspace: str, query: RetrievalQuery) -> RetrievalResult | None:
        def work(connection: Connection) -> RetrievalResult | None:
            schema = self._index(connection, workspace, query.generation) if query.corpus_size > SCANNED else None
            if schema is None and query.corpus_size > ALL_SCANNED:
                return None
            words = Words(self._secret(connection, workspace), self._is_bound(connection))
            found = _search(connection, workspace, query, words, schema)
            narrow = query.audiences is not None or query.kinds is not None or query.metadata or query.since is not None
            few = (
                len(found.by_vector) < query.vector_limit
                and (narrow or query.until is not None)
                and query.code is not None
            )
            if schema is None or not few:
                return found
            # The filters left too few results of the index: compare all codes.
            return _search(connection, workspace, query, words, None)

        return await self._do(work)

    def _secret(self, connection: Connection, workspace: str) -> bytes:
        """The secret with which words are hashed. Empty if the workspace has none yet."""
        known = self._secrets.get(workspace)
        if known is None:
            known = searchable.secret_of(connection, workspace) or b""
            if known:
                self._secrets[workspace] = known
        return known

    def _index(self, connection: Connection, workspace: str, generation: int) -> str | None:
        """The schema of the extension, if this generation has an index, else None. Cached for a minute."""
        known = self._indexed.get((workspace, generation))
        if known is None or time.monotonic() - known[0] > _LOOK_EVERY:
            known = (time.monotonic(), self._vector_index.schema_of_index(connection, workspace, generation))
            self._indexed[workspace, generation] = known
        return known[1]

    def _is_bound(self, connection: Connection) -> bool:
        """Whether row level security applies to this role. PostgreSQL then uses the index over terms only if the words
        are given in settings."""
        if self._bound is None:
            self._bound = bool(_one(connection, S.bound_rows, {})[0])
        return self._bound

    async def with_adjacent(self, workspace: str, generation: int, numbers: Sequence[int]) -> list[Change]:
        asked = {"workspace": workspace, "generation": generation, "numbers": list(numbers)}

        def work(connection: Connection) -> list[Change]:
            return [
                read_change(generation, row) for row in connection.execute(S.read_with_adjacent, asked, binary=True)
            ]

        return await self._do(work) if numbers else []

    async def unsearchable(self, workspace: str, generation: int, limit: int) -> list[Change]:
        asked = {"workspace": workspace, "generation": generation, "limit": limit}

        def work(connection: Connection) -> list[Change]:
            if self._is_ready(connection, workspace, generation):
                return []
            # This misses nothing: every transaction that writes an index entry also writes its search row.
            rows = connection.execute(S.find_unready, asked, binary=True).fetchall()
            if not rows:
                connection.execute(S.set_searched, (workspace, generation))
            return [read_change(generation, row) for row in rows]

        return await self._write(work)

    async def make_searchable(
        self, workspace: str, generation: int, search_fields: Sequence[tuple[int, SearchFields | None]]
    ) -> None:
        given = dict(search_fields)

        def work(connection: Connection) -> None:
            there = [one.number for one in read_generations(connection, M.keep_generations, workspace)]
            if generation not in there:
                return  # the generation was dropped, so nothing would ever remove the rows
            audiences, rows = locked_rows(connection, workspace, list(given))
            asked = (workspace, list(audiences), list(rows), generation)
            indexed = {row[0] for row in connection.execute(S.indexed_numbers, asked)}
            chosen = [(row, given[number]) for number, row in sorted(rows.items()) if number in indexed and row.intact]
            searchable.put(connection, workspace, generation, chosen)

        if given:
            await self._write(work)

    async def maintain_indexes(self, workspace: str, generation: int, bits: int) -> None:
        generations = [one.number for one in await self._generations(workspace)]
        await run_blocking(lambda: self._vector_index.maintain_indexes(workspace, generations, generation, bits))
        self._indexed.pop((workspace, generation), None)

    async def _generations(self, workspace: str) -> list[Generation]:
        return await self._do(lambda connection: read_generations(connection, M.list_generations, workspace))


def _within(query: str, audiences: Sequence[bytes] | None) -> str:
    return completed(query, {"AUDIENCES": "true" if audiences is None else S.in_audiences})


def _one(connection: Connection, query: str, values: dict[str, Any]) -> Any:
    return execute_planned(connection, query, values).fetchone()


def _is_more(
    connection: Connection, asked: dict[str, Any], drawn: int, audiences: Sequence[bytes] | None, least: int
) -> bool:
    """Whether the corpus has more than `least` memories. They are counted only if the sample is not conclusive."""
    about = drawn * DRAWS // DRAWN
    return about > 2 * least + 1_000 or bool(_one(connection, _within(S.count_upto, audiences), asked)[0] > least)


def _session_length(connection: Connection, asked: dict[str, Any], drawn: Sequence[SampledMemory]) -> float:
    """The mean number of episodes in a session, measured on the first sessions in the sample."""
    every = dict.fromkeys((one.audience, one.session) for one in drawn if one.session is not None)
    if not every:
        return 0.0
    some = list(every)[:_SAMPLED_SESSIONS]
    values = asked | {"audiences": [audience for audience, _ in some], "sessions": [name for _, name in some]}
    return float(_one(connection, S.talk_size, values)[0] or 0)


def _search(
    connection: Connection, workspace: str, query: RetrievalQuery, words: Words, schema: str | None
) -> RetrievalResult:
    """The candidates of a query. With `schema`, the search by vector uses the index of the extension. Both statements
    also return memories without an index entry, because a memory may get its entry between the two."""
    worded, masks, late = list[Candidate](), dict[int, int](), list[Candidate]()
    if query.lookup_terms or query.code is None:
        worded, masks, late = _by_words(connection, *_written_words(workspace, query, words), query, words.bound)
    if query.code is None:
        return RetrievalResult([], worded, late, masks)
    near, more = _by_code(connection, *_written_near(workspace, query, schema), query, schema)
    return RetrievalResult(near, worded, list(dict.fromkeys([*late, *more])), masks)


def _by_words(
    connection: Connection, sql: str, values: dict[str, Any], query: RetrievalQuery, bound: bool
) -> tuple[list[Candidate], dict[int, int], list[Candidate]]:
    with connection.transaction() if bound else nullcontext():
        if bound:
            asked = "{" + ",".join(map(str, values.get("keys", ()))) + "}"
            connection.execute(S.say_words, (asked, asked if query.require_all else "{}"))
        row: Any = execute_planned(connection, sql, values).fetchone()
    audiences, numbers, vectors, masks, distinct, held, *late = (found or () for found in row)
    return _candidates(audiences, numbers, vectors, masks), dict(zip(distinct, held, strict=True)), _candidates(*late)


def _by_code(
    connection: Connection, sql: str, values: dict[str, Any], query: RetrievalQuery, schema: str | None
) -> tuple[list[Candidate], list[Candidate]]:
    with connection.transaction() if schema is not None else nullcontext():
        if schema is not None:
            connection.execute(S.tune_index, (str(min(1000, max(40, query.vector_limit))),))
        row: Any = execute_planned(connection, sql, values).fetchone()
    audiences, numbers, vectors, *late = (found or () for found in row)
    return _candidates(audiences, numbers, vectors), _candidates(*late)


def _candidates(
    audiences: Sequence[bytes],
    numbers: Sequence[int],
    vectors: Sequence[bytes | None] | None = None,
    masks: Sequence[int] | None = None,
) -> list[Candidate]:
    return list(map(Candidate, audiences, numbers, vectors or repeat(None), masks or repeat(0)))


def _written_near(workspace: str, query: RetrievalQuery, schema: str | None) -> tuple[str, dict[str, Any]]:
    """The statement by vector with its conditions, and their values."""
    values, fragments = _conditions(workspace, query)
    fragments["DISTANCE"] = _distance(query, schema)
    return completed(S.retrieve_near, fragments), values


def _written_words(workspace: str, query: RetrievalQuery, words: Words) -> tuple[str, dict[str, Any]]:
    """The statement by words with its conditions, and their values."""
    values, fragments = _conditions(workspace, query)
    places = _places(query)
    condition, more = _words(query, words, places)
    if query.audiences is not None and places != [None]:
        fragments["AUDIENCES"] = S.among_audiences
    fragments |= {
        "WORDED": "duramen.worded" if words.bound else "duramen.searchable",
        "WORDS": condition,
        "MASK": more.pop("mask"),
        "SCORE": more.pop("score"),
    }
    return completed(S.retrieve_words, fragments), values | more


def _conditions(workspace: str, query: RetrievalQuery) -> tuple[dict[str, Any], dict[str, str]]:
    """The values and the conditions of a statement."""
    values: dict[str, Any] = query._asdict() | {"workspace": workspace, "code": written_bits(query.code)}
    values["audiences"] = None if query.audiences is None else list(query.audiences)
    values["kinds"] = None if query.kinds is None else list(query.kinds)
    values["mean_length"] = max(1.0, query.mean_length)
    asked = [
        (query.kinds, S.of_kinds),
        (query.since, S.since),
        (query.until, S.until),
    ]
    dated = [condition for value, condition in asked if value is not None]
    filters = [S.holds_now, *dated]
    for at, (name, forms) in enumerate(query.metadata):
        values |= {f"name{at}": name, f"forms{at}": list(forms)}
        filters.append(f"s.metadata -> %(name{at})s = ANY(%(forms{at})s::jsonb[])")
    audiences = "true" if query.audiences is None else S.in_audiences
    lately = S.lately if query.unindexed_limit else S.none_lately
    lately = completed(lately, {"AUDIENCES": audiences, "LATE": " AND ".join(("true", *dated))})
    return values, {"AUDIENCES": audiences, "FILTERS": " AND ".join(filters), "LATELY": lately}


def _distance(query: RetrievalQuery, schema: str | None) -> str:
    if schema is None:
        return str(S.by_scan)
    return completed(S.by_index, {"DIMS": str(8 * len(query.code or b"")), "SCHEMA": schema})


def _places(query: RetrievalQuery) -> list[bytes | None]:
    """The audiences whose keys are used to look up words, or [None] for the keys of the workspace."""
    if (
        query.audiences is not None
        and len(query.audiences) <= _FEW_AUDIENCES
        and (len(query.audiences) == 1 or not query.require_all)
    ):
        return list(query.audiences)
    return [None]


def _words(query: RetrievalQuery, words: Words, places: Sequence[bytes | None]) -> tuple[str, dict[str, Any]]:
    """The condition on words and its values. The values also contain the SQL expressions `mask` and `score`."""
    if not query.lookup_terms or not words.secret:
        return "false", {"mask": "0", "score": "0"}
    rare = [query.terms[place] for place in query.lookup_terms]
    values: dict[str, Any] = {
        "keys": [key for place in places for key in keys(words.secret, query.generation, place, rare)]
    }
    tests, weights = [], []
    for at, key in enumerate(keys(words.secret, query.generation, None, query.terms)):
        values[f"key{at}"], values[f"weight{at}"] = key, query.term_weights[at]
        tests.append(f"(CASE WHEN %(key{at})s = ANY(s.terms) THEN {1 << at} ELSE 0 END)")
        weights.append(f"CASE WHEN mask & {1 << at} <> 0 THEN %(weight{at})s::float8 ELSE 0 END")
    values |= {"mask": " | ".join(tests), "score": " + ".join(weights)}
    if words.bound:
        return "true", values  # the policy of `worded` applies the condition
    return str(S.has_all_terms if query.require_all else S.has_one_term), values
