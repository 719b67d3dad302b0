-- The locks of dlock, for mysql://HOST/DATABASE without mode=session. Each name that was ever locked has a row, since
-- its fence must not be forgotten while the clock could be set back. Rows that were not used for a day can be deleted:
--   DELETE FROM dlock_locks WHERE until_us < (UNIX_TIMESTAMP() - 86400) * 1000000;
CREATE TABLE IF NOT EXISTS dlock_locks (
    name VARBINARY(255) NOT NULL PRIMARY KEY,
    token VARBINARY(255) NOT NULL COMMENT 'of the holder; empty: free',
    fence BIGINT NOT NULL COMMENT 'of the last grant',
    until_us BIGINT NOT NULL COMMENT 'end of its lease by the server''s clock, in microseconds since 1970'
) ENGINE = InnoDB;

-- What each application's user needs:
-- GRANT SELECT, INSERT, UPDATE ON dlock_locks TO 'user'@'host';
