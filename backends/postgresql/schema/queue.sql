
-- ---- the queue ------------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION "dlock".grant_message(token text, fence bigint, now_us bigint, kept_ms bigint, lock bytea)
RETURNS text LANGUAGE sql STABLE AS $$
    SELECT format('granted %s %s %s %s %s', token, fence, now_us, kept_ms, encode(lock, 'hex'))
$$;

-- Grants what there is room for: first to the waiters in their order, then to `me`, the caller (NULL: there is none).
-- `given` counts the grants; `granted` is the caller's fence, or 0. Each other receiver is sent the message "granted
-- <token> <fence> <server's clock in microseconds> <kept ms> <name in hex>". After an unconfirmed hand-over (`handed`)
-- the first receiver is a waiter whose client has asked since that began, as the caller has. The row is locked and
-- settled.
CREATE OR REPLACE FUNCTION "dlock".serve(present locks, now_us bigint, me queue, OUT given integer, OUT granted bigint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    waiter queue;
    ear text[];
    is_mine boolean;
    kept_ms bigint;
    fence bigint;
    held bigint := CASE WHEN present.mode = 0 THEN 0 ELSE shares_of(present, now_us) END;
    message text;
    since bigint := CASE WHEN present.handed AND me.token IS NOT NULL THEN present.fence END;
    done boolean;
BEGIN
    given := 0;
    granted := 0;
    LOOP
        -- Find the first waiter that lives. Those before it are dead and leave the queue. The caller lives, since it asks.
        waiter := NULL;
        WHILE present.awaited AND present.token IS NULL LOOP
            IF held = 0 AND since IS NULL THEN -- there is room for any waiter
                DELETE FROM queue q WHERE q.name = present.name
                    AND q.ticket = (SELECT min(m.ticket) FROM queue m WHERE m.name = present.name)
                    RETURNING q.ticket, q.token, q.lease_ms, q.mode, q.permits, q.lingers,
                        (SELECT ARRAY[l.channel, l.secret] FROM listeners l WHERE l.client = left(q.token, 24))
                    INTO waiter.ticket, waiter.token, waiter.lease_ms, waiter.mode, waiter.permits, waiter.lingers, ear;
                EXIT WHEN waiter.token = me.token OR is_heard(ear[1]);
            ELSE
                SELECT q.ticket, q.token, q.lease_ms, q.mode, q.permits, q.lingers, ARRAY[l.channel, l.secret]
                    INTO waiter.ticket, waiter.token, waiter.lease_ms, waiter.mode, waiter.permits, waiter.lingers, ear
                    FROM queue q LEFT JOIN listeners l ON l.client = left(q.token, 24)
                    WHERE q.name = present.name AND (since IS NULL OR q.token = me.token OR q.ticket >= since
                            OR l.asked >= since)
                    ORDER BY q.ticket LIMIT 1;
                EXIT WHEN waiter.token = me.token OR is_heard(ear[1]) OR waiter.token IS NULL AND since IS NOT NULL;
                DELETE FROM queue q WHERE q.name = present.name AND q.ticket = waiter.ticket;
            END IF;
            IF waiter.token IS NULL THEN
                UPDATE locks l SET awaited = false WHERE l.name = present.name;
                present.awaited := false;
            END IF;
        END LOOP;
        IF waiter.token IS NULL AND granted = 0 THEN
            waiter := me;
        END IF;
        EXIT WHEN waiter.token IS NULL OR NOT fits(present, held, waiter.mode, waiter.permits);

        is_mine := coalesce(waiter.token = me.token, false);
        kept_ms := CASE WHEN is_mine THEN me.lease_ms ELSE least(waiter.lease_ms, 3000) END;
        IF held > 0 OR since IS NOT NULL THEN
            DELETE FROM queue q WHERE q.name = present.name AND q.ticket = waiter.ticket;
        END IF;
        UPDATE locks l SET token = CASE WHEN waiter.mode = 0 THEN waiter.token END,
                fence = greatest(l.fence + 1, now_us), expires_us = now_us + kept_ms * 1000,
                handed = waiter.mode = 0 AND NOT is_mine, mode = waiter.mode, permits = waiter.permits,
                lingers = waiter.lingers
            WHERE l.name = present.name RETURNING l.fence INTO STRICT fence;
        IF waiter.mode <> 0 THEN
            -- A row of the same token has ended, or the token would not have waited: replace it.
            INSERT INTO shares VALUES (present.name, waiter.token, fence, now_us + kept_ms * 1000, NOT is_mine)
                ON CONFLICT ON CONSTRAINT shares_pkey
                DO UPDATE SET fence = excluded.fence, expires_us = excluded.expires_us, handed = excluded.handed;
        END IF;
        IF is_mine THEN
            granted := fence;
        ELSE
            message := grant_message(waiter.token, fence, now_us, kept_ms, present.name);
            message := coded(ear, message);
            done := note(ear, message);
        END IF;
        given := given + 1;
        EXIT WHEN waiter.mode = 0;
        held := held + 1;
        since := NULL;
        present.mode := waiter.mode;
        present.permits := waiter.permits;
    END LOOP;
END $$;

-- Notifies the receivers of unconfirmed hand-overs once more: the client that handed over may have died before it told
-- them. The row is locked.
CREATE OR REPLACE FUNCTION "dlock".remind(present locks, now_us bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    given record;
    message text;
    done boolean;
BEGIN
    FOR given IN SELECT g.token, g.fence, (g.expires_us - now_us) / 1000 AS kept_ms, ARRAY[l.channel, l.secret] AS ear
            FROM (SELECT present.token, present.fence, present.expires_us WHERE present.handed
                UNION ALL SELECT s.token, s.fence, s.expires_us FROM shares s WHERE s.name = present.name AND s.handed) g
            JOIN listeners l ON l.client = left(g.token, 24) WHERE g.expires_us > now_us LOOP
        message := grant_message(given.token, given.fence, now_us, given.kept_ms, present.name);
        message := coded(given.ear, message);
        done := note(given.ear, message);
    END LOOP;
    RETURN true;
END $$;

-- Notifies the exclusive holder, which has asked for that, that another client asks: "wanted <name in hex>".
CREATE OR REPLACE FUNCTION "dlock".tell_holder(present locks, caller text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    ear text[];
    message text;
BEGIN
    IF present.token IS NULL OR left(present.token, 24) = left(caller, 24) THEN
        RETURN false;
    END IF;
    ear := (SELECT ARRAY[l.channel, l.secret] FROM listeners l WHERE l.client = left(present.token, 24));
    message := coded(ear, 'wanted ' || encode(present.name, 'hex'));
    RETURN ear IS NOT NULL AND note(ear, message);
END $$;

-- True if the caller has to wait. Locks nothing.
CREATE OR REPLACE FUNCTION "dlock".shares_refuse(present locks, now_us bigint, me queue) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    head queue;
    held bigint := shares_of(present, now_us);
BEGIN
    IF held = 0 OR EXISTS (SELECT FROM shares s WHERE s.name = present.name AND s.token = me.token) THEN
        RETURN false;
    ELSIF NOT fits(present, held, me.mode, me.permits) THEN
        RETURN true;
    END IF;
    SELECT * INTO head FROM queue q WHERE q.name = present.name ORDER BY q.ticket LIMIT 1;
    RETURN head.token <> me.token AND NOT fits(present, held, head.mode, head.permits) AND lives(head.token);
END $$;

CREATE OR REPLACE FUNCTION "dlock".refuses(present locks, now_us bigint, me queue) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN present.mode = 0 THEN present.token <> me.token AND present.expires_us > now_us
        ELSE shares_refuse(present, now_us, me) END
$$;

-- Returns the token's place in the queue, from 0; NULL: it is not queued.
CREATE OR REPLACE FUNCTION "dlock".place_of(lock bytea, waiter text) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT nullif(count(*), 0) - 1 FROM queue q WHERE q.name = lock
        AND q.ticket <= (SELECT m.ticket FROM queue m WHERE m.name = lock AND m.token = waiter));
END $$;

-- Appends the caller to the queue, unless it is in it, and returns its place. The row is locked.
CREATE OR REPLACE FUNCTION "dlock".enqueue(me queue) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    place bigint;
BEGIN
    WITH line AS (SELECT count(*) AS length, greatest(max(q.ticket) + 1, clock_us()) AS ticket,
                coalesce(bool_or(q.token = me.token), false) AS has_me FROM queue q WHERE q.name = me.name),
            joined AS (INSERT INTO queue
                SELECT me.name, l.ticket, me.token, me.lease_ms, me.mode, me.permits, me.lingers
                FROM line l WHERE NOT l.has_me)
        SELECT l.length INTO place FROM line l WHERE NOT l.has_me;
    IF place IS NULL THEN
        RETURN place_of(me.name, me.token);
    END IF;
    IF place = 0 THEN
        UPDATE locks l SET awaited = true WHERE l.name = me.name AND NOT l.awaited;
    END IF;
    RETURN place;
END $$;

-- Returns the key of the advisory lock that is taken before the row of a name wherever other sessions may wait for it.
-- Waiters get an advisory lock in the order of their arrival, while a row goes to whatever session is present when it
-- becomes free, so that a caller that wants to join the queue could be overtaken repeatedly. Mutual exclusion rests on
-- the row, not on this lock. Every role of the database can take the advisory lock and keep it: so a call waits for its
-- turns for 100 ms in all, and then continues without it.
CREATE OR REPLACE FUNCTION "dlock".turn_key(lock bytea) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended(encode(lock, 'hex'), 1)
$$;

CREATE OR REPLACE FUNCTION "dlock".take_turn(lock bytea, until_us bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    done boolean;
BEGIN
    IF pg_try_advisory_xact_lock(turn_key(lock)) THEN
        RETURN true;
    END IF;
    done := be_patient(least(until_us, (date_part('epoch', statement_timestamp()) * 1000000)::bigint + 100000));
    BEGIN
        done := pg_advisory_xact_lock(turn_key(lock)) IS NOT NULL;
        -- A timeout that fires at the last moment is raised at the next statement, which therefore has to be in this block.
        done := pg_sleep(0) IS NOT NULL;
        RETURN true;
    EXCEPTION WHEN lock_not_available THEN
        RETURN false;
    END;
END $$;

-- Returns the row of the name, locked; NULL if there is none.
CREATE OR REPLACE FUNCTION "dlock".lock_row(lock bytea, until_us bigint) RETURNS locks LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    found_row locks;
    done boolean;
BEGIN
    SELECT * INTO found_row FROM locks l WHERE l.name = lock AND pg_try_advisory_xact_lock(turn_key(l.name)) FOR UPDATE;
    IF NOT FOUND THEN -- there is no row, or another session has the turn
        done := take_turn(lock, until_us);
        done := be_patient(until_us);
        SELECT * INTO found_row FROM locks l WHERE l.name = lock FOR UPDATE;
    END IF;
    RETURN found_row;
END $$;

-- The same, but creates the row if there is none.
CREATE OR REPLACE FUNCTION "dlock".make_row(lock bytea, until_us bigint) RETURNS locks LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    found_row locks;
BEGIN
    WHILE found_row.name IS NULL LOOP
        -- Between the two statements another session may create the row, and sweep() delete it again.
        INSERT INTO locks (name) VALUES (lock) ON CONFLICT DO NOTHING;
        found_row := lock_row(lock, until_us);
    END LOOP;
    RETURN found_row;
END $$;
