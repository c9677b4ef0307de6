-- Who owns a session, and how far each outlet got.

CREATE TABLE duramen_leases (
    workspace TEXT NOT NULL,
    session TEXT NOT NULL,
    owner TEXT NOT NULL,
    fence INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    checksum BLOB NOT NULL,
    PRIMARY KEY (workspace, session)
) STRICT, WITHOUT ROWID;

CREATE TABLE duramen_cursors (
    workspace TEXT NOT NULL,
    outlet TEXT NOT NULL,
    cursor INTEGER NOT NULL,
    checksum BLOB NOT NULL,
    PRIMARY KEY (workspace, outlet)
) STRICT, WITHOUT ROWID;
