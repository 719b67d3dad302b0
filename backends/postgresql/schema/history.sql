
-- ---- history --------------------------------------------------------------------------------------------------------
-- The row without a name, the record, says which server the rows belong to, and since when (`fence`). It is copied
-- with them: to a standby, into a backup or a dump. A server that finds the record of another one may lack grants that
-- the other has made. So may a server that finds no record: a crash has emptied an unlogged table, or the rows were
-- deleted. The first call that sees this writes the record, and nothing is granted for one quarantine after that. A
-- disk that was copied or set back, without a recovery to a point in time, cannot be recognized: it begins no
-- timeline.

-- Returns which server has these rows: its system; its timeline, of which a promotion begins a new one at once, while
-- the control file has that of the last checkpoint; and the table, since a restored dump makes a new one.
CREATE OR REPLACE FUNCTION "dlock".this_server() RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT format('%s %s %s', c.system_identifier, CASE WHEN pg_is_in_recovery() THEN '' ELSE
            left(pg_walfile_name(pg_current_wal_lsn()), 8) END, '"dlock".locks'::regclass::oid)
        FROM pg_control_system() c
$$;

-- Returns for how many ms nothing may be granted. With fsync off a crash of the host may undo grants, so there the
-- record also names the start of the server, and after another start the quarantine counts from that. The end of the
-- record's lease keeps sweep() from deleting it.
CREATE OR REPLACE FUNCTION "dlock".quarantine_left(quarantine_ms bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    started_us bigint := (date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint;
    rows_of text := this_server();
    mine text := rows_of || CASE WHEN current_setting('fsync') = 'off' THEN ' ' || started_us ELSE '' END;
    since_us bigint := (SELECT l.fence FROM locks l WHERE l.name = '' AND l.token = mine AND l.fence <= clock_us());
BEGIN
    IF since_us IS NULL THEN
        INSERT INTO locks AS l (name, token, fence, expires_us) VALUES ('', mine, clock_us(), 9223372036854775807)
            ON CONFLICT ON CONSTRAINT locks_pkey
            DO UPDATE SET token = mine, expires_us = excluded.expires_us, fence = CASE
                -- A new table has lost nothing. Only a quarantine of a year, the longest one, is not over there.
                WHEN l.token = '' THEN excluded.fence - 364 * 86400000000
                WHEN l.token = mine THEN least(l.fence, excluded.fence)
                WHEN starts_with(l.token || ' ', rows_of || ' ')
                    THEN least(greatest(l.fence, started_us), excluded.fence)
                ELSE excluded.fence END
            RETURNING l.fence INTO since_us;
    END IF;
    RETURN greatest((since_us - clock_us() + 999) / 1000 + quarantine_ms, 0);
END $$;

-- For a table that has just been made.
DO $$
BEGIN
    PERFORM "dlock".quarantine_left(0) FROM "dlock".locks l WHERE l.name = '' AND l.token = '';
END $$;
