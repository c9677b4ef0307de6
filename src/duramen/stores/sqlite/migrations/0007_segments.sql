-- Changes of an audience packed together: copies, which are dropped with whatever may be in them.

CREATE TABLE duramen_segments (
    generation INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    after INTEGER NOT NULL,
    upto INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    owner BLOB,
    checksum BLOB NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (generation, pid, after)
) STRICT;
CREATE INDEX duramen_segments_numbers ON duramen_segments (pid, first, last);
