-- Schema version 1.
--
-- The schema can be distributed by workspace, for example with Citus: `workspace` is the first column of every primary
-- key and unique index, every query binds it, and no table inherits from another. Text sorts by code point, as in the
-- other stores. The migration code creates `duramen.meta`, which contains the schema version.
--
-- The order of the feed. Each event has `tx`, the id of the transaction that stored it, and `seq`, a number from a
-- sequence. Readers take events in this order and stop at the oldest transaction that is still running
-- (`pg_snapshot_xmin`), so an event that commits later never sorts before an event that was already read.
-- Transactions may get their ids in another order than the lock on a session. Therefore the `tx` of an event is never
-- below that of the event before it in its session.
--
-- The order is only used inside a workspace, and all appends of a workspace run on the node that stores its rows. Ids
-- of different nodes are never compared. To move a workspace to another node, an operator must add an `epoch` before
-- `tx`, here and in the cursor.
--
-- A number that is assigned under a lock on the workspace would be simpler. But that lock would be held until the
-- commit is on the disk, so the appends of a workspace would be serial, with one sync each.
--
-- The hash chain cannot cover `tx` and `seq`, because only the database knows them. `feed_check` covers them.

-- The journal: sessions, events, blobs, subjects.

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
CREATE INDEX events_talk ON duramen.events (workspace, session, position) WHERE type >= 'talk.' AND type < 'talk/';

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

-- Leases on sessions, and the cursors of outlets.

CREATE TABLE duramen.leases (
    workspace text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    fence bigint NOT NULL,
    expires bigint NOT NULL,
    checksum bytea NOT NULL,
    PRIMARY KEY (workspace, session)
);

CREATE TABLE duramen.cursors (
    workspace text COLLATE "C" NOT NULL,
    outlet text COLLATE "C" NOT NULL,
    cursor text NOT NULL,
    checksum bytea NOT NULL,
    PRIMARY KEY (workspace, outlet)
);

-- Runs: a projection of the run events. `wake` is the time from which an open run may be executed.

CREATE TABLE duramen.runs (
    workspace text COLLATE "C" NOT NULL,
    run text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    version text COLLATE "C",
    status text COLLATE "C" NOT NULL,
    waiting text,
    wake bigint,
    created bigint NOT NULL,
    started bigint,
    updated bigint NOT NULL,
    ended bigint,
    parent text COLLATE "C",
    queue text COLLATE "C",
    queue_key text COLLATE "C",
    priority bigint NOT NULL,
    nudges bigint NOT NULL,
    origin bigint NOT NULL,
    checksum bytea NOT NULL,
    PRIMARY KEY (workspace, run)
) WITH (fillfactor = 80);
CREATE INDEX runs_wake ON duramen.runs (workspace, wake) WHERE wake IS NOT NULL;
CREATE INDEX runs_created ON duramen.runs (workspace, created, run);
CREATE INDEX runs_session ON duramen.runs (workspace, session, created);
CREATE INDEX runs_queue ON duramen.runs (workspace, queue, queue_key, started) WHERE queue IS NOT NULL;
CREATE INDEX runs_parent ON duramen.runs (workspace, parent) WHERE parent IS NOT NULL;

-- Bookmarks: named positions in a session (checkpoints, summaries, key-value items). Chunks: parts that states share.

CREATE TABLE duramen.bookmarks (
    workspace text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    time bigint NOT NULL,
    expires bigint,
    pinned boolean NOT NULL,
    owner bytea,
    manifest bytea,
    checksum bytea NOT NULL,
    PRIMARY KEY (workspace, session, name, id)
);
CREATE INDEX bookmarks_place ON duramen.bookmarks (workspace, session, name, position)
    WHERE NOT starts_with(name, '+');
CREATE INDEX bookmarks_expires ON duramen.bookmarks (workspace, expires) WHERE expires IS NOT NULL;
CREATE INDEX bookmarks_owner ON duramen.bookmarks (workspace, owner) WHERE owner IS NOT NULL;

CREATE TABLE duramen.chunks (
    workspace text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    chunk_log bigint NOT NULL,
    start bigint NOT NULL,
    count bigint NOT NULL,
    owner bytea,
    body bytea NOT NULL,
    checksum bytea NOT NULL,
    PRIMARY KEY (workspace, session, chunk_log, start)
);
CREATE INDEX chunks_owner ON duramen.chunks (workspace, owner) WHERE owner IS NOT NULL;

-- Memories: their rows, index entries and recall counts. The text of a memory is in its event. Code that changes rows
-- of an audience locks its row in `audiences`, which counts the changes.

CREATE TABLE duramen.audiences (
    workspace text COLLATE "C" NOT NULL,
    audience bytea NOT NULL,
    changes bigint NOT NULL,
    checksum bytea NOT NULL,
    PRIMARY KEY (workspace, audience)
) WITH (fillfactor = 70);

CREATE TABLE duramen.memories (
    workspace text COLLATE "C" NOT NULL,
    audience bytea NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    id text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    key text COLLATE "C",
    owner bytea,
    recorded bigint NOT NULL,
    begins bigint NOT NULL,
    ends bigint,
    expires bigint,
    importance double precision NOT NULL,
    confidence double precision NOT NULL,
    confirmed bigint NOT NULL,
    times bigint NOT NULL,
    closed bigint,
    successor text COLLATE "C",
    changed bigint NOT NULL,
    indexed bigint NOT NULL,
    checksum bytea NOT NULL,
    PRIMARY KEY (workspace, number)
) WITH (fillfactor = 90);
CREATE INDEX memories_id ON duramen.memories (workspace, id, audience) WHERE id <> '';
CREATE INDEX memories_key ON duramen.memories (workspace, key, audience, closed) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX memories_changed ON duramen.memories (workspace, audience, changed);
CREATE INDEX memories_indexed ON duramen.memories (workspace, indexed, number) WHERE closed IS NULL;
CREATE INDEX memories_owner ON duramen.memories (workspace, owner) WHERE owner IS NOT NULL;

CREATE TABLE duramen.index_entries (
    workspace text COLLATE "C" NOT NULL,
    audience bytea NOT NULL,
    number bigint NOT NULL,
    generation bigint NOT NULL,
    words bytea NOT NULL,
    vector bytea,
    checksum bytea NOT NULL,
    PRIMARY KEY (workspace, audience, number, generation)
);

CREATE TABLE duramen.recalls (
    workspace text COLLATE "C" NOT NULL,
    audience bytea NOT NULL,
    number bigint NOT NULL,
    count bigint NOT NULL,
    time bigint NOT NULL,
    checksum bytea NOT NULL,
    PRIMARY KEY (workspace, audience, number)
) WITH (fillfactor = 80);

CREATE TABLE duramen.generations (
    workspace text COLLATE "C" NOT NULL,
    generation bigint NOT NULL,
    identity bytea NOT NULL,
    active bigint NOT NULL,
    checksum bytea NOT NULL,
    PRIMARY KEY (workspace, generation)
);

-- Segments: many changes of an audience in one body. They are copies. Forgetting a memory removes the segments that may
-- contain it. Code that writes or drops a segment locks the row of its audience.

CREATE TABLE duramen.segments (
    workspace text COLLATE "C" NOT NULL,
    audience bytea NOT NULL,
    generation bigint NOT NULL,
    after bigint NOT NULL,
    upto bigint NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    owner bytea,
    body bytea NOT NULL,
    checksum bytea NOT NULL,
    PRIMARY KEY (workspace, audience, generation, after)
);
ALTER TABLE duramen.segments ALTER COLUMN body SET STORAGE EXTERNAL;

-- Search rows, by which PostgreSQL searches memories itself. Every current memory with an index entry has one row per
-- generation. It is written and removed with the index entry, under the lock on the audience.
--
-- - `hidden`: the memory is sealed, and the row contains nothing to search by.
-- - `code`: the code of the vector. Similar vectors have codes that differ in few bits.
-- - `terms`: the numbers of the words, once for the audience and once for the workspace. They are hashed with a secret
--   of the workspace, because a query plan reveals how many index entries matched, even in rows that a policy hides.
-- - `draw`: a pseudo-random number, for samples.
--
-- All types are built into PostgreSQL. The extension `vector` is only needed for the index over codes, which is created
-- for large workspaces (see retrieval.sql).
--
-- The rows are in `searchable`, the only partition of `worded`. The policies of a table apply to queries that name this
-- table. PostgreSQL uses an index for a condition only after the policies were checked, unless the condition is part of
-- a policy or its operator is leakproof. The operators of arrays are not leakproof. So in `worded` the condition is
-- part of a policy: a query sees only rows with one of the words in the setting duramen.words and all of the words in
-- duramen.together. Without these settings it sees no rows.

CREATE TABLE duramen.worded (
    workspace text COLLATE "C" NOT NULL,
    generation bigint NOT NULL,
    audience bytea NOT NULL,
    number bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    session text COLLATE "C",
    position bigint,
    begins bigint NOT NULL,
    opens bigint,
    ends bigint,
    expires bigint,
    hidden boolean NOT NULL,
    draw smallint NOT NULL,
    length integer NOT NULL,
    metadata jsonb,
    terms integer[] NOT NULL,
    code bit varying,
    checksum bytea NOT NULL
) PARTITION BY HASH (workspace);
CREATE TABLE duramen.searchable PARTITION OF duramen.worded (
    PRIMARY KEY (workspace, generation, audience, number) INCLUDE (kind, begins, opens, ends, expires, code)
) FOR VALUES WITH (MODULUS 1, REMAINDER 0)
WITH (fillfactor = 95, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX searchable_terms ON duramen.searchable USING gin (terms);
CREATE INDEX searchable_talk ON duramen.searchable (workspace, generation, audience, session, position)
    WHERE session IS NOT NULL;
CREATE INDEX searchable_drawn ON duramen.searchable (workspace, generation, audience, draw) WHERE draw < 128;
CREATE INDEX searchable_hidden ON duramen.searchable (workspace, generation, audience) WHERE hidden;

-- Generations in which every current index entry has its search row.
CREATE TABLE duramen.searched (
    workspace text COLLATE "C" NOT NULL,
    generation bigint NOT NULL,
    PRIMARY KEY (workspace, generation)
);

-- The secrets with which the words of workspaces are hashed.
CREATE TABLE duramen.secrets (
    workspace text COLLATE "C" NOT NULL,
    words bytea NOT NULL,
    checksum bytea NOT NULL,
    PRIMARY KEY (workspace)
);

-- Tenants: row level security limits a connection to the workspace in its setting duramen.workspace. This also applies
-- to the owner of the tables. Superusers and roles with BYPASSRLS see everything. A connection that has not set its
-- workspace gets an error, not an empty store. Every query contains `workspace = ...`, so the policy compares two
-- constants once per scan, and indexes are used.
--
-- A table that is added later needs the same policy in its own migration. A migration that changes rows must use NO
-- FORCE ROW LEVEL SECURITY before the change and FORCE ROW LEVEL SECURITY after it.

DO $$
DECLARE
    target regclass;
BEGIN
    FOR target IN
        SELECT c.oid FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'workspace'
        WHERE c.relnamespace = 'duramen'::regnamespace AND c.relkind IN ('r', 'p') AND c.relname <> 'worded'
        ORDER BY c.relname
    LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', target);
        EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', target);
        EXECUTE format(
            'CREATE POLICY workspace ON %s USING (workspace = current_setting(''duramen.workspace''))', target);
    END LOOP;
END $$;

-- PostgreSQL applies restrictive policies in the order of their names, and only the first can use the index, so its
-- name begins with "!". The settings are read in a subquery, which runs once per query and not once per row.
ALTER TABLE duramen.worded ENABLE ROW LEVEL SECURITY;
ALTER TABLE duramen.worded FORCE ROW LEVEL SECURITY;
CREATE POLICY workspace ON duramen.worded FOR SELECT USING (workspace = current_setting('duramen.workspace'));
CREATE POLICY "!words" ON duramen.worded AS RESTRICTIVE FOR SELECT USING (
    terms && (SELECT nullif(current_setting('duramen.words', true), '')::integer[])
    AND terms @> (SELECT nullif(current_setting('duramen.together', true), '')::integer[]));

-- Every role may read the schema version. Only the owner, who migrates, may write it.
ALTER TABLE duramen.meta ENABLE ROW LEVEL SECURITY;
CREATE POLICY version ON duramen.meta FOR SELECT USING (true);
