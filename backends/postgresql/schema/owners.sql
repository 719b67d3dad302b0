
-- Refuses a schema, or an object in it, that belongs to another role, which could run any code with the rights of the
-- role that runs this script, and a schema where another role may create objects.
DO $$
DECLARE
    stranger text;
BEGIN
    SELECT pg_describe_object(o.classid, o.objid, 0) || ' belongs to ' || quote_ident(r.rolname) INTO stranger
        FROM (SELECT 'pg_namespace'::regclass::oid AS classid, n.oid AS objid, n.nspowner AS owner FROM pg_namespace n
                WHERE n.oid = to_regnamespace('"dlock"')
            UNION ALL SELECT s.classid, s.objid, s.refobjid FROM pg_depend d, pg_shdepend s, pg_database b
                WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = to_regnamespace('"dlock"')
                    AND b.datname = current_database() AND s.dbid = b.oid AND s.classid = d.classid
                    AND s.objid = d.objid AND s.refclassid = 'pg_authid'::regclass AND s.deptype = 'o') o,
            pg_roles r
        WHERE r.oid = CASE WHEN o.owner = to_regrole('pg_database_owner') THEN
                (SELECT b.datdba FROM pg_database b WHERE b.datname = current_database()) ELSE o.owner END
            AND r.rolname <> current_user AND NOT r.rolsuper LIMIT 1;
    IF stranger IS NOT NULL THEN
        RAISE EXCEPTION '%, neither to % nor to a superuser', stranger, quote_ident(current_user)
            USING ERRCODE = 'DL005', HINT = 'Run this as that role if you trust it. Otherwise drop what it has made.';
    END IF;

    -- Who may create objects in this schema can run any code with the rights of the owner of our functions, which search it.
    SELECT coalesce(quote_ident(r.rolname), 'PUBLIC') INTO stranger FROM pg_namespace n CROSS JOIN aclexplode(n.nspacl) a
            LEFT JOIN pg_roles r ON r.oid = a.grantee
        WHERE n.oid = to_regnamespace('"dlock"') AND a.privilege_type = 'CREATE' AND a.grantee <> n.nspowner
            AND r.rolname IS DISTINCT FROM current_user AND r.rolsuper IS NOT TRUE LIMIT 1;
    IF stranger IS NOT NULL THEN
        RAISE EXCEPTION 'others may create objects in the schema of the locks: REVOKE CREATE ON SCHEMA "dlock" FROM %',
            stranger USING ERRCODE = 'DL007';
    END IF;
END $$;
