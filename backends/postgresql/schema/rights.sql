
-- ---- rights ---------------------------------------------------------------------------------------------------------

-- Was part of version 3.
DROP FUNCTION IF EXISTS "dlock".lapse(bytea, text);

REVOKE ALL ON TABLE "dlock".locks, "dlock".shares, "dlock".queue, "dlock".listeners, "dlock".take_v5,
    "dlock".give_v5 FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA "dlock" FROM PUBLIC;

-- Roles that could lock with an older version keep that right.
DO $$
DECLARE
    app name;
BEGIN
    FOR app IN SELECT r.rolname FROM pg_proc p, aclexplode(p.proacl) a, pg_roles r
            WHERE p.oid = '"dlock".acquire(bytea[], text[], bigint[], integer[], integer[], integer[], integer)'
                ::regprocedure AND a.privilege_type = 'EXECUTE' AND r.oid = a.grantee AND r.oid <> p.proowner LOOP
        EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA "dlock" TO %I', app);
        EXECUTE format('GRANT SELECT, UPDATE ON "dlock".take_v5, "dlock".give_v5 TO %I', app);
    END LOOP;
END $$;
