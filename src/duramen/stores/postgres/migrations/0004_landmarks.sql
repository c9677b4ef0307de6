-- Landmarks: places in a session that are found by name (checkpoints, summaries, items on a shelf). Parts: the stretches
-- of lists that checkpoints share. And a way to a conversation's own events, whatever lies between them.

CREATE TABLE duramen.landmarks (
    workspace text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    time bigint NOT NULL,
    expires bigint,
    pinned boolean NOT NULL,
    owner bytea,
    form bytea,
    checksum bytea NOT NULL,
    PRIMARY KEY (workspace, session, name, id)
);
CREATE INDEX landmarks_place ON duramen.landmarks (workspace, session, name, position)
    WHERE NOT starts_with(name, '+');
CREATE INDEX landmarks_expires ON duramen.landmarks (workspace, expires) WHERE expires IS NOT NULL;
CREATE INDEX landmarks_owner ON duramen.landmarks (workspace, owner) WHERE owner IS NOT NULL;

CREATE TABLE duramen.parts (
    workspace text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    strand bigint NOT NULL,
    start bigint NOT NULL,
    count bigint NOT NULL,
    owner bytea,
    body bytea NOT NULL,
    checksum bytea NOT NULL,
    PRIMARY KEY (workspace, session, strand, start)
);
CREATE INDEX parts_owner ON duramen.parts (workspace, owner) WHERE owner IS NOT NULL;

CREATE INDEX events_talk ON duramen.events (workspace, session, position) WHERE type >= 'talk.' AND type < 'talk/';
