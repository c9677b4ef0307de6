-- name: lock_audience
-- The change count of an audience, locked until the transaction ends.
SELECT changes, checksum FROM duramen.audiences WHERE workspace = %s AND audience = %s FOR UPDATE;

-- name: lock_audiences
-- Lock all audiences of a workspace, in the order that all writers use.
SELECT audience FROM duramen.audiences WHERE workspace = %s ORDER BY audience FOR UPDATE;

-- name: add_audience
-- Add an audience, unless it exists.
INSERT INTO duramen.audiences (workspace, audience, changes, checksum) VALUES (%s, %s, 0, %s) ON CONFLICT DO NOTHING;

-- name: list_audiences
-- Every audience of a workspace.
SELECT audience, changes FROM duramen.audiences WHERE workspace = %s;

-- name: some_audiences
-- Some audiences of a workspace.
SELECT audience, changes FROM duramen.audiences WHERE workspace = %s AND audience = ANY(%s);

-- name: count_changes
-- Set the change count of a locked audience.
UPDATE duramen.audiences SET changes = %s, checksum = %s WHERE workspace = %s AND audience = %s;

-- name: audiences_of
-- The audiences of some memories. A memory never moves to another audience.
SELECT number, audience FROM duramen.memories WHERE workspace = %s AND number = ANY(%s);

-- name: audiences_of_owner
-- The audiences that contain memories of a subject.
SELECT DISTINCT audience FROM duramen.memories WHERE workspace = %s AND owner = %s;

-- name: find_current
-- The current memory with an id.
SELECT * FROM duramen.memories WHERE workspace = %s AND audience = %s AND id = %s AND closed IS NULL AND id <> '';

-- name: find_keyed
-- The current memories with a key.
SELECT * FROM duramen.memories WHERE workspace = %s AND audience = %s AND key = %s AND closed IS NULL;

-- name: find_numbers
-- Memories by number.
SELECT * FROM duramen.memories WHERE workspace = %s AND number = ANY(%s) ORDER BY audience, number;

-- name: memories_of_owner
-- The memories of a subject, for its erasure.
SELECT * FROM duramen.memories WHERE workspace = %s AND owner = %s ORDER BY audience, number;

-- name: next_numbers
-- Numbers for new memories. They are needed before the insert, because a checksum covers the number.
SELECT nextval('duramen.memories_number_seq') FROM generate_series(1, %s);

-- name: add_memory
-- Add a memory.
INSERT INTO duramen.memories
    (workspace, audience, number, id, session, position, kind, key, owner, recorded, begins, ends, expires, importance,
     confidence, confirmed, times, closed, successor, changed, indexed, checksum)
OVERRIDING SYSTEM VALUE
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s);

-- name: write_memory
-- Replace a memory.
UPDATE duramen.memories
SET id = %s, session = %s, position = %s, kind = %s, key = %s, owner = %s, recorded = %s, begins = %s, ends = %s,
    expires = %s, importance = %s, confidence = %s, confirmed = %s, times = %s, closed = %s, successor = %s,
    changed = %s, indexed = %s, checksum = %s
WHERE workspace = %s AND audience = %s AND number = %s;

-- name: read_memories
-- Memories by number. CONDITIONS are those below.
SELECT r.count, r.time, memories.* FROM duramen.memories
LEFT JOIN LATERAL (
    SELECT recalls.count, recalls.time FROM duramen.recalls
    WHERE recalls.workspace = %(workspace)s AND recalls.audience = memories.audience
      AND recalls.number = memories.number
) r ON true
WHERE workspace = %(workspace)s AND number > %(after)s AND id <> '' AND CONDITIONS ORDER BY number LIMIT %(limit)s;

-- name: by_audience
-- Condition: the memory is in one of these audiences.
audience = ANY(%(audiences)s);

-- name: by_id
-- Condition: the memory has an id.
id = %(id)s;

-- name: by_key
-- Condition: the memory has a key.
key = %(key)s;

-- name: by_kind
-- Condition: the memory is of one of these kinds.
kind = ANY(%(kinds)s);

-- name: by_number
-- Condition: the memory has one of these numbers.
number = ANY(%(numbers)s);

-- name: only_current
-- Condition: the memory is current.
closed IS NULL;

-- name: known_at
-- Condition: the memory was known at a time.
recorded <= %(at)s AND (closed IS NULL OR closed > %(at)s);

-- name: read_changes
-- Rows of an audience with a change count above a number, with their index entries and recall counts.
SELECT t.words, t.vector, t.checksum, coalesce(r.count, 0), coalesce(r.time, 0), m.*
FROM duramen.memories m
LEFT JOIN duramen.index_entries t
    ON t.workspace = m.workspace AND t.audience = m.audience AND t.number = m.number AND t.generation = %(generation)s
LEFT JOIN duramen.recalls r ON r.workspace = m.workspace AND r.audience = m.audience AND r.number = m.number
WHERE m.workspace = %(workspace)s AND m.audience = %(audience)s AND m.changed > %(after)s
ORDER BY m.changed LIMIT %(limit)s;

-- name: read_unindexed
-- Current memories without an index entry in a generation.
SELECT m.* FROM duramen.memories m
WHERE m.workspace = %(workspace)s AND m.indexed < %(generation)s AND m.closed IS NULL AND NOT EXISTS (
    SELECT 1 FROM duramen.index_entries t WHERE t.workspace = %(workspace)s AND t.audience = m.audience
      AND t.number = m.number
      AND t.generation = %(generation)s)
ORDER BY m.indexed, m.number LIMIT %(limit)s;

-- name: count_unindexed
-- The number of rows that `read_unindexed` returns without a limit.
SELECT count(*) FROM duramen.memories m
WHERE m.workspace = %(workspace)s AND m.indexed < %(generation)s AND m.closed IS NULL AND NOT EXISTS (
    SELECT 1 FROM duramen.index_entries t WHERE t.workspace = %(workspace)s AND t.audience = m.audience
      AND t.number = m.number
      AND t.generation = %(generation)s);

-- name: put_index_entry
-- Add or replace an index entry.
INSERT INTO duramen.index_entries (workspace, audience, number, generation, words, vector, checksum)
VALUES (%s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (workspace, audience, number, generation) DO UPDATE
SET words = excluded.words, vector = excluded.vector, checksum = excluded.checksum;

-- name: read_index_entries
-- The index entries of the current memories of an audience.
SELECT m.id, m.owner, t.checksum, t.workspace, t.audience, t.number, t.generation, t.words, t.vector
FROM duramen.index_entries t JOIN duramen.memories m ON m.workspace = t.workspace AND m.number = t.number
WHERE t.workspace = %(workspace)s AND t.audience = %(audience)s AND t.generation = %(generation)s AND m.closed IS NULL
ORDER BY t.number;

-- name: read_some_index_entries
-- The index entries of some current memories of an audience.
SELECT m.id, m.owner, t.checksum, t.workspace, t.audience, t.number, t.generation, t.words, t.vector
FROM duramen.index_entries t JOIN duramen.memories m ON m.workspace = t.workspace AND m.number = t.number
WHERE t.workspace = %(workspace)s AND t.audience = %(audience)s AND t.generation = %(generation)s AND m.closed IS NULL
  AND t.number = ANY(%(numbers)s)
ORDER BY t.number;

-- name: read_index_entries_anywhere
-- The index entries of some current memories, in any audience of the workspace.
SELECT m.id, m.owner, t.checksum, t.workspace, t.audience, t.number, t.generation, t.words, t.vector
FROM duramen.memories m
JOIN duramen.index_entries t ON t.workspace = m.workspace AND t.audience = m.audience AND t.number = m.number
WHERE m.workspace = %(workspace)s AND m.number = ANY(%(numbers)s) AND t.generation = %(generation)s AND m.closed IS NULL
ORDER BY t.number;

-- name: generations_indexed
-- The generations in which some memories of an audience have index entries.
SELECT number, generation FROM duramen.index_entries WHERE workspace = %s AND audience = %s AND number = ANY(%s);

-- name: drop_index_entries
-- Delete all index entries of some memories.
DELETE FROM duramen.index_entries WHERE workspace = %s AND audience = %s AND number = ANY(%s)
RETURNING length(words) + coalesce(length(vector), 0), (vector IS NOT NULL)::int;

-- name: read_segments
-- The segments of an audience.
SELECT workspace, audience, generation, after, upto, first, last, owner, body, checksum FROM duramen.segments
WHERE workspace = %s AND audience = %s AND generation = %s ORDER BY after;

-- name: segment_spans
-- The audience, start and end of every segment of a generation.
SELECT audience, after, upto FROM duramen.segments WHERE workspace = %s AND generation = %s ORDER BY audience, after;

-- name: forgotten_since
-- Whether a memory between two numbers was forgotten after a change count.
SELECT 1 FROM duramen.memories
WHERE workspace = %s AND audience = %s AND changed > %s AND id = '' AND number BETWEEN %s AND %s LIMIT 1;

-- name: drop_overlapping
-- Delete the segments that overlap a new one.
DELETE FROM duramen.segments WHERE workspace = %s AND audience = %s AND generation = %s AND after < %s AND upto > %s;

-- name: put_segment
-- Add or replace a segment.
INSERT INTO duramen.segments (workspace, audience, generation, after, upto, first, last, owner, body, checksum)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (workspace, audience, generation, after) DO UPDATE
SET upto = excluded.upto, first = excluded.first, last = excluded.last, owner = excluded.owner, body = excluded.body,
    checksum = excluded.checksum;

-- name: drop_segments
-- Delete the segments that may contain one of some memories.
DELETE FROM duramen.segments s WHERE s.workspace = %s AND s.audience = %s AND EXISTS (
    SELECT 1 FROM unnest(%s::bigint[]) gone (number) WHERE gone.number BETWEEN s.first AND s.last);

-- name: drop_generation_segments
-- Delete the segments of all generations except one.
DELETE FROM duramen.segments WHERE workspace = %s AND generation <> %s;

-- name: read_recalls
-- How often the memories of an audience were recalled.
SELECT number, count FROM duramen.recalls WHERE workspace = %s AND audience = %s;

-- name: find_recalls
-- How often some memories were recalled, and when last.
SELECT audience, number, count, time, checksum FROM duramen.recalls
WHERE workspace = %s AND audience = ANY(%s) AND number = ANY(%s);

-- name: write_recall
-- Set how often a memory was recalled, and when last.
INSERT INTO duramen.recalls (workspace, audience, number, count, time, checksum) VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (workspace, audience, number) DO UPDATE
SET count = excluded.count, time = excluded.time, checksum = excluded.checksum;

-- name: drop_recalls
-- Delete the recall counts of forgotten memories.
DELETE FROM duramen.recalls WHERE workspace = %s AND audience = %s AND number = ANY(%s);

-- name: lock_generations
-- Make changes of generations serial.
SELECT pg_advisory_xact_lock(hashtextextended(%s, 11));

-- name: list_generations
-- The generations of a workspace, including dropped ones.
SELECT generation, identity, active, checksum FROM duramen.generations WHERE workspace = %s ORDER BY generation;

-- name: keep_generations
-- The same, locked against being dropped until the transaction ends.
SELECT generation, identity, active, checksum FROM duramen.generations WHERE workspace = %s ORDER BY generation
FOR SHARE;

-- name: last_generation
-- The highest generation number that was ever used.
SELECT coalesce(max(generation), 0) FROM duramen.generations WHERE workspace = %s;

-- name: write_generation
-- Add or replace a generation. `active` is 1 for the generation that is searched, 0 for one that is being built, and -1
-- for one that was dropped. The row of a dropped generation stays, because its number must not be used again: a process
-- may still be building vectors for it.
INSERT INTO duramen.generations (workspace, generation, identity, active, checksum) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (workspace, generation) DO UPDATE
SET identity = excluded.identity, active = excluded.active, checksum = excluded.checksum;

-- name: drop_generation_index_entries
-- Delete the index entries of all generations except one.
DELETE FROM duramen.index_entries WHERE workspace = %s AND generation <> %s;

-- name: all_audiences
-- Every audience, for the integrity check.
SELECT encode(audience, 'hex'), checksum, workspace, audience, changes FROM duramen.audiences;

-- name: all_memories
-- Every memory, for the integrity check.
SELECT number, checksum, workspace, audience, number, id, session, position, kind, key, owner, recorded, begins, ends,
       expires, importance, confidence, confirmed, times, closed, successor, changed, indexed
FROM duramen.memories;

-- name: all_index_entries
-- Every index entry, for the integrity check.
SELECT number, checksum, workspace, audience, number, generation, words, vector FROM duramen.index_entries;

-- name: all_segments
-- Every segment, for the integrity check.
SELECT after, checksum, workspace, audience, generation, after, upto, first, last, owner, body FROM duramen.segments;

-- name: all_recalls
-- Every recall count, for the integrity check.
SELECT number, checksum, workspace, audience, number, count, time FROM duramen.recalls;

-- name: all_generations
-- Every generation, for the integrity check.
SELECT generation, checksum, workspace, generation, identity, active FROM duramen.generations;

-- name: orphan_memories
-- Memories without audience or event, index entries without memory or generation, segments without generation, and
-- recall counts without memory.
SELECT 1 FROM duramen.memories m WHERE (m.id <> '' AND NOT EXISTS (
    SELECT 1 FROM duramen.events e
    WHERE e.workspace = m.workspace AND e.session = m.session AND e.position = m.position)
) OR NOT EXISTS (SELECT 1 FROM duramen.audiences p WHERE p.workspace = m.workspace AND p.audience = m.audience)
UNION ALL SELECT 1 FROM duramen.index_entries t WHERE NOT EXISTS (
    SELECT 1 FROM duramen.memories m
    WHERE m.workspace = t.workspace AND m.audience = t.audience AND m.number = t.number AND m.id <> ''
) OR NOT EXISTS (
    SELECT 1 FROM duramen.generations g
    WHERE g.workspace = t.workspace AND g.generation = t.generation AND g.active >= 0)
UNION ALL SELECT 1 FROM duramen.segments s WHERE NOT EXISTS (
    SELECT 1 FROM duramen.generations g
    WHERE g.workspace = s.workspace AND g.generation = s.generation AND g.active >= 0)
UNION ALL SELECT 1 FROM duramen.recalls r WHERE NOT EXISTS (
    SELECT 1 FROM duramen.memories m
    WHERE m.workspace = r.workspace AND m.audience = r.audience AND m.number = r.number AND m.id <> '') LIMIT 1;

-- name: miscounted_audiences
-- Audiences with a wrong change count, and current memories of one audience that have the same id, or that hold at the
-- same time under one key.
(SELECT 1 FROM duramen.audiences p WHERE p.changes <> (
    SELECT coalesce(max(m.changed), 0) FROM duramen.memories m
    WHERE m.workspace = p.workspace AND m.audience = p.audience))
UNION ALL
(SELECT 1 FROM duramen.memories WHERE closed IS NULL GROUP BY workspace, audience, id HAVING count(*) > 1)
UNION ALL
(SELECT 1 FROM duramen.memories one JOIN duramen.memories other
    ON other.workspace = one.workspace AND other.audience = one.audience AND other.key = one.key
      AND other.number <> one.number
 WHERE one.key IS NOT NULL AND one.closed IS NULL AND other.closed IS NULL
   AND one.begins <= other.begins AND coalesce(one.ends, other.begins + 1) > other.begins)
LIMIT 1;
