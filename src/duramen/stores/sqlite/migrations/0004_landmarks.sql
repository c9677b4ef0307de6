-- Bookmarks: places in a session that are found by name (checkpoints, summaries, items on a shelf). Parts: the stretches
-- of lists that checkpoints share. And a way to a conversation's own events, whatever lies between them.

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

CREATE INDEX duramen_events_talk ON duramen_events (sid, position) WHERE type >= 'talk.' AND type < 'talk/';
