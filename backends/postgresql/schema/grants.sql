
-- For each role that is to use the locks:
--
--     GRANT USAGE ON SCHEMA "dlock" TO app;
--     GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA "dlock" TO app;
--     GRANT SELECT, UPDATE ON "dlock".take TO app;
--     GRANT SELECT, UPDATE ON "dlock".give TO app;
