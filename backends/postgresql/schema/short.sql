
-- ---- the short way --------------------------------------------------------------------------------------------------
-- A rule rewrites an UPDATE of one of these views to an UPDATE of the row of one name. It runs with the rights of the
-- owner, as in a function, but without the cost of one. Where more has to be done than this UPDATE, it changes nothing and
-- returns no row, and the client calls acquire() or release(). The rules use functions of pg_catalog only: bodies of
-- SQL functions would be parsed in the session of the caller, along its search_path. Clients set for their sessions:
-- enable_seqscan = off, so that a plan made while the table was small does not read the whole of it when it has grown; a
-- short lock_timeout; and synchronous_commit = on where it is off.

-- The views are not replaced when the script runs again: that would lock them, and keep clients waiting.

-- Grants a name that is free and has no waiters, neither in the queue nor for a turn at it. If the row changes while
-- this waits for it, PostgreSQL checks all of that again. The flags, wait_ms and the results are those of acquire(). A
-- caller that has given up gets nothing: the release of its token may have been here already.
DO $$
BEGIN
    IF to_regclass('"dlock".take') IS NULL THEN
        CREATE VIEW "dlock".take AS
            SELECT NULL::bytea AS name, NULL::text AS token, NULL::bigint AS lease_ms, NULL::integer AS flags,
                NULL::integer AS wait_ms, NULL::bigint AS granted, NULL::bigint AS server_us;
        CREATE RULE take AS ON UPDATE TO "dlock".take DO INSTEAD
            UPDATE "dlock".locks l SET token = NEW.token,
                    fence = greatest(l.fence + 1, (date_part('epoch', clock_timestamp()) * 1000000)::bigint),
                    expires_us = (date_part('epoch', clock_timestamp()) * 1000000)::bigint + NEW.lease_ms * 1000,
                    lingers = NEW.flags & 2 <> 0
                WHERE l.name = NEW.name AND CASE WHEN l.token IS NULL AND l.mode = 0 AND NOT l.awaited
                    THEN pg_try_advisory_xact_lock(hashtextextended(encode(l.name, 'hex'), 1)) ELSE false END
                RETURNING l.name, l.token, NULL::bigint, NULL::integer, NULL::integer,
                    CASE WHEN clock_timestamp() > statement_timestamp() + abs(NEW.wait_ms) * interval '1 ms'
                        THEN "dlock".refuse_late() ELSE l.fence END,
                    l.expires_us - NEW.lease_ms * 1000;
    END IF;
END $$;

-- Ends an exclusive grant without waiters. Losing that in a crash only costs time, so it is not flushed.
DO $$
BEGIN
    IF to_regclass('"dlock".give') IS NULL THEN
        CREATE VIEW "dlock".give AS SELECT NULL::bytea AS name, NULL::text AS token, NULL::boolean AS ended;
        CREATE RULE give AS ON UPDATE TO "dlock".give DO INSTEAD
            UPDATE "dlock".locks l SET token = NULL, handed = false,
                    expires_us = (date_part('epoch', clock_timestamp()) * 1000000)::bigint
                WHERE l.name = NEW.name AND l.token = NEW.token AND NOT l.awaited
                    AND l.expires_us > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
                RETURNING l.name, l.token, set_config('synchronous_commit', 'off', true) IS NOT NULL;
    END IF;
END $$;
