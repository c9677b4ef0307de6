-- Words for roles that policies bind. PostgreSQL looks a condition up in an index only after the policies of a table held,
-- unless it belongs to them; comparing arrays is none of the operators that it trusts otherwise. So here it belongs to them:
-- `worded` is `searchable` as seen through the words that a connection asks for, in its settings duramen.words (one of
-- these) and duramen.together (all of these), within its workspace. Without them nothing is there. It has no rows of its
-- own, is only read, and needs no right that nobody else has.
--
-- Restrictive policies hold in the order of their names, and only the first may use the index: hence that name. The settings
-- are read in a SELECT of their own: once for a query, not once for each row.

CREATE TABLE duramen.worded (
    workspace text COLLATE "C" NOT NULL,
    generation bigint NOT NULL,
    audience bytea NOT NULL,
    number bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    begins bigint NOT NULL,
    opens bigint,
    ends bigint,
    expires bigint,
    length integer NOT NULL,
    metadata jsonb,
    terms integer[] NOT NULL
);
ALTER TABLE duramen.worded ENABLE ROW LEVEL SECURITY;
ALTER TABLE duramen.worded FORCE ROW LEVEL SECURITY;
CREATE POLICY workspace ON duramen.worded FOR SELECT USING (workspace = current_setting('duramen.workspace'));
CREATE POLICY "!words" ON duramen.worded AS RESTRICTIVE FOR SELECT USING (
    terms && (SELECT nullif(current_setting('duramen.words', true), '')::integer[])
    AND terms @> (SELECT nullif(current_setting('duramen.together', true), '')::integer[]));

-- Who may read the one may read the other, and whoever is kept to less there is kept to less here.
DO $$
DECLARE
    reader oid;
    policy record;
BEGIN
    FOR reader IN
        SELECT DISTINCT a.grantee FROM pg_class c, aclexplode(c.relacl) a
        WHERE c.oid = 'duramen.searchable'::regclass AND a.privilege_type = 'SELECT'
    LOOP
        EXECUTE format('GRANT SELECT ON duramen.worded TO %s',
            CASE WHEN reader = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(reader)) END);
    END LOOP;
    FOR policy IN
        SELECT p.polname, p.polpermissive, pg_get_expr(p.polqual, p.polrelid) AS condition, (
            SELECT string_agg(CASE WHEN one = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(one)) END, ', ')
            FROM unnest(p.polroles) one) AS roles
        FROM pg_policy p
        WHERE p.polrelid = 'duramen.searchable'::regclass AND p.polname <> 'workspace' AND p.polcmd IN ('*', 'r')
    LOOP
        EXECUTE format('CREATE POLICY %I ON duramen.worded AS %s FOR SELECT TO %s USING (%s)', policy.polname,
            CASE WHEN policy.polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END, policy.roles, policy.condition);
    END LOOP;
END $$;
ALTER TABLE duramen.searchable INHERIT duramen.worded;

-- A plan tells how many entries of an index were met, whosesoever they are. So the numbers of words are hashed under a secret
-- of the workspace: which numbers the words of others have, nobody can know. What is searched is made anew under it, in the
-- background; until then it is searched in memory.
CREATE TABLE duramen.secrets (
    workspace text COLLATE "C" NOT NULL,
    words bytea NOT NULL,
    checksum bytea NOT NULL,
    PRIMARY KEY (workspace)
);
ALTER TABLE duramen.secrets ENABLE ROW LEVEL SECURITY;
ALTER TABLE duramen.secrets FORCE ROW LEVEL SECURITY;
CREATE POLICY workspace ON duramen.secrets USING (workspace = current_setting('duramen.workspace'));
TRUNCATE duramen.searchable, duramen.searched;
