-- name: put_searchable
-- Add or replace the search row of a memory.
INSERT INTO duramen.searchable
    (workspace, generation, audience, number, kind, session, position, begins, opens, ends, expires, hidden, draw,
     length, metadata, terms, code, checksum)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s::jsonb, %s::integer[], %s::bit varying, %s)
ON CONFLICT (workspace, generation, audience, number) DO UPDATE
SET kind = excluded.kind, session = excluded.session, position = excluded.position, begins = excluded.begins,
    opens = excluded.opens, ends = excluded.ends, expires = excluded.expires, hidden = excluded.hidden,
    draw = excluded.draw, length = excluded.length, metadata = excluded.metadata, terms = excluded.terms,
    code = excluded.code, checksum = excluded.checksum;

-- name: date_searchable
-- Set when a current memory ends.
UPDATE duramen.searchable SET ends = %(ends)s::bigint, expires = %(expires)s::bigint
WHERE workspace = %(workspace)s AND audience = %(audience)s AND number = %(number)s AND generation IN (
    SELECT generation FROM duramen.generations WHERE workspace = %(workspace)s AND active >= 0)
  AND (ends IS DISTINCT FROM %(ends)s::bigint OR expires IS DISTINCT FROM %(expires)s::bigint);

-- name: drop_searchable
-- Delete the search rows of memories that are no longer current.
DELETE FROM duramen.searchable
WHERE workspace = %(workspace)s AND audience = %(audience)s AND number = ANY(%(numbers)s) AND generation IN (
    SELECT generation FROM duramen.generations WHERE workspace = %(workspace)s AND active >= 0);

-- name: drop_generation_searchable
-- Delete the search rows of all generations except one.
DELETE FROM duramen.searchable WHERE workspace = %s AND generation <> %s;

-- name: drop_generation_searched
-- Delete the marks of `set_searched` of all generations except one.
DELETE FROM duramen.searched WHERE workspace = %s AND generation <> %s;

-- name: set_searched
-- Mark a generation as ready: every current index entry has its search row, and new ones get theirs.
INSERT INTO duramen.searched (workspace, generation)
SELECT workspace, generation FROM duramen.generations WHERE workspace = %s AND generation = %s AND active >= 0
ON CONFLICT DO NOTHING;

-- name: is_searched
-- Whether a generation is ready.
SELECT 1 FROM duramen.searched WHERE workspace = %s AND generation = %s;

-- name: find_unready
-- Current memories with an index entry and without a search row.
SELECT t.words, t.vector, t.checksum, 0, 0, m.*
FROM duramen.index_entries t
JOIN duramen.memories m ON m.workspace = t.workspace AND m.number = t.number AND m.audience = t.audience
WHERE t.workspace = %(workspace)s AND t.generation = %(generation)s AND m.closed IS NULL AND m.id <> ''
  AND NOT EXISTS (
    SELECT 1 FROM duramen.searchable s WHERE s.workspace = %(workspace)s AND s.generation = t.generation
      AND s.audience = t.audience AND s.number = t.number)
LIMIT %(limit)s;

-- name: indexed_numbers
-- Those of some memories that have an index entry in a generation.
SELECT number FROM duramen.index_entries
WHERE workspace = %s AND audience = ANY(%s) AND number = ANY(%s) AND generation = %s;

-- name: count_drawn
-- How many search rows are in the sample, which contains one row in eight. AUDIENCES is a condition.
SELECT count(*) FROM duramen.searchable s
WHERE s.workspace = %(workspace)s AND s.generation = %(generation)s AND s.draw < 128 AND AUDIENCES;

-- name: sample_corpus
-- How many search rows are in the sample, whether a row is sealed, and if not, about `most` random rows. The query is
-- planned once for all audiences, so it leaves the planner no choice. The values of `draw` are listed, because
-- PostgreSQL would expect too many rows below a number that it does not know. The index entries are looked up one at a
-- time. The result is one row (see retrieve_near).
WITH looked AS MATERIALIZED (
    SELECT count(*) AS drawn, EXISTS (
        SELECT 1 FROM duramen.searchable s
        WHERE s.workspace = %(workspace)s AND s.generation = %(generation)s AND s.hidden AND AUDIENCES) AS hidden
    FROM duramen.searchable s
    WHERE s.workspace = %(workspace)s AND s.generation = %(generation)s AND s.draw < 128 AND AUDIENCES
), chosen AS MATERIALIZED (
    SELECT s.audience, s.number, s.kind, s.session, s.position, s.begins, s.opens, s.ends, s.expires, t.words, t.vector
    FROM duramen.searchable s
    CROSS JOIN LATERAL (
        SELECT t.words, t.vector FROM duramen.index_entries t
        WHERE t.workspace = %(workspace)s AND t.audience = s.audience AND t.number = s.number
          AND t.generation = s.generation
        OFFSET 0) t
    WHERE s.workspace = %(workspace)s AND s.generation = %(generation)s AND s.draw < 128 AND AUDIENCES
      AND s.draw = ANY(ARRAY(
        SELECT generate_series(0, greatest(0, least(127, round(128.0 * %(most)s / greatest(1, drawn)) - 1)))::smallint
        FROM looked WHERE NOT hidden))
    LIMIT 2 * %(most)s
)
SELECT (SELECT drawn FROM looked), (SELECT hidden FROM looked),
       array_agg(audience), array_agg(number), array_agg(kind), array_agg(session), array_agg(position),
       array_agg(begins), array_agg(opens), array_agg(ends), array_agg(expires), array_agg(words), array_agg(vector)
FROM chosen;

-- name: count_upto
-- The number of search rows, counted up to a limit.
SELECT count(*) FROM (
    SELECT 1 FROM duramen.searchable s
    WHERE s.workspace = %(workspace)s AND s.generation = %(generation)s AND AUDIENCES LIMIT %(upto)s) AS a_few;

-- name: talk_size
-- The mean number of episodes in some sessions. At most 500 are counted in each.
SELECT avg(held) FROM unnest(%(audiences)s::bytea[], %(sessions)s::text[]) AS one(audience, session), LATERAL (
    SELECT count(*) AS held FROM (
        SELECT 1 FROM duramen.searchable s
        WHERE s.workspace = %(workspace)s AND s.generation = %(generation)s AND s.audience = one.audience
          AND s.session = one.session LIMIT 500) AS a_few) AS counted;

-- name: find_secret
-- The secret with which the words of a workspace are hashed.
SELECT words, checksum FROM duramen.secrets WHERE workspace = %s;

-- name: draw_secret
-- A new secret, with 244 random bits.
SELECT uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid());

-- name: add_secret
-- Add the secret of a workspace, unless it has one. It never changes.
INSERT INTO duramen.secrets (workspace, words, checksum) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING;

-- name: all_secrets
-- Every secret, for the integrity check.
SELECT workspace, checksum, workspace, words FROM duramen.secrets;

-- name: say_words
-- Set the words that `worded` shows until the transaction ends: rows with one of the first and all of the second.
SELECT set_config('duramen.words', %s, true), set_config('duramen.together', %s, true);

-- name: retrieve_near
-- Candidates by vector. AUDIENCES and FILTERS are conditions, DISTANCE is the distance of a code from the query's code.
-- The result is one row of arrays, because a row per candidate would take twice as long to send and read. Index entries
-- are looked up in the order of their numbers, in which they are stored. LATELY adds the memories without an index
-- entry.
WITH near AS MATERIALIZED (
    SELECT s.audience, s.number FROM duramen.searchable s
    WHERE s.workspace = %(workspace)s AND s.generation = %(generation)s AND s.code IS NOT NULL AND AUDIENCES AND FILTERS
    ORDER BY DISTANCE LIMIT %(vector_limit)s
), LATELY
SELECT array_agg(n.audience ORDER BY n.number DESC), array_agg(n.number ORDER BY n.number DESC),
       array_agg(t.vector ORDER BY n.number DESC),
       (SELECT array_agg(audience) FROM late), (SELECT array_agg(number) FROM late)
FROM (SELECT audience, number FROM near ORDER BY number DESC) n JOIN duramen.index_entries t
    ON t.workspace = %(workspace)s AND t.audience = n.audience AND t.number = n.number
      AND t.generation = %(generation)s;

-- name: retrieve_words
-- Candidates by words, best first. WORDS, AUDIENCES and FILTERS are conditions. MASK has a bit for each term of the
-- query. SCORE is the sum of the weights of these terms, in floating point, because exact decimals take several times
-- as long. The rest is the weighting of BM25. WORDED is the table in which words are looked up. The result also says
-- how many of the scored rows have each mask. LATELY adds the memories without an index entry.
WITH matched AS MATERIALIZED (
    SELECT s.audience, s.number, s.length, MASK AS mask FROM WORDED s
    WHERE s.workspace = %(workspace)s AND s.generation = %(generation)s AND WORDS AND AUDIENCES AND FILTERS
    LIMIT %(scan_limit)s
), worded AS MATERIALIZED (
    SELECT audience, number, mask, (SCORE) / (1.54::float8 + 0.36::float8 * length / %(mean_length)s) AS score
    FROM matched ORDER BY score DESC, number DESC LIMIT %(word_limit)s
), masks AS MATERIALIZED (
    SELECT mask, count(*) AS held FROM matched GROUP BY mask
), LATELY
SELECT array_agg(w.audience ORDER BY w.score DESC, w.number DESC),
       array_agg(w.number ORDER BY w.score DESC, w.number DESC),
       array_agg(t.vector ORDER BY w.score DESC, w.number DESC),
       array_agg(w.mask ORDER BY w.score DESC, w.number DESC),
       (SELECT array_agg(mask) FROM masks), (SELECT array_agg(held) FROM masks),
       (SELECT array_agg(audience) FROM late), (SELECT array_agg(number) FROM late)
FROM (SELECT * FROM worded ORDER BY number DESC) w JOIN duramen.index_entries t
    ON t.workspace = %(workspace)s AND t.audience = w.audience AND t.number = w.number
      AND t.generation = %(generation)s;

-- name: lately
-- The newest memories without an index entry. LATE is a condition.
late AS MATERIALIZED (
    SELECT s.audience, s.number FROM duramen.memories s
    WHERE s.workspace = %(workspace)s AND s.indexed < %(generation)s AND s.closed IS NULL AND AUDIENCES AND LATE
      AND NOT EXISTS (
        SELECT 1 FROM duramen.index_entries t WHERE t.workspace = %(workspace)s AND t.audience = s.audience
          AND t.number = s.number
          AND t.generation = %(generation)s)
    ORDER BY s.indexed DESC, s.number DESC LIMIT %(unindexed_limit)s);

-- name: none_lately
-- No memories: used if all have an index entry, because planning `lately` takes longer than most searches.
late AS MATERIALIZED (SELECT ''::bytea AS audience, 0::bigint AS number WHERE false);

-- name: in_audiences
-- Condition: the row is in one of these audiences.
s.audience = ANY(%(audiences)s);

-- name: among_audiences
-- The same condition, in a form that uses no index. The index over terms already selects by audience.
array_position(%(audiences)s::bytea[], s.audience) IS NOT NULL;

-- name: holds_now
-- Condition: the memory holds now and has not expired. For an episode only the expiry counts, because it happened.
(s.expires IS NULL OR s.expires > %(now)s) AND (
    ((s.ends IS NULL OR s.ends > %(now)s) AND (s.opens IS NULL OR s.opens <= %(now)s)) OR s.kind = 'episode');

-- name: of_kinds
-- Condition: the memory is of one of these kinds.
s.kind = ANY(%(kinds)s);

-- name: since
-- Condition: the memory begins at or after a time.
s.begins >= %(since)s;

-- name: until
-- Condition: the memory begins at or before a time.
s.begins <= %(until)s;

-- name: has_one_term
-- Condition: the memory has at least one of these terms.
s.terms && %(keys)s::integer[];

-- name: has_all_terms
-- Condition: the memory has all of these terms.
s.terms @> %(keys)s::integer[];

-- name: by_scan
-- The distance of two codes, without an index: the number of bits that differ.
bit_count(s.code # %(code)s::bit varying);

-- name: by_index
-- The same distance, with the index of the extension. SCHEMA contains its operators.
(s.code::bit(DIMS)) OPERATOR(SCHEMA.<~>) %(code)s::bit(DIMS);

-- name: read_with_adjacent
-- Some current memories, and the episodes directly before and after each, with their index entries.
WITH wanted AS MATERIALIZED (
    SELECT audience, number FROM duramen.memories
    WHERE workspace = %(workspace)s AND number = ANY(%(numbers)s) AND closed IS NULL AND id <> ''
), found AS MATERIALIZED (
    SELECT audience, number FROM wanted
    UNION
    SELECT s.audience, side.number FROM wanted w
    JOIN duramen.searchable s
        ON s.workspace = %(workspace)s AND s.generation = %(generation)s AND s.audience = w.audience
          AND s.number = w.number
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
-- The schema of the extension `vector`, and whether its version can index codes and continue a search in which filters
-- left too few rows.
SELECT n.nspname, string_to_array(regexp_replace(e.extversion, '[^0-9.].*', ''), '.')::integer[] >= ARRAY[0, 8]
FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector';

-- name: offers_extension
-- Whether the server has the extension `vector`.
SELECT 1 FROM pg_available_extensions WHERE name = 'vector';

-- name: make_extension
-- Create the extension.
CREATE EXTENSION IF NOT EXISTS vector;

-- name: list_near_indexes
-- The indexes over codes, and whether each is complete.
SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = 'duramen.searchable'::regclass AND starts_with(c.relname, %s);

-- name: make_near_index
-- Create an index over the codes of one generation in one workspace, without blocking writers.
CREATE INDEX CONCURRENTLY NAME ON duramen.searchable
USING hnsw ((code::bit(DIMS)) SCHEMA.bit_hamming_ops) WITH (m = 12, ef_construction = 48)
WHERE workspace = WORKSPACE AND generation = GENERATION;

-- name: drop_near_index
-- Drop an index that is no longer needed or was not completed.
DROP INDEX CONCURRENTLY IF EXISTS duramen.NAME;

-- name: tune_index
-- How far to search the index: as many rows as were requested, and further if filters leave too few.
SELECT set_config('hnsw.ef_search', %s, true), set_config('hnsw.iterative_scan', 'relaxed_order', true),
       set_config('hnsw.max_scan_tuples', '40000', true);

-- name: lock_tending
-- Let one process at a time maintain the indexes of a workspace. False if another one does.
SELECT pg_try_advisory_lock(hashtextextended(%s, 12));

-- name: bound_rows
-- Whether row level security applies to this role. PostgreSQL then uses the index over terms only through `worded`.
SELECT row_security_active('duramen.searchable');

-- name: all_searchable
-- Every search row, for the integrity check.
SELECT number, checksum, workspace, generation, audience, number, hidden, length, terms, code::text
FROM duramen.searchable;

-- name: misplaced_searchable
-- Search rows without a current memory and its index entry, or that contradict the memory.
SELECT 1 FROM duramen.searchable s WHERE NOT EXISTS (
    SELECT 1 FROM duramen.index_entries t WHERE t.workspace = s.workspace AND t.audience = s.audience
      AND t.number = s.number
      AND t.generation = s.generation
) OR NOT EXISTS (
    SELECT 1 FROM duramen.memories m WHERE m.workspace = s.workspace AND m.number = s.number AND m.audience = s.audience
      AND m.closed IS NULL AND m.id <> '' AND m.kind = s.kind AND m.begins = s.begins
      AND m.ends IS NOT DISTINCT FROM s.ends AND m.expires IS NOT DISTINCT FROM s.expires) LIMIT 1;

-- name: missing_searchable
-- Index entries of current memories without a search row, in a generation that is marked as ready.
SELECT 1 FROM duramen.searched g
JOIN duramen.index_entries t ON t.workspace = g.workspace AND t.generation = g.generation
JOIN duramen.memories m ON m.workspace = t.workspace AND m.number = t.number AND m.closed IS NULL AND m.id <> ''
WHERE NOT EXISTS (
    SELECT 1 FROM duramen.searchable s WHERE s.workspace = t.workspace AND s.generation = t.generation
      AND s.audience = t.audience AND s.number = t.number) LIMIT 1;
