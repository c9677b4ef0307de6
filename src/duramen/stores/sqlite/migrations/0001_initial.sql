-- Schema version 1. The hash chain covers events, the address covers a blob, and all other rows have a checksum.
-- `sid` is the number of a workspace and session, `pid` the number of a workspace and audience.

-- Sessions, events, blobs, subjects. `seq` ascends in commit order and is the cursor of the feed.
-- `unsynced` is 1 for an event that was committed without a sync. A later commit may reset it: see `mark_synced`.

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

-- Leases on sessions, and the cursors of outlets.

CREATE TABLE duramen_leases (
    workspace TEXT NOT NULL,
    session TEXT NOT NULL,
    owner TEXT NOT NULL,
    fence INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    checksum BLOB NOT NULL,
    PRIMARY KEY (workspace, session)
) STRICT, WITHOUT ROWID;

CREATE TABLE duramen_cursors (
    workspace TEXT NOT NULL,
    outlet TEXT NOT NULL,
    cursor INTEGER NOT NULL,
    checksum BLOB NOT NULL,
    PRIMARY KEY (workspace, outlet)
) STRICT, WITHOUT ROWID;

-- Runs: a projection of the run events. `wake` is the time from which an open run may be executed.

CREATE TABLE duramen_runs (
    workspace TEXT NOT NULL,
    run TEXT NOT NULL,
    session TEXT NOT NULL,
    task TEXT NOT NULL,
    version TEXT,
    status TEXT NOT NULL,
    waiting TEXT,
    wake INTEGER,
    created INTEGER NOT NULL,
    started INTEGER,
    updated INTEGER NOT NULL,
    ended INTEGER,
    parent TEXT,
    queue TEXT,
    queue_key TEXT,
    priority INTEGER NOT NULL,
    nudges INTEGER NOT NULL,
    origin INTEGER NOT NULL,
    checksum BLOB NOT NULL,
    PRIMARY KEY (workspace, run)
) STRICT, WITHOUT ROWID;
CREATE INDEX duramen_runs_wake ON duramen_runs (workspace, wake) WHERE wake IS NOT NULL;
CREATE INDEX duramen_runs_created ON duramen_runs (workspace, created, run);
CREATE INDEX duramen_runs_session ON duramen_runs (workspace, session, created);
CREATE INDEX duramen_runs_queue ON duramen_runs (workspace, queue, queue_key, started) WHERE queue IS NOT NULL;
CREATE INDEX duramen_runs_parent ON duramen_runs (workspace, parent) WHERE parent IS NOT NULL;

-- Bookmarks: named positions in a session (checkpoints, summaries, key-value items). Chunks: parts that states share.

CREATE TABLE duramen_bookmarks (
    sid INTEGER NOT NULL,
    name TEXT NOT NULL,
    id TEXT NOT NULL,
    position INTEGER NOT NULL,
    time INTEGER NOT NULL,
    expires INTEGER,
    pinned INTEGER NOT NULL,
    owner BLOB,
    manifest BLOB,
    checksum BLOB NOT NULL,
    PRIMARY KEY (sid, name, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX duramen_bookmarks_place ON duramen_bookmarks (sid, name, position) WHERE name NOT GLOB '+*';
CREATE INDEX duramen_bookmarks_expires ON duramen_bookmarks (expires) WHERE expires IS NOT NULL;
CREATE INDEX duramen_bookmarks_owner ON duramen_bookmarks (owner) WHERE owner IS NOT NULL;

CREATE TABLE duramen_chunks (
    number INTEGER PRIMARY KEY,
    sid INTEGER NOT NULL,
    chunk_log INTEGER NOT NULL,
    start INTEGER NOT NULL,
    count INTEGER NOT NULL,
    owner BLOB,
    body BLOB NOT NULL,
    checksum BLOB NOT NULL,
    UNIQUE (sid, chunk_log, start)
) STRICT;
CREATE INDEX duramen_chunks_owner ON duramen_chunks (owner) WHERE owner IS NOT NULL;

-- The events of a conversation.
CREATE INDEX duramen_events_talk ON duramen_events (sid, position) WHERE type >= 'talk.' AND type < 'talk/';

-- Memories: their rows, index entries and recall counts. The text of a memory is in its event. The change count of an
-- audience is the highest `changed` of its memories.

CREATE TABLE duramen_audiences (
    pid INTEGER PRIMARY KEY,
    workspace TEXT NOT NULL,
    audience BLOB NOT NULL,
    checksum BLOB NOT NULL,
    UNIQUE (workspace, audience)
) STRICT;

CREATE TABLE duramen_memories (
    number INTEGER PRIMARY KEY,
    pid INTEGER NOT NULL,
    id TEXT NOT NULL,
    sid INTEGER NOT NULL,
    position INTEGER NOT NULL,
    kind TEXT NOT NULL,
    key TEXT,
    owner BLOB,
    recorded INTEGER NOT NULL,
    begins INTEGER NOT NULL,
    ends INTEGER,
    expires INTEGER,
    importance REAL NOT NULL,
    confidence REAL NOT NULL,
    confirmed INTEGER NOT NULL,
    times INTEGER NOT NULL,
    closed INTEGER,
    successor TEXT,
    changed INTEGER NOT NULL,
    indexed INTEGER NOT NULL,
    checksum BLOB NOT NULL
) STRICT;
CREATE INDEX duramen_memories_id ON duramen_memories (id, pid) WHERE id <> '';
CREATE INDEX duramen_memories_key ON duramen_memories (pid, key, closed) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX duramen_memories_changed ON duramen_memories (pid, changed);
CREATE INDEX duramen_memories_indexed ON duramen_memories (indexed, number) WHERE closed IS NULL;
CREATE INDEX duramen_memories_owner ON duramen_memories (owner) WHERE owner IS NOT NULL;

CREATE TABLE duramen_index_entries (
    generation INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    number INTEGER NOT NULL,
    words BLOB NOT NULL,
    vector BLOB,
    checksum BLOB NOT NULL,
    PRIMARY KEY (generation, pid, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE duramen_recalls (
    number INTEGER PRIMARY KEY,
    count INTEGER NOT NULL,
    time INTEGER NOT NULL,
    checksum BLOB NOT NULL
) STRICT;

CREATE TABLE duramen_generations (
    workspace TEXT NOT NULL,
    generation INTEGER NOT NULL,
    identity BLOB NOT NULL,
    active INTEGER NOT NULL,
    checksum BLOB NOT NULL,
    PRIMARY KEY (workspace, generation)
) STRICT, WITHOUT ROWID;

-- Segments: many changes of an audience in one body. They are copies. Forgetting a memory removes the segments that may
-- contain it.

CREATE TABLE duramen_segments (
    generation INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    after INTEGER NOT NULL,
    upto INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    owner BLOB,
    checksum BLOB NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (generation, pid, after)
) STRICT;
CREATE INDEX duramen_segments_numbers ON duramen_segments (pid, first, last);
