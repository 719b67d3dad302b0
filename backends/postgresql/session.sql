-- dlock's objects in PostgreSQL for mode=session, version 1.
--
-- dlock creates them by itself on first use, where its role may. Otherwise a DBA runs this once in the locks' database,
-- and gives each role of an application what stands at the end. Running it again is harmless. To keep them in another
-- schema than dlock, replace "dlock", with its quotes, everywhere below, and say `schema=` in the URI. A schema has
-- either these objects or those of the default mode (schema.sql), never both: their locks would not exclude each other.
--
-- A lock is a session-level advisory lock, held by the one connection that acquired it; who waits for it waits in the
-- server's own queue. Its key is the begin of a hash of the quoted schema, a space and the name, as clients work it out:
-- ('x' || encode(substr(sha256('"dlock" name'), 1, 8), 'hex'))::bit(64)::bigint. Names that collide exclude each other.
-- Fences are numbers of one sequence, which is read only once the lock is there. It is flushed to disk ahead of what it
-- gives out, and begins at the clock in microseconds, so that fences go on growing when somebody makes it anew. While it
-- holds a lock, the lease is the session's idle_session_timeout (PostgreSQL 14), and a renewal a sign of life.
-- The statements are in wire.c.
BEGIN;

DO $$
BEGIN
    -- Two sessions may do this at once.
    PERFORM pg_advisory_xact_lock(x'646c6f636b00'::bigint);
    IF to_regnamespace('"dlock"') IS NULL THEN
        CREATE SCHEMA "dlock";
    END IF;
    IF to_regprocedure('"dlock".schema_version()') IS NOT NULL THEN
        RAISE EXCEPTION 'the locks of schema "dlock" are rows, not sessions' USING ERRCODE = 'DL004';
    END IF;
    IF to_regclass('"dlock".fences') IS NULL THEN
        EXECUTE format('CREATE SEQUENCE "dlock".fences START %s',
            (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    END IF;
END $$;

-- Ends the sessions that hold the lock with this key. How many there were; NULL: one of them is still there after
-- wait_ms. With the rights of whoever calls it.
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

-- That the locks of this schema are sessions.
CREATE OR REPLACE FUNCTION "dlock".session_version() RETURNS integer LANGUAGE sql IMMUTABLE AS $$ SELECT 1 $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA "dlock" FROM PUBLIC;

COMMIT;

-- For each role that is to use the locks:
--
--     GRANT USAGE ON SCHEMA "dlock" TO app;
--     GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA "dlock" TO app;
--     GRANT USAGE ON SEQUENCE "dlock".fences TO app;
