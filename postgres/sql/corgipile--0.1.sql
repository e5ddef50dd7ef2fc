\echo Use "CREATE EXTENSION corgipile" to load this file. \quit

-- Objects in a schema that belongs to somebody else, or that were there before, could take the place of ours.
DO $check$
DECLARE
    place record;
    found text;
BEGIN
    SELECT n.oid AS schema, n.nspowner AS owner, e.oid AS extension, e.extowner AS installer, n.nspacl AS acl
        INTO STRICT place FROM pg_catalog.pg_namespace n, pg_catalog.pg_extension e
        WHERE n.nspname OPERATOR(pg_catalog.=) 'corgipile' AND e.extname OPERATOR(pg_catalog.=) 'corgipile';
    SELECT pg_catalog.quote_ident(r.rolname) INTO found FROM pg_catalog.pg_roles r
        WHERE r.oid OPERATOR(pg_catalog.=) place.owner AND NOT r.rolsuper
            AND r.oid OPERATOR(pg_catalog.<>) place.installer;
    IF found IS NOT NULL THEN
        RAISE EXCEPTION 'schema corgipile belongs to %, not to who installs the extension', found
            USING ERRCODE = 'insufficient_privilege', HINT = 'DROP SCHEMA corgipile, or ALTER SCHEMA corgipile OWNER TO a superuser.';
    END IF;
    SELECT CASE a.grantee WHEN 0::pg_catalog.oid THEN 'PUBLIC' ELSE pg_catalog.pg_get_userbyid(a.grantee)::pg_catalog.text END
        INTO found FROM pg_catalog.aclexplode(place.acl) a
        WHERE a.privilege_type OPERATOR(pg_catalog.=) 'CREATE' AND a.grantee OPERATOR(pg_catalog.<>) place.owner
        LIMIT 1;
    IF found IS NOT NULL THEN
        RAISE EXCEPTION '% may create objects in schema corgipile', found
            USING ERRCODE = 'insufficient_privilege', HINT = 'REVOKE CREATE ON SCHEMA corgipile.';
    END IF;
    SELECT pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid) INTO found FROM pg_catalog.pg_depend d
        WHERE d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_namespace'::pg_catalog.regclass::pg_catalog.oid
            AND d.refobjid OPERATOR(pg_catalog.=) place.schema
            AND NOT (d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_extension'::pg_catalog.regclass::pg_catalog.oid
                AND d.objid OPERATOR(pg_catalog.=) place.extension)
        LIMIT 1;
    IF found IS NOT NULL THEN
        RAISE EXCEPTION 'schema corgipile holds %, which is none of the extension''s', found
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Drop it or move it to another schema.';
    END IF;
END $check$;

CREATE FUNCTION train_support(internal) RETURNS internal
    AS 'MODULE_PATHNAME', 'corgipile_train_support' LANGUAGE C STRICT;

CREATE FUNCTION train(
    source regclass,
    model text,
    features text[],
    label text,
    name text DEFAULT NULL,
    epochs int DEFAULT 5,
    learning_rate float8 DEFAULT 0.01,
    decay float8 DEFAULT 0.95,
    l2 float8 DEFAULT 0,
    batch_size int DEFAULT 1,
    block_size text DEFAULT NULL,
    buffer_size text DEFAULT '64MB',
    "order" text DEFAULT 'riffle',
    balance bool DEFAULT false,
    seed bigint DEFAULT 0,
    intercept bool DEFAULT true,
    classes float8[] DEFAULT NULL,
    holdout float8 DEFAULT NULL,
    warm_start text DEFAULT NULL,
    tolerance float8 DEFAULT NULL,
    threads int DEFAULT 2,
    OUT epoch int,
    OUT loss float8,
    OUT accuracy float8,
    OUT r2 float8,
    OUT holdout_loss float8,
    OUT holdout_accuracy float8,
    OUT holdout_r2 float8,
    OUT rows bigint,
    OUT seconds float8
) RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'corgipile_train' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 5 SUPPORT train_support;

CREATE FUNCTION train(
    source regclass,
    model text,
    features text,
    label text,
    name text DEFAULT NULL,
    epochs int DEFAULT 5,
    learning_rate float8 DEFAULT 0.01,
    decay float8 DEFAULT 0.95,
    l2 float8 DEFAULT 0,
    batch_size int DEFAULT 1,
    block_size text DEFAULT NULL,
    buffer_size text DEFAULT '64MB',
    "order" text DEFAULT 'riffle',
    balance bool DEFAULT false,
    seed bigint DEFAULT 0,
    intercept bool DEFAULT true,
    classes float8[] DEFAULT NULL,
    holdout float8 DEFAULT NULL,
    warm_start text DEFAULT NULL,
    tolerance float8 DEFAULT NULL,
    threads int DEFAULT 2,
    OUT epoch int,
    OUT loss float8,
    OUT accuracy float8,
    OUT r2 float8,
    OUT holdout_loss float8,
    OUT holdout_accuracy float8,
    OUT holdout_r2 float8,
    OUT rows bigint,
    OUT seconds float8
) RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'corgipile_train' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 5 SUPPORT train_support;

COMMENT ON FUNCTION train(regclass, text, text[], text, text, int, float8, float8, float8, int, text, text, text, bool,
    bigint, bool, float8[], float8, text, float8, int) IS 'train a linear model; one row an epoch';
COMMENT ON FUNCTION train(regclass, text, text, text, text, int, float8, float8, float8, int, text, text, text, bool,
    bigint, bool, float8[], float8, text, float8, int) IS 'train a linear model; one row an epoch';

CREATE TABLE models (
    name text PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('logistic', 'svm', 'linear', 'softmax')),
    dims int NOT NULL CHECK (dims > 0),
    classes float8[] NOT NULL,
    coefficients float8[] NOT NULL,
    intercepts float8[] NOT NULL,
    params jsonb NOT NULL,
    history jsonb NOT NULL,
    source text NOT NULL,
    owner name NOT NULL DEFAULT current_user,
    created timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE models IS 'linear models: coefficients [outputs][dims]; drop one with DELETE';
SELECT pg_catalog.pg_extension_config_dump('models', '');

-- Everybody may use every model; a model is changed and dropped by who trained it.
GRANT SELECT, INSERT, UPDATE, DELETE ON models TO PUBLIC;
GRANT USAGE ON SCHEMA corgipile TO PUBLIC;
ALTER TABLE models ENABLE ROW LEVEL SECURITY;
CREATE POLICY use_all ON models FOR SELECT USING (true);
CREATE POLICY insert_own ON models FOR INSERT WITH CHECK (owner = current_user);
CREATE POLICY update_own ON models FOR UPDATE USING (owner = current_user) WITH CHECK (owner = current_user);
CREATE POLICY delete_own ON models FOR DELETE USING (owner = current_user);

CREATE FUNCTION predict(model text, VARIADIC features "any") RETURNS float8
    AS 'MODULE_PATHNAME', 'corgipile_predict' LANGUAGE C STABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION predict(text, "any") IS 'class of a row, or value of a linear model';

CREATE FUNCTION predict_proba(model text, VARIADIC features "any") RETURNS float8[]
    AS 'MODULE_PATHNAME', 'corgipile_predict_proba' LANGUAGE C STABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION predict_proba(text, "any") IS 'probability of each class, in the order of models.classes';

CREATE FUNCTION decision(model text, VARIADIC features "any") RETURNS float8[]
    AS 'MODULE_PATHNAME', 'corgipile_decision' LANGUAGE C STABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION decision(text, "any")
    IS 'score of each output: one, positive for the second class; softmax has one a class';

CREATE FUNCTION evaluate(
    model text,
    source regclass,
    features text[] DEFAULT NULL,
    label text DEFAULT NULL,
    OUT loss float8,
    OUT accuracy float8,
    OUT r2 float8,
    OUT rows bigint
) RETURNS record
    AS 'MODULE_PATHNAME', 'corgipile_evaluate' LANGUAGE C STABLE PARALLEL RESTRICTED COST 100000;
COMMENT ON FUNCTION evaluate(text, regclass, text[], text) IS 'a model measured on a table';

CREATE FUNCTION evaluate(
    model text,
    source regclass,
    features text,
    label text DEFAULT NULL,
    OUT loss float8,
    OUT accuracy float8,
    OUT r2 float8,
    OUT rows bigint
) RETURNS record
    AS 'MODULE_PATHNAME', 'corgipile_evaluate' LANGUAGE C STABLE PARALLEL RESTRICTED COST 100000;
COMMENT ON FUNCTION evaluate(text, regclass, text, text) IS 'a model measured on a table';

CREATE FUNCTION read_progress(
    OUT pid int,
    OUT source regclass,
    OUT model text,
    OUT name text,
    OUT epoch bigint,
    OUT epochs bigint,
    OUT rows_done bigint,
    OUT rows bigint,
    OUT loss float8,
    OUT started timestamptz
) RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'corgipile_progress' LANGUAGE C VOLATILE PARALLEL RESTRICTED;
CREATE VIEW progress AS SELECT * FROM read_progress();
COMMENT ON VIEW progress IS 'trainings under way in this database; epoch and rows are NULL during the first pass';
GRANT SELECT ON progress TO PUBLIC;
