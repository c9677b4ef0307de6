-- name: append
-- Insert the first event of a batch and move the session's row to the end of the batch. It does so only if the session
-- still has the given head, the key is not used, the lease is valid and the owner exists. The locks on lease and owner
-- make a takeover or an erasure happen before this append or wait for it. `relaxed`: the commit does not wait for the
-- disk.
WITH leased AS MATERIALIZED (
    SELECT 1 FROM duramen.leases l
    WHERE %(fence)s::bigint IS NOT NULL AND l.workspace = %(workspace)s AND l.session = %(session)s
      AND l.fence = %(fence)s AND l.expires > %(now)s FOR SHARE
), alive AS MATERIALIZED (
    SELECT 1 FROM duramen.subjects p
    WHERE %(owner)s::bytea IS NOT NULL AND p.workspace = %(workspace)s AND p.ref = %(owner)s FOR KEY SHARE
), moved AS (
    UPDATE duramen.sessions s
    SET head = %(to_position)s, hash = %(to_hash)s, tx = greatest(s.tx, pg_current_xact_id())
    WHERE (%(fence)s::bigint IS NULL OR EXISTS (SELECT 1 FROM leased))
      AND (%(owner)s::bytea IS NULL OR EXISTS (SELECT 1 FROM alive))
      AND s.workspace = %(workspace)s AND s.session = %(session)s
      AND s.head = %(from_position)s AND s.hash = %(from_hash)s
      AND (%(key)s::text IS NULL OR NOT EXISTS (
          SELECT 1 FROM duramen.events e
          WHERE e.workspace = %(workspace)s AND e.session = %(session)s AND e.key = %(key)s))
    RETURNING s.tx
), stored AS (
    INSERT INTO duramen.events
        (workspace, session, position, type, time, actor, cause, key, subject, payload, payload_hash, hash,
         tx, seq, feed_check)
    SELECT %(workspace)s, %(session)s, %(position)s, %(type)s, %(time)s, %(actor)s, %(cause)s, %(key)s, %(subject)s,
           %(payload)s, %(payload_hash)s, %(hash)s, r.tx, r.seq, duramen.feed_check(r.tx, r.seq, %(hash)s)
    FROM (SELECT tx, nextval('duramen.feed') AS seq FROM moved OFFSET 0) r
)
SELECT pg_notify('duramen', %(news)s),
       CASE WHEN %(relaxed)s THEN set_config('synchronous_commit', 'off', true) END FROM moved;

-- name: add_event
-- Insert a further event of a batch, if `append` moved the session to the end of that batch.
INSERT INTO duramen.events
    (workspace, session, position, type, time, actor, cause, key, subject, payload, payload_hash, hash,
     tx, seq, feed_check)
SELECT %(workspace)s, %(session)s, %(position)s, %(type)s, %(time)s, %(actor)s, %(cause)s, %(key)s, %(subject)s,
       %(payload)s, %(payload_hash)s, %(hash)s, r.tx, r.seq, duramen.feed_check(r.tx, r.seq, %(hash)s)
FROM (
    SELECT s.tx, nextval('duramen.feed') AS seq FROM duramen.sessions s
    WHERE s.workspace = %(workspace)s AND s.session = %(session)s
      AND s.head = %(to_position)s AND s.hash = %(to_hash)s OFFSET 0
) r;

-- name: share_leases
-- Lock the leases of some sessions against a takeover until the transaction ends.
SELECT 1 FROM duramen.leases WHERE workspace = %s AND session = ANY(%s) ORDER BY session FOR SHARE;

-- name: keep_subjects
-- Lock some subjects against erasure until the transaction ends.
SELECT 1 FROM duramen.subjects WHERE workspace = %s AND ref = ANY(%s) ORDER BY ref FOR KEY SHARE;

-- name: begin
-- Begin a transaction.
BEGIN;

-- name: commit
-- Commit a transaction.
COMMIT;

-- name: roll_back
-- Roll back a transaction.
ROLLBACK;

-- name: reset_role
-- Restore the role that the connection was opened with.
RESET ROLE;

-- name: reset_settings
-- Restore the settings that the connection was opened with.
RESET ALL;

-- name: is_flushed
-- Whether everything committed is on the disk. A standby only shows what is.
SELECT CASE WHEN pg_is_in_recovery() THEN true ELSE pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn() END;

-- name: flush
-- Write a record to the log, so that the commit of this transaction waits for the disk. Then everything committed
-- before is safe, too. (A transaction that has only an id and no record commits without waiting.)
SELECT pg_logical_emit_message(true, 'duramen', '');

-- name: present_hashes
-- The stored ones of some events.
SELECT e.session, e.position, e.hash FROM duramen.events e
WHERE e.workspace = %(workspace)s AND e.session = ANY(%(sessions)s) AND (e.session, e.position) IN (
    SELECT * FROM unnest(%(sessions)s::text[], %(positions)s::bigint[]));

-- name: lock_session
-- Lock the row of a session until the transaction ends.
SELECT created, parent, fork_at, fork_hash, head, hash, checksum
FROM duramen.sessions WHERE workspace = %s AND session = %s FOR UPDATE;

-- name: find_session
-- The row of a session and its newest event, in one snapshot.
SELECT s.created, s.parent, s.fork_at, s.fork_hash, s.head, s.hash, s.checksum, e.position, e.hash, e.time
FROM duramen.sessions s LEFT JOIN LATERAL (
    SELECT position, hash, time FROM duramen.events
    WHERE workspace = %(workspace)s AND session = s.session ORDER BY position DESC LIMIT 1
) e ON true
WHERE s.workspace = %(workspace)s AND s.session = %(session)s;

-- name: add_session
-- Add a session, unless it exists.
INSERT INTO duramen.sessions (workspace, session, created, parent, fork_at, fork_hash, head, hash, checksum)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING RETURNING session;

-- name: list_sessions
-- Sessions after an id, sorted by id, each with its last position and time.
SELECT s.session, s.created, s.parent, s.fork_at, s.fork_hash, s.checksum, e.position, e.time
FROM duramen.sessions s LEFT JOIN LATERAL (
    SELECT position, time FROM duramen.events
    WHERE workspace = %(workspace)s AND session = s.session ORDER BY position DESC LIMIT 1
) e ON true
WHERE s.workspace = %(workspace)s AND s.session > %(after)s ORDER BY s.session LIMIT %(limit)s;

-- name: list_session_names
-- Ids of sessions after an id, sorted.
SELECT session FROM duramen.sessions WHERE workspace = %s AND session > %s ORDER BY session LIMIT %s;

-- name: list_workspaces
-- Every workspace that has a session.
SELECT DISTINCT workspace FROM duramen.sessions ORDER BY workspace;

-- name: last_event
-- The newest event of a session.
SELECT position, hash FROM duramen.events WHERE workspace = %s AND session = %s ORDER BY position DESC LIMIT 1;

-- name: read_events
-- A range of a session, by position.
SELECT position, type, time, actor, cause, key, subject, payload, payload_hash, hash
FROM duramen.events WHERE workspace = %s AND session = %s AND position BETWEEN %s AND %s ORDER BY position;

-- name: find_key
-- The position of the event with an idempotency key.
SELECT position FROM duramen.events WHERE workspace = %s AND session = %s AND key = %s;

-- name: read_feed
-- Events of all sessions after a cursor, each with the hash before it, up to the oldest transaction that is still
-- running. The subquery computes `before`: with row level security, PostgreSQL does not use an index for a condition
-- that contains arithmetic on a row, because its errors could reveal hidden rows.
SELECT e.tx::text, e.seq, e.session, coalesce(p.hash, e.fork_hash),
       e.position, e.type, e.time, e.actor, e.cause, e.key, e.subject, e.payload, e.payload_hash, e.hash
FROM (
    SELECT e.*, e.position - 1 AS before, s.fork_hash
    FROM duramen.events e JOIN duramen.sessions s ON s.workspace = e.workspace AND s.session = e.session
    WHERE e.workspace = %(workspace)s AND (e.tx, e.seq) > (%(tx)s::xid8, %(seq)s)
      AND e.tx < pg_snapshot_xmin(pg_current_snapshot())
    ORDER BY e.tx, e.seq LIMIT %(limit)s
) e LEFT JOIN duramen.events p ON p.workspace = %(workspace)s AND p.session = e.session AND p.position = e.before
ORDER BY e.tx, e.seq;

-- name: add_blob
-- Add a blob, unless it exists.
INSERT INTO duramen.blobs (workspace, address, owner, body) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING;

-- name: read_blob
-- The body of a blob.
SELECT body FROM duramen.blobs WHERE workspace = %s AND address = %s;

-- name: present_blobs
-- The stored ones of some blobs.
SELECT address FROM duramen.blobs WHERE workspace = %s AND address = ANY(%s);

-- name: list_blobs
-- Blobs after an address, by address.
SELECT address, owner, body FROM duramen.blobs WHERE workspace = %s AND address > %s ORDER BY address LIMIT %s;

-- name: find_subject
-- A subject by name.
SELECT ref, name, salt, wrapped, master, checksum FROM duramen.subjects WHERE workspace = %s AND name = %s;

-- name: find_subject_by_ref
-- A subject by reference.
SELECT ref, name, salt, wrapped, master, checksum FROM duramen.subjects WHERE workspace = %s AND ref = %s;

-- name: keep_subject
-- Lock a subject against erasure until the transaction ends.
SELECT 1 FROM duramen.subjects WHERE workspace = %s AND ref = %s FOR KEY SHARE;

-- name: list_subjects
-- All subjects of a workspace.
SELECT ref, name, salt, wrapped, master, checksum FROM duramen.subjects WHERE workspace = %s ORDER BY ref;

-- name: add_subject
-- Add a subject, unless there is one with this name.
INSERT INTO duramen.subjects (workspace, ref, name, salt, wrapped, master, checksum)
VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING;

-- name: rewrap_subject
-- Replace the wrapped data key of a subject, if it has not changed.
UPDATE duramen.subjects SET wrapped = %s, master = %s, checksum = %s
WHERE workspace = %s AND ref = %s AND wrapped IS NOT DISTINCT FROM %s;

-- name: delete_subject
-- Delete the name, salt and key of a subject.
DELETE FROM duramen.subjects WHERE workspace = %s AND ref = %s;

-- name: sessions_of_subject
-- The sessions that contain payloads of a subject, locked in order.
SELECT s.session FROM duramen.sessions s WHERE s.workspace = %(workspace)s AND s.session IN (
    SELECT e.session FROM duramen.events e
    WHERE e.workspace = %(workspace)s AND e.subject = %(ref)s AND e.payload IS NOT NULL
) ORDER BY s.session FOR UPDATE;

-- name: payloads_of_subject
-- The payloads of a subject in a session.
SELECT position, payload FROM duramen.events
WHERE workspace = %s AND session = %s AND subject = %s AND payload IS NOT NULL ORDER BY position;

-- name: erase_payload
-- Replace a payload by its hash.
UPDATE duramen.events SET payload = NULL, payload_hash = %s
WHERE workspace = %s AND session = %s AND position = %s AND payload IS NOT NULL;

-- name: delete_blobs_of
-- Delete the blobs of a subject.
DELETE FROM duramen.blobs WHERE workspace = %s AND owner = %s RETURNING length(body);

-- name: read_lease
-- The lease on a session.
SELECT owner, fence, expires, checksum FROM duramen.leases WHERE workspace = %s AND session = %s;

-- name: share_lease
-- The lease on a session, locked against a takeover until the transaction ends.
SELECT owner, fence, expires, checksum FROM duramen.leases WHERE workspace = %s AND session = %s FOR SHARE;

-- name: lock_lease
-- The lease on a session, locked until the transaction ends.
SELECT owner, fence, expires, checksum FROM duramen.leases WHERE workspace = %s AND session = %s FOR UPDATE;

-- name: add_lease
-- Add the first lease on a session, unless there is one.
INSERT INTO duramen.leases (workspace, session, owner, fence, expires, checksum)
VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING;

-- name: write_lease
-- Replace the lease on a session.
UPDATE duramen.leases SET owner = %s, fence = %s, expires = %s, checksum = %s WHERE workspace = %s AND session = %s;

-- name: read_cursor
-- The cursor of an outlet.
SELECT cursor, checksum FROM duramen.cursors WHERE workspace = %s AND outlet = %s;

-- name: lock_cursor
-- The cursor of an outlet, locked until the transaction ends.
SELECT cursor, checksum FROM duramen.cursors WHERE workspace = %s AND outlet = %s FOR UPDATE;

-- name: write_cursor
-- Add or replace the cursor of an outlet.
INSERT INTO duramen.cursors (workspace, outlet, cursor, checksum) VALUES (%s, %s, %s, %s)
ON CONFLICT (workspace, outlet) DO UPDATE SET cursor = excluded.cursor, checksum = excluded.checksum;

-- name: all_sessions
-- Every session, for the integrity check: a name, the checksum, and the fields that it covers.
SELECT session, checksum, workspace, session, created, parent, fork_at, fork_hash FROM duramen.sessions;

-- name: all_subjects
-- Every subject, for the integrity check.
SELECT encode(ref, 'hex'), checksum, workspace, ref, name, salt, wrapped, master FROM duramen.subjects;

-- name: all_leases
-- Every lease, for the integrity check.
SELECT session, checksum, workspace, session, owner, fence, expires FROM duramen.leases;

-- name: all_cursors
-- Every cursor, for the integrity check.
SELECT outlet, checksum, workspace, outlet, cursor FROM duramen.cursors;

-- name: misplaced_heads
-- Sessions whose row does not match their last event.
SELECT 1 FROM duramen.sessions s LEFT JOIN LATERAL (
    SELECT position, hash, tx FROM duramen.events
    WHERE workspace = s.workspace AND session = s.session ORDER BY position DESC LIMIT 1
) e ON true
WHERE (s.head, s.hash, s.tx) <> (coalesce(e.position, s.fork_at), coalesce(e.hash, s.fork_hash), coalesce(e.tx, '0'))
LIMIT 1;

-- name: displaced
-- Events whose place in the feed was changed, or that no feed returns because their place is in the future.
SELECT 1 FROM duramen.events
WHERE feed_check <> duramen.feed_check(tx, seq, hash) OR tx >= pg_snapshot_xmax(pg_current_snapshot()) LIMIT 1;

-- name: orphan_events
-- Events without a session.
SELECT 1 FROM duramen.events e WHERE NOT EXISTS (
    SELECT 1 FROM duramen.sessions s WHERE s.workspace = e.workspace AND s.session = e.session
) LIMIT 1;

-- name: orphan_blobs
-- Blobs whose owner does not exist.
SELECT 1 FROM duramen.blobs b WHERE owner IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM duramen.subjects s WHERE s.workspace = b.workspace AND s.ref = b.owner
) LIMIT 1;

-- name: disorder
-- Events whose order in the feed contradicts the order in their session.
SELECT 1 FROM duramen.events a JOIN duramen.events b
    ON b.workspace = a.workspace AND b.session = a.session AND b.position = a.position + 1
WHERE (b.tx, b.seq) < (a.tx, a.seq) LIMIT 1;

-- name: read_run
-- The row of a run.
SELECT run, session, task, version, status, waiting, wake, created, started, updated, ended, parent, queue, queue_key,
    priority, nudges, origin, checksum FROM duramen.runs WHERE workspace = %s AND run = %s;

-- name: open_run_in
-- The open run of a session.
SELECT run FROM duramen.runs WHERE workspace = %s AND session = %s AND status = 'open' LIMIT 1;

-- name: write_run
-- Add or replace the row of a run.
INSERT INTO duramen.runs (workspace, run, session, task, version, status, waiting, wake, created, started, updated,
    ended, parent, queue, queue_key, priority, nudges, origin, checksum)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
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
FROM duramen.runs r LEFT JOIN duramen.leases l ON l.workspace = r.workspace AND l.session = r.session AND r.status =
    'open'
WHERE r.workspace = %(workspace)s AND (%(status)s::text[] IS NULL OR r.status = ANY(%(status)s))
  AND (%(task)s::text IS NULL OR r.task = %(task)s) AND (%(queue)s::text IS NULL OR r.queue = %(queue)s) AND
      (%(parent)s::text IS NULL OR r.parent = %(parent)s) AND (%(session)s::text IS NULL OR r.session = %(session)s)
  AND (%(created)s::bigint IS NULL OR (r.created, r.run) < (%(created)s, %(run)s))
ORDER BY r.created DESC, r.run DESC LIMIT %(limit)s OFFSET %(skip)s;

-- name: due_runs
-- Open runs that a worker may claim: `wake` has come, and no lease is valid.
SELECT r.run, r.session, r.task, r.version, r.status, r.waiting, r.wake, r.created, r.started, r.updated, r.ended,
    r.parent, r.queue, r.queue_key, r.priority, r.nudges, r.origin, r.checksum
FROM duramen.runs r LEFT JOIN duramen.leases l ON l.workspace = r.workspace AND l.session = r.session
WHERE r.workspace = %(workspace)s AND r.wake <= %(now)s AND (l.expires IS NULL OR l.expires <= %(now)s)
ORDER BY r.priority DESC, r.wake, r.run LIMIT %(limit)s OFFSET %(skip)s;

-- name: next_wake
-- The next time at which a run becomes due.
SELECT min(wake) FROM duramen.runs WHERE workspace = %s AND wake > %s;

-- name: queue_load
-- How many runs of a queue are executing: in total, and with one key.
SELECT count(*), count(*) FILTER (WHERE r.queue_key IS NOT DISTINCT FROM %(queue_key)s::text)
FROM duramen.runs r JOIN duramen.leases l ON l.workspace = r.workspace AND l.session = r.session
WHERE r.workspace = %(workspace)s AND r.queue = %(queue)s AND r.status = 'open' AND l.expires > %(now)s
  AND r.run <> %(run)s;

-- name: queue_starts
-- How many runs of a queue were started after a time: in total, and with one key.
SELECT count(*), count(*) FILTER (WHERE queue_key IS NOT DISTINCT FROM %(queue_key)s::text)
FROM duramen.runs WHERE workspace = %(workspace)s AND queue = %(queue)s AND started > %(since)s;

-- name: all_runs
-- Every run, for the integrity check.
SELECT run, checksum, workspace, run, session, task, version, status, waiting, wake, created, started, updated, ended,
    parent, queue, queue_key, priority, nudges, origin FROM duramen.runs;

-- name: lock_run
-- The row of a run, locked until the transaction ends.
SELECT run, session, task, version, status, waiting, wake, created, started, updated, ended, parent, queue, queue_key,
    priority, nudges, origin, checksum FROM duramen.runs WHERE workspace = %s AND run = %s FOR UPDATE;

-- name: lock_queue
-- Make claims in one queue serial, so that its limits hold.
SELECT pg_advisory_xact_lock(hashtextextended(%s, 7));

-- name: tell_runs
-- Wake workers and waiters when this transaction commits.
SELECT pg_notify('duramen', 'runs');

-- name: newest_bookmark
-- The newest bookmark with a name.
SELECT id FROM duramen.bookmarks WHERE workspace = %s AND session = %s AND name = %s AND NOT starts_with(name, '+')
ORDER BY position DESC LIMIT 1;

-- name: write_bookmark
-- Add or replace a bookmark.
INSERT INTO duramen.bookmarks
    (workspace, session, name, id, position, time, expires, pinned, owner, manifest, checksum)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (workspace, session, name, id) DO UPDATE
SET position = excluded.position, time = excluded.time, expires = excluded.expires, pinned = excluded.pinned,
    owner = excluded.owner, manifest = excluded.manifest, checksum = excluded.checksum;

-- name: rewrite_bookmark
-- Replace the state of a bookmark, if it is still at its position.
UPDATE duramen.bookmarks SET time = %s, expires = %s, pinned = %s, owner = %s, manifest = %s, checksum = %s
WHERE workspace = %s AND session = %s AND name = %s AND id = %s AND position = %s;

-- name: remove_bookmark
-- Remove a bookmark.
DELETE FROM duramen.bookmarks WHERE workspace = %s AND session = %s AND name = %s AND id = %s;

-- name: read_attached
-- Bookmarks that are attached to another one, newest first. They are few, so no index sorts them.
SELECT name, id, position, time, expires, pinned, owner, manifest, checksum FROM duramen.bookmarks
WHERE workspace = %(workspace)s AND session = %(session)s AND name = %(name)s
  AND (%(id)s::text IS NULL OR id = %(id)s) AND (%(upto)s::bigint IS NULL OR position <= %(upto)s)
  AND (%(until)s::bigint IS NULL OR time <= %(until)s)
ORDER BY position DESC LIMIT %(limit)s;

-- name: read_bookmarks
-- Bookmarks with a name, newest first, or the one with an id.
SELECT name, id, position, time, expires, pinned, owner, manifest, checksum FROM duramen.bookmarks
WHERE workspace = %(workspace)s AND session = %(session)s AND name = %(name)s AND NOT starts_with(name, '+')
  AND (%(id)s::text IS NULL OR id = %(id)s) AND (%(upto)s::bigint IS NULL OR position <= %(upto)s)
  AND (%(until)s::bigint IS NULL OR time <= %(until)s)
ORDER BY position DESC LIMIT %(limit)s;

-- name: bookmark_names
-- Names of bookmarks that begin with a prefix.
SELECT DISTINCT name FROM duramen.bookmarks WHERE workspace = %s AND session = %s AND starts_with(name, %s)
ORDER BY name;

-- name: expired_bookmarks
-- Bookmarks that have expired, in the order in which they expired.
SELECT session, name, id, position, time, expires, pinned, owner, manifest, checksum FROM duramen.bookmarks
WHERE workspace = %s AND starts_with(name, %s) AND expires <= %s ORDER BY expires LIMIT %s;

-- name: chunk_log_end
-- The end of a chunk log.
SELECT start + greatest(count, 1) FROM duramen.chunks WHERE workspace = %s AND session = %s AND chunk_log = %s
ORDER BY start DESC LIMIT 1;

-- name: add_chunk
-- Add a chunk to a chunk log.
INSERT INTO duramen.chunks (workspace, session, chunk_log, start, count, owner, body, checksum)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s);

-- name: read_chunks
-- The chunks that contain a range of a chunk log. The subquery finds where to start in the index. Its `coalesce` is
-- inside, because outside it would keep PostgreSQL from using the index (see read_feed).
SELECT chunk_log, start, count, owner, body, checksum FROM duramen.chunks
WHERE workspace = %(workspace)s AND session = %(session)s AND chunk_log = %(chunk_log)s AND start < %(last)s
  AND start + count > %(first)s AND start >= (
    SELECT coalesce(max(start), 0) FROM duramen.chunks
    WHERE workspace = %(workspace)s AND session = %(session)s AND chunk_log = %(chunk_log)s AND start <= %(first)s)
ORDER BY start;

-- name: cut_chunk_logs
-- Delete all chunk logs of a session except some.
DELETE FROM duramen.chunks WHERE workspace = %s AND session = %s AND chunk_log <> ALL(%s);

-- name: pick_events
-- Single events, each with the hash before it. See read_feed for the subquery.
SELECT coalesce(p.hash, e.fork_hash),
       e.position, e.type, e.time, e.actor, e.cause, e.key, e.subject, e.payload, e.payload_hash, e.hash
FROM (
    SELECT e.*, e.position - 1 AS before, s.fork_hash
    FROM duramen.events e JOIN duramen.sessions s ON s.workspace = e.workspace AND s.session = e.session
    WHERE e.workspace = %(workspace)s AND e.session = %(session)s AND e.position = ANY(%(positions)s) OFFSET 0
) e LEFT JOIN duramen.events p ON p.workspace = %(workspace)s AND p.session = e.session AND p.position = e.before
ORDER BY e.position;

-- name: read_talk
-- The positions of the events of a conversation, newest first.
SELECT position FROM duramen.events
WHERE workspace = %s AND session = %s AND position BETWEEN %s AND %s AND type >= 'talk.' AND type < 'talk/'
ORDER BY position DESC LIMIT %s;

-- name: delete_bookmarks_of
-- Delete the bookmarks of a subject.
DELETE FROM duramen.bookmarks WHERE workspace = %s AND owner = %s RETURNING coalesce(length(manifest), 0);

-- name: delete_chunks_of
-- Delete the chunks of a subject.
DELETE FROM duramen.chunks WHERE workspace = %s AND owner = %s RETURNING length(body);

-- name: all_bookmarks
-- Every bookmark, for the integrity check.
SELECT name || ' ' || id, checksum, workspace, session, name, id, position, time, expires, pinned::int, owner, manifest
FROM duramen.bookmarks;

-- name: all_chunks
-- Every chunk, for the integrity check.
SELECT chunk_log || '/' || start, checksum, workspace, session, chunk_log, start, count, owner, body
FROM duramen.chunks;

-- name: orphan_bookmarks
-- Bookmarks without an event, and chunks without a session.
SELECT 1 FROM duramen.bookmarks l WHERE NOT EXISTS (
    SELECT 1 FROM duramen.events e
    WHERE e.workspace = l.workspace AND e.session = l.session AND e.position = l.position)
UNION ALL SELECT 1 FROM duramen.chunks p WHERE NOT EXISTS (
    SELECT 1 FROM duramen.sessions s WHERE s.workspace = p.workspace AND s.session = p.session) LIMIT 1;

-- name: unbound
-- Tables for which row level security does not apply to this connection, and whether its role is the reason.
SELECT c.relname, current_user, r.rolsuper, r.rolbypassrls
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'workspace'
JOIN pg_roles r ON r.rolname = current_user
WHERE c.relnamespace = 'duramen'::regnamespace AND c.relkind IN ('r', 'p') AND NOT row_security_active(c.oid)
ORDER BY c.relname;
