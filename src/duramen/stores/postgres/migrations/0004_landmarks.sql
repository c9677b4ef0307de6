-- Bookmarks: places in a session that are found by name (checkpoints, summaries, items on a shelf). Parts: the stretches
-- of lists that checkpoints share. And a way to a conversation's own events, whatever lies between them.

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

CREATE INDEX events_talk ON duramen.events (workspace, session, position) WHERE type >= 'talk.' AND type < 'talk/';
