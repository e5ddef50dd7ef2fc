\echo Use "ALTER EXTENSION corgipile UPDATE TO '0.3'" to load this file. \quit

-- Training: labels and features of text, missing values.
DO $train$
DECLARE
    kind text;
BEGIN
    FOREACH kind IN ARRAY ARRAY['text[]', 'text'] LOOP
        EXECUTE pg_catalog.format($create$
CREATE FUNCTION corgipile.train(
    source regclass DEFAULT NULL,
    model text DEFAULT NULL,
    features %s DEFAULT NULL,
    label text DEFAULT NULL,
    name text DEFAULT NULL,
    epochs int DEFAULT 5,
    learning_rate float8 DEFAULT 0.01,
    decay float8 DEFAULT 0.95,
    l2 float8 DEFAULT 0,
    batch_size int DEFAULT 1,
    block_size text DEFAULT NULL,
    buffer_size text DEFAULT NULL,
    "order" text DEFAULT 'balanced',
    balance bool DEFAULT NULL,
    seed bigint DEFAULT 0,
    intercept bool DEFAULT true,
    classes "any" DEFAULT NULL::float8[],
    holdout float8 DEFAULT NULL,
    warm_start text DEFAULT NULL,
    tolerance float8 DEFAULT NULL,
    threads int DEFAULT 2,
    weights bool DEFAULT false,
    encode "any" DEFAULT NULL::text,
    missing "any" DEFAULT 'error'::text,
    query text DEFAULT NULL,
    "where" text DEFAULT NULL,
    OUT epoch int,
    OUT loss float8,
    OUT accuracy float8,
    OUT r2 float8,
    OUT holdout_loss float8,
    OUT holdout_accuracy float8,
    OUT holdout_r2 float8,
    OUT rows bigint,
    OUT seconds float8,
    OUT class_values float8[],
    OUT coefficients float8[],
    OUT intercepts float8[],
    OUT class_names text[]
) RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'corgipile_train' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 5
    SUPPORT corgipile.train_support
$create$, kind);
    END LOOP;
END $train$;

-- Who may call it stays as it was.
DO $copy$
DECLARE
    call record;
    given record;
BEGIN
    FOR call IN SELECT o.proacl AS acl, o.oid::pg_catalog.regprocedure AS old, n.oid::pg_catalog.regprocedure AS new
        FROM pg_catalog.pg_proc o, pg_catalog.pg_proc n
        WHERE o.pronamespace = 'corgipile'::pg_catalog.regnamespace AND n.pronamespace = o.pronamespace
            AND o.proname = 'train' AND n.proname = 'train' AND n.pronargs > o.pronargs
            AND n.proargtypes[2] = o.proargtypes[2]
    LOOP
        IF call.acl IS NOT NULL THEN
            EXECUTE pg_catalog.format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', call.new);
        END IF;
        FOR given IN SELECT DISTINCT a.grantee, a.is_grantable FROM pg_catalog.aclexplode(call.acl) a LOOP
            EXECUTE pg_catalog.format('GRANT EXECUTE ON FUNCTION %s TO %s%s', call.new, CASE given.grantee
                WHEN 0 THEN 'PUBLIC' ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(given.grantee)) END,
                CASE WHEN given.is_grantable THEN ' WITH GRANT OPTION' END);
        END LOOP;
        EXECUTE pg_catalog.format('COMMENT ON FUNCTION %s IS %L', call.new,
            pg_catalog.obj_description(call.old, 'pg_proc'));
        EXECUTE pg_catalog.format('DROP FUNCTION %s', call.old);
    END LOOP;
END $copy$;

-- Classes of text: as numbers they are their places.
CREATE FUNCTION corgipile.class_names(model text) RETURNS text[]
    AS 'MODULE_PATHNAME', 'corgipile_class_names' LANGUAGE C STABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION corgipile.class_names(text) IS 'classes of a model whose label is text, in the order of models.classes; else NULL';
CREATE FUNCTION corgipile.predict_text(model text, VARIADIC features "any") RETURNS text
    AS 'MODULE_PATHNAME', 'corgipile_predict_text' LANGUAGE C STABLE PARALLEL SAFE COST 10;
COMMENT ON FUNCTION corgipile.predict_text(text, "any") IS 'class of a row, by a model whose label is text';

-- Jobs: training by background workers; and cross validation. Both take the arguments of train.
CREATE TABLE corgipile.job_records (
    id bigserial PRIMARY KEY,
    model text NOT NULL,
    role corgipile.role NOT NULL,
    state text NOT NULL,
    pid int NOT NULL, -- of the worker, which began at that time: a number alone may come again
    began timestamptz NOT NULL,
    epoch bigint,
    epochs bigint NOT NULL,
    rows bigint,
    loss float8,
    rows_per_second float8,
    started timestamptz,
    finished timestamptz,
    error text,
    warnings text,
    call text,
    settings text[],
    session_role oid,
    context int,
    time_limit interval
);
COMMENT ON TABLE corgipile.job_records IS 'what corgipile.jobs shows; for the library alone';
DO $revoke$ -- what default privileges may have granted
DECLARE
    given record;
BEGIN
    FOR given IN SELECT DISTINCT c.oid::pg_catalog.regclass AS relation, c.relkind, a.grantee
        FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a
        WHERE c.relnamespace = 'corgipile'::pg_catalog.regnamespace AND a.grantee <> c.relowner
            AND c.relname IN ('job_records', 'job_records_id_seq')
    LOOP
        EXECUTE pg_catalog.format('REVOKE ALL ON %s %s FROM %s', CASE given.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END,
            given.relation, CASE given.grantee WHEN 0 THEN 'PUBLIC'
                ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(given.grantee)) END);
    END LOOP;
END $revoke$;

DO $jobs$
DECLARE
    train record;
BEGIN
    FOR train IN SELECT p.oid,
            pg_catalog.string_agg(a.written, ', ' ORDER BY a.number) AS arguments,
            pg_catalog.string_agg(a.written, ', ' ORDER BY a.number)
                FILTER (WHERE a.name <> ALL ('{name,holdout,warm_start,weights}')) AS of_folds
        FROM pg_catalog.pg_proc p, LATERAL (
            SELECT n AS number, p.proargnames[n] AS name, pg_catalog.format('%I %s DEFAULT %s', p.proargnames[n],
                    pg_catalog.format_type(p.proargtypes[n - 1], NULL), pg_catalog.pg_get_function_arg_default(p.oid, n)) AS written
            FROM pg_catalog.generate_series(1, p.pronargs) n) a
        WHERE p.pronamespace = 'corgipile'::pg_catalog.regnamespace AND p.proname = 'train' GROUP BY p.oid
    LOOP
        EXECUTE pg_catalog.format($create$
CREATE FUNCTION corgipile.train_async(%s, time_limit interval DEFAULT NULL) RETURNS bigint
    AS 'MODULE_PATHNAME', 'corgipile_train_async' LANGUAGE C VOLATILE PARALLEL UNSAFE COST 100000
$create$, train.arguments);
        EXECUTE pg_catalog.format($create$
CREATE FUNCTION corgipile.cross_validate(%s, folds int DEFAULT 5, OUT fold int, OUT loss float8, OUT accuracy float8,
    OUT r2 float8, OUT rows bigint, OUT epochs_run int, OUT seconds float8) RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'corgipile_cross_validate' LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000000 ROWS 5
$create$, train.of_folds);
    END LOOP;
    FOR train IN SELECT p.oid::pg_catalog.regprocedure AS call, p.proname AS name FROM pg_catalog.pg_proc p
        WHERE p.pronamespace = 'corgipile'::pg_catalog.regnamespace AND p.proname IN ('train_async', 'cross_validate')
    LOOP
        EXECUTE pg_catalog.format('COMMENT ON FUNCTION %s IS %L', train.call, CASE train.name
            WHEN 'train_async' THEN 'train in the background once this transaction has committed; returns the number of the job'
            ELSE 'train once a fold on the rows of the others, and measure on its own; one row a fold' END);
    END LOOP;
END $jobs$;

CREATE FUNCTION corgipile.read_jobs(
    OUT id bigint,
    OUT model text,
    OUT role text,
    OUT state text,
    OUT epoch bigint,
    OUT epochs bigint,
    OUT rows bigint,
    OUT loss float8,
    OUT rows_per_second float8,
    OUT started timestamptz,
    OUT finished timestamptz,
    OUT error text,
    OUT warnings text,
    OUT pid int
) RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'corgipile_read_jobs' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100;
CREATE VIEW corgipile.jobs AS SELECT * FROM corgipile.read_jobs();
COMMENT ON VIEW corgipile.jobs IS 'jobs of train_async: your own, and for pg_read_all_stats all; epoch counts those that are over';
GRANT SELECT ON corgipile.jobs TO PUBLIC;
CREATE FUNCTION corgipile.cancel(job bigint) RETURNS bool
    AS 'MODULE_PATHNAME', 'corgipile_cancel' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION corgipile.cancel(bigint) IS 'end a job; false where it is over already';
CREATE FUNCTION corgipile.wait(job bigint, timeout interval DEFAULT NULL) RETURNS text
    AS 'MODULE_PATHNAME', 'corgipile_wait' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION corgipile.wait(bigint, interval) IS 'wait for the end of a job, or for so long; returns its state';

-- A model may say what stands for a NULL.
CREATE OR REPLACE FUNCTION corgipile.predict(model text, VARIADIC features "any") RETURNS float8
    AS 'MODULE_PATHNAME', 'corgipile_predict' LANGUAGE C STABLE PARALLEL SAFE COST 10;
CREATE OR REPLACE FUNCTION corgipile.predict_bool(model text, VARIADIC features "any") RETURNS bool
    AS 'MODULE_PATHNAME', 'corgipile_predict_bool' LANGUAGE C STABLE PARALLEL SAFE COST 10;
CREATE OR REPLACE FUNCTION corgipile.predict_proba(model text, VARIADIC features "any") RETURNS float8[]
    AS 'MODULE_PATHNAME', 'corgipile_predict_proba' LANGUAGE C STABLE PARALLEL SAFE COST 10;
CREATE OR REPLACE FUNCTION corgipile.decision(model text, VARIADIC features "any") RETURNS float8[]
    AS 'MODULE_PATHNAME', 'corgipile_decision' LANGUAGE C STABLE PARALLEL SAFE COST 10;
