
-- ---- acquire --------------------------------------------------------------------------------------------------------

-- Acquires the long way; `queued`: the caller wants a place in the queue. me.ticket is 0 if the caller will probably
-- join the queue, and NULL otherwise. Returns a row as acquire() does, and is_new: the name had no row; wrote,
-- durable: whether this changed the tables, and whether the change must survive a crash.
CREATE OR REPLACE FUNCTION "dlock".ask(me queue, queued boolean, until_us bigint, OUT granted bigint,
    OUT server_us bigint, OUT in_use integer, OUT place integer, OUT left_ms bigint, OUT is_new boolean,
    OUT wrote boolean, OUT durable boolean)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    present locks;
    served record;
    joins boolean := queued AND me.ticket IS NOT NULL;
    done boolean;
BEGIN
    granted := 0;
    is_new := false;
    durable := false;

    -- Unless the caller is to join the queue at once, first look without locking. The order of the two reads matters: a
    -- call that grants the name to this caller also removes it from the queue, in the same transaction. So a caller that
    -- is refused here, and not in the queue, was not granted anything either.
    IF NOT joins THEN
        SELECT * INTO present FROM locks l WHERE l.name = me.name;
        server_us := clock_us();
        IF refuses(present, server_us, me) THEN
            IF present.permits <> me.permits THEN
                in_use := present.permits;
            ELSIF queued THEN
                place := place_of(me.name, me.token);
                joins := place IS NULL;
            END IF;
            IF NOT joins THEN
                wrote := place IS NOT NULL AND shows(me.token, present, server_us);
                IF present.lingers AND tell_holder(present, me.token) THEN
                    wrote := true;
                END IF;
                left_ms := left_of(present, server_us);
                RETURN;
            END IF;
        END IF;
    END IF;

    present := lock_row(me.name, until_us);
    IF present.name IS NULL THEN
        present := make_row(me.name, until_us);
        is_new := true;
    END IF;
    wrote := true;
    server_us := clock_us();
    -- The ticket of a caller that joins the queue shows that it is alive.
    done := queued AND NOT joins AND shows(me.token, present, server_us);
    present := settle(present, server_us);
    IF present.token = me.token THEN
        UPDATE locks l SET expires_us = server_us + me.lease_ms * 1000, handed = false, lingers = me.lingers
            WHERE l.name = me.name;
        granted := present.fence;
    ELSIF present.mode <> 0 THEN
        UPDATE shares s SET expires_us = server_us + me.lease_ms * 1000, handed = false
            WHERE s.name = me.name AND s.token = me.token RETURNING s.fence INTO granted;
        granted := coalesce(granted, 0);
    END IF;
    durable := granted > 0;
    IF granted = 0 AND present.token IS NULL THEN
        present.handed := present.handed AND queued;
        served := serve(present, server_us, me);
        granted := served.granted;
        durable := served.given > 0;
        SELECT * INTO present FROM locks l WHERE l.name = me.name; -- serve() may have granted it to a waiter
    END IF;
    IF granted = 0 THEN
        IF present.permits <> me.permits THEN
            in_use := present.permits;
        ELSIF queued THEN
            place := enqueue(me);
        END IF;
        done := present.lingers AND tell_holder(present, me.token);
        left_ms := left_of(present, server_us);
    END IF;
END $$;

-- Deletes the rows of one random page of the table that have not been used for a day, with what holders and waiters that
-- died have left under their names. Called for one new name in eight, at the end of its transaction, this keeps all but a
-- tenth of the table in use. Of other sessions it waits only for a renewal of a share that ended a day ago.
CREATE OR REPLACE FUNCTION "dlock".sweep() RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    page bigint := floor(random() * (pg_relation_size('locks') / current_setting('block_size')::bigint));
    idle_us bigint := clock_us() - 86400000000;
    swept bytea[];
BEGIN
    WITH deleted AS (
        DELETE FROM locks l WHERE l.ctid IN (
            SELECT i.ctid FROM locks i
                WHERE i.ctid = ANY (ARRAY(SELECT format('(%s,%s)', page, n)::tid FROM generate_series(1, 256) n))
                    AND greatest(i.expires_us, i.fence) < idle_us
                    AND NOT EXISTS (SELECT FROM queue q WHERE q.name = i.name AND q.ticket >= idle_us)
                    AND NOT EXISTS (SELECT FROM shares s WHERE s.name = i.name AND s.expires_us >= idle_us)
                FOR UPDATE SKIP LOCKED)
            RETURNING l.name)
        SELECT array_agg(d.name) INTO swept FROM deleted d;
    DELETE FROM queue q WHERE q.name = ANY (swept);
    DELETE FROM shares s WHERE s.name = ANY (swept);
    RETURN swept IS NOT NULL;
END $$;

-- ---- calls ----------------------------------------------------------------------------------------------------------
-- Claims come as arrays, so that one statement serves many. They are processed in the order of their names, whatever
-- their order in the arrays. `notices` holds the notifications for other clients, to be passed to tell() unchanged once
-- this is committed; NULL: none, or all have been sent. Sessions keep their plans for a long time. enable_seqscan is
-- off, so that a plan made while a table was small does not scan the whole table when it has grown.

CREATE OR REPLACE FUNCTION "dlock".schema_version() RETURNS integer LANGUAGE sql IMMUTABLE AS $$ SELECT 1 $$;

-- Asks for grants. A claim's flags: 1, it wants to be queued; 2, its client wants to know of other waiters; 4, it
-- probably has to wait, and is not in the queue yet. One row per claim:
--   claim      its index in the arrays, from 1
--   granted    > 0: the fence; the token has the grant, for its whole lease from now. < 0: nothing is granted
--              for so many ms: quarantine_left(), which quarantine_ms = 0 turns off. 0: it has none, and then
--   in_use     not NULL: the name is in use in another way than asked for, as permits with this limit, or as a lock
--              (0). NULL: it is not, and then
--   place      in the queue, from 0; NULL: not queued
--   left_ms    until the answer may change
CREATE OR REPLACE FUNCTION "dlock".acquire(names bytea[], tokens text[], leases_ms bigint[], modes integer[],
    limits integer[], flags integer[], quarantine_ms bigint, wait_ms integer)
RETURNS TABLE (claim integer, granted bigint, server_us bigint, in_use integer, place integer, left_ms bigint,
    notices text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
#variable_conflict use_variable
DECLARE
    answer record;
    is_new boolean := false;
    wrote boolean := false;
    durable boolean := false;
    until_us bigint := begin_call(wait_ms);
    done boolean;
BEGIN
    IF quarantine_ms > 0 THEN
        granted := -quarantine_left(quarantine_ms);
        IF granted < 0 THEN
            server_us := clock_us();
            FOREACH claim IN ARRAY in_order(names, tokens) LOOP
                RETURN NEXT;
            END LOOP;
            done := end_call(false);
            RETURN;
        END IF;
    END IF;
    FOREACH claim IN ARRAY in_order(names, tokens) LOOP
        IF cardinality(names) > 1 THEN
            done := be_patient(until_us) AND tell_apart();
        END IF;
        -- The short way, as take has it: the name has no holder and no waiter, neither in the queue nor for a turn at
        -- it. If the row changes while this waits for it, PostgreSQL checks all of that again.
        IF modes[claim] = 0 AND flags[claim] & 4 = 0 THEN
            server_us := clock_us();
            UPDATE locks l SET token = tokens[claim], fence = greatest(l.fence + 1, server_us),
                    expires_us = server_us + leases_ms[claim] * 1000, lingers = flags[claim] & 2 <> 0
                WHERE l.name = names[claim] AND CASE WHEN l.token IS NULL AND l.mode = 0 AND NOT l.awaited
                    THEN pg_try_advisory_xact_lock(turn_key(l.name)) ELSE false END
                RETURNING l.fence INTO granted;
            IF granted > 0 THEN
                in_use := NULL;
                place := NULL;
                notices := NULL;
                wrote := true;
                durable := true;
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;

        -- The short way into the queue: the name has an exclusive holder that does not want to know who asks. Does what
        -- ask() would do.
        IF modes[claim] = 0 AND flags[claim] & 5 = 5 THEN
            SELECT (l.expires_us - clock_us()) / 1000 INTO left_ms FROM locks l
                WHERE l.name = names[claim] AND l.mode = 0 AND l.token <> tokens[claim] AND NOT l.lingers
                    AND l.expires_us > clock_us() AND pg_try_advisory_xact_lock(turn_key(l.name))
                FOR UPDATE;
            IF left_ms > 0 THEN
                place := enqueue(ROW(names[claim], 0, tokens[claim], leases_ms[claim], 0, 0, flags[claim] & 2 <> 0));
                granted := 0;
                server_us := clock_us();
                in_use := NULL;
                notices := NULL;
                wrote := true;
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;

        answer := ask(ROW(names[claim], CASE WHEN flags[claim] & 4 <> 0 THEN 0 END, tokens[claim], leases_ms[claim],
            modes[claim], limits[claim], flags[claim] & 2 <> 0), flags[claim] & 1 <> 0, until_us);
        granted := answer.granted;
        server_us := answer.server_us;
        in_use := answer.in_use;
        place := answer.place;
        left_ms := answer.left_ms;
        notices := noted();
        is_new := is_new OR answer.is_new;
        wrote := wrote OR answer.wrote;
        durable := durable OR answer.durable;
        RETURN NEXT;
    END LOOP;
    IF wrote THEN
        -- A caller that has given up gets nothing: the release of its token may have been here already.
        IF clock_us() > until_us THEN
            done := refuse_late() IS NULL;
        END IF;
        done := end_call(durable);
    END IF;
    IF is_new AND random() < 0.125 THEN
        done := sweep();
    END IF;
END $$;
