
-- ---- parts ----------------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION "dlock".clock_us() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint
$$;

-- The parts are called in assignments, which cost a fraction of PERFORM; those without a result return true. Parts
-- that are a mere expression are in SQL: then they become part of their caller's, and cost no call.

CREATE OR REPLACE FUNCTION "dlock".refuse_isolation() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RAISE EXCEPTION 'dlock needs the isolation level READ COMMITTED' USING ERRCODE = 'DL002',
        HINT = 'ALTER ROLE ... SET default_transaction_isolation = ''read committed''';
END $$;

-- From here on this call sends no messages itself.
CREATE OR REPLACE FUNCTION "dlock".tell_apart() RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT set_config('dlock.apart', 'on', true) IS NULL
$$;

-- The beginning of every call: when the patience of its caller ends. It counts from the arrival of the request: a
-- session's first call compiles its functions first. A negative patience is as long, and says that the call is to return
-- what others are to be told, and tell them nothing.
CREATE OR REPLACE FUNCTION "dlock".begin_call(wait_ms integer) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN current_setting('transaction_isolation') <> 'read committed' THEN refuse_isolation()
        WHEN wait_ms < 0 AND tell_apart()
            OR set_config('lock_timeout', greatest(abs(wait_ms), 1)::text, true) IS NOT NULL
        THEN (date_part('epoch', statement_timestamp()) * 1000000)::bigint + abs(wait_ms) * 1000::bigint END
$$;

-- Comes before everything that may wait for others, except what the first claim of a call waits for first: lock_timeout is
-- for each wait, patience for all of them together.
CREATE OR REPLACE FUNCTION "dlock".be_patient(until_us bigint) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT set_config('lock_timeout', greatest((until_us - clock_us()) / 1000, 1)::text, true) IS NOT NULL
$$;

-- The end of every call that writes. A grant or a renewal must outlive a crash of the server, even where somebody
-- has turned synchronous_commit off. Nothing else need: losing it costs only time.
CREATE OR REPLACE FUNCTION "dlock".end_call(durable boolean) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN NOT durable THEN set_config('synchronous_commit', 'off', true) IS NOT NULL
        WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) IS NOT NULL
        ELSE true END
$$;

-- The indexes of a call's claims, in the order of their names: two calls that lock the same rows in different orders
-- would stop each other.
CREATE OR REPLACE FUNCTION "dlock".sorted(names bytea[], tokens text[]) RETURNS integer[] LANGUAGE sql VOLATILE AS $$
    SELECT ARRAY(SELECT n.at::integer FROM unnest(names, tokens) WITH ORDINALITY n(name, token, at)
        ORDER BY n.name, n.token COLLATE "C")
$$;

CREATE OR REPLACE FUNCTION "dlock".in_order(names bytea[], tokens text[]) RETURNS integer[] LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN cardinality(names) = 1 THEN '{1}'::integer[] ELSE sorted(names, tokens) END
$$;

-- ---- messages -------------------------------------------------------------------------------------------------------

-- Proves that a message comes from here. Half of the hash, since a whole one could be continued.
CREATE OR REPLACE FUNCTION "dlock".code_of(secret text, message text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT left(encode(sha256(convert_to(secret || message, 'UTF8')), 'hex'), 32)
$$;

-- A message with its code. `ear`: the channel, and the secret. A client of version 3 has none.
CREATE OR REPLACE FUNCTION "dlock".coded(ear text[], message text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT concat(message, ' ' || code_of(ear[2], message))
$$;

-- Whether this call may NOTIFY: nobody else's does now, so that none waits for the other's flush, and there is room.
CREATE OR REPLACE FUNCTION "dlock".may_notify() RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN current_setting('dlock.apart', true) <> '' THEN false
        WHEN pg_try_advisory_xact_lock(x'646c6f636b01'::bigint) THEN pg_notification_queue_usage() < 0.5 ELSE false END
$$;

-- Sends a message at the end of this transaction, which then fails when somebody else keeps NOTIFY's lock for longer
-- than a few milliseconds: its client calls again, with a negative patience. Or keeps it for the end of the call, as a
-- line: the channel, a space, the message. Comes after everything that may wait for others.
CREATE OR REPLACE FUNCTION "dlock".note(ear text[], message text) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN may_notify()
        THEN pg_notify(ear[1], message) IS NOT NULL AND set_config('lock_timeout', '5', true) IS NOT NULL
        ELSE set_config('dlock.notices', concat(current_setting('dlock.notices', true), ear[1], ' ', message, E'\n'), true)
            IS NOT NULL END
$$;

-- The messages that this call has kept; NULL: none.
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

-- Sends them, with the rights of whoever calls it. In plpgsql, which keeps its plans.
CREATE OR REPLACE FUNCTION "dlock".send(notices text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
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

-- The advisory lock of whoever listens on a channel. Anybody can see it in pg_locks, and take it: the next listener has
-- another one.
CREATE OR REPLACE FUNCTION "dlock".channel_key(channel text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended(channel, 0)
$$;

-- Whether a session listens on the channel; NULL: none does. Calls that ask at once share the lock, and let it go in the
-- same expression: a session that kept it would make the dead look alive.
CREATE OR REPLACE FUNCTION "dlock".is_heard(channel text) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN channel IS NULL THEN false WHEN pg_try_advisory_lock_shared(channel_key(channel))
        THEN NOT pg_advisory_unlock_shared(channel_key(channel)) ELSE true END
$$;

-- Whether the token's client lives.
CREATE OR REPLACE FUNCTION "dlock".lives(token text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    channel text := (SELECT l.channel FROM listeners l WHERE l.client = left(token, 24));
BEGIN
    RETURN is_heard(channel);
END $$;

-- Records that the token's client asks although this name was given to somebody who has not confirmed it: one that
-- lives asks at least once while a hand-over lasts. Another caller that is about to record that does it for us.
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

-- Whether a grant of this mode may be given beside `held` shares. Grants that are over have been taken out of `present`.
CREATE OR REPLACE FUNCTION "dlock".fits(present locks, held bigint, mode integer, permits integer) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN present.token IS NOT NULL THEN false WHEN held = 0 THEN true
        ELSE fits.mode <> 0 AND present.mode = fits.mode AND present.permits = fits.permits
            AND (fits.mode = 1 OR held < fits.permits) END
$$;

-- How many shares live, as far as that matters: of readers one is as good as many. The row is locked and settled, or the
-- answer is a moment's.
CREATE OR REPLACE FUNCTION "dlock".shares_of(present locks, now_us bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF present.mode = 0 THEN
        RETURN 0;
    END IF;
    RETURN (SELECT count(*) FROM (SELECT FROM shares s WHERE s.name = present.name AND s.expires_us > now_us
        LIMIT greatest(present.permits, 1)) x);
END $$;

-- When the answer to those who are refused may change at the earliest, unless they are told: the first end of a lease.
CREATE OR REPLACE FUNCTION "dlock".left_of_shares(lock bytea, now_us bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN coalesce((SELECT min(s.expires_us) - now_us FROM shares s WHERE s.name = lock AND s.expires_us > now_us) / 1000,
        0);
END $$;

CREATE OR REPLACE FUNCTION "dlock".left_of(present locks, now_us bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN present.mode = 0 THEN (present.expires_us - now_us) / 1000
        ELSE left_of_shares(present.name, now_us) END
$$;

-- A hand-over has ended that nobody confirmed: its client does not answer, and all of its waiters leave the queue. Where
-- it lasted as long as a hand-over does, so do those of clients that have not asked since it began. The row is locked.
CREATE OR REPLACE FUNCTION "dlock".lapse(lock bytea, receiver text, given bigint, ended_us bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    DELETE FROM queue q WHERE q.name = lock AND (left(q.token, 24) = left(receiver, 24) OR ended_us - given >= 3000000
        AND q.ticket < given AND NOT EXISTS (SELECT FROM listeners l WHERE l.client = left(q.token, 24)
            AND (l.asked >= given OR l.secret IS NULL)));
    RETURN true;
END $$;

-- Takes out what is over. If that is a hand-over which nobody confirmed, `handed` stays true in what this returns. The
-- row is locked.
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

-- Ends a grant of one who has the name alone. The row is locked.
CREATE OR REPLACE FUNCTION "dlock".vacate(present locks, now_us bigint) RETURNS locks LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE locks l SET token = NULL, expires_us = now_us, handed = false WHERE l.name = present.name;
    present.token := NULL;
    RETURN present;
END $$;
