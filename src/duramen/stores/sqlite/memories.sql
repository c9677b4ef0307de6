-- name: find_audience
-- The number and the change count of an audience.
SELECT pid, coalesce((SELECT max(changed) FROM duramen_memories m WHERE m.pid = p.pid), 0), checksum
FROM duramen_audiences p WHERE workspace = ? AND audience = ?;

-- name: list_audiences
-- Every audience of a workspace.
SELECT pid, audience, coalesce((SELECT max(changed) FROM duramen_memories m WHERE m.pid = p.pid), 0), checksum
FROM duramen_audiences p WHERE workspace = ? ORDER BY audience;

-- name: add_audience
-- Add an audience. `check_audience` sets its checksum, which covers its number.
INSERT INTO duramen_audiences (workspace, audience, checksum) VALUES (?, ?, x'') RETURNING pid;

-- name: check_audience
-- Set the checksum of a new audience.
UPDATE duramen_audiences SET checksum = ? WHERE pid = ?;

-- name: find_current
-- The current memory with an id.
SELECT * FROM duramen_memories WHERE id = ? AND pid = ? AND closed IS NULL AND id <> '';

-- name: find_keyed
-- The current memories with a key.
SELECT * FROM duramen_memories WHERE pid = ? AND key = ? AND closed IS NULL AND key IS NOT NULL;

-- name: find_numbers
-- Memories of a workspace by number.
SELECT p.audience, m.* FROM json_each(:numbers) n
CROSS JOIN duramen_memories m ON m.number = n.value
CROSS JOIN duramen_audiences p ON p.pid = m.pid WHERE p.workspace = :workspace;

-- name: last_number
-- The number of the newest memory.
SELECT coalesce(max(number), 0) FROM duramen_memories;

-- name: write_memory
-- Add or replace a memory.
INSERT INTO duramen_memories
    (number, pid, id, sid, position, kind, key, owner, recorded, begins, ends, expires, importance, confidence,
     confirmed, times, closed, successor, changed, indexed, checksum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (number) DO UPDATE
SET id = excluded.id, sid = excluded.sid, position = excluded.position, kind = excluded.kind, key = excluded.key,
    owner = excluded.owner, recorded = excluded.recorded, begins = excluded.begins, ends = excluded.ends,
    expires = excluded.expires, importance = excluded.importance, confidence = excluded.confidence,
    confirmed = excluded.confirmed, times = excluded.times, closed = excluded.closed, successor = excluded.successor,
    changed = excluded.changed, indexed = excluded.indexed, checksum = excluded.checksum;

-- name: read_memories
-- Memories by number. CONDITIONS are those below.
SELECT p.audience, s.session, r.count, r.time, m.* FROM duramen_memories m
JOIN duramen_audiences p ON p.pid = m.pid
LEFT JOIN duramen_sessions s ON s.sid = m.sid
LEFT JOIN duramen_recalls r ON r.number = m.number
WHERE CONDITIONS AND p.workspace = :workspace AND m.number > :after AND m.id <> '' ORDER BY m.number LIMIT :limit;

-- name: by_id
-- Condition: the memory has an id.
m.id = :id;

-- name: by_key
-- Condition: the memory has a key. `by_audience` is always used with it, because the index begins with `pid`.
m.key = :key;

-- name: by_number
-- Condition: the memory has one of these numbers.
m.number IN (SELECT value FROM json_each(:numbers));

-- name: by_kind
-- Condition: the memory is of one of these kinds.
m.kind IN (SELECT value FROM json_each(:kinds));

-- name: by_audience
-- Condition: the memory is in one of these audiences.
m.pid IN (SELECT value FROM json_each(:pids));

-- name: only_current
-- Condition: the memory is current.
m.closed IS NULL;

-- name: known_at
-- Condition: the memory was known at a time.
m.recorded <= :at AND (m.closed IS NULL OR m.closed > :at);

-- name: read_changes
-- Rows of an audience with a change count above a number, with their index entries and recall counts.
SELECT m.*, s.session, t.words, t.vector, t.checksum, coalesce(r.count, 0), coalesce(r.time, 0)
FROM duramen_memories m
LEFT JOIN duramen_sessions s ON s.sid = m.sid
LEFT JOIN duramen_index_entries t ON t.generation = :generation AND t.pid = m.pid AND t.number = m.number
LEFT JOIN duramen_recalls r ON r.number = m.number
WHERE m.pid = :pid AND m.changed > :after ORDER BY m.changed LIMIT :limit;

-- name: read_unindexed
-- Current memories without an index entry in a generation.
SELECT p.audience, s.session, m.* FROM duramen_memories m INDEXED BY duramen_memories_indexed
CROSS JOIN duramen_audiences p ON p.pid = m.pid
LEFT JOIN duramen_sessions s ON s.sid = m.sid
WHERE m.indexed < :generation AND m.closed IS NULL AND m.id <> '' AND p.workspace = :workspace
  AND NOT EXISTS (
      SELECT 1 FROM duramen_index_entries t WHERE t.generation = :generation AND t.pid = m.pid AND t.number = m.number)
ORDER BY m.indexed, m.number LIMIT :limit;

-- name: count_unindexed
-- The number of rows that `read_unindexed` returns without a limit.
SELECT count(*) FROM duramen_memories m INDEXED BY duramen_memories_indexed
CROSS JOIN duramen_audiences p ON p.pid = m.pid
WHERE m.indexed < :generation AND m.closed IS NULL AND m.id <> '' AND p.workspace = :workspace
  AND NOT EXISTS (
      SELECT 1 FROM duramen_index_entries t WHERE t.generation = :generation AND t.pid = m.pid AND t.number = m.number);

-- name: put_index_entry
-- Add or replace an index entry.
INSERT INTO duramen_index_entries (generation, pid, number, words, vector, checksum) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (generation, pid, number) DO UPDATE
SET words = excluded.words, vector = excluded.vector, checksum = excluded.checksum;

-- name: mark_indexed
-- Record that a memory has an index entry. This changes no column by which a memory is found.
UPDATE duramen_memories SET changed = ?, indexed = ?, checksum = ? WHERE number = ?;

-- name: read_index_entries
-- The index entries of the current memories of an audience.
SELECT t.number, m.id, m.owner, t.words, t.vector, p.audience, t.pid, t.checksum
FROM duramen_audiences p
CROSS JOIN duramen_index_entries t ON t.generation = :generation AND t.pid = p.pid
CROSS JOIN duramen_memories m ON m.number = t.number
WHERE p.workspace = :workspace AND p.audience = :audience AND m.pid = p.pid AND m.closed IS NULL ORDER BY t.number;

-- name: read_some_index_entries
-- The index entries of some current memories of an audience.
SELECT t.number, m.id, m.owner, t.words, t.vector, p.audience, t.pid, t.checksum
FROM duramen_audiences p CROSS JOIN json_each(:numbers) n
CROSS JOIN duramen_index_entries t ON t.generation = :generation AND t.pid = p.pid AND t.number = n.value
CROSS JOIN duramen_memories m ON m.number = t.number
WHERE p.workspace = :workspace AND p.audience = :audience AND m.pid = p.pid AND m.closed IS NULL ORDER BY t.number;

-- name: read_index_entries_anywhere
-- The index entries of some current memories, in any audience of the workspace.
SELECT m.number, m.id, m.owner, t.words, t.vector, p.audience, t.pid, t.checksum
FROM json_each(:numbers) n
CROSS JOIN duramen_memories m ON m.number = n.value
CROSS JOIN duramen_audiences p ON p.pid = m.pid
CROSS JOIN duramen_index_entries t ON t.generation = :generation AND t.pid = m.pid AND t.number = m.number
WHERE p.workspace = :workspace AND m.closed IS NULL ORDER BY m.number;

-- name: generations_indexed
-- The generations in which a memory has an index entry.
SELECT g.generation FROM duramen_generations g
JOIN duramen_index_entries t ON t.generation = g.generation AND t.pid = ? AND t.number = ? WHERE g.workspace = ?;

-- name: drop_index_entries
-- Delete all index entries of a memory.
DELETE FROM duramen_index_entries
WHERE pid = ? AND number = ? AND generation IN (SELECT generation FROM duramen_generations)
RETURNING length(words) + coalesce(length(vector), 0), vector IS NOT NULL;

-- name: read_segments
-- The segments of an audience.
SELECT after, upto, first, last, owner, body, checksum FROM duramen_segments
WHERE generation = ? AND pid = ? ORDER BY after;

-- name: segment_spans
-- The audience, start and end of every segment of a generation.
SELECT p.audience, s.after, s.upto FROM duramen_audiences p CROSS JOIN duramen_segments s
    ON s.generation = :generation AND s.pid = p.pid
WHERE p.workspace = :workspace ORDER BY p.audience, s.after;

-- name: forgotten_since
-- Whether a memory between two numbers was forgotten after a change count.
SELECT 1 FROM duramen_memories
WHERE pid = :pid AND changed > :seen AND id = '' AND number BETWEEN :first AND :last LIMIT 1;

-- name: drop_overlapping
-- Delete the segments that overlap a new one.
DELETE FROM duramen_segments WHERE generation = ? AND pid = ? AND after < ? AND upto > ?;

-- name: put_segment
-- Add or replace a segment.
INSERT INTO duramen_segments (generation, pid, after, upto, first, last, owner, checksum, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (generation, pid, after) DO UPDATE
SET upto = excluded.upto, first = excluded.first, last = excluded.last, owner = excluded.owner,
    checksum = excluded.checksum, body = excluded.body;

-- name: drop_segments
-- Delete the segments that may contain a memory.
DELETE FROM duramen_segments WHERE pid = :pid AND first <= :number AND last >= :number;

-- name: drop_generation_segments
-- Delete the segments of a generation.
DELETE FROM duramen_segments
WHERE generation = ? AND pid IN (SELECT pid FROM duramen_audiences WHERE workspace = ?);

-- name: read_recalls
-- How often the memories of an audience were recalled.
SELECT r.number, r.count FROM duramen_memories m INDEXED BY duramen_memories_changed
CROSS JOIN duramen_recalls r ON r.number = m.number WHERE m.pid = ?;

-- name: find_recall
-- How often a memory was recalled, and when last.
SELECT count, time, checksum FROM duramen_recalls WHERE number = ?;

-- name: write_recall
-- Set how often a memory was recalled, and when last.
INSERT INTO duramen_recalls (number, count, time, checksum) VALUES (?, ?, ?, ?)
ON CONFLICT (number) DO UPDATE SET count = excluded.count, time = excluded.time, checksum = excluded.checksum;

-- name: drop_recall
-- Delete the recall count of a forgotten memory.
DELETE FROM duramen_recalls WHERE number = ?;

-- name: memories_of_owner
-- The memories of a subject, for its erasure.
SELECT p.audience, m.* FROM duramen_memories m JOIN duramen_audiences p ON p.pid = m.pid
WHERE m.owner = ? AND p.workspace = ?;

-- name: list_generations
-- The generations of a workspace, including dropped ones.
SELECT generation, identity, active, checksum FROM duramen_generations WHERE workspace = ? ORDER BY generation;

-- name: last_generation
-- The highest generation number that was ever used.
SELECT coalesce(max(generation), 0) FROM duramen_generations WHERE workspace = ?;

-- name: write_generation
-- Add or replace a generation. `active` is 1 for the generation that is searched, 0 for one that is being built, and -1
-- for one that was dropped. The row of a dropped generation stays, because its number must not be used again: a process
-- may still be building vectors for it.
INSERT INTO duramen_generations (workspace, generation, identity, active, checksum) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (workspace, generation) DO UPDATE
SET identity = excluded.identity, active = excluded.active, checksum = excluded.checksum;

-- name: drop_generation_index_entries
-- Delete the index entries of a generation.
DELETE FROM duramen_index_entries
WHERE generation = ? AND pid IN (SELECT pid FROM duramen_audiences WHERE workspace = ?);

-- name: all_audiences
-- Every audience, for the integrity check.
SELECT hex(audience), checksum, pid, workspace, audience FROM duramen_audiences;

-- name: all_memories
-- Every memory, for the integrity check.
SELECT number, checksum, number, pid, id, sid, position, kind, key, owner, recorded, begins, ends, expires, importance,
       confidence, confirmed, times, closed, successor, changed, indexed
FROM duramen_memories;

-- name: all_index_entries
-- Every index entry, for the integrity check.
SELECT number, checksum, generation, pid, number, words, vector FROM duramen_index_entries;

-- name: all_segments
-- Every segment, for the integrity check.
SELECT after, checksum, generation, pid, after, upto, first, last, owner, body FROM duramen_segments;

-- name: all_recalls
-- Every recall count, for the integrity check.
SELECT number, checksum, number, count, time FROM duramen_recalls;

-- name: all_generations
-- Every generation, for the integrity check.
SELECT generation, checksum, workspace, generation, identity, active FROM duramen_generations;

-- name: orphan_memories
-- Memories without audience or event, index entries without memory or generation, segments without generation, and
-- recall counts without memory.
SELECT 1 FROM duramen_memories m
WHERE m.id <> '' AND NOT EXISTS (SELECT 1 FROM duramen_events e WHERE e.sid = m.sid AND e.position = m.position)
UNION ALL SELECT 1 FROM duramen_memories WHERE pid NOT IN (SELECT pid FROM duramen_audiences)
UNION ALL SELECT 1 FROM duramen_index_entries t
WHERE NOT EXISTS (SELECT 1 FROM duramen_memories m WHERE m.number = t.number AND m.pid = t.pid AND m.id <> '')
   OR NOT EXISTS (
      SELECT 1 FROM duramen_generations g JOIN duramen_audiences p ON p.workspace = g.workspace
      WHERE g.generation = t.generation AND p.pid = t.pid AND g.active >= 0)
UNION ALL SELECT 1 FROM duramen_segments s
WHERE NOT EXISTS (
      SELECT 1 FROM duramen_generations g JOIN duramen_audiences p ON p.workspace = g.workspace
      WHERE g.generation = s.generation AND p.pid = s.pid AND g.active >= 0)
UNION ALL SELECT 1 FROM duramen_recalls r
WHERE NOT EXISTS (SELECT 1 FROM duramen_memories m WHERE m.number = r.number AND m.id <> '') LIMIT 1;

-- name: doubled_memories
-- Current memories of one audience that have the same id, or that hold at the same time under one key.
SELECT * FROM (
    SELECT 1 FROM duramen_memories WHERE closed IS NULL GROUP BY pid, id HAVING count(*) > 1)
UNION ALL SELECT * FROM (
    SELECT 1 FROM duramen_memories one JOIN duramen_memories other
        ON other.pid = one.pid AND other.key = one.key AND other.number <> one.number AND other.closed IS NULL
    WHERE one.key IS NOT NULL AND one.closed IS NULL AND other.key IS NOT NULL
      AND one.begins <= other.begins AND coalesce(one.ends, other.begins + 1) > other.begins)
LIMIT 1;
