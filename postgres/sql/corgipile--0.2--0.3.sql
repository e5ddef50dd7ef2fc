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
    standardize bool DEFAULT NULL,
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

-- A model of standardised features as it was learnt: what was taken from them, what they were divided by, and the weights
-- of each output, the intercept behind them.
ALTER TABLE corgipile.models ADD learnt float8[];

-- Classes of text: as numbers they are their places.
CREATE FUNCTION corgipile.class_names(model text) RETURNS text[]
    AS 'MODULE_PATHNAME', 'corgipile_class_names' LANGUAGE C STABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION corgipile.class_names(text) IS 'classes of a model whose label is text, in the order of models.classes; else NULL';
CREATE FUNCTION corgipile.predict_text(model text, VARIADIC features "any") RETURNS text
    AS 'MODULE_PATHNAME', 'corgipile_predict_text' LANGUAGE C STABLE PARALLEL SAFE COST 10;
COMMENT ON FUNCTION corgipile.predict_text(text, "any") IS 'class of a row, by a model whose label is text';

-- A model may say what stands for a NULL.
CREATE OR REPLACE FUNCTION corgipile.predict(model text, VARIADIC features "any") RETURNS float8
    AS 'MODULE_PATHNAME', 'corgipile_predict' LANGUAGE C STABLE PARALLEL SAFE COST 10;
CREATE OR REPLACE FUNCTION corgipile.predict_bool(model text, VARIADIC features "any") RETURNS bool
    AS 'MODULE_PATHNAME', 'corgipile_predict_bool' LANGUAGE C STABLE PARALLEL SAFE COST 10;
CREATE OR REPLACE FUNCTION corgipile.predict_proba(model text, VARIADIC features "any") RETURNS float8[]
    AS 'MODULE_PATHNAME', 'corgipile_predict_proba' LANGUAGE C STABLE PARALLEL SAFE COST 10;
CREATE OR REPLACE FUNCTION corgipile.decision(model text, VARIADIC features "any") RETURNS float8[]
    AS 'MODULE_PATHNAME', 'corgipile_decision' LANGUAGE C STABLE PARALLEL SAFE COST 10;
