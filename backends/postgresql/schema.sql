-- dlock's objects in PostgreSQL, version 2.
--
-- dlock creates them by itself on first use, where its role may. Otherwise a DBA runs this once in the locks' database
-- (`dlock schema postgresql | psql DATABASE`), and gives each role of an application what stands at the end. Running it
-- again is harmless. To keep them in another schema than dlock, replace "dlock", with its quotes, everywhere below, and
-- say `schema=` in the URI.
--
-- How it works
--   locks    one row per name; it stays after the release, since it keeps the fence. slot 0 is the exclusive lock; the
--            other slots are left for modes with several holders.
--   queue    who waits, in the order in which they came. Unlogged: nobody's place outlives a crash of the server, just
--            as nobody's connection does.
--   listeners who listens for a client, and on which channel. Its name is a secret of the client's, since every role of a
--            database may send NOTIFY to any channel that it can name: no table that applications could read has it, and
--            no statement of ours shows it. That session holds an advisory lock for it: while it does, the client lives.
--   Every function first locks the row of the name, and only then reads or writes the queue, in statements of its own,
--   each of which sees what was committed before it began. Hence plpgsql, VOLATILE, and READ COMMITTED. A single
--   statement would read the queue as it was before it waited for the row, and lose wake-ups.
--   Who merely asks, and is refused, locks nothing and writes nothing.
--   A lock that ends is given to the first waiter that lives, in the same transaction, and its client is notified. A
--   free lock that somebody waits for is given to that one by the next who asks: nobody barges in.
--   A client may listen and yet be stopped, or its host lost. So a hand-over lasts 3 s at most, until its receiver
--   renews it or asks again. When it ends unconfirmed, every waiter of that client leaves the queue of that name.
--   A fence is the greater of the last one + 1 and the server's clock in microseconds, so that the row of a name that
--   nobody used for a day can go: its next fence is past every earlier one, unless the clock was set back by more than
--   that day.
--   Times are in microseconds since 1970 by clock_timestamp(); now() would be the start of the transaction.
--
-- Roles of applications touch no table. The functions run with the rights of their owner (SECURITY DEFINER, with a
-- fixed search_path that has temporary objects last), so that whoever may lock cannot rewrite other people's locks
-- otherwise than through them.
BEGIN;

DO $$
BEGIN
    -- Two sessions may do this at once.
    PERFORM pg_advisory_xact_lock(x'646c6f636b00'::bigint);
    IF to_regnamespace('"dlock"') IS NULL THEN
        CREATE SCHEMA "dlock";
    END IF;
END $$;

SET LOCAL search_path = "dlock", pg_temp;

-- A newer version brings everything that older ones call. An older one has other tables, in which somebody may hold
-- locks right now.
DO $$
DECLARE
    present integer := 2;
BEGIN
    IF to_regprocedure('"dlock".schema_version()') IS NOT NULL THEN
        present := schema_version();
    END IF;
    IF present > 2 THEN
        RAISE EXCEPTION 'schema "dlock" has version % of dlock''s objects, this is version 2', present
            USING ERRCODE = 'DL001';
    ELSIF present < 2 THEN
        RAISE EXCEPTION 'schema "dlock" has version % of dlock''s objects, and this is version 2', present
            USING ERRCODE = 'DL003';
    END IF;
END $$;

-- No index but the key: an update of any other column then stays in its page.
CREATE TABLE IF NOT EXISTS locks (
    name bytea NOT NULL,
    slot integer NOT NULL DEFAULT 0,
    token text COLLATE "C",                 -- who has it; NULL: nobody
    fence bigint NOT NULL DEFAULT 0,        -- of the last grant
    expires_us bigint NOT NULL DEFAULT 0,   -- when the lease ends; without a token, when the last grant ended
    handed boolean NOT NULL DEFAULT false,  -- given to a waiter that has not confirmed it
    PRIMARY KEY (name, slot)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0);

CREATE UNLOGGED TABLE IF NOT EXISTS queue (
    name bytea NOT NULL,
    ticket bigint NOT NULL,                 -- the order within a name
    token text COLLATE "C" NOT NULL,
    lease_ms bigint NOT NULL,
    PRIMARY KEY (name, ticket)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

-- Unlogged, since no session outlives a crash.
CREATE UNLOGGED TABLE IF NOT EXISTS listeners (
    client text COLLATE "C" PRIMARY KEY,    -- what its tokens begin with
    channel text COLLATE "C" NOT NULL
);

-- ---- parts ----------------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION clock_us() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

-- The parts are called in assignments, which cost a fraction of PERFORM; those without a result return true.

-- What every call begins with: when the patience of its caller ends.
CREATE OR REPLACE FUNCTION begin_call(wait_ms integer) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'dlock needs the isolation level READ COMMITTED' USING ERRCODE = 'DL002',
            HINT = 'ALTER ROLE ... SET default_transaction_isolation = ''read committed''';
    END IF;
    RETURN clock_us() + wait_ms * 1000::bigint;
END $$;

-- Comes before everything that may wait for others: lock_timeout is for each wait, patience for all of them together.
CREATE OR REPLACE FUNCTION be_patient(until_us bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN set_config('lock_timeout', greatest((until_us - clock_us()) / 1000, 1)::text, true) IS NOT NULL;
END $$;

-- What every call that writes ends with. A grant or a renewal must outlive a crash of the server, even where somebody
-- has turned synchronous_commit off. Nothing else need: losing it costs only time.
CREATE OR REPLACE FUNCTION end_call(durable boolean) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF NOT durable THEN
        RETURN set_config('synchronous_commit', 'off', true) IS NOT NULL;
    ELSIF current_setting('synchronous_commit') = 'off' THEN
        RETURN set_config('synchronous_commit', 'on', true) IS NOT NULL;
    END IF;
    RETURN true;
END $$;

-- The advisory lock of whoever listens on a channel. Anybody can see it in pg_locks, and take it: the next listener has
-- another one.
CREATE OR REPLACE FUNCTION channel_key(channel text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended(channel, 0)
$$;

-- Whether a session listens for the token's client. Those who ask at once share the lock, which is let go in the same
-- expression: whoever holds it makes the dead look alive.
CREATE OR REPLACE FUNCTION lives(token text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    key bigint;
BEGIN
    SELECT channel_key(l.channel) INTO key FROM listeners l WHERE l.client = left(token, 24);
    RETURN CASE WHEN key IS NULL THEN false
        WHEN pg_try_advisory_lock_shared(key) THEN NOT pg_advisory_unlock_shared(key) ELSE true END;
END $$;

-- Makes token the holder, under the next fence, which it returns. The row is locked.
CREATE OR REPLACE FUNCTION give(lock bytea, receiver text, lease_ms bigint, now_us bigint, is_handed boolean)
RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    given bigint;
BEGIN
    UPDATE locks l SET token = receiver, fence = greatest(l.fence + 1, now_us), expires_us = now_us + lease_ms * 1000,
            handed = is_handed
        WHERE l.name = lock AND l.slot = 0 RETURNING l.fence INTO STRICT given;
    RETURN given;
END $$;

-- The first waiter that lives, or NULL; drops the dead before it. `caller` lives: it is asking. The row is locked.
CREATE OR REPLACE FUNCTION heir(lock bytea, caller text) RETURNS queue LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    waiter queue;
BEGIN
    LOOP
        SELECT * INTO waiter FROM queue q WHERE q.name = lock ORDER BY q.ticket LIMIT 1;
        IF NOT FOUND OR waiter.token = caller OR lives(waiter.token) THEN
            RETURN waiter;
        END IF;
        DELETE FROM queue q WHERE q.name = lock AND q.ticket = waiter.ticket;
    END LOOP;
END $$;

-- Gives the lock to a waiter and tells its client:
-- "granted <token> <fence> <server's clock in microseconds> <kept ms> <name in hex>".
CREATE OR REPLACE FUNCTION hand_over(waiter queue) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now_us bigint := clock_us();
    kept_ms bigint := least(waiter.lease_ms, 3000);
    fence bigint := give(waiter.name, waiter.token, kept_ms, now_us, true);
BEGIN
    DELETE FROM queue q WHERE q.name = waiter.name AND q.ticket = waiter.ticket;
    PERFORM pg_notify(l.channel,
            format('granted %s %s %s %s %s', waiter.token, fence, now_us, kept_ms, encode(waiter.name, 'hex')))
        FROM listeners l WHERE l.client = left(waiter.token, 24);
    RETURN true;
END $$;

-- A grant of `last` has ended. If it was a hand-over that nobody confirmed, its client does not answer: all of its
-- waiters leave the queue. The row is locked.
CREATE OR REPLACE FUNCTION lapse(last locks) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF last.token IS NOT NULL AND last.handed THEN
        DELETE FROM queue q WHERE q.name = last.name AND left(q.token, 24) = left(last.token, 24);
    END IF;
    RETURN true;
END $$;

-- Ends the present grant: true when a waiter got the lock. The row is locked.
CREATE OR REPLACE FUNCTION pass_on(lock bytea) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    waiter queue := heir(lock, NULL);
BEGIN
    IF waiter.token IS NOT NULL THEN
        RETURN hand_over(waiter);
    END IF;
    UPDATE locks l SET token = NULL, expires_us = clock_us(), handed = false WHERE l.name = lock AND l.slot = 0;
    RETURN false;
END $$;

-- token's place in the queue, from 0; NULL: it is not in it.
CREATE OR REPLACE FUNCTION place_of(lock bytea, waiter text) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    mine bigint;
BEGIN
    SELECT q.ticket INTO mine FROM queue q WHERE q.name = lock AND q.token = waiter;
    IF mine IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT count(*) FROM queue q WHERE q.name = lock AND q.ticket < mine);
END $$;

-- Puts token at the end of the queue, unless it is in it. The row is locked.
CREATE OR REPLACE FUNCTION enqueue(lock bytea, waiter text, lease_ms bigint) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM queue q WHERE q.name = lock AND q.token = waiter) THEN
        INSERT INTO queue (name, ticket, token, lease_ms)
            SELECT lock, coalesce(max(q.ticket), 0) + 1, waiter, enqueue.lease_ms FROM queue q WHERE q.name = lock;
    END IF;
    RETURN place_of(lock, waiter);
END $$;

-- The row of the name, locked; NULL if there is none. An advisory lock comes first: those who wait for it get it in the
-- order in which they came, while a row goes to whoever is there when it becomes free, so that one who wants to join
-- the queue could be passed by others' turns again and again. What excludes is the row.
CREATE OR REPLACE FUNCTION lock_row(lock bytea, until_us bigint) RETURNS locks LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    found_row locks;
    done boolean := be_patient(until_us);
BEGIN
    done := pg_advisory_xact_lock(hashtextextended(encode(lock, 'hex'), 1)) IS NULL;
    done := be_patient(until_us);
    SELECT * INTO found_row FROM locks l WHERE l.name = lock AND l.slot = 0 FOR UPDATE;
    RETURN found_row;
END $$;

-- The same; the row is made if need be.
CREATE OR REPLACE FUNCTION make_row(lock bytea, until_us bigint) RETURNS locks LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    found_row locks := lock_row(lock, until_us);
BEGIN
    WHILE found_row.name IS NULL LOOP
        -- Between the two it may be made by somebody else, and swept away again.
        INSERT INTO locks (name) VALUES (lock) ON CONFLICT DO NOTHING;
        found_row := lock_row(lock, until_us);
    END LOOP;
    RETURN found_row;
END $$;

-- Deletes the rows of one page of the table, picked at random, that nobody has used for a day. Called for one new name
-- in eight, at the end of its transaction, this keeps all but a tenth of the table in use. Waits for nothing.
CREATE OR REPLACE FUNCTION sweep() RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    page bigint := floor(random() * (pg_relation_size('locks') / current_setting('block_size')::bigint));
    idle_us bigint := clock_us() - 86400000000;
BEGIN
    DELETE FROM locks l WHERE l.ctid IN (
        SELECT i.ctid FROM locks i
            WHERE i.ctid = ANY (ARRAY(SELECT format('(%s,%s)', page, n)::tid FROM generate_series(1, 256) n))
                AND i.expires_us < idle_us AND NOT EXISTS (SELECT FROM queue q WHERE q.name = i.name)
            FOR UPDATE SKIP LOCKED);
    RETURN FOUND;
END $$;

-- ---- calls ----------------------------------------------------------------------------------------------------------
-- Claims come as arrays, so that many are one statement. They are worked on in the order of their names, whatever their
-- order in the arrays: two calls that lock the same rows in different orders would stop each other.
-- Sessions keep their plans for long: one made while a table was small must not read the whole of it when it has grown.

CREATE OR REPLACE FUNCTION schema_version() RETURNS integer LANGUAGE sql IMMUTABLE AS $$ SELECT 2 $$;

-- Asks for locks. One row per claim:
--   claim      its index in the arrays, from 1
--   granted    > 0: the fence; token has the lock, for its whole lease from now. 0: somebody else has it, and then
--   place      in the queue, from 0; NULL: not queued
--   left_ms    of the holder's lease
CREATE OR REPLACE FUNCTION acquire(names bytea[], tokens text[], leases_ms bigint[], queued boolean[], wait_ms integer)
RETURNS TABLE (claim integer, granted bigint, server_us bigint, place integer, left_ms bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
#variable_conflict use_variable
DECLARE
    lock bytea;
    me text;
    present locks;
    waiter queue;
    is_new boolean := false;
    wrote boolean := false;
    durable boolean := false;
    until_us bigint := begin_call(wait_ms);
    done boolean;
BEGIN
    FOR claim IN SELECT n.at FROM unnest(names) WITH ORDINALITY n(name, at) ORDER BY n.name LOOP
        lock := names[claim];
        me := tokens[claim];
        granted := 0;
        place := NULL;

        -- A look first, which locks nothing. The order of the two matters: whoever hands the lock to us takes us out of
        -- the queue in the same transaction, so that we are never both refused and out of the queue.
        SELECT * INTO present FROM locks l WHERE l.name = lock AND l.slot = 0;
        is_new := is_new OR NOT FOUND;
        server_us := clock_us();
        IF present.token <> me AND present.expires_us > server_us THEN
            IF queued[claim] THEN
                place := place_of(lock, me);
            END IF;
            IF place IS NOT NULL OR NOT queued[claim] THEN
                left_ms := (present.expires_us - server_us) / 1000;
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;

        present := make_row(lock, until_us);
        wrote := true;
        server_us := clock_us();
        IF present.token IS NULL OR present.expires_us <= server_us THEN
            done := lapse(present);
            waiter := heir(lock, me);
            durable := true;
            IF waiter.token <> me THEN
                done := hand_over(waiter);
            ELSE
                IF waiter.token = me THEN
                    DELETE FROM queue q WHERE q.name = lock AND q.ticket = waiter.ticket;
                END IF;
                granted := give(lock, me, leases_ms[claim], server_us, false);
            END IF;
        ELSIF present.token = me THEN
            UPDATE locks l SET expires_us = server_us + leases_ms[claim] * 1000, handed = false
                WHERE l.name = lock AND l.slot = 0;
            granted := present.fence;
            durable := true;
        END IF;
        IF granted = 0 THEN
            IF queued[claim] THEN
                place := enqueue(lock, me, leases_ms[claim]);
            END IF;
            SELECT (l.expires_us - server_us) / 1000 INTO left_ms FROM locks l WHERE l.name = lock AND l.slot = 0;
        END IF;
        RETURN NEXT;
    END LOOP;
    IF wrote THEN
        done := end_call(durable);
    END IF;
    IF is_new AND random() < 0.125 THEN
        done := sweep();
    END IF;
END $$;

-- Sets the leases of grants anew. One row per claim; server_us NULL: token does not have the lock.
CREATE OR REPLACE FUNCTION renew(names bytea[], tokens text[], leases_ms bigint[], wait_ms integer)
RETURNS TABLE (claim integer, server_us bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
#variable_conflict use_variable
DECLARE
    present locks;
    until_us bigint := begin_call(wait_ms);
    done boolean;
BEGIN
    FOR claim IN SELECT n.at FROM unnest(names) WITH ORDINALITY n(name, at) ORDER BY n.name LOOP
        done := be_patient(until_us);
        SELECT * INTO present FROM locks l WHERE l.name = names[claim] AND l.slot = 0 AND l.token = tokens[claim]
            FOR UPDATE;
        server_us := clock_us(); -- after the wait for the row, which the lease need not have outlasted
        IF present.expires_us > server_us THEN
            UPDATE locks l SET expires_us = server_us + leases_ms[claim] * 1000, handed = false
                WHERE l.name = names[claim] AND l.slot = 0;
        ELSE
            server_us := NULL;
        END IF;
        RETURN NEXT;
    END LOOP;
    done := end_call(true);
END $$;

-- Ends grants and hands them over, or takes tokens out of the queue. One row per claim; ended: token had a grant. One
-- that merely waited had none, whatever its owner believes.
CREATE OR REPLACE FUNCTION release(names bytea[], tokens text[], wait_ms integer)
RETURNS TABLE (claim integer, ended boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
#variable_conflict use_variable
DECLARE
    present locks;
    durable boolean := false;
    until_us bigint := begin_call(wait_ms);
    done boolean;
BEGIN
    FOR claim IN SELECT n.at FROM unnest(names) WITH ORDINALITY n(name, at) ORDER BY n.name LOOP
        ended := false;
        present := lock_row(names[claim], until_us);
        IF present.token = tokens[claim] THEN
            ended := present.expires_us > clock_us();
            IF NOT ended THEN
                done := lapse(present);
            END IF;
            durable := pass_on(names[claim]) OR durable;
        ELSIF present.name IS NOT NULL THEN
            DELETE FROM queue q WHERE q.name = names[claim] AND q.token = tokens[claim];
        END IF;
        RETURN NEXT;
    END LOOP;
    done := end_call(durable);
END $$;

-- Takes the lock from whoever has it, and hands it over: false when nobody had it.
CREATE OR REPLACE FUNCTION break(lock bytea, wait_ms integer) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
    present locks := lock_row(lock, begin_call(wait_ms));
BEGIN
    IF present.token IS NULL OR present.expires_us <= clock_us() THEN
        RETURN false;
    END IF;
    RETURN end_call(pass_on(lock));
END $$;

-- Makes this session the one that listens for a client, on a channel that nobody else can name. LISTEN stands in here
-- because monitors show statements. Others see this client live once LISTEN counts, at the end of the transaction.
CREATE OR REPLACE FUNCTION listen(client text, channel text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
    other text;
BEGIN
    EXECUTE format('LISTEN %I', channel);
    PERFORM pg_advisory_lock(channel_key(channel));
    INSERT INTO listeners AS l VALUES (client, channel)
        ON CONFLICT ON CONSTRAINT listeners_pkey DO UPDATE SET channel = excluded.channel;
    -- Some of those who ended go, so that all but an eighth of the table lives. Waits for nobody.
    FOR other IN SELECT l.client FROM listeners l ORDER BY random() LIMIT 8 FOR UPDATE SKIP LOCKED LOOP
        DELETE FROM listeners l WHERE l.client = other AND other <> client AND NOT lives(other);
    END LOOP;
    -- A lost host shows after 8 s instead of the system's 2 hours.
    PERFORM set_config('tcp_keepalives_idle', '5', false), set_config('tcp_keepalives_interval', '1', false),
        set_config('tcp_keepalives_count', '3', false);
    RETURN true;
END $$;

-- The holders of the names from `low` on and below `high` (NULL: all), in order, at most `most`. Changes nothing.
CREATE OR REPLACE FUNCTION holders(low bytea, high bytea, most integer)
RETURNS TABLE (name bytea, token text, fence bigint, left_ms bigint, waiters bigint)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
    SELECT l.name, l.token, l.fence, (l.expires_us - t.now_us) / 1000,
            (SELECT count(*) FROM queue q WHERE q.name = l.name)
        FROM locks l, (SELECT clock_us() AS now_us OFFSET 0) t
        WHERE l.slot = 0 AND l.name >= low AND (high IS NULL OR l.name < high) AND l.token IS NOT NULL
            AND l.expires_us > t.now_us
        ORDER BY l.name LIMIT most
$$;

REVOKE ALL ON TABLE locks, queue, listeners FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA "dlock" FROM PUBLIC;

COMMIT;

-- For each role that is to use the locks:
--
--     GRANT USAGE ON SCHEMA "dlock" TO app;
--     GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA "dlock" TO app;
