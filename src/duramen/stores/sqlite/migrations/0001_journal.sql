-- The journal: sessions, events, blobs, subjects.
-- Events have a rowid of their own (seq): pages fill up in commit order, and the same number is the cursor
-- of the feed over all sessions. `sid` stands for workspace and session.

CREATE TABLE duramen_sessions (
    sid INTEGER PRIMARY KEY,
    workspace TEXT NOT NULL,
    session TEXT NOT NULL,
    created INTEGER NOT NULL,
    parent TEXT,
    fork_at INTEGER NOT NULL,
    fork_hash BLOB NOT NULL,
    checksum BLOB NOT NULL,
    UNIQUE (workspace, session)
) STRICT;

CREATE TABLE duramen_events (
    seq INTEGER PRIMARY KEY,
    sid INTEGER NOT NULL,
    position INTEGER NOT NULL,
    type TEXT NOT NULL,
    time INTEGER NOT NULL,
    actor TEXT,
    cause ANY,
    key TEXT,
    subject BLOB,
    payload BLOB,
    payload_hash BLOB,
    hash BLOB NOT NULL,
    unsynced INTEGER
) STRICT;
CREATE UNIQUE INDEX duramen_events_place ON duramen_events (sid, position);
CREATE UNIQUE INDEX duramen_events_key ON duramen_events (sid, key) WHERE key IS NOT NULL;
CREATE INDEX duramen_events_subject ON duramen_events (subject) WHERE subject IS NOT NULL;

CREATE TABLE duramen_blobs (
    id INTEGER PRIMARY KEY,
    workspace TEXT NOT NULL,
    address BLOB NOT NULL,
    owner BLOB,
    body BLOB NOT NULL,
    UNIQUE (workspace, address)
) STRICT;
CREATE INDEX duramen_blobs_owner ON duramen_blobs (owner) WHERE owner IS NOT NULL;

CREATE TABLE duramen_subjects (
    workspace TEXT NOT NULL,
    ref BLOB NOT NULL,
    name TEXT NOT NULL,
    salt BLOB NOT NULL,
    wrapped BLOB,
    master BLOB,
    checksum BLOB NOT NULL,
    PRIMARY KEY (workspace, ref),
    UNIQUE (workspace, name)
) STRICT, WITHOUT ROWID;
