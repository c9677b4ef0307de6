-- name: find_session
-- The number and fork point of a session.
SELECT sid, created, parent, fork_at, fork_hash, checksum
FROM duramen_sessions WHERE workspace = ? AND session = ?;

-- name: add_session
-- A new session; its checksum follows once its number is known.
INSERT INTO duramen_sessions (workspace, session, created, parent, fork_at, fork_hash, checksum)
VALUES (?, ?, ?, ?, ?, ?, x'') RETURNING sid;

-- name: check_session
-- The checksum of a new session.
UPDATE duramen_sessions SET checksum = ? WHERE sid = ?;

-- name: last_event
-- The newest event of a session.
SELECT position, hash, time FROM duramen_events WHERE sid = ? ORDER BY position DESC LIMIT 1;

-- name: list_sessions
-- Sessions by id, after one, with where each stands.
SELECT s.sid, s.session, s.created, s.parent, s.fork_at, s.fork_hash, s.checksum,
       (SELECT max(position) FROM duramen_events e WHERE e.sid = s.sid),
       (SELECT time FROM duramen_events e WHERE e.sid = s.sid ORDER BY position DESC LIMIT 1)
FROM duramen_sessions s WHERE s.workspace = ? AND s.session > ? ORDER BY s.session LIMIT ?;

-- name: list_session_names
-- Ids of sessions, after one.
SELECT session FROM duramen_sessions WHERE workspace = ? AND session > ? ORDER BY session LIMIT ?;

-- name: list_workspaces
-- Every workspace that has a session.
SELECT DISTINCT workspace FROM duramen_sessions ORDER BY workspace;

-- name: add_event
-- One event at its place, if the lease of its writer holds (a fence is given) and its owner was not erased. `unsynced`
-- marks an event that was committed without a sync.
INSERT INTO duramen_events
    (sid, position, type, time, actor, cause, key, subject, payload, payload_hash, hash, unsynced)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12
WHERE (?15 IS NULL OR EXISTS (
        SELECT 1 FROM duramen_leases WHERE workspace = ?13 AND session = ?14 AND fence = ?15 AND expires > ?16))
    AND (?17 IS NULL OR EXISTS (SELECT 1 FROM duramen_subjects WHERE workspace = ?13 AND ref = ?17));

-- name: newest_event
-- Whether the event that was stored last, of all sessions, is unsynced.
SELECT unsynced FROM duramen_events ORDER BY seq DESC LIMIT 1;

-- name: mark_synced
-- The event that was stored last is synced by this very commit, and with it all before it.
UPDATE duramen_events SET unsynced = NULL WHERE seq = (SELECT max(seq) FROM duramen_events);

-- name: read_events
-- A range of a session, in order.
SELECT position, type, time, actor, cause, key, subject, payload, payload_hash, hash
FROM duramen_events WHERE sid = ? AND position BETWEEN ? AND ? ORDER BY position;

-- name: find_key
-- Where an idempotency key was used.
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
-- A blob, unless it is there.
INSERT INTO duramen_blobs (workspace, address, owner, body) VALUES (?, ?, ?, ?)
ON CONFLICT (workspace, address) DO NOTHING;

-- name: read_blob
-- The body of a blob.
SELECT body FROM duramen_blobs WHERE workspace = ? AND address = ?;

-- name: has_blob
-- Whether a blob is stored.
SELECT 1 FROM duramen_blobs WHERE workspace = ? AND address = ?;

-- name: list_blobs
-- Blobs by address, after one.
SELECT address, owner, body FROM duramen_blobs WHERE workspace = ? AND address > ? ORDER BY address LIMIT ?;

-- name: find_subject
-- A living subject by name.
SELECT ref, name, salt, wrapped, master, checksum FROM duramen_subjects WHERE workspace = ? AND name = ?;

-- name: find_subject_by_ref
-- A living subject by reference.
SELECT ref, name, salt, wrapped, master, checksum FROM duramen_subjects WHERE workspace = ? AND ref = ?;

-- name: list_subjects
-- All living subjects.
SELECT ref, name, salt, wrapped, master, checksum FROM duramen_subjects WHERE workspace = ? ORDER BY ref;

-- name: add_subject
-- A subject, unless one of that name lives.
INSERT INTO duramen_subjects (workspace, ref, name, salt, wrapped, master, checksum) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (workspace, name) DO NOTHING;

-- name: rewrap_subject
-- A data key under another master key, if it is still wrapped as the caller saw it.
UPDATE duramen_subjects SET wrapped = ?, master = ?, checksum = ? WHERE workspace = ? AND ref = ? AND wrapped IS ?;

-- name: delete_subject
-- The end of a subject: name, salt and key.
DELETE FROM duramen_subjects WHERE workspace = ? AND ref = ?;

-- name: payloads_of_subject
-- What is still stored about a subject.
SELECT e.seq, e.sid, s.session, e.payload FROM duramen_events e JOIN duramen_sessions s ON s.sid = e.sid
WHERE e.subject = ? AND s.workspace = ? AND e.payload IS NOT NULL ORDER BY e.seq;

-- name: erase_payload
-- A payload replaced by its hash.
UPDATE duramen_events SET payload = NULL, payload_hash = ? WHERE seq = ?;

-- name: delete_blobs_of
-- A subject's blobs.
DELETE FROM duramen_blobs WHERE owner = ? AND workspace = ? RETURNING length(body);

-- name: read_lease
-- Who owns a session.
SELECT owner, fence, expires, checksum FROM duramen_leases WHERE workspace = ? AND session = ?;

-- name: write_lease
-- The owner of a session from now on.
INSERT INTO duramen_leases (workspace, session, owner, fence, expires, checksum) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (workspace, session) DO UPDATE
SET owner = excluded.owner, fence = excluded.fence, expires = excluded.expires, checksum = excluded.checksum;

-- name: read_cursor
-- How far an outlet got.
SELECT cursor, checksum FROM duramen_cursors WHERE workspace = ? AND outlet = ?;

-- name: write_cursor
-- How far an outlet is now.
INSERT INTO duramen_cursors (workspace, outlet, cursor, checksum) VALUES (?, ?, ?, ?)
ON CONFLICT (workspace, outlet) DO UPDATE SET cursor = excluded.cursor, checksum = excluded.checksum;

-- name: all_sessions
-- Every session, for the integrity check: its name, its checksum, what it covers.
SELECT session, checksum, sid, workspace, session, created, parent, fork_at, fork_hash FROM duramen_sessions;

-- name: all_subjects
-- Every subject, likewise.
SELECT hex(ref), checksum, workspace, ref, name, salt, wrapped, master FROM duramen_subjects;

-- name: all_leases
-- Every lease, likewise.
SELECT session, checksum, workspace, session, owner, fence, expires FROM duramen_leases;

-- name: all_cursors
-- Every cursor, likewise.
SELECT outlet, checksum, workspace, outlet, cursor FROM duramen_cursors;

-- name: orphan_events
-- Events that belong to no session.
SELECT seq FROM duramen_events WHERE sid NOT IN (SELECT sid FROM duramen_sessions) LIMIT 1;

-- name: orphan_blobs
-- Blobs whose owner is no living subject.
SELECT id FROM duramen_blobs b WHERE owner IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM duramen_subjects s WHERE s.workspace = b.workspace AND s.ref = b.owner) LIMIT 1;

-- name: disorder
-- Events whose feed order contradicts their session's order.
SELECT a.seq FROM duramen_events a JOIN duramen_events b ON b.sid = a.sid AND b.position = a.position + 1
WHERE b.seq < a.seq LIMIT 1;

-- name: gap
-- Whether rows were taken out: events are numbered without gap from 1.
SELECT 1 FROM (SELECT count(*) AS rows, min(seq) AS first, max(seq) AS last FROM duramen_events)
WHERE rows > 0 AND (first <> 1 OR last <> rows);

-- name: read_run
-- A run's row.
SELECT run, session, task, version, status, waiting, wake, created, started, updated, ended, parent, queue, queue_key,
    priority, nudges, origin, checksum FROM duramen_runs WHERE workspace = ? AND run = ?;

-- name: open_run_in
-- The open run of a session.
SELECT run FROM duramen_runs WHERE workspace = ? AND session = ? AND status = 'open' LIMIT 1;

-- name: write_run
-- A run's row from now on.
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
-- Runs, newest first, with the lease on the session of those that are open.
SELECT r.run, r.session, r.task, r.version, r.status, r.waiting, r.wake, r.created, r.started, r.updated, r.ended,
    r.parent, r.queue, r.queue_key, r.priority, r.nudges, r.origin, r.checksum, l.owner, l.fence, l.expires,
    l.checksum
FROM duramen_runs r LEFT JOIN duramen_leases l ON l.workspace = r.workspace AND l.session = r.session AND r.status =
    'open'
WHERE r.workspace = :workspace AND (:status IS NULL OR instr(:status, ',' || r.status || ',') > 0)
  AND (:task IS NULL OR r.task = :task) AND (:queue IS NULL OR r.queue = :queue) AND (:parent IS NULL OR r.parent =
      :parent) AND (:session IS NULL OR r.session = :session)
  AND (:created IS NULL OR (r.created, r.run) < (:created, :run))
ORDER BY r.created DESC, r.run DESC LIMIT :limit;

-- name: due_runs
-- Open runs that may be taken up: their time has come and no lease holds.
SELECT r.run, r.session, r.task, r.version, r.status, r.waiting, r.wake, r.created, r.started, r.updated, r.ended,
    r.parent, r.queue, r.queue_key, r.priority, r.nudges, r.origin, r.checksum
FROM duramen_runs r LEFT JOIN duramen_leases l ON l.workspace = r.workspace AND l.session = r.session
WHERE r.workspace = :workspace AND r.wake <= :now AND (l.expires IS NULL OR l.expires <= :now)
ORDER BY r.priority DESC, r.wake, r.run LIMIT :limit OFFSET :skip;

-- name: next_wake
-- When the next run wants to wake.
SELECT min(wake) FROM duramen_runs WHERE workspace = ? AND wake > ?;

-- name: queue_load
-- How many runs of a queue are being executed, all and of one key.
SELECT count(*), count(*) FILTER (WHERE r.queue_key IS NOT DISTINCT FROM :queue_key)
FROM duramen_runs r JOIN duramen_leases l ON l.workspace = r.workspace AND l.session = r.session
WHERE r.workspace = :workspace AND r.queue = :queue AND r.status = 'open' AND l.expires > :now
  AND r.run <> :run;

-- name: queue_starts
-- How many runs of a queue were started since a time, all and of one key.
SELECT count(*), count(*) FILTER (WHERE queue_key IS NOT DISTINCT FROM :queue_key)
FROM duramen_runs WHERE workspace = :workspace AND queue = :queue AND started > :since;

-- name: all_runs
-- Every run, for the integrity check.
SELECT run, checksum, workspace, run, session, task, version, status, waiting, wake, created, started, updated, ended,
    parent, queue, queue_key, priority, nudges, origin FROM duramen_runs;

-- name: newest_bookmark
-- The newest bookmark under a name.
SELECT id FROM duramen_bookmarks WHERE sid = ? AND name = ? AND name NOT GLOB '+*' ORDER BY position DESC LIMIT 1;

-- name: write_bookmark
-- A bookmark from now on.
INSERT OR REPLACE INTO duramen_bookmarks (sid, name, id, position, time, expires, pinned, owner, manifest, checksum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: rewrite_bookmark
-- A bookmark that is there, with its state put together in another way.
UPDATE duramen_bookmarks SET time = ?, expires = ?, pinned = ?, owner = ?, manifest = ?, checksum = ?
WHERE sid = ? AND name = ? AND id = ? AND position = ?;

-- name: remove_bookmark
-- A bookmark that is one no longer.
DELETE FROM duramen_bookmarks WHERE sid = ? AND name = ? AND id = ?;

-- name: read_attached
-- What is attached to a bookmark, newest first: there are few, and no index has them in order.
SELECT name, id, position, time, expires, pinned, owner, manifest, checksum FROM duramen_bookmarks
WHERE sid = ?1 AND name = ?2 AND ?3 IS NULL AND position <= ifnull(?4, 9223372036854775807)
  AND (?5 IS NULL OR time <= ?5)
ORDER BY position DESC LIMIT ?6;

-- name: read_bookmarks
-- Bookmarks under a name, newest first.
SELECT name, id, position, time, expires, pinned, owner, manifest, checksum FROM duramen_bookmarks
WHERE sid = ?1 AND name = ?2 AND name NOT GLOB '+*' AND ?3 IS NULL AND position <= ifnull(?4, 9223372036854775807)
  AND (?5 IS NULL OR time <= ?5)
ORDER BY position DESC LIMIT ?6;

-- name: read_bookmark
-- The bookmark of an id under a name.
SELECT name, id, position, time, expires, pinned, owner, manifest, checksum FROM duramen_bookmarks
WHERE sid = ?1 AND name = ?2 AND id = ?3 AND position <= ifnull(?4, 9223372036854775807)
  AND (?5 IS NULL OR time <= ?5) LIMIT ?6;

-- name: bookmark_names
-- The names that begin with a text.
SELECT DISTINCT name FROM duramen_bookmarks WHERE sid = ?1 AND name >= ?2 AND substr(name, 1, length(?2)) = ?2
ORDER BY name;

-- name: expired_bookmarks
-- Bookmarks whose time has come.
SELECT l.sid, s.session, l.name, l.id, l.position, l.time, l.expires, l.pinned, l.owner, l.manifest, l.checksum
FROM duramen_bookmarks l JOIN duramen_sessions s ON s.sid = l.sid
WHERE l.expires <= ?1 AND l.expires IS NOT NULL AND s.workspace = ?2 AND substr(l.name, 1, length(?3)) = ?3
ORDER BY l.expires LIMIT ?4;

-- name: chunk_log_end
-- Where a chunk_log ends.
SELECT start + max(count, 1) FROM duramen_chunks WHERE sid = ? AND chunk_log = ? ORDER BY start DESC LIMIT 1;

-- name: add_chunk
-- A stretch of a chunk_log.
INSERT INTO duramen_chunks (sid, chunk_log, start, count, owner, body, checksum) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: read_chunks
-- The chunks that hold a stretch of a chunk_log: from the last one that begins at or before it.
SELECT chunk_log, start, count, owner, body, checksum FROM duramen_chunks
WHERE sid = :sid AND chunk_log = :chunk_log AND start < :last AND start + count > :first AND start >= ifnull((
    SELECT max(start) FROM duramen_chunks WHERE sid = :sid AND chunk_log = :chunk_log AND start <= :first), 0)
ORDER BY start;

-- name: all_chunk_logs
-- The chunk_logs of a session.
SELECT DISTINCT chunk_log FROM duramen_chunks WHERE sid = ?;

-- name: cut_chunk_log
-- The end of a chunk_log.
DELETE FROM duramen_chunks WHERE sid = ? AND chunk_log = ?;

-- name: strip_payload
-- A payload that is needed no longer, replaced by its digest.
UPDATE duramen_events SET payload = NULL, payload_hash = ? WHERE sid = ? AND position = ? AND payload IS NOT NULL;

-- name: pick_events
-- Single events, each with the hash before it.
SELECT coalesce(p.hash, s.fork_hash),
       e.position, e.type, e.time, e.actor, e.cause, e.key, e.subject, e.payload, e.payload_hash, e.hash
FROM duramen_events e JOIN duramen_sessions s ON s.sid = e.sid
LEFT JOIN duramen_events p ON p.sid = e.sid AND p.position = e.position - 1
WHERE e.sid = ? AND e.position IN (SELECT value FROM json_each(?)) ORDER BY e.position;

-- name: read_talk
-- Where the events of a conversation lie, newest first.
SELECT position FROM duramen_events
WHERE sid = ? AND position BETWEEN ? AND ? AND type >= 'talk.' AND type < 'talk/' ORDER BY position DESC LIMIT ?;

-- name: delete_bookmarks_of
-- A subject's bookmarks.
DELETE FROM duramen_bookmarks WHERE owner = ? AND sid IN (SELECT sid FROM duramen_sessions WHERE workspace = ?)
RETURNING ifnull(length(manifest), 0);

-- name: delete_chunks_of
-- A subject's chunks.
DELETE FROM duramen_chunks WHERE owner = ? AND sid IN (SELECT sid FROM duramen_sessions WHERE workspace = ?)
RETURNING length(body);

-- name: all_bookmarks
-- Every bookmark, for the integrity check.
SELECT name || ' ' || id, checksum, sid, name, id, position, time, expires, pinned, owner, manifest FROM duramen_bookmarks;

-- name: all_chunks
-- Every chunk, likewise.
SELECT chunk_log || '/' || start, checksum, sid, chunk_log, start, count, owner, body FROM duramen_chunks;

-- name: orphan_bookmarks
-- Bookmarks and chunks that belong to no session, or bookmarks that point to no event.
SELECT 1 FROM duramen_bookmarks l
WHERE NOT EXISTS (SELECT 1 FROM duramen_events e WHERE e.sid = l.sid AND e.position = l.position)
UNION ALL SELECT 1 FROM duramen_chunks WHERE sid NOT IN (SELECT sid FROM duramen_sessions) LIMIT 1;
