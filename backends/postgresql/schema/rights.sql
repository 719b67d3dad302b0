
-- ---- rights ---------------------------------------------------------------------------------------------------------

REVOKE ALL ON TABLE "dlock".locks, "dlock".shares, "dlock".queue, "dlock".listeners, "dlock".take,
    "dlock".give FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA "dlock" FROM PUBLIC;
