-- Memories: the catalog, what is searched, and how often each was recalled. The text of a memory is in its event. Whoever
-- changes rows of an audience holds the lock on its row in `audiences`, which counts the changes.

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
