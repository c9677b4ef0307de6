-- Memories: the catalog, what is searched, and how often each was recalled. The text of a memory is in its event. Whoever
-- changes rows of a pool holds the lock on its row in `pools`, which counts the changes.

CREATE TABLE duramen.pools (
    workspace text COLLATE "C" NOT NULL,
    pool bytea NOT NULL,
    changes bigint NOT NULL,
    checksum bytea NOT NULL,
    PRIMARY KEY (workspace, pool)
) WITH (fillfactor = 70);

CREATE TABLE duramen.memories (
    workspace text COLLATE "C" NOT NULL,
    pool bytea NOT NULL,
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
    traced bigint NOT NULL,
    checksum bytea NOT NULL,
    PRIMARY KEY (workspace, number)
) WITH (fillfactor = 90);
CREATE INDEX memories_id ON duramen.memories (workspace, id, pool) WHERE id <> '';
CREATE INDEX memories_key ON duramen.memories (workspace, key, pool, closed) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX memories_changed ON duramen.memories (workspace, pool, changed);
CREATE INDEX memories_traced ON duramen.memories (workspace, traced, number) WHERE closed IS NULL;
CREATE INDEX memories_owner ON duramen.memories (workspace, owner) WHERE owner IS NOT NULL;

CREATE TABLE duramen.traces (
    workspace text COLLATE "C" NOT NULL,
    pool bytea NOT NULL,
    number bigint NOT NULL,
    generation bigint NOT NULL,
    words bytea NOT NULL,
    vector bytea,
    checksum bytea NOT NULL,
    PRIMARY KEY (workspace, pool, number, generation)
);

CREATE TABLE duramen.recalls (
    workspace text COLLATE "C" NOT NULL,
    pool bytea NOT NULL,
    number bigint NOT NULL,
    count bigint NOT NULL,
    time bigint NOT NULL,
    checksum bytea NOT NULL,
    PRIMARY KEY (workspace, pool, number)
) WITH (fillfactor = 80);

CREATE TABLE duramen.generations (
    workspace text COLLATE "C" NOT NULL,
    generation bigint NOT NULL,
    identity bytea NOT NULL,
    active bigint NOT NULL,
    checksum bytea NOT NULL,
    PRIMARY KEY (workspace, generation)
);
