
-- ---- parts ----------------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION "dlock".clock_us() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint
$$;

-- The parts are called in assignments, which cost a fraction of PERFORM; parts without a result return true. Parts that
-- are a single expression are in SQL, since PostgreSQL inlines those into their caller and no call is left.

CREATE OR REPLACE FUNCTION "dlock".refuse_late() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RAISE EXCEPTION 'the call has run out of time' USING ERRCODE = 'query_canceled';
END $$;

CREATE OR REPLACE FUNCTION "dlock".refuse_isolation() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RAISE EXCEPTION 'dlock needs the isolation level READ COMMITTED' USING ERRCODE = 'DL002',
        HINT = 'ALTER ROLE ... SET default_transaction_isolation = ''read committed''';
END $$;

-- Makes the rest of this call return its notifications instead of sending them.
CREATE OR REPLACE FUNCTION "dlock".tell_apart() RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT set_config('dlock.apart', 'on', true) IS NULL
$$;

-- Begins every call. Returns the time at which the call has to give up, wait_ms after the arrival of the request: that
-- includes compiling the functions in a session's first call. A negative wait_ms means the same duration, and makes the
-- call return its notifications instead of sending them.
CREATE OR REPLACE FUNCTION "dlock".begin_call(wait_ms integer) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN current_setting('transaction_isolation') <> 'read committed' THEN refuse_isolation()
        WHEN wait_ms < 0 AND tell_apart()
            OR set_config('lock_timeout', greatest(abs(wait_ms), 1)::text, true) IS NOT NULL
        THEN (date_part('epoch', statement_timestamp()) * 1000000)::bigint + abs(wait_ms) * 1000::bigint END
$$;

-- Sets the time limit for the next wait. Comes before everything that may wait for other sessions, except the first
-- wait of a call's first claim: lock_timeout limits each wait, until_us all of them together.
CREATE OR REPLACE FUNCTION "dlock".be_patient(until_us bigint) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT set_config('lock_timeout', greatest((until_us - clock_us()) / 1000, 1)::text, true) IS NOT NULL
$$;

-- Ends every call that writes. A grant or a renewal must survive a crash of the server, even where synchronous_commit
-- is off. For everything else it is turned off: losing that only costs time.
CREATE OR REPLACE FUNCTION "dlock".end_call(durable boolean) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN NOT durable THEN set_config('synchronous_commit', 'off', true) IS NOT NULL
        WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) IS NOT NULL
        ELSE true END
$$;

-- Returns the indexes of a call's claims in the order of their names: two calls that lock the same rows in different
-- orders would deadlock.
CREATE OR REPLACE FUNCTION "dlock".sorted(names bytea[], tokens text[]) RETURNS integer[] LANGUAGE sql VOLATILE AS $$
    SELECT ARRAY(SELECT n.at::integer FROM unnest(names, tokens) WITH ORDINALITY n(name, token, at)
        ORDER BY n.name, n.token COLLATE "C")
$$;

CREATE OR REPLACE FUNCTION "dlock".in_order(names bytea[], tokens text[]) RETURNS integer[] LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN cardinality(names) = 1 THEN '{1}'::integer[] ELSE sorted(names, tokens) END
$$;

-- ---- messages -------------------------------------------------------------------------------------------------------

-- Returns the code that proves that a message comes from these functions. It is half of the hash, since from a whole
-- SHA-256 anyone could compute the code of a longer message.
CREATE OR REPLACE FUNCTION "dlock".code_of(secret text, message text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT left(encode(sha256(convert_to(secret || message, 'UTF8')), 'hex'), 32)
$$;

-- Returns a message with its code. `ear` is the channel and the secret.
CREATE OR REPLACE FUNCTION "dlock".coded(ear text[], message text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT concat(message, ' ', code_of(ear[2], message))
$$;

-- True if this call may NOTIFY itself: no other call is doing so, so that neither waits for the other's flush, and the
-- queue of notifications has room.
CREATE OR REPLACE FUNCTION "dlock".may_notify() RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN current_setting('dlock.apart', true) <> '' THEN false
        WHEN pg_try_advisory_xact_lock(x'646c6f636b01'::bigint) THEN pg_notification_queue_usage() < 0.5 ELSE false END
$$;

-- Sends a message at the end of this transaction. The commit fails if another session keeps NOTIFY's lock for longer
-- than a few milliseconds; the client then repeats the call with a negative wait_ms. If this call may not NOTIFY, the
-- message is kept, to be returned at the end of the call, as a line of the channel, a space and the message. Comes
-- after everything that may wait for other sessions, since it lowers lock_timeout.
CREATE OR REPLACE FUNCTION "dlock".note(ear text[], message text) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN may_notify()
        THEN pg_notify(ear[1], message) IS NOT NULL AND set_config('lock_timeout', '5', true) IS NOT NULL
        ELSE set_config('dlock.notices', concat(current_setting('dlock.notices', true), ear[1], ' ', message, E'\n'), true)
            IS NOT NULL END
$$;

-- Returns and clears the messages that this call has kept.
CREATE OR REPLACE FUNCTION "dlock".take_notes() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    notices text := current_setting('dlock.notices');
    done text := set_config('dlock.notices', '', true);
BEGIN
    RETURN notices;
END $$;

CREATE OR REPLACE FUNCTION "dlock".noted() RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN current_setting('dlock.notices', true) <> '' THEN take_notes() END
$$;

-- Sends messages as noted() returns them, with the rights of the caller. In plpgsql, which caches its plans.
CREATE OR REPLACE FUNCTION "dlock".send(notices text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    line text;
    done boolean;
BEGIN
    FOREACH line IN ARRAY string_to_array(rtrim(notices, E'\n'), E'\n') LOOP
        done := pg_notify(split_part(line, ' ', 1), substr(line, strpos(line, ' ') + 1)) IS NULL;
    END LOOP;
    RETURN true;
END $$;

-- ---- who lives ------------------------------------------------------------------------------------------------------

-- Returns the key of the advisory lock that the listener on a channel holds. Any role can see it in pg_locks and take
-- it, but the next listener has another channel and so another key.
CREATE OR REPLACE FUNCTION "dlock".channel_key(channel text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended(channel, 0)
$$;

-- True if a session listens on the channel; false for NULL. The lock is tried shared, so that simultaneous calls do not
-- see each other, and released in the same expression: a session that kept it would make a dead client look alive.
CREATE OR REPLACE FUNCTION "dlock".is_heard(channel text) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN channel IS NULL THEN false WHEN pg_try_advisory_lock_shared(channel_key(channel))
        THEN NOT pg_advisory_unlock_shared(channel_key(channel)) ELSE true END
$$;

-- True if the token's client is alive.
CREATE OR REPLACE FUNCTION "dlock".lives(token text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    channel text := (SELECT l.channel FROM listeners l WHERE l.client = left(token, 24));
BEGIN
    RETURN is_heard(channel);
END $$;

-- Records that the token's client has asked while a hand-over of this name is unconfirmed: a live client asks at least
-- once during a hand-over. SKIP LOCKED: another call that is just recording this does so for this one as well.
CREATE OR REPLACE FUNCTION "dlock".shows(token text, present locks, now_us bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF present.mode = 0 AND NOT present.handed OR present.mode <> 0
            AND NOT EXISTS (SELECT FROM shares s WHERE s.name = present.name AND s.handed) THEN
        RETURN false;
    END IF;
    UPDATE listeners l SET asked = greatest(present.fence, now_us) WHERE l.ctid = (SELECT m.ctid FROM listeners m
        WHERE m.client = left(token, 24) AND m.asked < present.fence FOR UPDATE SKIP LOCKED);
    RETURN FOUND;
END $$;

-- ---- what is over ---------------------------------------------------------------------------------------------------

-- True if a grant of this mode may be given beside `held` shares. Grants that have ended are no longer in `present`.
CREATE OR REPLACE FUNCTION "dlock".fits(present locks, held bigint, mode integer, permits integer) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN present.token IS NOT NULL THEN false WHEN held = 0 THEN true
        ELSE fits.mode <> 0 AND present.mode = fits.mode AND present.permits = fits.permits
            AND (fits.mode = 1 OR held < fits.permits) END
$$;

-- Returns how many shares are live, counting no further than the limit (readers: 1). The row is locked and settled, or
-- the answer may be outdated at once.
CREATE OR REPLACE FUNCTION "dlock".shares_of(present locks, now_us bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF present.mode = 0 THEN
        RETURN 0;
    END IF;
    RETURN (SELECT count(*) FROM (SELECT FROM shares s WHERE s.name = present.name AND s.expires_us > now_us
        LIMIT greatest(present.permits, 1)) x);
END $$;

-- Returns in how many ms the first lease ends: before that the answer to a refused caller does not change without a
-- notification.
CREATE OR REPLACE FUNCTION "dlock".left_of_shares(lock bytea, now_us bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN coalesce((SELECT min(s.expires_us) - now_us FROM shares s WHERE s.name = lock AND s.expires_us > now_us) / 1000,
        0);
END $$;

CREATE OR REPLACE FUNCTION "dlock".left_of(present locks, now_us bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN present.mode = 0 THEN (present.expires_us - now_us) / 1000
        ELSE left_of_shares(present.name, now_us) END
$$;

-- Called when a hand-over has ended unconfirmed: its client does not respond, so all of its waiters leave the queue. If
-- it lasted as long as a hand-over may, so do the waiters of all clients that have not asked since it began. The row is
-- locked.
CREATE OR REPLACE FUNCTION "dlock".lapse(lock bytea, receiver text, given bigint, ended_us bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    DELETE FROM queue q WHERE q.name = lock AND (left(q.token, 24) = left(receiver, 24) OR ended_us - given >= 3000000
        AND q.ticket < given AND NOT EXISTS (SELECT FROM listeners l WHERE l.client = left(q.token, 24) AND l.asked >= given));
    RETURN true;
END $$;

-- Removes grants that have ended. If one of them was an unconfirmed hand-over, `handed` stays true in the row that is
-- returned. The row is locked.
CREATE OR REPLACE FUNCTION "dlock".take_out(present locks, now_us bigint) RETURNS locks LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    ended shares;
    done boolean;
BEGIN
    IF present.expires_us <= now_us AND present.token IS NOT NULL THEN
        IF present.handed THEN
            done := lapse(present.name, present.token, present.fence, present.expires_us);
            UPDATE locks l SET token = NULL, handed = false WHERE l.name = present.name;
        END IF;
        present.token := NULL;
    END IF;
    IF present.mode <> 0 THEN
        -- In the order of renewals: neither stops the other.
        FOR ended IN SELECT * FROM shares s WHERE s.name = present.name AND s.expires_us <= now_us ORDER BY s.token
                FOR UPDATE LOOP
            IF ended.handed THEN
                done := lapse(ended.name, ended.token, ended.fence, ended.expires_us);
                present.handed := true;
            END IF;
            DELETE FROM shares s WHERE s.name = ended.name AND s.token = ended.token;
        END LOOP;
    END IF;
    RETURN present;
END $$;

CREATE OR REPLACE FUNCTION "dlock".settle(present locks, now_us bigint) RETURNS locks LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN present.mode = 0 AND (present.token IS NULL OR present.expires_us > now_us) THEN present
        ELSE take_out(present, now_us) END
$$;

-- Ends the exclusive grant. The row is locked.
CREATE OR REPLACE FUNCTION "dlock".vacate(present locks, now_us bigint) RETURNS locks LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE locks l SET token = NULL, expires_us = now_us, handed = false WHERE l.name = present.name;
    present.token := NULL;
    RETURN present;
END $$;
