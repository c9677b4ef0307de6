-- Who owns a session, and how far each outlet got.

CREATE TABLE duramen.leases (
    workspace text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    fence bigint NOT NULL,
    expires bigint NOT NULL,
    checksum bytea NOT NULL,
    PRIMARY KEY (workspace, session)
);

CREATE TABLE duramen.cursors (
    workspace text COLLATE "C" NOT NULL,
    outlet text COLLATE "C" NOT NULL,
    cursor text NOT NULL,
    checksum bytea NOT NULL,
    PRIMARY KEY (workspace, outlet)
);
