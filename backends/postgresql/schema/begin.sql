
BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL lock_timeout = 0;

DO $$
BEGIN
    -- Two sessions may do this at once.
    PERFORM pg_advisory_xact_lock(x'646c6f636b00'::bigint);
    IF to_regnamespace('"dlock"') IS NULL THEN
        CREATE SCHEMA "dlock";
    END IF;
END $$;

-- If another session reads a table for a long time, the script fails and has to be run again, instead of keeping all
-- clients waiting for the locks that it requests.
SET LOCAL lock_timeout = '5s';
