
-- For each role that is to use the locks:
--
--     GRANT USAGE ON SCHEMA "dlock" TO app;
--     GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA "dlock" TO app;
--     GRANT USAGE ON SEQUENCE "dlock".fences TO app;
