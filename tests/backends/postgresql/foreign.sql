-- Objects by which a role that may CREATE in a schema on every search_path can attack clients: functions, operators,
-- types, casts and views of the names in pg_catalog, of the same arguments and of arguments that fit better. Any of them
-- that runs leaves a trace that no rollback removes. Run by a superuser in a separate database.
CREATE SEQUENCE public.ran;
GRANT ALL ON SEQUENCE public.ran TO PUBLIC;
SET search_path = pg_catalog;
DO $$
DECLARE
    body CONSTANT text := $body$ LANGUAGE plpgsql AS $f$
        BEGIN
            PERFORM pg_catalog.nextval('public.ran'::pg_catalog.regclass);
            RAISE EXCEPTION 'foreign code has run';
        END $f$ $body$;
    made integer := 0;
    command text;
BEGIN
    EXECUTE 'CREATE FUNCTION public.foreign_row() RETURNS boolean' || body;
    FOR command IN
        SELECT format('CREATE FUNCTION public.%I(%s) RETURNS %s%s', p.proname, oidvectortypes(p.proargtypes),
                CASE WHEN p.proretset THEN 'SETOF ' END, format_type(p.prorettype, NULL)) || body
            FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind IN ('f', 'a', 'w')
                AND NOT 'internal'::regtype = ANY (p.proargtypes) AND p.prorettype <> 'internal'::regtype
        UNION ALL SELECT 'CREATE FUNCTION public.count(anyelement) RETURNS bigint' || body
        UNION ALL SELECT format('CREATE FUNCTION public.foreign_%s(%s, %s) RETURNS %s',
                CASE WHEN t.returned = 'boolean' THEN 'test' ELSE 'value' END, t.lefts, t.rights, t.returned) || body
            FROM (SELECT DISTINCT format_type(a, NULL) AS lefts, format_type(b, NULL) AS rights, r.returned
                FROM pg_operator o, unnest(ARRAY[o.oprleft]) a, unnest(ARRAY[o.oprright]) b,
                    LATERAL (SELECT 'boolean' UNION SELECT format_type(a, NULL)) r(returned)
                WHERE o.oprkind = 'b'
            UNION SELECT a, b, r.returned FROM unnest('{smallint,integer,bigint,double precision,numeric,text,name,oid,timestamptz,interval}'::text[]) a,
                unnest('{smallint,integer,bigint,double precision,numeric,text,name,oid,timestamptz,interval}'::text[]) b,
                LATERAL (SELECT 'boolean' UNION SELECT a) r(returned)) t
        UNION ALL SELECT format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.foreign_%s)', o.oprname,
                o.lefts, o.rights, CASE WHEN o.oprname ~ '[=<>~]' AND o.oprname NOT IN ('<<', '>>') THEN 'test' ELSE 'value' END)
            FROM (SELECT o.oprname, format_type(o.oprleft, NULL) AS lefts, format_type(o.oprright, NULL) AS rights
                FROM pg_operator o WHERE o.oprkind = 'b'
            UNION SELECT s, a, b FROM unnest('{+,-,*,/,%,=,<>,<,>,<=,>=,&,|,||,<<,~}'::text[]) s,
                unnest('{smallint,integer,bigint,double precision,numeric,text,name,oid,timestamptz,interval}'::text[]) a,
                unnest('{smallint,integer,bigint,double precision,numeric,text,name,oid,timestamptz,interval}'::text[]) b) o
        UNION ALL SELECT format('CREATE VIEW public.%I AS SELECT c.* FROM pg_catalog.%I c WHERE public.foreign_row()',
                c.relname, c.relname)
            FROM pg_class c WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind IN ('r', 'v')
        UNION ALL SELECT 'CREATE TYPE public.foreign_type AS (x integer)'
        UNION ALL SELECT format('CREATE FUNCTION public.to_foreign(%s) RETURNS public.foreign_type', t) || body
            FROM unnest('{integer,bigint,double precision,text}'::text[]) t
        UNION ALL SELECT format('CREATE CAST (%s AS public.foreign_type) WITH FUNCTION public.to_foreign(%s) AS IMPLICIT', t, t)
            FROM unnest('{integer,bigint,double precision,text}'::text[]) t
        UNION ALL SELECT format('CREATE FUNCTION public.%I(public.foreign_type) RETURNS bigint', f) || body
            FROM unnest('{abs,nextval,clock_timestamp,date_part,set_config}'::text[]) f
        UNION ALL SELECT format('CREATE TYPE public.%s AS (x integer)', t)
            FROM unnest('{text,bytea,name,oid,regclass,tid,bool,int4,int8,timestamptz}'::text[]) t
    LOOP
        BEGIN
            EXECUTE command;
            made := made + 1;
        EXCEPTION WHEN OTHERS THEN
            NULL; -- this one cannot be made, by anybody
        END;
    END LOOP;
    IF made < 4000 THEN
        RAISE EXCEPTION 'only % foreign objects', made;
    END IF;
END $$;
