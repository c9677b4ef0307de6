-- Changes of an audience packed together: copies, which are dropped with whatever may be in them. Whoever writes or drops one holds
-- the lock on the audience's row.

CREATE TABLE duramen.segments (
    workspace text COLLATE "C" NOT NULL,
    audience bytea NOT NULL,
    generation bigint NOT NULL,
    after bigint NOT NULL,
    upto bigint NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    owner bytea,
    body bytea NOT NULL,
    checksum bytea NOT NULL,
    PRIMARY KEY (workspace, audience, generation, after)
);
ALTER TABLE duramen.segments ALTER COLUMN body SET STORAGE EXTERNAL;
