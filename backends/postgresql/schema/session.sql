
DO $$
DECLARE
    present integer;
BEGIN
    IF to_regprocedure('"dlock".schema_version()') IS NOT NULL THEN
        RAISE EXCEPTION 'the locks of schema "dlock" are rows, not sessions' USING ERRCODE = 'DL004';
    END IF;
    SELECT substring(p.prosrc FROM '[0-9]+')::integer INTO present FROM pg_proc p
        WHERE p.oid = to_regprocedure('"dlock".session_version()');
    IF present > 1 THEN
        RAISE EXCEPTION 'schema "dlock" has version % of dlock''s objects, this is version 1', present
            USING ERRCODE = 'DL001';
    END IF;
    IF to_regclass('"dlock".fences') IS NULL THEN
        EXECUTE format('CREATE SEQUENCE "dlock".fences START %s',
            (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    END IF;
END $$;

-- Draws the first fence of a connection, which is greater than all that were drawn before the call. Only one nextval()
-- in 32 writes to the log, and only its commit waits for the flush, so a crash may forget numbers that were told; a
-- restored backup brings an older sequence. No connection outlives a crash, so each calls this before it calls
-- nextval(). The sequence is moved to the clock, in microseconds, which is ahead of every number drawn before, unless
-- more than a million were drawn per second or the clock was set back.
--
-- The sequence never moves back. setval() overwrites whatever it finds, so no other session may draw or set between the
-- reading of the last number and setval(), however long this backend is stopped there. nextval() and setval() hold ROW
-- EXCLUSIVE on the sequence until their transaction ends. ALTER SEQUENCE takes SHARE ROW EXCLUSIVE, which excludes
-- those and another ALTER, but not pg_dump, which reads for long. The subtransaction is then undone: that gives up this
-- lock at once, not after the flush, and leaves the catalogue as it was, while setval() stays: it is never undone.
-- (OWNED BY is the one clause that gives the sequence no new file, which would be undone with all that is in it.)
-- setval() always writes to the log and gives the transaction an id, so the commit waits for the flush.
--
-- Of callers that come together only the first moves the sequence. Those behind it wait for the advisory lock, and then
-- find that the sequence has passed the time at which they came.
CREATE OR REPLACE FUNCTION "dlock".first_fence() RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '2s' AS $$
DECLARE
    came_us bigint := (date_part('epoch', clock_timestamp()) * 1000000)::bigint;
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    PERFORM pg_advisory_xact_lock(x'646c6f636b02'::bigint);
    IF (SELECT f.last_value FROM "dlock".fences f) < came_us THEN
        BEGIN
            ALTER SEQUENCE "dlock".fences OWNED BY NONE;
            -- A clock that is far off must not use up the numbers, which end at 2^55.
            PERFORM setval('"dlock".fences', greatest(f.last_value, least(1::bigint << 54,
                (date_part('epoch', clock_timestamp()) * 1000000)::bigint))) FROM "dlock".fences f;
            RAISE EXCEPTION USING ERRCODE = 'DL006';
        EXCEPTION WHEN SQLSTATE 'DL006' THEN
            NULL;
        END;
    END IF;
    RETURN nextval('"dlock".fences');
END $$;

-- Ends the sessions that hold the lock with this key, with the rights of the caller. Returns how many there were; NULL:
-- one of them has not ended within wait_ms.
CREATE OR REPLACE FUNCTION "dlock".end_sessions(key bigint, wait_ms integer) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
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
