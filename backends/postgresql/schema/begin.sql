
BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;

DO $$
BEGIN
    -- Two sessions may do this at once.
    PERFORM pg_advisory_xact_lock(x'646c6f636b00'::bigint);
    IF to_regnamespace('"dlock"') IS NULL THEN
        CREATE SCHEMA "dlock";
    END IF;
END $$;

-- Rather than keep everybody waiting behind somebody who reads a table for long, this ends, to be run again.
SET LOCAL lock_timeout = '5s';
