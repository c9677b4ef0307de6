-- Runs: what is open, when it wants to go on, what it waits for. A projection of the run events.

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
