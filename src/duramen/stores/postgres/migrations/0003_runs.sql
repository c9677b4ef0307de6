-- Runs: what is open, when it wants to go on, what it waits for. A projection of the run events.

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
