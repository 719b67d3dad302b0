
-- Makes this session the one that listens for a client, and sets the secret that proves its messages. LISTEN is in
-- here, not in a statement of the client's, because monitors show statements; a monitor that shows it all the same
-- reveals only where messages could be sent that the client would not believe. Other sessions see this client as alive
-- once LISTEN is in effect, at the end of the transaction.
CREATE OR REPLACE FUNCTION "dlock".listen(client text, channel text, secret text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
    other text;
BEGIN
    EXECUTE format('LISTEN %I', channel);
    PERFORM pg_advisory_lock(channel_key(channel));
    INSERT INTO listeners AS l (client, channel, secret) VALUES (client, channel, secret)
        ON CONFLICT ON CONSTRAINT listeners_pkey DO UPDATE
            SET channel = excluded.channel, secret = excluded.secret;
    -- Delete some clients that have ended, so that at most an eighth of the table is dead. Waits for no other session.
    FOR other IN SELECT l.client FROM listeners l ORDER BY random() LIMIT 8 FOR UPDATE SKIP LOCKED LOOP
        DELETE FROM listeners l WHERE l.client = other AND other <> client AND NOT lives(other);
    END LOOP;
    -- A lost host shows after 8 s instead of the system's 2 hours.
    PERFORM set_config('tcp_keepalives_idle', '5', false), set_config('tcp_keepalives_interval', '1', false),
        set_config('tcp_keepalives_count', '3', false);
    RETURN true;
END $$;

-- Sends the notifications that other calls have returned as `notices`. Runs with the rights of the caller, and in a
-- transaction that waits for no disk, since it holds a lock of the whole cluster until it ends.
CREATE OR REPLACE FUNCTION "dlock".tell(notices text) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    SELECT set_config('synchronous_commit', 'off', true) IS NOT NULL AND "dlock".send(notices)
$$;

-- Returns the holders of the names from `low` on and below `high` (NULL: no end), of at most `most` names, in order.
-- Changes nothing. Both ends are conditions of the primary key, and the planner sees by its statistics how few names are
-- held: then it reads the table in the order of its pages, which is several times as fast as in the order of the names.
CREATE OR REPLACE FUNCTION "dlock".holders(low bytea, high bytea, most integer)
RETURNS TABLE (name bytea, token text, fence bigint, left_ms bigint, waiters bigint, mode integer, permits integer)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
    SELECT n.name, h.token, h.fence, (h.expires_us - t.now_us) / 1000,
            (SELECT count(*) FROM queue q WHERE q.name = n.name), n.mode, n.permits
        FROM (SELECT clock_us() AS now_us OFFSET 0) t,
            LATERAL (SELECT * FROM locks l
                WHERE l.name >= low AND l.name < coalesce(high, decode(repeat('ff', 256), 'hex')) AND l.name <> ''
                    AND (l.mode = 0 AND l.token IS NOT NULL AND l.expires_us > t.now_us OR l.mode <> 0
                        AND EXISTS (SELECT FROM shares s WHERE s.name = l.name AND s.expires_us > t.now_us))
                ORDER BY l.name LIMIT most) n,
            LATERAL (SELECT n.token, n.fence, n.expires_us WHERE n.mode = 0
                UNION ALL SELECT s.token, s.fence, s.expires_us FROM shares s
                    WHERE n.mode <> 0 AND s.name = n.name AND s.expires_us > t.now_us) h
        ORDER BY n.name, h.fence
$$;

-- Returns the waiters for a lock, in their order. Changes nothing.
CREATE OR REPLACE FUNCTION "dlock".waiters(lock bytea)
RETURNS TABLE (token text, since_us bigint, mode integer, permits integer)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT q.token, q.ticket, q.mode, q.permits FROM queue q WHERE q.name = lock ORDER BY q.ticket LIMIT 20000
$$;
