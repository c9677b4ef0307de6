-- Runs: what is open, when it wants to go on, what it waits for. A projection of the run events.

CREATE TABLE holdfast_runs (
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
CREATE INDEX holdfast_runs_wake ON holdfast_runs (workspace, wake) WHERE wake IS NOT NULL;
CREATE INDEX holdfast_runs_created ON holdfast_runs (workspace, created, run);
CREATE INDEX holdfast_runs_session ON holdfast_runs (workspace, session, created);
CREATE INDEX holdfast_runs_queue ON holdfast_runs (workspace, queue, queue_key, started) WHERE queue IS NOT NULL;
CREATE INDEX holdfast_runs_parent ON holdfast_runs (workspace, parent) WHERE parent IS NOT NULL;
