-- Tenants: PostgreSQL itself gives a connection the rows of one workspace, the one in its setting duramen.workspace. It
-- binds the owner of the tables, too; superusers and roles with BYPASSRLS see everything. A connection that has never said its
-- workspace is refused, not shown an empty store. With `workspace = …` in a query, what is compared here is two constants,
-- once for each scan, and indexes are used as before.
--
-- A table that is added later needs the same in its own migration, and a migration that changes rows must say NO FORCE ROW
-- LEVEL SECURITY before and FORCE ROW LEVEL SECURITY after.

DO $$
DECLARE
    target regclass;
BEGIN
    FOR target IN
        SELECT c.oid FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'workspace'
        WHERE c.relnamespace = 'duramen'::regnamespace AND c.relkind IN ('r', 'p')
        ORDER BY c.relname
    LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', target);
        EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', target);
        EXECUTE format(
            'CREATE POLICY workspace ON %s USING (workspace = current_setting(''duramen.workspace''))', target);
    END LOOP;
END $$;

-- Everybody reads the version of the schema; only the owner, who migrates, writes it.
ALTER TABLE duramen.meta ENABLE ROW LEVEL SECURITY;
CREATE POLICY version ON duramen.meta FOR SELECT USING (true);
