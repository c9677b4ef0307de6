-- name: put_searchable
-- What is searched of a memory.
INSERT INTO duramen.searchable
    (workspace, generation, audience, number, kind, session, position, begins, opens, ends, expires, hidden, draw, length,
     metadata, terms, code, checksum)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s::jsonb, %s::integer[], %s::bit varying, %s)
ON CONFLICT (workspace, generation, audience, number) DO UPDATE
SET kind = excluded.kind, session = excluded.session, position = excluded.position, begins = excluded.begins,
    opens = excluded.opens, ends = excluded.ends, expires = excluded.expires, hidden = excluded.hidden,
    draw = excluded.draw, length = excluded.length, metadata = excluded.metadata, terms = excluded.terms,
    code = excluded.code, checksum = excluded.checksum;

-- name: date_searchable
-- When a memory ends that is still current.
UPDATE duramen.searchable SET ends = %(ends)s::bigint, expires = %(expires)s::bigint
WHERE workspace = %(workspace)s AND audience = %(audience)s AND number = %(number)s AND generation IN (
    SELECT generation FROM duramen.generations WHERE workspace = %(workspace)s AND active >= 0)
  AND (ends IS DISTINCT FROM %(ends)s::bigint OR expires IS DISTINCT FROM %(expires)s::bigint);

-- name: drop_searchable
-- What is current no longer.
DELETE FROM duramen.searchable
WHERE workspace = %(workspace)s AND audience = %(audience)s AND number = ANY(%(numbers)s) AND generation IN (
    SELECT generation FROM duramen.generations WHERE workspace = %(workspace)s AND active >= 0);

-- name: drop_generation_searchable
-- All generations but one.
DELETE FROM duramen.searchable WHERE workspace = %s AND generation <> %s;

-- name: drop_generation_searched
-- Likewise.
DELETE FROM duramen.searched WHERE workspace = %s AND generation <> %s;

-- name: set_searched
-- Every current index_entry of a generation has its row, and will have it.
INSERT INTO duramen.searched (workspace, generation)
SELECT workspace, generation FROM duramen.generations WHERE workspace = %s AND generation = %s AND active >= 0
ON CONFLICT DO NOTHING;

-- name: is_searched
-- Whether it is so.
SELECT 1 FROM duramen.searched WHERE workspace = %s AND generation = %s;

-- name: find_unready
-- Current memories with an index_entry and without a row to be searched by.
SELECT t.words, t.vector, t.checksum, 0, 0, m.*
FROM duramen.index_entries t
JOIN duramen.memories m ON m.workspace = t.workspace AND m.number = t.number AND m.audience = t.audience
WHERE t.workspace = %(workspace)s AND t.generation = %(generation)s AND m.closed IS NULL AND m.id <> ''
  AND NOT EXISTS (
    SELECT 1 FROM duramen.searchable s WHERE s.workspace = %(workspace)s AND s.generation = t.generation
      AND s.audience = t.audience AND s.number = t.number)
LIMIT %(limit)s;

-- name: indexed_numbers
-- Which of some memories have an index_entry of a generation.
SELECT number FROM duramen.index_entries
WHERE workspace = %s AND audience = ANY(%s) AND number = ANY(%s) AND generation = %s;

-- name: count_drawn
-- How many of what is searched were drawn: one in eight. POOLS is a condition.
SELECT count(*) FROM duramen.searchable s
WHERE s.workspace = %(workspace)s AND s.generation = %(generation)s AND s.draw < 128 AND POOLS;

-- name: sample_corpus
-- How many of what is searched were drawn, whether something of it is sealed, and else some of those drawn: about as many as
-- are wanted, by chance. It is planned once for all audiences, so nothing is left to choose: draws are listed, as PostgreSQL expects
-- too many below a number that it does not know yet, and index_entries are looked up one by one. All are one row (see retrieve_near).
WITH looked AS MATERIALIZED (
    SELECT count(*) AS drawn, EXISTS (
        SELECT 1 FROM duramen.searchable s
        WHERE s.workspace = %(workspace)s AND s.generation = %(generation)s AND s.hidden AND POOLS) AS hidden
    FROM duramen.searchable s
    WHERE s.workspace = %(workspace)s AND s.generation = %(generation)s AND s.draw < 128 AND POOLS
), chosen AS MATERIALIZED (
    SELECT s.audience, s.number, s.kind, s.session, s.position, s.begins, s.opens, s.ends, s.expires, t.words, t.vector
    FROM duramen.searchable s
    CROSS JOIN LATERAL (
        SELECT t.words, t.vector FROM duramen.index_entries t
        WHERE t.workspace = %(workspace)s AND t.audience = s.audience AND t.number = s.number AND t.generation = s.generation
        OFFSET 0) t
    WHERE s.workspace = %(workspace)s AND s.generation = %(generation)s AND s.draw < 128 AND POOLS
      AND s.draw = ANY(ARRAY(
        SELECT generate_series(0, greatest(0, least(127, round(128.0 * %(most)s / greatest(1, drawn)) - 1)))::smallint FROM looked
        WHERE NOT hidden))
    LIMIT 2 * %(most)s
)
SELECT (SELECT drawn FROM looked), (SELECT hidden FROM looked),
       array_agg(audience), array_agg(number), array_agg(kind), array_agg(session), array_agg(position),
       array_agg(begins), array_agg(opens), array_agg(ends), array_agg(expires), array_agg(words), array_agg(vector)
FROM chosen;

-- name: count_upto
-- How many are searched, counted up to some number.
SELECT count(*) FROM (
    SELECT 1 FROM duramen.searchable s
    WHERE s.workspace = %(workspace)s AND s.generation = %(generation)s AND POOLS LIMIT %(upto)s) AS a_few;

-- name: talk_size
-- How many episodes some sessions have in the mean, each counted up to 500.
SELECT avg(held) FROM unnest(%(audiences)s::bytea[], %(sessions)s::text[]) AS one(audience, session), LATERAL (
    SELECT count(*) AS held FROM (
        SELECT 1 FROM duramen.searchable s
        WHERE s.workspace = %(workspace)s AND s.generation = %(generation)s AND s.audience = one.audience
          AND s.session = one.session LIMIT 500) AS a_few) AS counted;

-- name: find_secret
-- Under which the words of a workspace are hashed.
SELECT words, checksum FROM duramen.secrets WHERE workspace = %s;

-- name: draw_secret
-- A new one: 244 bits by chance.
SELECT uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid());

-- name: add_secret
-- It stays for good.
INSERT INTO duramen.secrets (workspace, words, checksum) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING;

-- name: all_secrets
-- All of them, for the integrity check.
SELECT workspace, checksum, workspace, words FROM duramen.secrets;

-- name: say_words
-- The words that `worded` shows, until the transaction ends: with one of the first, and all of the second.
SELECT set_config('duramen.words', %s, true), set_config('duramen.together', %s, true);

-- name: retrieve_near
-- Candidates by meaning, every filter inside. POOLS and FILTERS are conditions, DISTANCE is how far a code is from the
-- question's. All of them are one row: a row for each takes as long again, to send and to read. Traces are looked up in their
-- order, in which they lie side by side. And those of LATELY.
WITH near AS MATERIALIZED (
    SELECT s.audience, s.number FROM duramen.searchable s
    WHERE s.workspace = %(workspace)s AND s.generation = %(generation)s AND s.code IS NOT NULL AND POOLS AND FILTERS
    ORDER BY DISTANCE LIMIT %(vector_limit)s
), LATELY
SELECT array_agg(n.audience ORDER BY n.number DESC), array_agg(n.number ORDER BY n.number DESC),
       array_agg(t.vector ORDER BY n.number DESC),
       (SELECT array_agg(audience) FROM late), (SELECT array_agg(number) FROM late)
FROM (SELECT audience, number FROM near ORDER BY number DESC) n JOIN duramen.index_entries t
    ON t.workspace = %(workspace)s AND t.audience = n.audience AND t.number = n.number AND t.generation = %(generation)s;

-- name: retrieve_words
-- Candidates by words, the best first. WORDS, POOLS and FILTERS are conditions, MASK has a bit for each term of the question,
-- SCORE is what those count: by the weighting of BM25, in floating point, as exact decimals take several times as long. WORDED
-- is where words are looked up. And how many were looked at that have these terms and no others; and those of LATELY.
WITH matched AS MATERIALIZED (
    SELECT s.audience, s.number, s.length, MASK AS mask FROM WORDED s
    WHERE s.workspace = %(workspace)s AND s.generation = %(generation)s AND WORDS AND POOLS AND FILTERS
    LIMIT %(scan_limit)s
), worded AS MATERIALIZED (
    SELECT audience, number, mask, (SCORE) / (1.54::float8 + 0.36::float8 * length / %(mean_length)s) AS score
    FROM matched ORDER BY score DESC, number DESC LIMIT %(word_limit)s
), masks AS MATERIALIZED (
    SELECT mask, count(*) AS held FROM matched GROUP BY mask
), LATELY
SELECT array_agg(w.audience ORDER BY w.score DESC, w.number DESC), array_agg(w.number ORDER BY w.score DESC, w.number DESC),
       array_agg(t.vector ORDER BY w.score DESC, w.number DESC), array_agg(w.mask ORDER BY w.score DESC, w.number DESC),
       (SELECT array_agg(mask) FROM masks), (SELECT array_agg(held) FROM masks),
       (SELECT array_agg(audience) FROM late), (SELECT array_agg(number) FROM late)
FROM (SELECT * FROM worded ORDER BY number DESC) w JOIN duramen.index_entries t
    ON t.workspace = %(workspace)s AND t.audience = w.audience AND t.number = w.number AND t.generation = %(generation)s;

-- name: lately
-- Those that have no index_entry yet, the newest. LATE is a condition.
late AS MATERIALIZED (
    SELECT s.audience, s.number FROM duramen.memories s
    WHERE s.workspace = %(workspace)s AND s.indexed < %(generation)s AND s.closed IS NULL AND POOLS AND LATE
      AND NOT EXISTS (
        SELECT 1 FROM duramen.index_entries t WHERE t.workspace = %(workspace)s AND t.audience = s.audience AND t.number = s.number
          AND t.generation = %(generation)s)
    ORDER BY s.indexed DESC, s.number DESC LIMIT %(unindexed_limit)s);

-- name: none_lately
-- None, where all have one: to plan the search for them takes longer than most of what an audience is searched by.
late AS MATERIALIZED (SELECT ''::bytea AS audience, 0::bigint AS number WHERE false);

-- name: in_audiences
-- In some audiences.
s.audience = ANY(%(audiences)s);

-- name: among_audiences
-- The same where the index over terms holds it already, and the one over audiences would only be read in vain.
array_position(%(audiences)s::bytea[], s.audience) IS NOT NULL;

-- name: holds_now
-- What holds now: what is over, or has not begun, is no answer; what happened is.
(s.expires IS NULL OR s.expires > %(now)s) AND (
    ((s.ends IS NULL OR s.ends > %(now)s) AND (s.opens IS NULL OR s.opens <= %(now)s)) OR s.kind = 'episode');

-- name: of_kinds
-- Of some kinds.
s.kind = ANY(%(kinds)s);

-- name: since
-- Begun since a time.
s.begins >= %(since)s;

-- name: until
-- Begun until a time.
s.begins <= %(until)s;

-- name: has_one_term
-- With one of some terms.
s.terms && %(keys)s::integer[];

-- name: has_all_terms
-- With all of some terms.
s.terms @> %(keys)s::integer[];

-- name: by_scan
-- How many signs differ: every code of what is searched is looked at.
bit_count(s.code # %(code)s::bit varying);

-- name: by_index
-- The same by the index of the extension, whose operators are in SCHEMA.
(s.code::bit(DIMS)) OPERATOR(SCHEMA.<~>) %(code)s::bit(DIMS);

-- name: read_with_adjacent
-- Some memories that are current, and the episodes right before and after each, with what is searched.
WITH wanted AS MATERIALIZED (
    SELECT audience, number FROM duramen.memories
    WHERE workspace = %(workspace)s AND number = ANY(%(numbers)s) AND closed IS NULL AND id <> ''
), found AS MATERIALIZED (
    SELECT audience, number FROM wanted
    UNION
    SELECT s.audience, side.number FROM wanted w
    JOIN duramen.searchable s
        ON s.workspace = %(workspace)s AND s.generation = %(generation)s AND s.audience = w.audience AND s.number = w.number
    CROSS JOIN LATERAL (
        (SELECT b.number FROM duramen.searchable b
         WHERE b.workspace = %(workspace)s AND b.generation = %(generation)s AND b.audience = s.audience
           AND b.session = s.session AND b.position < s.position ORDER BY b.position DESC LIMIT 1)
        UNION ALL
        (SELECT a.number FROM duramen.searchable a
         WHERE a.workspace = %(workspace)s AND a.generation = %(generation)s AND a.audience = s.audience
           AND a.session = s.session AND a.position > s.position ORDER BY a.position LIMIT 1)) AS side
    WHERE s.session IS NOT NULL
)
SELECT t.words, t.vector, t.checksum, coalesce(r.count, 0), coalesce(r.time, 0), m.*
FROM found f
JOIN duramen.memories m ON m.workspace = %(workspace)s AND m.number = f.number
LEFT JOIN duramen.index_entries t
    ON t.workspace = m.workspace AND t.audience = m.audience AND t.number = m.number AND t.generation = %(generation)s
LEFT JOIN duramen.recalls r ON r.workspace = m.workspace AND r.audience = m.audience AND r.number = m.number
WHERE m.closed IS NULL
ORDER BY m.audience, m.session, m.position, m.number;

-- name: find_extension
-- The extension for vectors: its schema, and whether it can index codes and go on where filters leave too little.
SELECT n.nspname, string_to_array(regexp_replace(e.extversion, '[^0-9.].*', ''), '.')::integer[] >= ARRAY[0, 8]
FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector';

-- name: offers_extension
-- Whether the server has the extension, and this role may make things in the database.
SELECT 1 FROM pg_available_extensions WHERE name = 'vector';

-- name: make_extension
-- The extension, where the server has it.
CREATE EXTENSION IF NOT EXISTS vector;

-- name: list_near_indexes
-- The indexes for codes, and whether each is complete.
SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = 'duramen.searchable'::regclass AND starts_with(c.relname, %s);

-- name: make_near_index
-- An index over the codes of one generation in one workspace, made beside those who write.
CREATE INDEX CONCURRENTLY NAME ON duramen.searchable
USING hnsw ((code::bit(DIMS)) SCHEMA.bit_hamming_ops) WITH (m = 12, ef_construction = 48)
WHERE workspace = WORKSPACE AND generation = GENERATION;

-- name: drop_near_index
-- One that is not needed any more, or was not completed.
DROP INDEX CONCURRENTLY IF EXISTS duramen.NAME;

-- name: tune_index
-- How far the index is walked: as many as are asked for, and on where filters leave too little.
SELECT set_config('hnsw.ef_search', %s, true), set_config('hnsw.iterative_scan', 'relaxed_order', true),
       set_config('hnsw.max_scan_tuples', '40000', true);

-- name: lock_tending
-- One process makes indexes at a time; false if another does.
SELECT pg_try_advisory_lock(hashtextextended(%s, 12));

-- name: unlock_tending
-- It is done.
SELECT pg_advisory_unlock(hashtextextended(%s, 12));

-- name: bound_rows
-- Whether policies bind this role: then PostgreSQL uses the index over terms only through `worded`.
SELECT row_security_active('duramen.searchable');

-- name: all_searchable
-- Every row, for the integrity check.
SELECT number, checksum, workspace, generation, audience, number, hidden, length, terms, code::text
FROM duramen.searchable;

-- name: misplaced_searchable
-- Rows without a current memory and its index_entry, and those that say something else than the memory.
SELECT 1 FROM duramen.searchable s WHERE NOT EXISTS (
    SELECT 1 FROM duramen.index_entries t WHERE t.workspace = s.workspace AND t.audience = s.audience AND t.number = s.number
      AND t.generation = s.generation
) OR NOT EXISTS (
    SELECT 1 FROM duramen.memories m WHERE m.workspace = s.workspace AND m.number = s.number AND m.audience = s.audience
      AND m.closed IS NULL AND m.id <> '' AND m.kind = s.kind AND m.begins = s.begins
      AND m.ends IS NOT DISTINCT FROM s.ends AND m.expires IS NOT DISTINCT FROM s.expires) LIMIT 1;

-- name: missing_searchable
-- Traces of current memories without a row in a generation that should have them all.
SELECT 1 FROM duramen.searched g JOIN duramen.index_entries t ON t.workspace = g.workspace AND t.generation = g.generation
JOIN duramen.memories m ON m.workspace = t.workspace AND m.number = t.number AND m.closed IS NULL AND m.id <> ''
WHERE NOT EXISTS (
    SELECT 1 FROM duramen.searchable s WHERE s.workspace = t.workspace AND s.generation = t.generation
      AND s.audience = t.audience AND s.number = t.number) LIMIT 1;
