-- The journal: sessions, events, blobs, subjects. Workspace and session lead every key, so that a large
-- installation can partition or distribute by workspace. Text sorts by code point, as in the other stores.

CREATE TABLE duramen.sessions (
    workspace text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    created bigint NOT NULL,
    parent text COLLATE "C",
    fork_at bigint NOT NULL,
    fork_hash bytea NOT NULL,
    head bigint NOT NULL,
    hash bytea NOT NULL,
    tx xid8 NOT NULL DEFAULT '0',
    checksum bytea NOT NULL,
    PRIMARY KEY (workspace, session)
) WITH (fillfactor = 70);

-- `tx` and `seq` order the feed over all sessions: what commits later never sorts before what a reader was
-- given, because readers stop at the oldest transaction that is still running. Transactions can get their numbers in
-- another order than the lock on a session: an event's `tx` is never below that of the event before it. The hash chain
-- cannot cover these two, as only the database knows them; `feed_check` does.
CREATE SEQUENCE duramen.feed;
CREATE FUNCTION duramen.feed_check(tx xid8, seq bigint, hash bytea) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN substr(sha256(convert_to(tx::text || ':' || seq::text, 'UTF8') || hash), 1, 8);
CREATE TABLE duramen.events (
    workspace text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    type text COLLATE "C" NOT NULL,
    time bigint NOT NULL,
    actor text COLLATE "C",
    cause text COLLATE "C",
    key text COLLATE "C",
    subject bytea,
    payload bytea,
    payload_hash bytea,
    hash bytea NOT NULL,
    tx xid8 NOT NULL,
    seq bigint NOT NULL,
    feed_check bytea NOT NULL,
    PRIMARY KEY (workspace, session, position)
);
CREATE UNIQUE INDEX events_key ON duramen.events (workspace, session, key) WHERE key IS NOT NULL;
CREATE INDEX events_subject ON duramen.events (workspace, subject) WHERE subject IS NOT NULL;
CREATE INDEX events_feed ON duramen.events (workspace, tx, seq);

CREATE TABLE duramen.blobs (
    workspace text COLLATE "C" NOT NULL,
    address bytea NOT NULL,
    owner bytea,
    body bytea NOT NULL,
    PRIMARY KEY (workspace, address)
);
ALTER TABLE duramen.blobs ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX blobs_owner ON duramen.blobs (workspace, owner) WHERE owner IS NOT NULL;

CREATE TABLE duramen.subjects (
    workspace text COLLATE "C" NOT NULL,
    ref bytea NOT NULL,
    name text COLLATE "C" NOT NULL,
    salt bytea NOT NULL,
    wrapped bytea,
    master bytea,
    checksum bytea NOT NULL,
    PRIMARY KEY (workspace, ref),
    UNIQUE (workspace, name)
);
