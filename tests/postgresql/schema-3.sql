-- dlock's objects in PostgreSQL, version 3.
--
-- dlock creates them by itself on first use, where its role may. Otherwise a DBA runs this once in the locks' database
-- (`dlock schema postgresql | psql DATABASE`), and gives each role of an application what stands at the end. Running it
-- again is harmless. To keep them in another schema than dlock, replace "dlock", with its quotes, everywhere below, and
-- say `schema=` in the URI.
--
-- How it works
--   locks      one row per name; it stays after the release, since it keeps the fence. Who holds the name alone stands in
--              it.
--   shares     one row per reader, or per permit that is taken. A name has none while somebody holds it alone.
--   queue      who waits, whatever for, in the order in which they came. Unlogged: nobody's place outlives a crash of
--              the server, just as nobody's connection does.
--   listeners  who listens for a client, and on which channel. Its name is a secret of the client's, since every role of
--              a database may send NOTIFY to any channel that it can name: no table that applications could read has
--              it, and no statement of ours shows it. That session holds an advisory lock for it: while it does, the
--              client lives.
--   Every function first locks the row of the name, and only then reads or writes the queue, in statements of its own,
--   each of which sees what was committed before it began. Hence plpgsql, VOLATILE, and READ COMMITTED. A single
--   statement would read the queue as it was before it waited for the row, and lose wake-ups. What a statement looks for
--   in the row itself it sees as it is once it has been waited for. So the row says whether somebody may be in the
--   queue (`awaited`), and the common case is one statement: an UPDATE that takes a name which is free and not awaited,
--   and one that gives it back. Everything else goes the long way.
--   Who merely asks, and is refused, locks nothing and writes nothing.
--   What a grant that ends makes room for is given to the first waiter that lives, and to those behind it for whom there
--   is room, too (readers together), in the same transaction, and their clients are notified. Room that somebody waits
--   for is given to that one by the next who asks: nobody barges in, and no reader passes a writer.
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
    IF to_regprocedure('"dlock".session_version()') IS NOT NULL THEN
        RAISE EXCEPTION 'the locks of schema "dlock" are sessions, not rows' USING ERRCODE = 'DL004';
    END IF;
END $$;

SET LOCAL search_path = "dlock", pg_temp;

-- A newer version brings everything that older ones call. An older one has other tables, in which somebody may hold
-- locks right now.
DO $$
DECLARE
    present integer := 3;
BEGIN
    IF to_regprocedure('"dlock".schema_version()') IS NOT NULL THEN
        present := schema_version();
    END IF;
    IF present > 3 THEN
        RAISE EXCEPTION 'schema "dlock" has version % of dlock''s objects, this is version 3', present
            USING ERRCODE = 'DL001';
    ELSIF present < 3 THEN
        RAISE EXCEPTION 'schema "dlock" has version % of dlock''s objects, and this is version 3', present
            USING ERRCODE = 'DL003';
    END IF;
END $$;

-- Modes are those of dlock.h: 0 exclusive, 1 shared, 2 permit. The limit of permits is 0 for the other two. All grants
-- that live and all who wait for one name have the same limit: a name is in use either as a lock or as permits.

-- No index but the keys: an update of any other column then stays in its page.
CREATE TABLE IF NOT EXISTS locks (
    name bytea PRIMARY KEY,
    token text COLLATE "C",                 -- who has it alone; NULL: nobody
    fence bigint NOT NULL DEFAULT 0,        -- of the last grant
    expires_us bigint NOT NULL DEFAULT 0,   -- when the last grant ends, or has ended
    handed boolean NOT NULL DEFAULT false,  -- token is a waiter that has not confirmed it
    mode integer NOT NULL DEFAULT 0,        -- of the last grant; if not 0, shares tell whose it is
    permits integer NOT NULL DEFAULT 0,     -- their limit
    lingers boolean NOT NULL DEFAULT false, -- token's client is told of everybody who asks
    awaited boolean NOT NULL DEFAULT false  -- false: nobody is in the queue; true: somebody may be
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0);

CREATE TABLE IF NOT EXISTS shares (
    name bytea NOT NULL,
    token text COLLATE "C" NOT NULL,
    fence bigint NOT NULL,
    expires_us bigint NOT NULL,
    handed boolean NOT NULL,
    PRIMARY KEY (name, token)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0);

CREATE UNLOGGED TABLE IF NOT EXISTS queue (
    name bytea NOT NULL,
    ticket bigint NOT NULL,                 -- the order within a name
    token text COLLATE "C" NOT NULL,
    lease_ms bigint NOT NULL,
    mode integer NOT NULL,
    permits integer NOT NULL,
    lingers boolean NOT NULL,
    PRIMARY KEY (name, ticket)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

-- Unlogged, since no session outlives a crash.
CREATE UNLOGGED TABLE IF NOT EXISTS listeners (
    client text COLLATE "C" PRIMARY KEY,    -- what its tokens begin with
    channel text COLLATE "C" NOT NULL
);

-- ---- parts ----------------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION clock_us() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint
$$;

-- The parts are called in assignments, which cost a fraction of PERFORM; those without a result return true. Those that
-- are a mere expression are in SQL: then they become part of their caller's, and cost no call.

CREATE OR REPLACE FUNCTION refuse_isolation() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RAISE EXCEPTION 'dlock needs the isolation level READ COMMITTED' USING ERRCODE = 'DL002',
        HINT = 'ALTER ROLE ... SET default_transaction_isolation = ''read committed''';
END $$;

-- What every call begins with: when the patience of its caller ends. It counts from the arrival of the request: a
-- session's first call compiles its functions first.
CREATE OR REPLACE FUNCTION begin_call(wait_ms integer) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN current_setting('transaction_isolation') <> 'read committed' THEN refuse_isolation()
        ELSE (date_part('epoch', statement_timestamp()) * 1000000)::bigint + wait_ms * 1000::bigint END
$$;

-- Comes before everything that may wait for others: lock_timeout is for each wait, patience for all of them together.
CREATE OR REPLACE FUNCTION be_patient(until_us bigint) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT set_config('lock_timeout', greatest((until_us - clock_us()) / 1000, 1)::text, true) IS NOT NULL
$$;

-- What every call that writes ends with. A grant or a renewal must outlive a crash of the server, even where somebody
-- has turned synchronous_commit off. Nothing else need: losing it costs only time.
CREATE OR REPLACE FUNCTION end_call(durable boolean) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN NOT durable THEN set_config('synchronous_commit', 'off', true) IS NOT NULL
        WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) IS NOT NULL
        ELSE true END
$$;

-- The indexes of a call's claims, in the order of their names: two calls that lock the same rows in different orders
-- would stop each other.
CREATE OR REPLACE FUNCTION sorted(names bytea[], tokens text[]) RETURNS integer[] LANGUAGE sql VOLATILE AS $$
    SELECT ARRAY(SELECT n.at::integer FROM unnest(names, tokens) WITH ORDINALITY n(name, token, at)
        ORDER BY n.name, n.token COLLATE "C")
$$;

CREATE OR REPLACE FUNCTION in_order(names bytea[], tokens text[]) RETURNS integer[] LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN cardinality(names) = 1 THEN '{1}'::integer[] ELSE sorted(names, tokens) END
$$;

-- The advisory lock of whoever listens on a channel. Anybody can see it in pg_locks, and take it: the next listener has
-- another one.
CREATE OR REPLACE FUNCTION channel_key(channel text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended(channel, 0)
$$;

-- Whether a session listens on the channel; NULL: none does. Those who ask at once share the lock, which is let go in the
-- same expression: whoever holds it makes the dead look alive.
CREATE OR REPLACE FUNCTION is_heard(channel text) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN channel IS NULL THEN false WHEN pg_try_advisory_lock_shared(channel_key(channel))
        THEN NOT pg_advisory_unlock_shared(channel_key(channel)) ELSE true END
$$;

-- Whether the token's client lives.
CREATE OR REPLACE FUNCTION lives(token text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    channel text := (SELECT l.channel FROM listeners l WHERE l.client = left(token, 24));
BEGIN
    RETURN is_heard(channel);
END $$;

-- Whether a grant of this mode may be given beside `held` shares. What is over has been taken out of `present`.
CREATE OR REPLACE FUNCTION fits(present locks, held bigint, mode integer, permits integer) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN present.token IS NOT NULL THEN false WHEN held = 0 THEN true
        ELSE fits.mode <> 0 AND present.mode = fits.mode AND present.permits = fits.permits
            AND (fits.mode = 1 OR held < fits.permits) END
$$;

-- How many shares live, as far as that matters: of readers one is as good as many. The row is locked and settled, or the
-- answer is a moment's.
CREATE OR REPLACE FUNCTION shares_of(present locks, now_us bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF present.mode = 0 THEN
        RETURN 0;
    END IF;
    RETURN (SELECT count(*) FROM (SELECT FROM shares s WHERE s.name = present.name AND s.expires_us > now_us
        LIMIT greatest(present.permits, 1)) x);
END $$;

-- When the answer to those who are refused may change at the earliest, unless they are told: the first end of a lease.
CREATE OR REPLACE FUNCTION left_of_shares(lock bytea, now_us bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN coalesce((SELECT min(s.expires_us) - now_us FROM shares s WHERE s.name = lock AND s.expires_us > now_us) / 1000,
        0);
END $$;

CREATE OR REPLACE FUNCTION left_of(present locks, now_us bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN present.mode = 0 THEN (present.expires_us - now_us) / 1000
        ELSE left_of_shares(present.name, now_us) END
$$;

-- A hand-over has ended that nobody confirmed: its client does not answer, and all of its waiters leave the queue. The
-- row is locked.
CREATE OR REPLACE FUNCTION lapse(lock bytea, receiver text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    DELETE FROM queue q WHERE q.name = lock AND left(q.token, 24) = left(receiver, 24);
    RETURN true;
END $$;

-- Takes out what is over. The row is locked.
CREATE OR REPLACE FUNCTION take_out(present locks, now_us bigint) RETURNS locks LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    ended shares;
    done boolean;
BEGIN
    IF present.expires_us <= now_us AND present.token IS NOT NULL THEN
        IF present.handed THEN
            done := lapse(present.name, present.token);
            UPDATE locks l SET token = NULL, handed = false WHERE l.name = present.name;
        END IF;
        present.token := NULL;
    END IF;
    IF present.mode <> 0 THEN
        -- In the order of renewals: neither stops the other.
        FOR ended IN SELECT * FROM shares s WHERE s.name = present.name AND s.expires_us <= now_us ORDER BY s.token
                FOR UPDATE LOOP
            IF ended.handed THEN
                done := lapse(ended.name, ended.token);
            END IF;
            DELETE FROM shares s WHERE s.name = ended.name AND s.token = ended.token;
        END LOOP;
    END IF;
    RETURN present;
END $$;

CREATE OR REPLACE FUNCTION settle(present locks, now_us bigint) RETURNS locks LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN present.mode = 0 AND (present.token IS NULL OR present.expires_us > now_us) THEN present
        ELSE take_out(present, now_us) END
$$;

-- Ends a grant of one who has the name alone. The row is locked.
CREATE OR REPLACE FUNCTION vacate(present locks, now_us bigint) RETURNS locks LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE locks l SET token = NULL, expires_us = now_us, handed = false WHERE l.name = present.name;
    present.token := NULL;
    RETURN present;
END $$;

-- Gives what there is room for to those who come first, and then to `me`, who just asks (NULL: nobody): `given` counts
-- the grants, `granted` is my fence, or 0. The clients of the others are told:
-- "granted <token> <fence> <server's clock in microseconds> <kept ms> <name in hex>". The row is locked and settled.
CREATE OR REPLACE FUNCTION serve(present locks, now_us bigint, me queue, OUT given integer, OUT granted bigint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    waiter queue;
    channel text;
    is_mine boolean;
    kept_ms bigint;
    fence bigint;
    held bigint := CASE WHEN present.mode = 0 THEN 0 ELSE shares_of(present, now_us) END;
    done boolean;
BEGIN
    given := 0;
    granted := 0;
    LOOP
        -- The first waiter that lives. The dead before it go; I live, since I am asking.
        waiter := NULL;
        WHILE present.awaited LOOP
            SELECT q.ticket, q.token, q.lease_ms, q.mode, q.permits, q.lingers,
                    (SELECT l.channel FROM listeners l WHERE l.client = left(q.token, 24))
                INTO waiter.ticket, waiter.token, waiter.lease_ms, waiter.mode, waiter.permits, waiter.lingers, channel
                FROM queue q WHERE q.name = present.name ORDER BY q.ticket LIMIT 1;
            EXIT WHEN waiter.token = me.token OR is_heard(channel);
            IF waiter.token IS NULL THEN
                UPDATE locks l SET awaited = false WHERE l.name = present.name;
                present.awaited := false;
            ELSE
                DELETE FROM queue q WHERE q.name = present.name AND q.ticket = waiter.ticket;
            END IF;
        END LOOP;
        IF waiter.token IS NULL AND granted = 0 THEN
            waiter := me;
        END IF;
        EXIT WHEN waiter.token IS NULL OR NOT fits(present, held, waiter.mode, waiter.permits);

        is_mine := coalesce(waiter.token = me.token, false);
        kept_ms := CASE WHEN is_mine THEN me.lease_ms ELSE least(waiter.lease_ms, 3000) END;
        DELETE FROM queue q WHERE q.name = present.name AND q.ticket = waiter.ticket;
        UPDATE locks l SET token = CASE WHEN waiter.mode = 0 THEN waiter.token END,
                fence = greatest(l.fence + 1, now_us), expires_us = now_us + kept_ms * 1000,
                handed = waiter.mode = 0 AND NOT is_mine, mode = waiter.mode, permits = waiter.permits,
                lingers = waiter.lingers
            WHERE l.name = present.name RETURNING l.fence INTO STRICT fence;
        IF waiter.mode <> 0 THEN
            INSERT INTO shares VALUES (present.name, waiter.token, fence, now_us + kept_ms * 1000, NOT is_mine);
        END IF;
        IF is_mine THEN
            granted := fence;
        ELSE
            done := pg_notify(channel, format('granted %s %s %s %s %s', waiter.token, fence, now_us, kept_ms,
                encode(present.name, 'hex'))) IS NULL;
        END IF;
        given := given + 1;
        held := held + 1;
        present.mode := waiter.mode;
        present.permits := waiter.permits;
        EXIT WHEN waiter.mode = 0;
    END LOOP;
END $$;

-- Tells who has the name alone, and asked for that, that somebody else asks: "wanted <name in hex>".
CREATE OR REPLACE FUNCTION tell(present locks, caller text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF present.token IS NULL OR left(present.token, 24) = left(caller, 24) THEN
        RETURN false;
    END IF;
    PERFORM pg_notify(l.channel, 'wanted ' || encode(present.name, 'hex'))
        FROM listeners l WHERE l.client = left(present.token, 24);
    RETURN true;
END $$;

-- Whether one who asks has to wait, as far as a look tells that locks nothing.
CREATE OR REPLACE FUNCTION shares_refuse(present locks, now_us bigint, me queue) RETURNS boolean
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

CREATE OR REPLACE FUNCTION refuses(present locks, now_us bigint, me queue) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN present.mode = 0 THEN present.token <> me.token AND present.expires_us > now_us
        ELSE shares_refuse(present, now_us, me) END
$$;

-- token's place in the queue, from 0; NULL: it is not in it.
CREATE OR REPLACE FUNCTION place_of(lock bytea, waiter text) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT nullif(count(*), 0) - 1 FROM queue q WHERE q.name = lock
        AND q.ticket <= (SELECT m.ticket FROM queue m WHERE m.name = lock AND m.token = waiter));
END $$;

-- Puts one who asks at the end of the queue, unless it is in it. The row is locked.
CREATE OR REPLACE FUNCTION enqueue(me queue) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    place bigint;
    mine bigint;
BEGIN
    SELECT count(*), coalesce(max(q.ticket), 0) + 1, min(q.ticket) FILTER (WHERE q.token = me.token)
        INTO place, me.ticket, mine FROM queue q WHERE q.name = me.name;
    IF mine IS NOT NULL THEN
        RETURN place_of(me.name, me.token);
    END IF;
    INSERT INTO queue SELECT me.*;
    UPDATE locks l SET awaited = true WHERE l.name = me.name AND NOT l.awaited;
    RETURN place;
END $$;

-- The advisory lock that comes before the row of a name wherever somebody may wait for it: those who wait get it in the
-- order in which they came, while a row goes to whoever is there when it becomes free, so that one who wants to join
-- the queue could be passed by others' turns again and again. What excludes is the row.
CREATE OR REPLACE FUNCTION turn_key(lock bytea) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended(encode(lock, 'hex'), 1)
$$;

-- The row of the name, locked; NULL if there is none.
CREATE OR REPLACE FUNCTION lock_row(lock bytea, until_us bigint) RETURNS locks LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    found_row locks;
    done boolean := be_patient(until_us);
BEGIN
    done := pg_advisory_xact_lock(turn_key(lock)) IS NULL;
    done := be_patient(until_us);
    SELECT * INTO found_row FROM locks l WHERE l.name = lock FOR UPDATE;
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

-- The long way of one who asks, `queued` if it wants to be. As acquire()'s row; and is_new: the name has no row yet;
-- wrote, durable: what this did to the tables, and whether that must outlive a crash.
CREATE OR REPLACE FUNCTION ask(me queue, queued boolean, until_us bigint, OUT granted bigint, OUT server_us bigint,
    OUT in_use integer, OUT place integer, OUT left_ms bigint, OUT is_new boolean, OUT wrote boolean, OUT durable boolean)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    present locks;
    served record;
    done boolean;
BEGIN
    granted := 0;
    durable := false;

    -- A look first, which locks nothing. The order of the two matters: whoever grants us something takes us out of the
    -- queue in the same transaction, so that we are never both refused and out of the queue.
    SELECT * INTO present FROM locks l WHERE l.name = me.name;
    is_new := NOT FOUND;
    server_us := clock_us();
    IF refuses(present, server_us, me) THEN
        IF present.permits <> me.permits THEN
            in_use := present.permits;
        ELSIF queued THEN
            place := place_of(me.name, me.token);
        END IF;
        IF in_use IS NOT NULL OR place IS NOT NULL OR NOT queued THEN
            wrote := present.lingers AND tell(present, me.token);
            left_ms := left_of(present, server_us);
            RETURN;
        END IF;
    END IF;

    present := make_row(me.name, until_us);
    wrote := true;
    server_us := clock_us();
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
        served := serve(present, server_us, me);
        granted := served.granted;
        durable := served.given > 0;
        SELECT * INTO present FROM locks l WHERE l.name = me.name; -- who was given it just now
    END IF;
    IF granted = 0 THEN
        IF present.permits <> me.permits THEN
            in_use := present.permits;
        ELSIF queued THEN
            place := enqueue(me);
        END IF;
        done := present.lingers AND tell(present, me.token);
        left_ms := left_of(present, server_us);
    END IF;
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
                AND greatest(i.expires_us, i.fence) < idle_us AND NOT EXISTS (SELECT FROM queue q WHERE q.name = i.name)
                AND NOT EXISTS (SELECT FROM shares s WHERE s.name = i.name)
            FOR UPDATE SKIP LOCKED);
    RETURN FOUND;
END $$;

-- ---- calls ----------------------------------------------------------------------------------------------------------
-- Claims come as arrays, so that many are one statement. They are worked on in the order of their names, whatever their
-- order in the arrays.
-- Sessions keep their plans for long: one made while a table was small must not read the whole of it when it has grown.

CREATE OR REPLACE FUNCTION schema_version() RETURNS integer LANGUAGE sql IMMUTABLE AS $$ SELECT 3 $$;

-- Asks for grants. A claim's flags: 1, it wants to be queued; 2, it is to be told who else asks. One row per claim:
--   claim      its index in the arrays, from 1
--   granted    > 0: the fence; token has its grant, for its whole lease from now. 0: it has none, and then
--   in_use     otherwise than asked for: as permits with this limit, or as a lock (0). NULL: as asked for, and then
--   place      in the queue, from 0; NULL: not queued
--   left_ms    until the answer may change
CREATE OR REPLACE FUNCTION acquire(names bytea[], tokens text[], leases_ms bigint[], modes integer[], limits integer[],
    flags integer[], wait_ms integer)
RETURNS TABLE (claim integer, granted bigint, server_us bigint, in_use integer, place integer, left_ms bigint)
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
    FOREACH claim IN ARRAY in_order(names, tokens) LOOP
        -- The short way: nobody has it, and nobody waits, neither in the queue nor for a turn at it. If the row changes
        -- while this waits for it, all of that is looked at again.
        IF modes[claim] = 0 THEN
            done := be_patient(until_us);
            server_us := clock_us();
            UPDATE locks l SET token = tokens[claim], fence = greatest(l.fence + 1, server_us),
                    expires_us = server_us + leases_ms[claim] * 1000, lingers = flags[claim] & 2 <> 0
                WHERE l.name = names[claim] AND CASE WHEN l.token IS NULL AND l.mode = 0 AND NOT l.awaited
                    THEN pg_try_advisory_xact_lock(turn_key(l.name)) ELSE false END
                RETURNING l.fence INTO granted;
            IF granted > 0 THEN
                in_use := NULL;
                place := NULL;
                wrote := true;
                durable := true;
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;

        answer := ask(ROW(names[claim], NULL, tokens[claim], leases_ms[claim], modes[claim], limits[claim],
            flags[claim] & 2 <> 0), flags[claim] & 1 <> 0, until_us);
        granted := answer.granted;
        server_us := answer.server_us;
        in_use := answer.in_use;
        place := answer.place;
        left_ms := answer.left_ms;
        is_new := is_new OR answer.is_new;
        wrote := wrote OR answer.wrote;
        durable := durable OR answer.durable;
        RETURN NEXT;
    END LOOP;
    IF wrote THEN
        -- Nothing comes to be for one who has given up: the release of its token may have been here already.
        IF clock_us() > until_us THEN
            RAISE EXCEPTION 'too late for who asked' USING ERRCODE = 'query_canceled';
        END IF;
        done := end_call(durable);
    END IF;
    IF is_new AND random() < 0.125 THEN
        done := sweep();
    END IF;
END $$;

-- Sets the leases of grants anew. A shared one may still be exclusive: then it becomes shared, under its fence, and the
-- readers that wait first get theirs. One row per claim; server_us NULL: token has no such grant.
CREATE OR REPLACE FUNCTION renew(names bytea[], tokens text[], leases_ms bigint[], modes integer[], wait_ms integer)
RETURNS TABLE (claim integer, server_us bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
#variable_conflict use_variable
DECLARE
    present locks;
    ends_us bigint;
    until_us bigint := begin_call(wait_ms);
    served record;
    done boolean;
BEGIN
    FOREACH claim IN ARRAY in_order(names, tokens) LOOP
        done := be_patient(until_us);
        IF modes[claim] = 0 THEN
            SELECT l.expires_us INTO ends_us FROM locks l WHERE l.name = names[claim] AND l.token = tokens[claim]
                FOR UPDATE;
        ELSE
            SELECT s.expires_us INTO ends_us FROM shares s WHERE s.name = names[claim] AND s.token = tokens[claim]
                FOR UPDATE;
        END IF;
        server_us := clock_us(); -- after the wait for the row, which the lease need not have outlasted
        IF ends_us > server_us AND modes[claim] = 0 THEN
            UPDATE locks l SET expires_us = server_us + leases_ms[claim] * 1000, handed = false
                WHERE l.name = names[claim];
        ELSIF ends_us > server_us THEN
            UPDATE shares s SET expires_us = server_us + leases_ms[claim] * 1000, handed = false
                WHERE s.name = names[claim] AND s.token = tokens[claim];
        ELSIF ends_us IS NULL AND modes[claim] = 1 THEN
            present := lock_row(names[claim], until_us);
            server_us := clock_us();
            IF present.token = tokens[claim] AND present.expires_us > server_us THEN
                present.token := NULL;
                present.mode := 1;
                UPDATE locks l SET token = NULL, handed = false, lingers = false, mode = 1 WHERE l.name = present.name;
                INSERT INTO shares VALUES (present.name, tokens[claim], present.fence,
                    server_us + leases_ms[claim] * 1000, false);
                served := serve(present, server_us, NULL);
            ELSE
                server_us := NULL;
            END IF;
        ELSE
            server_us := NULL;
        END IF;
        RETURN NEXT;
    END LOOP;
    done := end_call(true);
END $$;

-- Ends grants and hands over what they make room for, or takes tokens out of the queue, which may make room, too. One
-- row per claim; ended: token had a grant. One that merely waited had none, whatever its owner believes.
CREATE OR REPLACE FUNCTION release(names bytea[], tokens text[], wait_ms integer)
RETURNS TABLE (claim integer, ended boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
#variable_conflict use_variable
DECLARE
    present locks;
    now_us bigint;
    durable boolean := false;
    until_us bigint := begin_call(wait_ms);
    served record;
    done boolean;
BEGIN
    FOREACH claim IN ARRAY in_order(names, tokens) LOOP
        done := be_patient(until_us);
        now_us := clock_us();
        UPDATE locks l SET token = NULL, expires_us = now_us, handed = false
            WHERE l.name = names[claim] AND l.token = tokens[claim] AND l.expires_us > now_us RETURNING l.* INTO present;
        ended := FOUND;
        IF NOT ended THEN
            -- Without a turn at it: the row may be locked by now, and whoever has the turn may be waiting for that.
            done := be_patient(until_us);
            SELECT * INTO present FROM locks l WHERE l.name = names[claim] FOR UPDATE;
            now_us := clock_us();
            present := settle(present, now_us);
            IF present.token = tokens[claim] THEN
                present := vacate(present, now_us); -- it was given this just now
                ended := true;
            ELSIF present.mode <> 0 THEN
                DELETE FROM shares s WHERE s.name = present.name AND s.token = tokens[claim];
                ended := FOUND;
            END IF;
            IF NOT ended THEN
                DELETE FROM queue q WHERE q.name = present.name AND q.token = tokens[claim];
            END IF;
        END IF;
        IF present.awaited THEN
            now_us := clock_us(); -- after the wait for the row: what is handed over begins now
            served := serve(present, now_us, NULL);
            durable := durable OR served.given > 0;
        END IF;
        RETURN NEXT;
    END LOOP;
    done := end_call(durable);
END $$;

-- Takes all grants of a name from whoever has them, and hands them over: false when nobody had one.
CREATE OR REPLACE FUNCTION break(lock bytea, wait_ms integer) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
    present locks := lock_row(lock, begin_call(wait_ms));
    now_us bigint := clock_us();
    served record;
BEGIN
    present := settle(present, now_us);
    IF present.token IS NULL AND shares_of(present, now_us) = 0 THEN
        RETURN false;
    END IF;
    DELETE FROM shares s WHERE s.name = lock;
    present := vacate(present, now_us);
    served := serve(present, now_us, NULL);
    RETURN end_call(served.given > 0);
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

-- The holders of the names from `low` on and below `high` (NULL: all), of at most `most` names, in order. Changes
-- nothing.
CREATE OR REPLACE FUNCTION holders(low bytea, high bytea, most integer)
RETURNS TABLE (name bytea, token text, fence bigint, left_ms bigint, waiters bigint, mode integer, permits integer)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
    SELECT n.name, h.token, h.fence, (h.expires_us - t.now_us) / 1000,
            (SELECT count(*) FROM queue q WHERE q.name = n.name), n.mode, n.permits
        FROM (SELECT clock_us() AS now_us OFFSET 0) t,
            LATERAL (SELECT * FROM locks l
                WHERE l.name >= low AND (high IS NULL OR l.name < high) AND CASE WHEN l.mode = 0
                    THEN l.token IS NOT NULL AND l.expires_us > t.now_us
                    ELSE EXISTS (SELECT FROM shares s WHERE s.name = l.name AND s.expires_us > t.now_us) END
                ORDER BY l.name LIMIT most) n,
            LATERAL (SELECT n.token, n.fence, n.expires_us WHERE n.mode = 0
                UNION ALL SELECT s.token, s.fence, s.expires_us FROM shares s
                    WHERE n.mode <> 0 AND s.name = n.name AND s.expires_us > t.now_us) h
        ORDER BY n.name, h.fence
$$;

REVOKE ALL ON TABLE locks, shares, queue, listeners FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA "dlock" FROM PUBLIC;

COMMIT;

-- For each role that is to use the locks:
--
--     GRANT USAGE ON SCHEMA "dlock" TO app;
--     GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA "dlock" TO app;
