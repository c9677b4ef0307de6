-- name: lock_pool
-- How often a pool was changed, kept from others until the transaction ends.
SELECT changes, checksum FROM duramen.pools WHERE workspace = %s AND pool = %s FOR UPDATE;

-- name: lock_pools
-- All pools of a workspace, in the order in which everybody locks them.
SELECT pool FROM duramen.pools WHERE workspace = %s ORDER BY pool FOR UPDATE;

-- name: add_pool
-- A pool at its first memory, unless somebody else was first.
INSERT INTO duramen.pools (workspace, pool, changes, checksum) VALUES (%s, %s, 0, %s) ON CONFLICT DO NOTHING;

-- name: list_pools
-- Every pool of a workspace.
SELECT pool, changes FROM duramen.pools WHERE workspace = %s;

-- name: some_pools
-- Some of them.
SELECT pool, changes FROM duramen.pools WHERE workspace = %s AND pool = ANY(%s);

-- name: count_changes
-- How often a locked pool was changed.
UPDATE duramen.pools SET changes = %s, checksum = %s WHERE workspace = %s AND pool = %s;

-- name: pools_of
-- The pools that some memories are in. A memory never moves.
SELECT number, pool FROM duramen.memories WHERE workspace = %s AND number = ANY(%s);

-- name: pools_of_owner
-- The pools in which an owner has memories.
SELECT DISTINCT pool FROM duramen.memories WHERE workspace = %s AND owner = %s;

-- name: find_current
-- The current memory of an id.
SELECT * FROM duramen.memories WHERE workspace = %s AND pool = %s AND id = %s AND closed IS NULL AND id <> '';

-- name: find_keyed
-- The current memories of a key.
SELECT * FROM duramen.memories WHERE workspace = %s AND pool = %s AND key = %s AND closed IS NULL;

-- name: find_numbers
-- Memories by their numbers.
SELECT * FROM duramen.memories WHERE workspace = %s AND number = ANY(%s) ORDER BY pool, number;

-- name: memories_of_owner
-- What an erasure takes.
SELECT * FROM duramen.memories WHERE workspace = %s AND owner = %s ORDER BY pool, number;

-- name: next_numbers
-- Numbers for new memories: a row's checksum covers its number.
SELECT nextval('duramen.memories_number_seq') FROM generate_series(1, %s);

-- name: add_memory
-- A new memory.
INSERT INTO duramen.memories
    (workspace, pool, number, id, session, position, kind, key, owner, recorded, begins, ends, expires, importance,
     confidence, confirmed, times, closed, successor, changed, traced, checksum)
OVERRIDING SYSTEM VALUE
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s);

-- name: write_memory
-- A memory that changed.
UPDATE duramen.memories
SET id = %s, session = %s, position = %s, kind = %s, key = %s, owner = %s, recorded = %s, begins = %s, ends = %s,
    expires = %s, importance = %s, confidence = %s, confirmed = %s, times = %s, closed = %s, successor = %s,
    changed = %s, traced = %s, checksum = %s
WHERE workspace = %s AND pool = %s AND number = %s;

-- name: read_memories
-- Memories by number; the conditions below are added to "true".
SELECT r.count, r.time, memories.* FROM duramen.memories
LEFT JOIN LATERAL (
    SELECT recalls.count, recalls.time FROM duramen.recalls
    WHERE recalls.workspace = memories.workspace AND recalls.pool = memories.pool AND recalls.number = memories.number
) r ON true
WHERE workspace = %(workspace)s AND number > %(after)s AND id <> '' AND true ORDER BY number LIMIT %(limit)s;

-- name: by_pool
-- Of some pools.
pool = ANY(%(pools)s);

-- name: by_id
-- Of an id.
id = %(id)s;

-- name: by_key
-- Of a key.
key = %(key)s;

-- name: by_kind
-- Of some kinds.
kind = ANY(%(kinds)s);

-- name: by_number
-- Of some numbers.
number = ANY(%(numbers)s);

-- name: only_current
-- Those that are known now.
closed IS NULL;

-- name: known_at
-- Those that were known at a time.
recorded <= %(at)s AND (closed IS NULL OR closed > %(at)s);

-- name: read_changes
-- Rows of a pool that changed after a count, with what is searched.
SELECT t.words, t.vector, t.checksum, coalesce(r.count, 0), coalesce(r.time, 0), m.*
FROM duramen.memories m
LEFT JOIN duramen.traces t
    ON t.workspace = m.workspace AND t.pool = m.pool AND t.number = m.number AND t.generation = %(generation)s
LEFT JOIN duramen.recalls r ON r.workspace = m.workspace AND r.pool = m.pool AND r.number = m.number
WHERE m.workspace = %(workspace)s AND m.pool = %(pool)s AND m.changed > %(after)s
ORDER BY m.changed LIMIT %(limit)s;

-- name: read_untraced
-- Current memories without a trace of a generation.
SELECT m.* FROM duramen.memories m
WHERE m.workspace = %(workspace)s AND m.traced < %(generation)s AND m.closed IS NULL AND NOT EXISTS (
    SELECT 1 FROM duramen.traces t WHERE t.workspace = m.workspace AND t.pool = m.pool AND t.number = m.number
      AND t.generation = %(generation)s)
ORDER BY m.traced, m.number LIMIT %(limit)s;

-- name: count_untraced
-- How many they are.
SELECT count(*) FROM duramen.memories m
WHERE m.workspace = %(workspace)s AND m.traced < %(generation)s AND m.closed IS NULL AND NOT EXISTS (
    SELECT 1 FROM duramen.traces t WHERE t.workspace = m.workspace AND t.pool = m.pool AND t.number = m.number
      AND t.generation = %(generation)s);

-- name: put_trace
-- What is searched of a memory.
INSERT INTO duramen.traces (workspace, pool, number, generation, words, vector, checksum)
VALUES (%s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (workspace, pool, number, generation) DO UPDATE
SET words = excluded.words, vector = excluded.vector, checksum = excluded.checksum;

-- name: read_traces
-- What is searched of the current memories of a pool.
SELECT m.id, m.owner, t.checksum, t.workspace, t.pool, t.number, t.generation, t.words, t.vector
FROM duramen.traces t JOIN duramen.memories m ON m.workspace = t.workspace AND m.number = t.number
WHERE t.workspace = %(workspace)s AND t.pool = %(pool)s AND t.generation = %(generation)s AND m.closed IS NULL
ORDER BY t.number;

-- name: read_some_traces
-- Of some of them.
SELECT m.id, m.owner, t.checksum, t.workspace, t.pool, t.number, t.generation, t.words, t.vector
FROM duramen.traces t JOIN duramen.memories m ON m.workspace = t.workspace AND m.number = t.number
WHERE t.workspace = %(workspace)s AND t.pool = %(pool)s AND t.generation = %(generation)s AND m.closed IS NULL
  AND t.number = ANY(%(numbers)s)
ORDER BY t.number;

-- name: read_traces_anywhere
-- Of some memories, whatever pools they are in.
SELECT m.id, m.owner, t.checksum, t.workspace, t.pool, t.number, t.generation, t.words, t.vector
FROM duramen.memories m
JOIN duramen.traces t ON t.workspace = m.workspace AND t.pool = m.pool AND t.number = m.number
WHERE m.workspace = %(workspace)s AND m.number = ANY(%(numbers)s) AND t.generation = %(generation)s AND m.closed IS NULL
ORDER BY t.number;

-- name: generations_traced
-- The generations in which memories of a pool have traces.
SELECT number, generation FROM duramen.traces WHERE workspace = %s AND pool = %s AND number = ANY(%s);

-- name: drop_traces
-- All traces of some memories.
DELETE FROM duramen.traces WHERE workspace = %s AND pool = %s AND number = ANY(%s)
RETURNING length(words) + coalesce(length(vector), 0), (vector IS NOT NULL)::int;

-- name: read_segments
-- The segments of a pool.
SELECT workspace, pool, generation, after, upto, first, last, owner, body, checksum FROM duramen.segments
WHERE workspace = %s AND pool = %s AND generation = %s ORDER BY after;

-- name: segment_spans
-- From where to where each segment of a generation reaches.
SELECT pool, after, upto FROM duramen.segments WHERE workspace = %s AND generation = %s ORDER BY pool, after;

-- name: forgotten_since
-- Whether a memory between two numbers was forgotten after a count.
SELECT 1 FROM duramen.memories
WHERE workspace = %s AND pool = %s AND changed > %s AND id = '' AND number BETWEEN %s AND %s LIMIT 1;

-- name: drop_overlapping
-- The segments whose place another one takes.
DELETE FROM duramen.segments WHERE workspace = %s AND pool = %s AND generation = %s AND after < %s AND upto > %s;

-- name: put_segment
-- Changes of a pool, packed together.
INSERT INTO duramen.segments (workspace, pool, generation, after, upto, first, last, owner, body, checksum)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (workspace, pool, generation, after) DO UPDATE
SET upto = excluded.upto, first = excluded.first, last = excluded.last, owner = excluded.owner, body = excluded.body,
    checksum = excluded.checksum;

-- name: drop_segments
-- The segments that may hold one of some memories.
DELETE FROM duramen.segments s WHERE s.workspace = %s AND s.pool = %s AND EXISTS (
    SELECT 1 FROM unnest(%s::bigint[]) gone (number) WHERE gone.number BETWEEN s.first AND s.last);

-- name: drop_generation_segments
-- The segments of all generations but one.
DELETE FROM duramen.segments WHERE workspace = %s AND generation <> %s;

-- name: read_recalls
-- How often the memories of a pool were recalled.
SELECT number, count FROM duramen.recalls WHERE workspace = %s AND pool = %s;

-- name: find_recalls
-- How often some memories were recalled.
SELECT pool, number, count, time, checksum FROM duramen.recalls
WHERE workspace = %s AND pool = ANY(%s) AND number = ANY(%s);

-- name: write_recall
-- How often a memory was recalled, and when last.
INSERT INTO duramen.recalls (workspace, pool, number, count, time, checksum) VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (workspace, pool, number) DO UPDATE
SET count = excluded.count, time = excluded.time, checksum = excluded.checksum;

-- name: drop_recalls
-- Of memories that are gone.
DELETE FROM duramen.recalls WHERE workspace = %s AND pool = %s AND number = ANY(%s);

-- name: lock_generations
-- Generations are begun one after the other.
SELECT pg_advisory_xact_lock(hashtextextended(%s, 11));

-- name: list_generations
-- The generations of a workspace, those that were dropped too.
SELECT generation, identity, active, checksum FROM duramen.generations WHERE workspace = %s ORDER BY generation;

-- name: keep_generations
-- The same, kept from being dropped until the transaction ends.
SELECT generation, identity, active, checksum FROM duramen.generations WHERE workspace = %s ORDER BY generation
FOR SHARE;

-- name: last_generation
-- The highest number of a generation that there ever was.
SELECT coalesce(max(generation), 0) FROM duramen.generations WHERE workspace = %s;

-- name: write_generation
-- A generation. `active` is 1 for the one that is searched, 0 for one that is being made, -1 for one that was dropped: its
-- number must not come again, as somebody may still be making vectors for it.
INSERT INTO duramen.generations (workspace, generation, identity, active, checksum) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (workspace, generation) DO UPDATE
SET identity = excluded.identity, active = excluded.active, checksum = excluded.checksum;

-- name: drop_generation_traces
-- The traces of all generations but one.
DELETE FROM duramen.traces WHERE workspace = %s AND generation <> %s;

-- name: all_pools
-- Every pool, for the integrity check.
SELECT encode(pool, 'hex'), checksum, workspace, pool, changes FROM duramen.pools;

-- name: all_memories
-- Every memory, likewise.
SELECT number, checksum, workspace, pool, number, id, session, position, kind, key, owner, recorded, begins, ends,
       expires, importance, confidence, confirmed, times, closed, successor, changed, traced
FROM duramen.memories;

-- name: all_traces
-- Every trace, likewise.
SELECT number, checksum, workspace, pool, number, generation, words, vector FROM duramen.traces;

-- name: all_segments
-- Every segment, likewise.
SELECT after, checksum, workspace, pool, generation, after, upto, first, last, owner, body FROM duramen.segments;

-- name: all_recalls
-- Every count of recalls, likewise.
SELECT number, checksum, workspace, pool, number, count, time FROM duramen.recalls;

-- name: all_generations
-- Every generation, likewise.
SELECT generation, checksum, workspace, generation, identity, active FROM duramen.generations;

-- name: orphan_memories
-- Memories without pool or event, traces without memory or generation, recalls without memory.
SELECT 1 FROM duramen.memories m WHERE (m.id <> '' AND NOT EXISTS (
    SELECT 1 FROM duramen.events e
    WHERE e.workspace = m.workspace AND e.session = m.session AND e.position = m.position)
) OR NOT EXISTS (SELECT 1 FROM duramen.pools p WHERE p.workspace = m.workspace AND p.pool = m.pool)
UNION ALL SELECT 1 FROM duramen.traces t WHERE NOT EXISTS (
    SELECT 1 FROM duramen.memories m
    WHERE m.workspace = t.workspace AND m.pool = t.pool AND m.number = t.number AND m.id <> ''
) OR NOT EXISTS (
    SELECT 1 FROM duramen.generations g
    WHERE g.workspace = t.workspace AND g.generation = t.generation AND g.active >= 0)
UNION ALL SELECT 1 FROM duramen.segments s WHERE NOT EXISTS (
    SELECT 1 FROM duramen.generations g
    WHERE g.workspace = s.workspace AND g.generation = s.generation AND g.active >= 0)
UNION ALL SELECT 1 FROM duramen.recalls r WHERE NOT EXISTS (
    SELECT 1 FROM duramen.memories m
    WHERE m.workspace = r.workspace AND m.pool = r.pool AND m.number = r.number AND m.id <> '') LIMIT 1;

-- name: miscounted_pools
-- Pools of which a change is missing, and memories that are both current and say the same, or hold at once under one key.
(SELECT 1 FROM duramen.pools p WHERE p.changes <> (
    SELECT coalesce(max(m.changed), 0) FROM duramen.memories m WHERE m.workspace = p.workspace AND m.pool = p.pool))
UNION ALL
(SELECT 1 FROM duramen.memories WHERE closed IS NULL GROUP BY workspace, pool, id HAVING count(*) > 1)
UNION ALL
(SELECT 1 FROM duramen.memories one JOIN duramen.memories other
    ON other.workspace = one.workspace AND other.pool = one.pool AND other.key = one.key AND other.number <> one.number
 WHERE one.key IS NOT NULL AND one.closed IS NULL AND other.closed IS NULL
   AND one.begins <= other.begins AND coalesce(one.ends, other.begins + 1) > other.begins)
LIMIT 1;
