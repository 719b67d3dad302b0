-- The locks of dlock, for mysql://HOST/DATABASE. Each name that was ever locked has a row, since its fence must not be
-- forgotten while the clock could be set back.
CREATE TABLE IF NOT EXISTS dlock_locks (
    name VARBINARY(255) NOT NULL PRIMARY KEY,
    token VARBINARY(255) NOT NULL COMMENT 'of the holder; empty: free',
    fence BIGINT NOT NULL COMMENT 'of the last grant',
    until_us BIGINT NOT NULL COMMENT 'end of its lease by the server''s clock, in microseconds since 1970',
    KEY until_us (until_us)
) ENGINE = InnoDB;

-- The waiters. One counts until until_us, while its client, with which its token begins, has the user lock dlock.CLIENT.
CREATE TABLE IF NOT EXISTS dlock_claims (
    name VARBINARY(255) NOT NULL,
    token VARBINARY(255) NOT NULL,
    ticket BIGINT NOT NULL AUTO_INCREMENT COMMENT 'its place',
    since_us BIGINT NOT NULL COMMENT 'when it came, by the server''s clock',
    until_us BIGINT NOT NULL COMMENT 'until then it counts, unless it asks again',
    PRIMARY KEY (name, token),
    KEY queue (name, ticket),
    KEY ticket (ticket),
    KEY until_us (until_us)
) ENGINE = InnoDB;

-- The row without a name says which server the rows belong to, so that another one, or a restarted one, grants nothing
-- for one quarantine. Empty: nothing was granted yet.
INSERT IGNORE INTO dlock_locks VALUES ('', '', 1, 9223372036854775807);

-- Rows that were not used for a day can be deleted, in small steps which keep no lock waiting. Repeat it until nothing is
-- left to delete:
-- SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
-- DELETE FROM dlock_locks WHERE until_us < (UNIX_TIMESTAMP() - 86400) * 1000000 LIMIT 1000;

-- What each application's user needs:
-- GRANT SELECT, INSERT, UPDATE ON dlock_locks TO 'user'@'host';
-- GRANT SELECT, INSERT, UPDATE, DELETE ON dlock_claims TO 'user'@'host';
