
-- A newer version has everything that clients of this one call, and stays. No function of the schema is called here, since
-- the owner of it is not checked yet.
DO $$
DECLARE
    present integer;
BEGIN
    IF to_regprocedure('"dlock".session_version()') IS NOT NULL THEN
        RAISE EXCEPTION 'the locks of schema "dlock" are sessions, not rows' USING ERRCODE = 'DL004';
    END IF;
    SELECT substring(p.prosrc FROM '[0-9]+')::integer INTO present FROM pg_proc p
        WHERE p.oid = to_regprocedure('"dlock".schema_version()');
    IF present > 1 THEN
        RAISE EXCEPTION 'schema "dlock" has version % of dlock''s objects, this is version 1', present
            USING ERRCODE = 'DL001';
    END IF;
END $$;
