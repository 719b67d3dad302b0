
DO $$
BEGIN
    IF to_regprocedure('"dlock".schema_version()') IS NOT NULL THEN
        RAISE EXCEPTION 'the locks of schema "dlock" are rows, not sessions' USING ERRCODE = 'DL004';
    END IF;
    IF to_regclass('"dlock".fences') IS NULL THEN
        EXECUTE format('CREATE SEQUENCE "dlock".fences START %s',
            (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    END IF;
END $$;

-- Ends the sessions that hold the lock with this key, with the rights of the caller. Returns how many there were; NULL:
-- one of them has not ended within wait_ms.
CREATE OR REPLACE FUNCTION "dlock".end_sessions(key bigint, wait_ms integer) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    until timestamptz := clock_timestamp() + wait_ms * interval '1 ms';
    holders integer[] := ARRAY(SELECT l.pid FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted
        AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()) AND l.objsubid = 1
        AND (l.classid::bigint << 32 | l.objid::bigint) = key);
BEGIN
    PERFORM pg_terminate_backend(h) FROM unnest(holders) h;
    WHILE EXISTS (SELECT FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.pid = ANY (holders)) LOOP
        IF clock_timestamp() > until THEN
            RETURN NULL;
        END IF;
        PERFORM pg_sleep(0.001);
    END LOOP;
    RETURN cardinality(holders);
END $$;

-- Marks the schema as one whose locks are sessions, and tells the version.
CREATE OR REPLACE FUNCTION "dlock".session_version() RETURNS integer LANGUAGE sql IMMUTABLE AS $$ SELECT 1 $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA "dlock" FROM PUBLIC;
