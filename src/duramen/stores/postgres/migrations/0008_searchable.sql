-- What PostgreSQL searches by itself: of every current memory with an index_entry one row for each generation. It is written and
-- removed with the index_entry, under the lock on the audience. Of a memory that is sealed it says only that it is there (`hidden`).
-- `code` stands for the vector (near ones differ in few bits), `terms` has the numbers of the words, each once for the audience and once for
-- the workspace, `draw` is by chance. Types are PostgreSQL's own: the extension `vector` is needed for its index alone, which
-- is made for a workspace that has grown large (see seeking.sql).

CREATE TABLE duramen.searchable (
    workspace text COLLATE "C" NOT NULL,
    generation bigint NOT NULL,
    audience bytea NOT NULL,
    number bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    session text COLLATE "C",
    position bigint,
    begins bigint NOT NULL,
    opens bigint,
    ends bigint,
    expires bigint,
    hidden boolean NOT NULL,
    draw smallint NOT NULL,
    length integer NOT NULL,
    metadata jsonb,
    terms integer[] NOT NULL,
    code bit varying,
    checksum bytea NOT NULL,
    PRIMARY KEY (workspace, generation, audience, number) INCLUDE (kind, begins, opens, ends, expires, code)
) WITH (fillfactor = 95, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX searchable_terms ON duramen.searchable USING gin (terms);
CREATE INDEX searchable_talk ON duramen.searchable (workspace, generation, audience, session, position)
    WHERE session IS NOT NULL;
CREATE INDEX searchable_drawn ON duramen.searchable (workspace, generation, audience, draw) WHERE draw < 128;
CREATE INDEX searchable_hidden ON duramen.searchable (workspace, generation, audience) WHERE hidden;

-- Generations of which every current index_entry has its row there. One that began before this table is entered when its rows are
-- made.
CREATE TABLE duramen.searched (
    workspace text COLLATE "C" NOT NULL,
    generation bigint NOT NULL,
    PRIMARY KEY (workspace, generation)
);
