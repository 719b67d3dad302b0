
SET LOCAL search_path = pg_catalog, "dlock", pg_temp;

-- Modes are those of dlock.h: 0 exclusive, 1 shared, 2 permit. The limit of permits is 0 for the other two. All grants
-- that live and all who wait for one name have the same limit: a name is in use either as a lock or as permits.

-- No index but the keys: an update of any other column then stays in its page.
CREATE TABLE IF NOT EXISTS "dlock".locks (
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
    ticket bigint NOT NULL,                 -- the order within a name; the clock when it came, or more
    token text COLLATE "C" NOT NULL,
    lease_ms bigint NOT NULL,
    mode integer NOT NULL,
    permits integer NOT NULL,
    lingers boolean NOT NULL,
    PRIMARY KEY (name, ticket)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

-- Unlogged, since no session outlives a crash.
CREATE UNLOGGED TABLE IF NOT EXISTS "dlock".listeners (
    client text COLLATE "C" PRIMARY KEY,    -- what its tokens begin with
    channel text COLLATE "C" NOT NULL
);

-- Since version 4.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = '"dlock".listeners'::regclass
            AND a.attname = 'secret') THEN
        ALTER TABLE "dlock".listeners
            ADD COLUMN secret text COLLATE "C",         -- NULL: a client of version 3, which knows of no codes
            ADD COLUMN asked bigint NOT NULL DEFAULT 0; -- it has asked since the grant that has this fence
    END IF;
END $$;
