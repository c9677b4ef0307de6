-- name: append
-- The first event of a batch, if the session still is where the writer last saw it, nobody used the key, and lease and owner
-- are there. The session moves to the end of the batch. The locks on lease and owner make a takeover or an erasure wait for
-- this append or precede it. `relaxed`: the commit does not wait for the disk.
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
-- The next event of a batch, if `append` moved the session to the end of that batch.
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
-- The leases of some sessions, kept from a takeover until the transaction ends.
SELECT 1 FROM duramen.leases WHERE workspace = %s AND session = ANY(%s) ORDER BY session FOR SHARE;

-- name: keep_subjects
-- Some subjects, kept from erasure until the transaction ends.
SELECT 1 FROM duramen.subjects WHERE workspace = %s AND ref = ANY(%s) ORDER BY ref FOR KEY SHARE;

-- name: begin
-- The start of a transaction.
BEGIN;

-- name: commit
-- Its end.
COMMIT;

-- name: roll_back
-- Its end, if nothing of it shall stay.
ROLLBACK;

-- name: reset_role
-- The role that the connection was opened with.
RESET ROLE;

-- name: reset_settings
-- The settings that the connection was opened with.
RESET ALL;

-- name: is_flushed
-- Whether all that is committed is on the disk. A standby shows only what is.
SELECT CASE WHEN pg_is_in_recovery() THEN true ELSE pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn() END;

-- name: flush
-- A record in the log, so that the commit of this transaction waits for the disk: everything before it is safe then, too. (A
-- commit that has only got a transaction id waits for nothing.)
SELECT pg_logical_emit_message(true, 'duramen', '');

-- name: present_hashes
-- Which of some events are stored.
SELECT e.session, e.position, e.hash FROM duramen.events e
WHERE e.workspace = %(workspace)s AND e.session = ANY(%(sessions)s) AND (e.session, e.position) IN (
    SELECT * FROM unnest(%(sessions)s::text[], %(positions)s::bigint[]));

-- name: lock_session
-- A session's row, kept from others until the transaction ends.
SELECT created, parent, fork_at, fork_hash, head, hash, checksum
FROM duramen.sessions WHERE workspace = %s AND session = %s FOR UPDATE;

-- name: find_session
-- A session's row and its newest event, in one snapshot.
SELECT s.created, s.parent, s.fork_at, s.fork_hash, s.head, s.hash, s.checksum, e.position, e.hash, e.time
FROM duramen.sessions s LEFT JOIN LATERAL (
    SELECT position, hash, time FROM duramen.events
    WHERE workspace = %(workspace)s AND session = s.session ORDER BY position DESC LIMIT 1
) e ON true
WHERE s.workspace = %(workspace)s AND s.session = %(session)s;

-- name: add_session
-- A session, unless it is there.
INSERT INTO duramen.sessions (workspace, session, created, parent, fork_at, fork_hash, head, hash, checksum)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING RETURNING session;

-- name: list_sessions
-- Sessions by id, after one, with where each stands.
SELECT s.session, s.created, s.parent, s.fork_at, s.fork_hash, s.checksum, e.position, e.time
FROM duramen.sessions s LEFT JOIN LATERAL (
    SELECT position, time FROM duramen.events
    WHERE workspace = %(workspace)s AND session = s.session ORDER BY position DESC LIMIT 1
) e ON true
WHERE s.workspace = %(workspace)s AND s.session > %(after)s ORDER BY s.session LIMIT %(limit)s;

-- name: list_session_names
-- Ids of sessions, after one.
SELECT session FROM duramen.sessions WHERE workspace = %s AND session > %s ORDER BY session LIMIT %s;

-- name: list_workspaces
-- Every workspace that has a session.
SELECT DISTINCT workspace FROM duramen.sessions ORDER BY workspace;

-- name: last_event
-- Where the events of a session end.
SELECT position, hash FROM duramen.events WHERE workspace = %s AND session = %s ORDER BY position DESC LIMIT 1;

-- name: read_events
-- A range of a session, in order.
SELECT position, type, time, actor, cause, key, subject, payload, payload_hash, hash
FROM duramen.events WHERE workspace = %s AND session = %s AND position BETWEEN %s AND %s ORDER BY position;

-- name: find_key
-- Where an idempotency key was used.
SELECT position FROM duramen.events WHERE workspace = %s AND session = %s AND key = %s;

-- name: read_feed
-- Events of all sessions after a cursor, each with the hash before it, as far as nothing can come in between. Arithmetic on
-- a row may fail and thereby tell of it: with row level security it keeps an index from being used, so it is done before.
SELECT e.tx::text, e.seq, e.session, coalesce(p.hash, e.fork_hash),
       e.position, e.type, e.time, e.actor, e.cause, e.key, e.subject, e.payload, e.payload_hash, e.hash
FROM (
    SELECT e.*, e.position - 1 AS before, s.fork_hash
    FROM duramen.events e JOIN duramen.sessions s ON s.workspace = e.workspace AND s.session = e.session
    WHERE e.workspace = %(workspace)s AND (e.tx, e.seq) > (%(tx)s::xid8, %(seq)s) AND e.tx < pg_snapshot_xmin(pg_current_snapshot())
    ORDER BY e.tx, e.seq LIMIT %(limit)s
) e LEFT JOIN duramen.events p ON p.workspace = %(workspace)s AND p.session = e.session AND p.position = e.before
ORDER BY e.tx, e.seq;

-- name: add_blob
-- A blob, unless it is there.
INSERT INTO duramen.blobs (workspace, address, owner, body) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING;

-- name: read_blob
-- The body of a blob.
SELECT body FROM duramen.blobs WHERE workspace = %s AND address = %s;

-- name: present_blobs
-- Which of these blobs are stored.
SELECT address FROM duramen.blobs WHERE workspace = %s AND address = ANY(%s);

-- name: list_blobs
-- Blobs by address, after one.
SELECT address, owner, body FROM duramen.blobs WHERE workspace = %s AND address > %s ORDER BY address LIMIT %s;

-- name: find_subject
-- A living subject by name.
SELECT ref, name, salt, wrapped, master, checksum FROM duramen.subjects WHERE workspace = %s AND name = %s;

-- name: find_subject_by_ref
-- A living subject by reference.
SELECT ref, name, salt, wrapped, master, checksum FROM duramen.subjects WHERE workspace = %s AND ref = %s;

-- name: keep_subject
-- A living subject, kept from erasure until the transaction ends.
SELECT 1 FROM duramen.subjects WHERE workspace = %s AND ref = %s FOR KEY SHARE;

-- name: list_subjects
-- All living subjects.
SELECT ref, name, salt, wrapped, master, checksum FROM duramen.subjects WHERE workspace = %s ORDER BY ref;

-- name: add_subject
-- A subject, unless one of that name lives.
INSERT INTO duramen.subjects (workspace, ref, name, salt, wrapped, master, checksum)
VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING;

-- name: rewrap_subject
-- A data key under another master key, if it is still wrapped as the caller saw it.
UPDATE duramen.subjects SET wrapped = %s, master = %s, checksum = %s
WHERE workspace = %s AND ref = %s AND wrapped IS NOT DISTINCT FROM %s;

-- name: delete_subject
-- The end of a subject: name, salt and key.
DELETE FROM duramen.subjects WHERE workspace = %s AND ref = %s;

-- name: sessions_of_subject
-- The sessions that hold payloads of a subject, locked in order.
SELECT s.session FROM duramen.sessions s WHERE s.workspace = %(workspace)s AND s.session IN (
    SELECT e.session FROM duramen.events e
    WHERE e.workspace = %(workspace)s AND e.subject = %(ref)s AND e.payload IS NOT NULL
) ORDER BY s.session FOR UPDATE;

-- name: payloads_of_subject
-- What is still stored about a subject in a session.
SELECT position, payload FROM duramen.events
WHERE workspace = %s AND session = %s AND subject = %s AND payload IS NOT NULL ORDER BY position;

-- name: erase_payload
-- A payload replaced by its hash.
UPDATE duramen.events SET payload = NULL, payload_hash = %s
WHERE workspace = %s AND session = %s AND position = %s AND payload IS NOT NULL;

-- name: delete_blobs_of
-- A subject's blobs.
DELETE FROM duramen.blobs WHERE workspace = %s AND owner = %s RETURNING length(body);

-- name: read_lease
-- Who owns a session.
SELECT owner, fence, expires, checksum FROM duramen.leases WHERE workspace = %s AND session = %s;

-- name: share_lease
-- Who owns a session, kept from a takeover until the transaction ends.
SELECT owner, fence, expires, checksum FROM duramen.leases WHERE workspace = %s AND session = %s FOR SHARE;

-- name: lock_lease
-- Who owns a session, kept from others until the transaction ends.
SELECT owner, fence, expires, checksum FROM duramen.leases WHERE workspace = %s AND session = %s FOR UPDATE;

-- name: add_lease
-- A first lease, unless there was one.
INSERT INTO duramen.leases (workspace, session, owner, fence, expires, checksum)
VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING;

-- name: write_lease
-- The owner of a session from now on.
UPDATE duramen.leases SET owner = %s, fence = %s, expires = %s, checksum = %s WHERE workspace = %s AND session = %s;

-- name: read_cursor
-- How far an outlet got.
SELECT cursor, checksum FROM duramen.cursors WHERE workspace = %s AND outlet = %s;

-- name: lock_cursor
-- How far an outlet got, kept from others until the transaction ends.
SELECT cursor, checksum FROM duramen.cursors WHERE workspace = %s AND outlet = %s FOR UPDATE;

-- name: write_cursor
-- How far an outlet is now.
INSERT INTO duramen.cursors (workspace, outlet, cursor, checksum) VALUES (%s, %s, %s, %s)
ON CONFLICT (workspace, outlet) DO UPDATE SET cursor = excluded.cursor, checksum = excluded.checksum;

-- name: all_sessions
-- Every session, for the integrity check: its name, its checksum, what it covers.
SELECT session, checksum, workspace, session, created, parent, fork_at, fork_hash FROM duramen.sessions;

-- name: all_subjects
-- Every subject, likewise.
SELECT encode(ref, 'hex'), checksum, workspace, ref, name, salt, wrapped, master FROM duramen.subjects;

-- name: all_leases
-- Every lease, likewise.
SELECT session, checksum, workspace, session, owner, fence, expires FROM duramen.leases;

-- name: all_cursors
-- Every cursor, likewise.
SELECT outlet, checksum, workspace, outlet, cursor FROM duramen.cursors;

-- name: misplaced_heads
-- Sessions whose row does not say where their events end.
SELECT 1 FROM duramen.sessions s LEFT JOIN LATERAL (
    SELECT position, hash, tx FROM duramen.events
    WHERE workspace = s.workspace AND session = s.session ORDER BY position DESC LIMIT 1
) e ON true
WHERE (s.head, s.hash, s.tx) <> (coalesce(e.position, s.fork_at), coalesce(e.hash, s.fork_hash), coalesce(e.tx, '0'))
LIMIT 1;

-- name: displaced
-- Events whose place in the feed was changed, or that no feed would give because it lies in the future.
SELECT 1 FROM duramen.events
WHERE feed_check <> duramen.feed_check(tx, seq, hash) OR tx >= pg_snapshot_xmax(pg_current_snapshot()) LIMIT 1;

-- name: orphan_events
-- Events that belong to no session.
SELECT 1 FROM duramen.events e WHERE NOT EXISTS (
    SELECT 1 FROM duramen.sessions s WHERE s.workspace = e.workspace AND s.session = e.session
) LIMIT 1;

-- name: orphan_blobs
-- Blobs whose owner is no living subject.
SELECT 1 FROM duramen.blobs b WHERE owner IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM duramen.subjects s WHERE s.workspace = b.workspace AND s.ref = b.owner
) LIMIT 1;

-- name: disorder
-- Events whose feed order contradicts their session's order.
SELECT 1 FROM duramen.events a JOIN duramen.events b
    ON b.workspace = a.workspace AND b.session = a.session AND b.position = a.position + 1
WHERE (b.tx, b.seq) < (a.tx, a.seq) LIMIT 1;

-- name: read_run
-- A run's row.
SELECT run, session, task, version, status, waiting, wake, created, started, updated, ended, parent, queue, queue_key,
    priority, nudges, origin, checksum FROM duramen.runs WHERE workspace = %s AND run = %s;

-- name: open_run_in
-- The open run of a session.
SELECT run FROM duramen.runs WHERE workspace = %s AND session = %s AND status = 'open' LIMIT 1;

-- name: write_run
-- A run's row from now on.
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
-- Runs, newest first, with the lease on the session of those that are open.
SELECT r.run, r.session, r.task, r.version, r.status, r.waiting, r.wake, r.created, r.started, r.updated, r.ended,
    r.parent, r.queue, r.queue_key, r.priority, r.nudges, r.origin, r.checksum, l.owner, l.fence, l.expires,
    l.checksum
FROM duramen.runs r LEFT JOIN duramen.leases l ON l.workspace = r.workspace AND l.session = r.session AND r.status =
    'open'
WHERE r.workspace = %(workspace)s AND (%(status)s::text[] IS NULL OR r.status = ANY(%(status)s))
  AND (%(task)s::text IS NULL OR r.task = %(task)s) AND (%(queue)s::text IS NULL OR r.queue = %(queue)s) AND
      (%(parent)s::text IS NULL OR r.parent = %(parent)s) AND (%(session)s::text IS NULL OR r.session = %(session)s)
  AND (%(created)s::bigint IS NULL OR (r.created, r.run) < (%(created)s, %(run)s))
ORDER BY r.created DESC, r.run DESC LIMIT %(limit)s;

-- name: due_runs
-- Open runs that may be taken up: their time has come and no lease holds.
SELECT r.run, r.session, r.task, r.version, r.status, r.waiting, r.wake, r.created, r.started, r.updated, r.ended,
    r.parent, r.queue, r.queue_key, r.priority, r.nudges, r.origin, r.checksum
FROM duramen.runs r LEFT JOIN duramen.leases l ON l.workspace = r.workspace AND l.session = r.session
WHERE r.workspace = %(workspace)s AND r.wake <= %(now)s AND (l.expires IS NULL OR l.expires <= %(now)s)
ORDER BY r.priority DESC, r.wake, r.run LIMIT %(limit)s OFFSET %(skip)s;

-- name: next_wake
-- When the next run wants to wake.
SELECT min(wake) FROM duramen.runs WHERE workspace = %s AND wake > %s;

-- name: queue_load
-- How many runs of a queue are being executed, all and of one key.
SELECT count(*), count(*) FILTER (WHERE r.queue_key IS NOT DISTINCT FROM %(queue_key)s::text)
FROM duramen.runs r JOIN duramen.leases l ON l.workspace = r.workspace AND l.session = r.session
WHERE r.workspace = %(workspace)s AND r.queue = %(queue)s AND r.status = 'open' AND l.expires > %(now)s
  AND r.run <> %(run)s;

-- name: queue_starts
-- How many runs of a queue were started since a time, all and of one key.
SELECT count(*), count(*) FILTER (WHERE queue_key IS NOT DISTINCT FROM %(queue_key)s::text)
FROM duramen.runs WHERE workspace = %(workspace)s AND queue = %(queue)s AND started > %(since)s;

-- name: all_runs
-- Every run, for the integrity check.
SELECT run, checksum, workspace, run, session, task, version, status, waiting, wake, created, started, updated, ended,
    parent, queue, queue_key, priority, nudges, origin FROM duramen.runs;

-- name: lock_run
-- A run's row, kept from others until the transaction ends.
SELECT run, session, task, version, status, waiting, wake, created, started, updated, ended, parent, queue, queue_key,
    priority, nudges, origin, checksum FROM duramen.runs WHERE workspace = %s AND run = %s FOR UPDATE;

-- name: lock_queue
-- Claims in one queue come one after the other, so that its limits hold.
SELECT pg_advisory_xact_lock(hashtextextended(%s, 7));

-- name: tell_runs
-- Wake the workers and waiters when this transaction commits.
SELECT pg_notify('duramen', 'runs');

-- name: newest_bookmark
-- The newest bookmark under a name.
SELECT id FROM duramen.bookmarks WHERE workspace = %s AND session = %s AND name = %s AND NOT starts_with(name, '+')
ORDER BY position DESC LIMIT 1;

-- name: write_bookmark
-- A bookmark from now on.
INSERT INTO duramen.bookmarks
    (workspace, session, name, id, position, time, expires, pinned, owner, manifest, checksum)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (workspace, session, name, id) DO UPDATE
SET position = excluded.position, time = excluded.time, expires = excluded.expires, pinned = excluded.pinned,
    owner = excluded.owner, manifest = excluded.manifest, checksum = excluded.checksum;

-- name: rewrite_bookmark
-- A bookmark that is there, with its state put together in another way.
UPDATE duramen.bookmarks SET time = %s, expires = %s, pinned = %s, owner = %s, manifest = %s, checksum = %s
WHERE workspace = %s AND session = %s AND name = %s AND id = %s AND position = %s;

-- name: remove_bookmark
-- A bookmark that is one no longer.
DELETE FROM duramen.bookmarks WHERE workspace = %s AND session = %s AND name = %s AND id = %s;

-- name: read_attached
-- What is attached to a bookmark, newest first: there are few, and no index has them in order.
SELECT name, id, position, time, expires, pinned, owner, manifest, checksum FROM duramen.bookmarks
WHERE workspace = %(workspace)s AND session = %(session)s AND name = %(name)s
  AND (%(id)s::text IS NULL OR id = %(id)s) AND (%(upto)s::bigint IS NULL OR position <= %(upto)s)
  AND (%(until)s::bigint IS NULL OR time <= %(until)s)
ORDER BY position DESC LIMIT %(limit)s;

-- name: read_bookmarks
-- Bookmarks under a name, newest first; or the one with an id.
SELECT name, id, position, time, expires, pinned, owner, manifest, checksum FROM duramen.bookmarks
WHERE workspace = %(workspace)s AND session = %(session)s AND name = %(name)s AND NOT starts_with(name, '+')
  AND (%(id)s::text IS NULL OR id = %(id)s) AND (%(upto)s::bigint IS NULL OR position <= %(upto)s)
  AND (%(until)s::bigint IS NULL OR time <= %(until)s)
ORDER BY position DESC LIMIT %(limit)s;

-- name: bookmark_names
-- The names that begin with a text.
SELECT DISTINCT name FROM duramen.bookmarks WHERE workspace = %s AND session = %s AND starts_with(name, %s)
ORDER BY name;

-- name: expired_bookmarks
-- Bookmarks whose time has come.
SELECT session, name, id, position, time, expires, pinned, owner, manifest, checksum FROM duramen.bookmarks
WHERE workspace = %s AND starts_with(name, %s) AND expires <= %s ORDER BY expires LIMIT %s;

-- name: chunk_log_end
-- Where a chunk_log ends.
SELECT start + greatest(count, 1) FROM duramen.chunks WHERE workspace = %s AND session = %s AND chunk_log = %s
ORDER BY start DESC LIMIT 1;

-- name: add_chunk
-- A stretch of a chunk_log.
INSERT INTO duramen.chunks (workspace, session, chunk_log, start, count, owner, body, checksum)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s);

-- name: read_chunks
-- The chunks that hold a stretch of a chunk_log: from the last one that begins at or before it. The 0 is given inside, where
-- it does not keep row level security from using the index (see read_feed).
SELECT chunk_log, start, count, owner, body, checksum FROM duramen.chunks
WHERE workspace = %(workspace)s AND session = %(session)s AND chunk_log = %(chunk_log)s AND start < %(last)s
  AND start + count > %(first)s AND start >= (
    SELECT coalesce(max(start), 0) FROM duramen.chunks
    WHERE workspace = %(workspace)s AND session = %(session)s AND chunk_log = %(chunk_log)s AND start <= %(first)s)
ORDER BY start;

-- name: cut_chunk_logs
-- The end of all chunk_logs but some.
DELETE FROM duramen.chunks WHERE workspace = %s AND session = %s AND chunk_log <> ALL(%s);

-- name: pick_events
-- Single events, each with the hash before it (see read_feed).
SELECT coalesce(p.hash, e.fork_hash),
       e.position, e.type, e.time, e.actor, e.cause, e.key, e.subject, e.payload, e.payload_hash, e.hash
FROM (
    SELECT e.*, e.position - 1 AS before, s.fork_hash
    FROM duramen.events e JOIN duramen.sessions s ON s.workspace = e.workspace AND s.session = e.session
    WHERE e.workspace = %(workspace)s AND e.session = %(session)s AND e.position = ANY(%(positions)s) OFFSET 0
) e LEFT JOIN duramen.events p ON p.workspace = %(workspace)s AND p.session = e.session AND p.position = e.before
ORDER BY e.position;

-- name: read_talk
-- Where the events of a conversation lie, newest first.
SELECT position FROM duramen.events
WHERE workspace = %s AND session = %s AND position BETWEEN %s AND %s AND type >= 'talk.' AND type < 'talk/'
ORDER BY position DESC LIMIT %s;

-- name: delete_bookmarks_of
-- A subject's bookmarks.
DELETE FROM duramen.bookmarks WHERE workspace = %s AND owner = %s RETURNING coalesce(length(manifest), 0);

-- name: delete_chunks_of
-- A subject's chunks.
DELETE FROM duramen.chunks WHERE workspace = %s AND owner = %s RETURNING length(body);

-- name: all_bookmarks
-- Every bookmark, for the integrity check.
SELECT name || ' ' || id, checksum, workspace, session, name, id, position, time, expires, pinned::int, owner, manifest
FROM duramen.bookmarks;

-- name: all_chunks
-- Every chunk, likewise.
SELECT chunk_log || '/' || start, checksum, workspace, session, chunk_log, start, count, owner, body FROM duramen.chunks;

-- name: orphan_bookmarks
-- Bookmarks that point to no event, and chunks that belong to no session.
SELECT 1 FROM duramen.bookmarks l WHERE NOT EXISTS (
    SELECT 1 FROM duramen.events e
    WHERE e.workspace = l.workspace AND e.session = l.session AND e.position = l.position)
UNION ALL SELECT 1 FROM duramen.chunks p WHERE NOT EXISTS (
    SELECT 1 FROM duramen.sessions s WHERE s.workspace = p.workspace AND s.session = p.session) LIMIT 1;

-- name: unbound
-- Tables whose rows this connection sees whatever its workspace is, and whether that is so because of its role.
SELECT c.relname, current_user, r.rolsuper, r.rolbypassrls
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'workspace'
JOIN pg_roles r ON r.rolname = current_user
WHERE c.relnamespace = 'duramen'::regnamespace AND c.relkind IN ('r', 'p') AND NOT row_security_active(c.oid)
ORDER BY c.relname;
