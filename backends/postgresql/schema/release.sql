
-- Renews the leases of grants. If a claim is SHARED and its grant still exclusive, the grant is downgraded, under the
-- same fence, and the readers at the head of the queue get their grants. One row per claim; server_us NULL: the token
-- has no such grant.
CREATE OR REPLACE FUNCTION "dlock".renew(names bytea[], tokens text[], leases_ms bigint[], modes integer[],
    wait_ms integer)
RETURNS TABLE (claim integer, server_us bigint, notices text)
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
        IF cardinality(names) > 1 THEN
            done := be_patient(until_us) AND tell_apart();
            notices := NULL;
        END IF;
        IF modes[claim] = 0 THEN
            SELECT l.expires_us INTO ends_us FROM locks l WHERE l.name = names[claim] AND l.token = tokens[claim]
                FOR UPDATE;
        ELSE
            SELECT s.expires_us INTO ends_us FROM shares s WHERE s.name = names[claim] AND s.token = tokens[claim]
                FOR UPDATE;
        END IF;
        server_us := clock_us(); -- after the wait for the row, in which the lease may have ended
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
                notices := noted();
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

-- Ends grants and hands the room over, or removes tokens from the queue, which may also make room. One row per claim;
-- ended: the token had a grant. A token that only waited had none, whatever its owner believes.
CREATE OR REPLACE FUNCTION "dlock".release(names bytea[], tokens text[], wait_ms integer)
RETURNS TABLE (claim integer, ended boolean, notices text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
#variable_conflict use_variable
DECLARE
    present locks;
    awaited boolean;
    last_fence bigint;
    now_us bigint;
    durable boolean := false;
    until_us bigint := begin_call(wait_ms);
    served record;
    done boolean;
BEGIN
    FOREACH claim IN ARRAY in_order(names, tokens) LOOP
        IF cardinality(names) > 1 THEN
            done := be_patient(until_us) AND tell_apart();
        END IF;
        now_us := clock_us();
        UPDATE locks l SET token = NULL, expires_us = now_us, handed = false
            WHERE l.name = names[claim] AND l.token = tokens[claim] AND l.expires_us > now_us
            RETURNING l.awaited, l.fence INTO awaited, last_fence;
        ended := FOUND;
        IF NOT ended THEN
            -- Take no turn: this call may have locked the row, and the session that has the turn may wait for the row.
            done := be_patient(until_us);
            SELECT * INTO present FROM locks l WHERE l.name = names[claim] FOR UPDATE;
            now_us := clock_us();
            present := settle(present, now_us);
            IF present.token = tokens[claim] THEN
                present := vacate(present, now_us); -- it was granted a moment ago
                ended := true;
            ELSIF present.mode <> 0 THEN
                DELETE FROM shares s WHERE s.name = present.name AND s.token = tokens[claim];
                ended := FOUND;
            END IF;
            IF NOT ended THEN
                DELETE FROM queue q WHERE q.name = present.name AND q.token = tokens[claim];
                IF NOT FOUND THEN -- it was released before, by a call whose client may have died before it notified
                    done := remind(present, now_us);
                END IF;
            END IF;
            awaited := present.awaited;
        ELSIF awaited THEN
            -- The short way: the first waiter lives and wants an exclusive grant. Does what serve() would do, in one
            -- statement.
            now_us := clock_us();
            WITH head AS (DELETE FROM queue q WHERE q.name = names[claim] AND q.mode = 0
                        AND q.ticket = (SELECT min(m.ticket) FROM queue m WHERE m.name = names[claim])
                    RETURNING q.token, q.lingers, least(q.lease_ms, 3000) AS kept_ms,
                        (SELECT ARRAY[i.channel, i.secret] FROM listeners i WHERE i.client = left(q.token, 24)) AS ear)
            UPDATE locks l SET token = h.token, fence = greatest(last_fence + 1, now_us), handed = true,
                    expires_us = now_us + h.kept_ms * 1000, lingers = h.lingers
                FROM (SELECT d.token, d.lingers, d.kept_ms, d.ear, grant_message(d.token,
                        greatest(last_fence + 1, now_us), now_us, d.kept_ms, names[claim]) AS message
                    FROM head d OFFSET 0) h
                WHERE l.name = names[claim] AND is_heard(h.ear[1])
                RETURNING note(h.ear, coded(h.ear, h.message)) INTO done;
            IF FOUND THEN
                awaited := false;
                durable := true;
            ELSE
                SELECT * INTO present FROM locks l WHERE l.name = names[claim];
            END IF;
        END IF;
        IF awaited THEN
            now_us := clock_us(); -- after the wait for the row: the new leases begin now
            served := serve(present, now_us, NULL);
            durable := durable OR served.given > 0;
        END IF;
        notices := noted();
        RETURN NEXT;
    END LOOP;
    done := end_call(durable);
END $$;

-- Ends all grants of a name and hands the room over; broken: there was a grant.
CREATE OR REPLACE FUNCTION "dlock".break(lock bytea, wait_ms integer, OUT broken boolean, OUT notices text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
    present locks := lock_row(lock, begin_call(wait_ms));
    now_us bigint := clock_us();
    served record;
    done boolean;
BEGIN
    present := settle(present, now_us);
    broken := present.token IS NOT NULL OR shares_of(present, now_us) > 0;
    IF NOT broken THEN
        RETURN;
    END IF;
    DELETE FROM shares s WHERE s.name = lock;
    present := vacate(present, now_us);
    served := serve(present, now_us, NULL);
    notices := noted();
    done := end_call(served.given > 0);
END $$;
