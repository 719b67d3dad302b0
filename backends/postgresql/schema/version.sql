
-- Refuses objects that this script cannot upgrade. A newer version has everything that clients of this one call. Before
-- version 3 the tables were different, and clients may be holding locks in them right now. No function of the schema is
-- called here, since the owner of it is not checked yet.
DO $$
DECLARE
    present integer;
BEGIN
    IF to_regprocedure('"dlock".session_version()') IS NOT NULL THEN
        RAISE EXCEPTION 'the locks of schema "dlock" are sessions, not rows' USING ERRCODE = 'DL004';
    END IF;
    SELECT substring(p.prosrc FROM '[0-9]+')::integer INTO present FROM pg_proc p
        WHERE p.oid = to_regprocedure('"dlock".schema_version()');
    IF present > 6 THEN
        RAISE EXCEPTION 'schema "dlock" has version % of dlock''s objects, this is version 6', present
            USING ERRCODE = 'DL001';
    ELSIF present < 3 THEN
        RAISE EXCEPTION 'schema "dlock" has version % of dlock''s objects, and this is version 6', present
            USING ERRCODE = 'DL003';
    ELSIF present < 6 THEN
        -- Calls that are under way end before their parts are replaced.
        LOCK TABLE "dlock".locks IN ACCESS EXCLUSIVE MODE;
    END IF;
END $$;
