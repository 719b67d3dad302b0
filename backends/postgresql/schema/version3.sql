
-- ---- what clients of version 3 call ---------------------------------------------------------------------------------
-- These clients know no notices, so the notifications are sent in the same transaction.

CREATE OR REPLACE FUNCTION "dlock".acquire(names bytea[], tokens text[], leases_ms bigint[], modes integer[],
    limits integer[], flags integer[], wait_ms integer)
RETURNS TABLE (claim integer, granted bigint, server_us bigint, in_use integer, place integer, left_ms bigint)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT a.claim, a.granted, a.server_us, a.in_use, a.place, a.left_ms
        FROM acquire_v4(names, tokens, leases_ms, modes, limits, flags, -wait_ms) a
        WHERE CASE WHEN a.notices IS NULL THEN true ELSE send(a.notices) END
$$;

CREATE OR REPLACE FUNCTION "dlock".renew(names bytea[], tokens text[], leases_ms bigint[], modes integer[],
    wait_ms integer)
RETURNS TABLE (claim integer, server_us bigint)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT r.claim, r.server_us FROM renew_v4(names, tokens, leases_ms, modes, -wait_ms) r
        WHERE CASE WHEN r.notices IS NULL THEN true ELSE send(r.notices) END
$$;

CREATE OR REPLACE FUNCTION "dlock".release(names bytea[], tokens text[], wait_ms integer)
RETURNS TABLE (claim integer, ended boolean)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT r.claim, r.ended FROM release_v4(names, tokens, -wait_ms) r
        WHERE CASE WHEN r.notices IS NULL THEN true ELSE send(r.notices) END
$$;

CREATE OR REPLACE FUNCTION "dlock".break(lock bytea, wait_ms integer) RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT b.broken FROM break_v4(lock, -wait_ms) b
        WHERE CASE WHEN b.notices IS NULL THEN true ELSE send(b.notices) END
$$;

CREATE OR REPLACE FUNCTION "dlock".listen(client text, channel text) RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT listen_v4(client, channel, NULL)
$$;
