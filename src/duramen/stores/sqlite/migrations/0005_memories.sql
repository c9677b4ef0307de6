-- Memories: the catalog, what is searched, and how often each was recalled. `pid` stands for workspace and audience. The text
-- of a memory is in its event.

CREATE TABLE duramen_audiences (
    pid INTEGER PRIMARY KEY,
    workspace TEXT NOT NULL,
    audience BLOB NOT NULL,
    changes INTEGER NOT NULL,
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
CREATE INDEX duramen_memories_changed ON duramen_memories (pid, changed);
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
