-- name: find_session
-- The number and fork point of a session.
SELECT sid, created, parent, fork_at, fork_hash, checksum
FROM duramen_sessions WHERE workspace = ? AND session = ?;

-- name: add_session
-- Add a session. `check_session` sets its checksum, which covers its number.
INSERT INTO duramen_sessions (workspace, session, created, parent, fork_at, fork_hash, checksum)
VALUES (?, ?, ?, ?, ?, ?, x'') RETURNING sid;

-- name: check_session
-- Set the checksum of a new session.
UPDATE duramen_sessions SET checksum = ? WHERE sid = ?;

-- name: last_event
-- The newest event of a session.
SELECT position, hash, time FROM duramen_events WHERE sid = ? ORDER BY position DESC LIMIT 1;

-- name: list_sessions
-- Sessions after an id, sorted by id, each with its last position and time.
SELECT s.sid, s.session, s.created, s.parent, s.fork_at, s.fork_hash, s.checksum,
       (SELECT max(position) FROM duramen_events e WHERE e.sid = s.sid),
       (SELECT time FROM duramen_events e WHERE e.sid = s.sid ORDER BY position DESC LIMIT 1)
FROM duramen_sessions s WHERE s.workspace = ? AND s.session > ? ORDER BY s.session LIMIT ?;

-- name: list_session_names
-- Ids of sessions after an id, sorted.
SELECT session FROM duramen_sessions WHERE workspace = ? AND session > ? ORDER BY session LIMIT ?;

-- name: list_workspaces
-- Every workspace that has a session.
SELECT DISTINCT workspace FROM duramen_sessions ORDER BY workspace;

-- name: add_event
-- Insert one event, if the lease of the writer is valid (when a fence is given) and the owner was not erased.
-- `unsynced` marks an event that was committed without a sync.
INSERT INTO duramen_events
    (sid, position, type, time, actor, cause, key, subject, payload, payload_hash, hash, unsynced)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12
WHERE (?15 IS NULL OR EXISTS (
        SELECT 1 FROM duramen_leases WHERE workspace = ?13 AND session = ?14 AND fence = ?15 AND expires > ?16))
    AND (?17 IS NULL OR EXISTS (SELECT 1 FROM duramen_subjects WHERE workspace = ?13 AND ref = ?17));

-- name: newest_event
-- Whether the newest event of all sessions is unsynced.
SELECT unsynced FROM duramen_events ORDER BY seq DESC LIMIT 1;

-- name: mark_synced
-- Mark the newest event as synced. The commit of this update also syncs all events before it.
UPDATE duramen_events SET unsynced = NULL WHERE seq = (SELECT max(seq) FROM duramen_events);

-- name: read_events
-- A range of a session, by position.
SELECT position, type, time, actor, cause, key, subject, payload, payload_hash, hash
FROM duramen_events WHERE sid = ? AND position BETWEEN ? AND ? ORDER BY position;

-- name: find_key
-- The position of the event with an idempotency key.
SELECT position FROM duramen_events WHERE sid = ? AND key = ?;

-- name: read_feed
-- Events of all sessions after a cursor, in commit order, each with the hash before it.
SELECT e.seq, s.session, coalesce(p.hash, s.fork_hash),
       e.position, e.type, e.time, e.actor, e.cause, e.key, e.subject, e.payload, e.payload_hash, e.hash
FROM duramen_events e
JOIN duramen_sessions s ON s.sid = e.sid
LEFT JOIN duramen_events p ON p.sid = e.sid AND p.position = e.position - 1
WHERE e.seq > ? AND s.workspace = ? ORDER BY e.seq LIMIT ?;

-- name: add_blob
-- Add a blob, unless it exists.
INSERT INTO duramen_blobs (workspace, address, owner, body) VALUES (?, ?, ?, ?)
ON CONFLICT (workspace, address) DO NOTHING;

-- name: read_blob
-- The body of a blob.
SELECT body FROM duramen_blobs WHERE workspace = ? AND address = ?;

-- name: has_blob
-- Whether a blob exists.
SELECT 1 FROM duramen_blobs WHERE workspace = ? AND address = ?;

-- name: list_blobs
-- Blobs after an address, by address.
SELECT address, owner, body FROM duramen_blobs WHERE workspace = ? AND address > ? ORDER BY address LIMIT ?;

-- name: find_subject
-- A subject by name.
SELECT ref, name, salt, wrapped, master, checksum FROM duramen_subjects WHERE workspace = ? AND name = ?;

-- name: find_subject_by_ref
-- A subject by reference.
SELECT ref, name, salt, wrapped, master, checksum FROM duramen_subjects WHERE workspace = ? AND ref = ?;

-- name: list_subjects
-- All subjects of a workspace.
SELECT ref, name, salt, wrapped, master, checksum FROM duramen_subjects WHERE workspace = ? ORDER BY ref;

-- name: add_subject
-- Add a subject, unless there is one with this name.
INSERT INTO duramen_subjects (workspace, ref, name, salt, wrapped, master, checksum) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (workspace, name) DO NOTHING;

-- name: rewrap_subject
-- Replace the wrapped data key of a subject, if it has not changed.
UPDATE duramen_subjects SET wrapped = ?, master = ?, checksum = ? WHERE workspace = ? AND ref = ? AND wrapped IS ?;

-- name: delete_subject
-- Delete the name, salt and key of a subject.
DELETE FROM duramen_subjects WHERE workspace = ? AND ref = ?;

-- name: payloads_of_subject
-- The payloads of a subject.
SELECT e.seq, e.sid, s.session, e.payload FROM duramen_events e JOIN duramen_sessions s ON s.sid = e.sid
WHERE e.subject = ? AND s.workspace = ? AND e.payload IS NOT NULL ORDER BY e.seq;

-- name: erase_payload
-- Replace a payload by its hash.
UPDATE duramen_events SET payload = NULL, payload_hash = ? WHERE seq = ?;

-- name: delete_blobs_of
-- Delete the blobs of a subject.
DELETE FROM duramen_blobs WHERE owner = ? AND workspace = ? RETURNING length(body);

-- name: read_lease
-- The lease on a session.
SELECT owner, fence, expires, checksum FROM duramen_leases WHERE workspace = ? AND session = ?;

-- name: write_lease
-- Add or replace the lease on a session.
INSERT INTO duramen_leases (workspace, session, owner, fence, expires, checksum) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (workspace, session) DO UPDATE
SET owner = excluded.owner, fence = excluded.fence, expires = excluded.expires, checksum = excluded.checksum;

-- name: read_cursor
-- The cursor of an outlet.
SELECT cursor, checksum FROM duramen_cursors WHERE workspace = ? AND outlet = ?;

-- name: write_cursor
-- Add or replace the cursor of an outlet.
INSERT INTO duramen_cursors (workspace, outlet, cursor, checksum) VALUES (?, ?, ?, ?)
ON CONFLICT (workspace, outlet) DO UPDATE SET cursor = excluded.cursor, checksum = excluded.checksum;

-- name: all_sessions
-- Every session, for the integrity check: a name, the checksum, and the fields that it covers.
SELECT session, checksum, sid, workspace, session, created, parent, fork_at, fork_hash FROM duramen_sessions;

-- name: all_subjects
-- Every subject, for the integrity check.
SELECT hex(ref), checksum, workspace, ref, name, salt, wrapped, master FROM duramen_subjects;

-- name: all_leases
-- Every lease, for the integrity check.
SELECT session, checksum, workspace, session, owner, fence, expires FROM duramen_leases;

-- name: all_cursors
-- Every cursor, for the integrity check.
SELECT outlet, checksum, workspace, outlet, cursor FROM duramen_cursors;

-- name: orphan_events
-- Events without a session.
SELECT seq FROM duramen_events WHERE sid NOT IN (SELECT sid FROM duramen_sessions) LIMIT 1;

-- name: orphan_blobs
-- Blobs whose owner does not exist.
SELECT id FROM duramen_blobs b WHERE owner IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM duramen_subjects s WHERE s.workspace = b.workspace AND s.ref = b.owner) LIMIT 1;

-- name: disorder
-- Events whose order in the feed contradicts the order in their session.
SELECT a.seq FROM duramen_events a JOIN duramen_events b ON b.sid = a.sid AND b.position = a.position + 1
WHERE b.seq < a.seq LIMIT 1;

-- name: gap
-- Whether events are missing: `seq` starts at 1 and has no gaps.
SELECT 1 FROM (SELECT count(*) AS rows, min(seq) AS first, max(seq) AS last FROM duramen_events)
WHERE rows > 0 AND (first <> 1 OR last <> rows);

-- name: read_run
-- The row of a run.
SELECT run, session, task, version, status, waiting, wake, created, started, updated, ended, parent, queue, queue_key,
    priority, nudges, origin, checksum FROM duramen_runs WHERE workspace = ? AND run = ?;

-- name: open_run_in
-- The open run of a session.
SELECT run FROM duramen_runs WHERE workspace = ? AND session = ? AND status = 'open' LIMIT 1;

-- name: write_run
-- Add or replace the row of a run.
INSERT INTO duramen_runs (workspace, run, session, task, version, status, waiting, wake, created, started, updated,
    ended, parent, queue, queue_key, priority, nudges, origin, checksum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (workspace, run) DO UPDATE
SET session = excluded.session, task = excluded.task, version = excluded.version, status = excluded.status, waiting =
    excluded.waiting, wake = excluded.wake, created = excluded.created, started = excluded.started, updated =
    excluded.updated, ended = excluded.ended, parent = excluded.parent, queue = excluded.queue, queue_key =
    excluded.queue_key, priority = excluded.priority, nudges = excluded.nudges, origin = excluded.origin, checksum =
    excluded.checksum;

-- name: list_runs
-- Runs, newest first. An open run comes with the lease on its session.
SELECT r.run, r.session, r.task, r.version, r.status, r.waiting, r.wake, r.created, r.started, r.updated, r.ended,
    r.parent, r.queue, r.queue_key, r.priority, r.nudges, r.origin, r.checksum, l.owner, l.fence, l.expires,
    l.checksum
FROM duramen_runs r LEFT JOIN duramen_leases l ON l.workspace = r.workspace AND l.session = r.session AND r.status =
    'open'
WHERE r.workspace = :workspace AND (:status IS NULL OR instr(:status, ',' || r.status || ',') > 0)
  AND (:task IS NULL OR r.task = :task) AND (:queue IS NULL OR r.queue = :queue) AND (:parent IS NULL OR r.parent =
      :parent) AND (:session IS NULL OR r.session = :session)
  AND (:created IS NULL OR (r.created, r.run) < (:created, :run))
ORDER BY r.created DESC, r.run DESC LIMIT :limit OFFSET :skip;

-- name: due_runs
-- Open runs that a worker may claim: `wake` has come, and no lease is valid.
SELECT r.run, r.session, r.task, r.version, r.status, r.waiting, r.wake, r.created, r.started, r.updated, r.ended,
    r.parent, r.queue, r.queue_key, r.priority, r.nudges, r.origin, r.checksum
FROM duramen_runs r LEFT JOIN duramen_leases l ON l.workspace = r.workspace AND l.session = r.session
WHERE r.workspace = :workspace AND r.wake <= :now AND (l.expires IS NULL OR l.expires <= :now)
ORDER BY r.priority DESC, r.wake, r.run LIMIT :limit OFFSET :skip;

-- name: next_wake
-- The next time at which a run becomes due.
SELECT min(wake) FROM duramen_runs WHERE workspace = ? AND wake > ?;

-- name: queue_load
-- How many runs of a queue are executing: in total, and with one key.
SELECT count(*), count(*) FILTER (WHERE r.queue_key IS NOT DISTINCT FROM :queue_key)
FROM duramen_runs r JOIN duramen_leases l ON l.workspace = r.workspace AND l.session = r.session
WHERE r.workspace = :workspace AND r.queue = :queue AND r.status = 'open' AND l.expires > :now
  AND r.run <> :run;

-- name: queue_starts
-- How many runs of a queue were started after a time: in total, and with one key.
SELECT count(*), count(*) FILTER (WHERE queue_key IS NOT DISTINCT FROM :queue_key)
FROM duramen_runs WHERE workspace = :workspace AND queue = :queue AND started > :since;

-- name: all_runs
-- Every run, for the integrity check.
SELECT run, checksum, workspace, run, session, task, version, status, waiting, wake, created, started, updated, ended,
    parent, queue, queue_key, priority, nudges, origin FROM duramen_runs;

-- name: newest_bookmark
-- The newest bookmark with a name.
SELECT id FROM duramen_bookmarks WHERE sid = ? AND name = ? AND name NOT GLOB '+*' ORDER BY position DESC LIMIT 1;

-- name: write_bookmark
-- Add or replace a bookmark.
INSERT OR REPLACE INTO duramen_bookmarks (sid, name, id, position, time, expires, pinned, owner, manifest, checksum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: rewrite_bookmark
-- Replace the state of a bookmark, if it is still at its position.
UPDATE duramen_bookmarks SET time = ?, expires = ?, pinned = ?, owner = ?, manifest = ?, checksum = ?
WHERE sid = ? AND name = ? AND id = ? AND position = ?;

-- name: remove_bookmark
-- Remove a bookmark.
DELETE FROM duramen_bookmarks WHERE sid = ? AND name = ? AND id = ?;

-- name: read_attached
-- Bookmarks that are attached to another one, newest first. They are few, so no index sorts them.
SELECT name, id, position, time, expires, pinned, owner, manifest, checksum FROM duramen_bookmarks
WHERE sid = ?1 AND name = ?2 AND ?3 IS NULL AND position <= ifnull(?4, 9223372036854775807)
  AND (?5 IS NULL OR time <= ?5)
ORDER BY position DESC LIMIT ?6;

-- name: read_bookmarks
-- Bookmarks with a name, newest first.
SELECT name, id, position, time, expires, pinned, owner, manifest, checksum FROM duramen_bookmarks
WHERE sid = ?1 AND name = ?2 AND name NOT GLOB '+*' AND ?3 IS NULL AND position <= ifnull(?4, 9223372036854775807)
  AND (?5 IS NULL OR time <= ?5)
ORDER BY position DESC LIMIT ?6;

-- name: read_bookmark
-- The bookmark with a name and an id.
SELECT name, id, position, time, expires, pinned, owner, manifest, checksum FROM duramen_bookmarks
WHERE sid = ?1 AND name = ?2 AND id = ?3 AND position <= ifnull(?4, 9223372036854775807)
  AND (?5 IS NULL OR time <= ?5) LIMIT ?6;

-- name: bookmark_names
-- Names of bookmarks that begin with a prefix.
SELECT DISTINCT name FROM duramen_bookmarks WHERE sid = ?1 AND name >= ?2 AND substr(name, 1, length(?2)) = ?2
ORDER BY name;

-- name: expired_bookmarks
-- Bookmarks that have expired, in the order in which they expired.
SELECT l.sid, s.session, l.name, l.id, l.position, l.time, l.expires, l.pinned, l.owner, l.manifest, l.checksum
FROM duramen_bookmarks l JOIN duramen_sessions s ON s.sid = l.sid
WHERE l.expires <= ?1 AND l.expires IS NOT NULL AND s.workspace = ?2 AND substr(l.name, 1, length(?3)) = ?3
ORDER BY l.expires LIMIT ?4;

-- name: chunk_log_end
-- The end of a chunk log.
SELECT start + max(count, 1) FROM duramen_chunks WHERE sid = ? AND chunk_log = ? ORDER BY start DESC LIMIT 1;

-- name: add_chunk
-- Add a chunk to a chunk log.
INSERT INTO duramen_chunks (sid, chunk_log, start, count, owner, body, checksum) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: read_chunks
-- The chunks that contain a range of a chunk log. The subquery finds where to start in the index.
SELECT chunk_log, start, count, owner, body, checksum FROM duramen_chunks
WHERE sid = :sid AND chunk_log = :chunk_log AND start < :last AND start + count > :first AND start >= ifnull((
    SELECT max(start) FROM duramen_chunks WHERE sid = :sid AND chunk_log = :chunk_log AND start <= :first), 0)
ORDER BY start;

-- name: all_chunk_logs
-- The chunk logs of a session.
SELECT DISTINCT chunk_log FROM duramen_chunks WHERE sid = ?;

-- name: cut_chunk_log
-- Delete a chunk log.
DELETE FROM duramen_chunks WHERE sid = ? AND chunk_log = ?;

-- name: strip_payload
-- Replace a payload that is no longer needed by its digest.
UPDATE duramen_events SET payload = NULL, payload_hash = ? WHERE sid = ? AND position = ? AND payload IS NOT NULL;

-- name: pick_events
-- Single events, each with the hash before it.
SELECT coalesce(p.hash, s.fork_hash),
       e.position, e.type, e.time, e.actor, e.cause, e.key, e.subject, e.payload, e.payload_hash, e.hash
FROM duramen_events e JOIN duramen_sessions s ON s.sid = e.sid
LEFT JOIN duramen_events p ON p.sid = e.sid AND p.position = e.position - 1
WHERE e.sid = ? AND e.position IN (SELECT value FROM json_each(?)) ORDER BY e.position;

-- name: read_talk
-- The positions of the events of a conversation, newest first.
SELECT position FROM duramen_events
WHERE sid = ? AND position BETWEEN ? AND ? AND type >= 'talk.' AND type < 'talk/' ORDER BY position DESC LIMIT ?;

-- name: delete_bookmarks_of
-- Delete the bookmarks of a subject.
DELETE FROM duramen_bookmarks WHERE owner = ? AND sid IN (SELECT sid FROM duramen_sessions WHERE workspace = ?)
RETURNING ifnull(length(manifest), 0);

-- name: delete_chunks_of
-- Delete the chunks of a subject.
DELETE FROM duramen_chunks WHERE owner = ? AND sid IN (SELECT sid FROM duramen_sessions WHERE workspace = ?)
RETURNING length(body);

-- name: all_bookmarks
-- Every bookmark, for the integrity check.
SELECT name || ' ' || id, checksum, sid, name, id, position, time, expires, pinned, owner, manifest
FROM duramen_bookmarks;

-- name: all_chunks
-- Every chunk, for the integrity check.
SELECT chunk_log || '/' || start, checksum, sid, chunk_log, start, count, owner, body FROM duramen_chunks;

-- name: orphan_bookmarks
-- Bookmarks without an event, and chunks without a session.
SELECT 1 FROM duramen_bookmarks l
WHERE NOT EXISTS (SELECT 1 FROM duramen_events e WHERE e.sid = l.sid AND e.position = l.position)
UNION ALL SELECT 1 FROM duramen_chunks WHERE sid NOT IN (SELECT sid FROM duramen_sessions) LIMIT 1;
