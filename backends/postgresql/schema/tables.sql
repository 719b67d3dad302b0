
SET LOCAL search_path = pg_catalog, "dlock", pg_temp;

-- Modes are those of dlock.h: 0 exclusive, 1 shared, 2 permit. The limit of permits is 0 for the other two. All live
-- grants and all waiters of one name have the same limit: a name is in use either as a lock or as permits.

-- No indexes but the primary keys, so that an update of any other column stays in its page (HOT).
DO $$
BEGIN
    IF to_regclass('"dlock".locks') IS NULL THEN
        CREATE TABLE "dlock".locks (
            name bytea PRIMARY KEY,
            token text COLLATE "C",                 -- of the exclusive holder; NULL: none
            fence bigint NOT NULL DEFAULT 0,        -- of the last grant
            expires_us bigint NOT NULL DEFAULT 0,   -- end of the last grant's lease
            handed boolean NOT NULL DEFAULT false,  -- the hand-over to token is unconfirmed
            mode integer NOT NULL DEFAULT 0,        -- of the last grant; not 0: its holders are in shares
            permits integer NOT NULL DEFAULT 0,     -- the limit of permits
            lingers boolean NOT NULL DEFAULT false, -- token's client wants to know who else asks
            awaited boolean NOT NULL DEFAULT false  -- false: the queue is empty; true: it may not be
        ) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
            autovacuum_vacuum_cost_delay = 0);
        INSERT INTO "dlock".locks (name, token) VALUES ('', ''); -- the record, not owned yet
    END IF;
END $$;

CREATE TABLE IF NOT EXISTS "dlock".shares (
    name bytea NOT NULL,
    token text COLLATE "C" NOT NULL,
    fence bigint NOT NULL,
    expires_us bigint NOT NULL,
    handed boolean NOT NULL,
    PRIMARY KEY (name, token)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0);

CREATE UNLOGGED TABLE IF NOT EXISTS "dlock".queue (
    name bytea NOT NULL,
    ticket bigint NOT NULL,                 -- the order within a name: the time of arrival, or more
    token text COLLATE "C" NOT NULL,
    lease_ms bigint NOT NULL,
    mode integer NOT NULL,
    permits integer NOT NULL,
    lingers boolean NOT NULL,
    PRIMARY KEY (name, ticket)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

-- Unlogged, since no session survives a crash.
CREATE UNLOGGED TABLE IF NOT EXISTS "dlock".listeners (
    client text COLLATE "C" PRIMARY KEY,    -- the first 24 characters of its tokens
    channel text COLLATE "C" NOT NULL,
    secret text COLLATE "C" NOT NULL,
    asked bigint NOT NULL DEFAULT 0         -- it has asked since the hand-over with this fence
);

-- Without a policy only the owner sees the rows. A role that may read every table, such as a member of
-- pg_read_all_data, would learn the secrets.
DO $$
BEGIN
    IF NOT (SELECT c.relrowsecurity FROM pg_class c WHERE c.oid = '"dlock".listeners'::regclass) THEN
        ALTER TABLE "dlock".listeners ENABLE ROW LEVEL SECURITY;
    END IF;
END $$;
