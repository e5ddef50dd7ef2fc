\echo Use "CREATE EXTENSION corgipile" to load this file. \quit

-- Refuse a schema that another role owns, may create objects in, or has put objects into: these could replace ours.
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
        RAISE EXCEPTION 'schema corgipile belongs to %, not to the role that installs the extension', found
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

-- A role, stored by its number and shown by its name; "public" is everybody, "none" a dropped role.
CREATE TYPE corgipile.role;
CREATE FUNCTION corgipile.role_in(cstring) RETURNS corgipile.role
    AS 'MODULE_PATHNAME', 'corgipile_role_in' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION corgipile.role_out(corgipile.role) RETURNS cstring
    AS 'MODULE_PATHNAME', 'corgipile_role_out' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION corgipile.role_receive(internal) RETURNS corgipile.role
    AS 'MODULE_PATHNAME', 'corgipile_role_receive' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION corgipile.role_send(corgipile.role) RETURNS bytea
    AS 'MODULE_PATHNAME', 'corgipile_role_send' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE TYPE corgipile.role (INPUT = corgipile.role_in, OUTPUT = corgipile.role_out, RECEIVE = corgipile.role_receive,
    SEND = corgipile.role_send, LIKE = pg_catalog.int8, CATEGORY = 'S');
CREATE CAST (corgipile.role AS text) WITH INOUT AS IMPLICIT;
CREATE CAST (corgipile.role AS int8) WITHOUT FUNCTION AS IMPLICIT; -- for GROUP BY
CREATE CAST (int8 AS corgipile.role) WITHOUT FUNCTION;
COMMENT ON TYPE corgipile.role IS 'a role; public is everybody, none a dropped role';

CREATE FUNCTION corgipile.may(privilege text, owner corgipile.role, may_use corgipile.role[], may_read corgipile.role[],
    may_replace corgipile.role[]) RETURNS bool
    AS 'MODULE_PATHNAME', 'corgipile_may' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION corgipile.may(text, corgipile.role, corgipile.role[], corgipile.role[], corgipile.role[])
    IS 'whether the caller may use, read, replace or own a model';
CREATE FUNCTION corgipile.may(privilege text, who corgipile.role, owner corgipile.role, may_use corgipile.role[],
    may_read corgipile.role[], may_replace corgipile.role[]) RETURNS bool
    AS 'MODULE_PATHNAME', 'corgipile_may' LANGUAGE C STABLE STRICT PARALLEL SAFE;
REVOKE ALL ON FUNCTION corgipile.may(text, corgipile.role, corgipile.role, corgipile.role[], corgipile.role[],
    corgipile.role[]) FROM PUBLIC;

-- Models. Row security lets a role see, replace and drop what its owner granted; guard_model checks what changes.
CREATE TABLE corgipile.models (
    name text PRIMARY KEY,
    kind text NOT NULL,
    dims int NOT NULL CHECK (dims > 0),
    classes float8[] NOT NULL,
    coefficients float8[] NOT NULL,
    intercepts float8[] NOT NULL,
    params jsonb NOT NULL,
    source text NOT NULL,
    owner corgipile.role NOT NULL DEFAULT current_user::text::corgipile.role,
    created timestamptz NOT NULL DEFAULT now(),
    may_use corgipile.role[] NOT NULL DEFAULT '{}',
    may_read corgipile.role[] NOT NULL DEFAULT '{}',
    may_replace corgipile.role[] NOT NULL DEFAULT '{}',
    learnt float8[], -- scaling and optimizer state, where the weights alone do not reproduce the model
    version bigint NOT NULL DEFAULT 1 CHECK (version > 0),
    before bigint
);
COMMENT ON TABLE corgipile.models IS 'linear models: coefficients [outputs][dims]; drop one with DELETE';
COMMENT ON COLUMN corgipile.models.before IS 'the version before this one, to which rollback goes back';
SELECT pg_catalog.pg_extension_config_dump('corgipile.models', '');
GRANT SELECT, INSERT, UPDATE, DELETE ON corgipile.models TO PUBLIC;
GRANT USAGE ON SCHEMA corgipile TO PUBLIC;
ALTER TABLE corgipile.models ENABLE ROW LEVEL SECURITY;
CREATE POLICY see ON corgipile.models FOR SELECT
    USING (corgipile.may('read', owner, may_use, may_read, may_replace));
CREATE POLICY add ON corgipile.models FOR INSERT
    WITH CHECK (corgipile.may('own', owner, may_use, may_read, may_replace));
CREATE POLICY replace ON corgipile.models FOR UPDATE
    USING (corgipile.may('replace', owner, may_use, may_read, may_replace))
    WITH CHECK (true); -- the trigger sees both rows and checks the change
CREATE POLICY drop ON corgipile.models FOR DELETE
    USING (corgipile.may('own', owner, may_use, may_read, may_replace));

CREATE FUNCTION corgipile.guard_model() RETURNS trigger AS 'MODULE_PATHNAME', 'corgipile_guard_model' LANGUAGE C;
CREATE FUNCTION corgipile.note_roles() RETURNS trigger AS 'MODULE_PATHNAME', 'corgipile_note_roles' LANGUAGE C;
CREATE FUNCTION corgipile.follow_roles() RETURNS event_trigger
    AS 'MODULE_PATHNAME', 'corgipile_follow_roles' LANGUAGE C;
REVOKE ALL ON FUNCTION corgipile.guard_model(), corgipile.note_roles(), corgipile.follow_roles() FROM PUBLIC;
CREATE TRIGGER guard_model BEFORE INSERT OR UPDATE ON corgipile.models
    FOR EACH ROW EXECUTE FUNCTION corgipile.guard_model();
CREATE TRIGGER note_roles AFTER INSERT OR UPDATE OR DELETE ON corgipile.models
    FOR EACH ROW EXECUTE FUNCTION corgipile.note_roles();
CREATE EVENT TRIGGER corgipile_follow_roles ON ddl_command_start
    WHEN TAG IN ('DROP OWNED', 'DROP EXTENSION', 'ALTER DOMAIN', 'ALTER TYPE', 'DROP DOMAIN', 'DROP TYPE')
    EXECUTE FUNCTION corgipile.follow_roles();

CREATE FUNCTION corgipile.change_grant(model text, grantee text, privilege text, granted bool) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    columns text[] := CASE privilege WHEN 'use' THEN '{may_use}' WHEN 'read' THEN '{may_read}'
        WHEN 'replace' THEN '{may_replace}' WHEN 'all' THEN '{may_use,may_read,may_replace}' END;
    column_name text;
    changed int;
BEGIN
    IF columns IS NULL THEN
        RAISE EXCEPTION 'privilege must be use, read, replace or all, got %', pg_catalog.quote_nullable(privilege)
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF grantee IS NULL OR grantee <> 'public' AND NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = grantee) THEN
        RAISE EXCEPTION 'role % does not exist; give the name of one, or public', pg_catalog.quote_nullable(grantee)
            USING ERRCODE = 'undefined_object';
    END IF;
    FOREACH column_name IN ARRAY columns LOOP
        EXECUTE format('UPDATE corgipile.models SET %1$I = ARRAY(SELECT r FROM unnest(%1$I) r WHERE r::text <> $2 '
            'UNION ALL SELECT $2::corgipile.role WHERE $3) WHERE name = $1', column_name) USING model, grantee, granted;
        GET DIAGNOSTICS changed = ROW_COUNT;
        IF changed = 0 AND NOT EXISTS (SELECT FROM corgipile.models WHERE name = model) THEN
            RAISE EXCEPTION 'there is no model % that you may grant', pg_catalog.quote_nullable(model)
                USING ERRCODE = 'undefined_object';
        ELSIF changed = 0 THEN
            RAISE EXCEPTION 'permission denied for model %', pg_catalog.quote_nullable(model)
                USING ERRCODE = 'insufficient_privilege', HINT = 'Only members of its owner may grant it.';
        END IF;
    END LOOP;
END $$;
CREATE FUNCTION corgipile.grant_model(model text, grantee text, privilege text) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, pg_temp
    AS 'SELECT corgipile.change_grant($1, $2, $3, true)';
COMMENT ON FUNCTION corgipile.grant_model IS 'grant use, read, replace or all of a model to a role or to public';
CREATE FUNCTION corgipile.revoke_model(model text, grantee text, privilege text) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, pg_temp
    AS 'SELECT corgipile.change_grant($1, $2, $3, false)';
COMMENT ON FUNCTION corgipile.revoke_model(text, text, text) IS 'revoke privileges that grant_model granted';

-- Epochs of models.
CREATE TABLE corgipile.history (
    model text NOT NULL REFERENCES corgipile.models (name) ON UPDATE CASCADE ON DELETE CASCADE,
    epoch bigint NOT NULL CHECK (epoch >= 0),
    loss float8 NOT NULL,
    accuracy float8,
    r2 float8,
    holdout_loss float8,
    holdout_accuracy float8,
    holdout_r2 float8,
    rows bigint,
    seconds float8,
    PRIMARY KEY (model, epoch)
);
COMMENT ON TABLE corgipile.history IS 'epochs of models; loss, accuracy and r2 are measured during the epoch, holdout figures after it';
SELECT pg_catalog.pg_extension_config_dump('corgipile.history', '');
ALTER TABLE corgipile.history ENABLE ROW LEVEL SECURITY;
CREATE POLICY see ON corgipile.history FOR SELECT
    USING (EXISTS (SELECT FROM corgipile.models m WHERE m.name = model));

-- Earlier versions of models, and their epochs.
CREATE TABLE corgipile.past (
    model text NOT NULL REFERENCES corgipile.models (name) ON UPDATE CASCADE ON DELETE CASCADE,
    version bigint NOT NULL,
    before bigint,
    kind text NOT NULL,
    dims int NOT NULL,
    classes float8[] NOT NULL,
    coefficients float8[] NOT NULL,
    intercepts float8[] NOT NULL,
    params jsonb NOT NULL,
    source text NOT NULL,
    created timestamptz NOT NULL,
    learnt float8[],
    until timestamptz NOT NULL,
    PRIMARY KEY (model, version)
);
COMMENT ON TABLE corgipile.past IS 'earlier versions of models, up to corgipile.keep_versions; remove one with DELETE';
CREATE TABLE corgipile.past_history (
    model text NOT NULL,
    version bigint NOT NULL,
    epoch bigint NOT NULL,
    loss float8 NOT NULL,
    accuracy float8,
    r2 float8,
    holdout_loss float8,
    holdout_accuracy float8,
    holdout_r2 float8,
    rows bigint,
    seconds float8,
    PRIMARY KEY (model, version, epoch),
    FOREIGN KEY (model, version) REFERENCES corgipile.past (model, version) ON UPDATE CASCADE ON DELETE CASCADE
);
COMMENT ON TABLE corgipile.past_history IS 'epochs of earlier versions of models';
SELECT pg_catalog.pg_extension_config_dump('corgipile.past', '');
SELECT pg_catalog.pg_extension_config_dump('corgipile.past_history', '');
ALTER TABLE corgipile.past ENABLE ROW LEVEL SECURITY;
ALTER TABLE corgipile.past_history ENABLE ROW LEVEL SECURITY;
CREATE POLICY see ON corgipile.past FOR SELECT
    USING (EXISTS (SELECT FROM corgipile.models m WHERE m.name = model));
CREATE POLICY drop ON corgipile.past FOR DELETE
    USING (EXISTS (SELECT FROM corgipile.models m WHERE m.name = model
        AND corgipile.may('own', m.owner, m.may_use, m.may_read, m.may_replace)));
CREATE POLICY see ON corgipile.past_history FOR SELECT
    USING (EXISTS (SELECT FROM corgipile.models m WHERE m.name = model));

CREATE VIEW corgipile.versions WITH (security_invoker) AS
    SELECT v.model, v.version, v.current, v.before, v.kind, v.dims, e.epochs, e.loss, e.accuracy, e.r2, e.holdout_loss,
        e.holdout_accuracy, e.holdout_r2, v.source, v.created
    FROM (SELECT name AS model, version, true AS current, before, kind, dims, source, created FROM corgipile.models
        UNION ALL SELECT model, version, false, before, kind, dims, source, created FROM corgipile.past) v
    LEFT JOIN LATERAL (SELECT h.epoch + 1 AS epochs, h.loss, h.accuracy, h.r2, h.holdout_loss, h.holdout_accuracy,
            h.holdout_r2
        FROM (SELECT epoch, loss, accuracy, r2, holdout_loss, holdout_accuracy, holdout_r2
                FROM corgipile.history WHERE v.current AND model = v.model
            UNION ALL SELECT epoch, loss, accuracy, r2, holdout_loss, holdout_accuracy, holdout_r2
                FROM corgipile.past_history p WHERE NOT v.current AND p.model = v.model AND p.version = v.version) h
        ORDER BY h.epoch DESC LIMIT 1) e ON true;
COMMENT ON VIEW corgipile.versions IS 'stored versions of models, with the figures of the last epoch of each';

-- Stores what an update of a model replaces. guard_model lets only rollback change the version, which then is stored.
CREATE FUNCTION corgipile.keep_version() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    back CONSTANT bool := NEW.version <> OLD.version;
    most CONSTANT int := current_setting('corgipile.keep_versions');
BEGIN
    IF NOT back THEN
        IF ROW(OLD.kind, OLD.dims, OLD.classes, OLD.coefficients, OLD.intercepts, OLD.params, OLD.source, OLD.created,
               OLD.learnt)::record
            *= ROW(NEW.kind, NEW.dims, NEW.classes, NEW.coefficients, NEW.intercepts, NEW.params, NEW.source,
                   NEW.created, NEW.learnt)::record THEN
            RETURN NEW;
        END IF;
        NEW.before := OLD.version;
        NEW.version := 1 + GREATEST(OLD.version, (SELECT max(p.version) FROM corgipile.past p WHERE p.model = OLD.name));
    END IF;
    IF back OR most > 1 THEN
        INSERT INTO corgipile.past VALUES (OLD.name, OLD.version, OLD.before, OLD.kind, OLD.dims, OLD.classes,
            OLD.coefficients, OLD.intercepts, OLD.params, OLD.source, OLD.created, OLD.learnt, clock_timestamp());
        INSERT INTO corgipile.past_history SELECT h.model, OLD.version, h.epoch, h.loss, h.accuracy, h.r2,
            h.holdout_loss, h.holdout_accuracy, h.holdout_r2, h.rows, h.seconds
            FROM corgipile.history h WHERE h.model = OLD.name;
    END IF;
    IF NOT back THEN
        DELETE FROM corgipile.past WHERE model = OLD.name AND version = ANY (ARRAY(SELECT p.version
            FROM corgipile.past p WHERE p.model = OLD.name ORDER BY p.until DESC, p.version DESC OFFSET most - 1));
    END IF;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION corgipile.keep_version() FROM PUBLIC;
CREATE TRIGGER keep_version BEFORE UPDATE ON corgipile.models
    FOR EACH ROW EXECUTE FUNCTION corgipile.keep_version();

CREATE FUNCTION corgipile.rollback(model text, version bigint DEFAULT NULL) RETURNS bigint
    AS 'MODULE_PATHNAME', 'corgipile_rollback' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION corgipile.rollback IS 'restore the previous version, or the one of this number; returns its number';

-- Training. The second form takes a string without a type as the name of one column; there it has no default, so that
-- calls without features use the first.
CREATE FUNCTION corgipile.train_support(internal) RETURNS internal
    AS 'MODULE_PATHNAME', 'corgipile_train_support' LANGUAGE C STRICT;
DO $train$
DECLARE
    form text[];
BEGIN
    FOREACH form SLICE 1 IN ARRAY ARRAY[['"any"', 'DEFAULT NULL', 'DEFAULT NULL::text[]'], ['text', '', '']] LOOP
        EXECUTE pg_catalog.format($create$
CREATE FUNCTION corgipile.train(
    source regclass %2$s,
    model text %2$s,
    features %1$s %3$s,
    label text DEFAULT NULL,
    name text DEFAULT NULL,
    epochs int DEFAULT 5,
    learning_rate float8 DEFAULT NULL,
    decay float8 DEFAULT 0.95,
    l2 float8 DEFAULT 0,
    batch_size int DEFAULT 1,
    block_size text DEFAULT NULL,
    buffer_size text DEFAULT NULL,
    "order" text DEFAULT 'auto',
    balance "any" DEFAULT NULL::bool,
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
    average bool DEFAULT NULL,
    step text DEFAULT NULL,
    l1 float8 DEFAULT 0,
    weight text DEFAULT NULL,
    class_weight "any" DEFAULT NULL::text,
    patience int DEFAULT NULL,
    max_norm float8 DEFAULT NULL,
    text "any" DEFAULT NULL::text,
    interactions "any" DEFAULT NULL::text,
    hash_bits int DEFAULT 18,
    ngrams int DEFAULT 2,
    by text DEFAULT NULL,
    labels "any" DEFAULT NULL::text[],
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
$create$, form[1], form[2], form[3]);
    END LOOP;
END $train$;
CREATE FUNCTION corgipile.read_progress(
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
CREATE VIEW corgipile.progress AS SELECT * FROM corgipile.read_progress();
COMMENT ON VIEW corgipile.progress IS 'running trainings of this database; epoch and rows are NULL during the first pass';
GRANT SELECT ON corgipile.progress TO PUBLIC;

-- Jobs: training by background workers; and cross validation. Both take the arguments of train.
CREATE TABLE corgipile.job_records (
    id bigserial PRIMARY KEY,
    model text NOT NULL,
    role corgipile.role NOT NULL,
    state text NOT NULL,
    pid int NOT NULL, -- with began, identifies the worker: process numbers are reused
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
COMMENT ON TABLE corgipile.job_records IS 'data of corgipile.jobs; internal';

-- Default privileges may have granted rights that bypass row security, or on what is internal.
DO $revoke$
DECLARE
    given record;
BEGIN
    FOR given IN SELECT DISTINCT c.oid::pg_catalog.regclass AS relation, c.relkind, a.grantee
        FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a
        WHERE c.relnamespace = 'corgipile'::pg_catalog.regnamespace AND a.grantee <> c.relowner AND c.relname IN
            ('models', 'history', 'past', 'past_history', 'versions', 'job_records', 'job_records_id_seq')
    LOOP
        EXECUTE pg_catalog.format('REVOKE %s ON %s %s FROM %s',
            CASE WHEN given.relation = 'corgipile.models'::regclass THEN 'TRUNCATE, REFERENCES, TRIGGER' ELSE 'ALL' END,
            CASE given.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, given.relation,
            CASE given.grantee WHEN 0 THEN 'PUBLIC'
                ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(given.grantee)) END);
    END LOOP;
END $revoke$;
GRANT SELECT ON corgipile.history, corgipile.past, corgipile.past_history, corgipile.versions TO PUBLIC;
GRANT DELETE ON corgipile.past TO PUBLIC;

DO $jobs$
DECLARE
    train record;
BEGIN
    FOR train IN SELECT p.oid,
            pg_catalog.string_agg(a.written, ', ' ORDER BY a.number) AS arguments,
            pg_catalog.string_agg(a.written, ', ' ORDER BY a.number)
                FILTER (WHERE a.name <> ALL ('{name,holdout,warm_start,weights,by,labels}')) AS of_folds
        FROM pg_catalog.pg_proc p, LATERAL (
            SELECT n AS number, p.proargnames[n] AS name, pg_catalog.format('%I %s %s', p.proargnames[n],
                    pg_catalog.format_type(p.proargtypes[n - 1], NULL),
                    'DEFAULT ' || pg_catalog.pg_get_function_arg_default(p.oid, n)) AS written
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
        WHERE p.pronamespace = 'corgipile'::pg_catalog.regnamespace AND p.proname IN ('train', 'train_async', 'cross_validate')
    LOOP
        EXECUTE pg_catalog.format('COMMENT ON FUNCTION %s IS %L', train.call, CASE train.name
            WHEN 'train' THEN 'train a linear model; one row an epoch. loss, accuracy and r2 are measured before each row''s step, holdout figures after the epoch'
            WHEN 'train_async' THEN 'train in the background after this transaction commits; returns the number of the job'
            ELSE 'train on all folds but one and evaluate on that one; one row a fold' END);
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
COMMENT ON VIEW corgipile.jobs IS 'jobs of train_async: your own, or all for pg_read_all_stats; epoch counts finished epochs';
GRANT SELECT ON corgipile.jobs TO PUBLIC;
CREATE FUNCTION corgipile.cancel(job bigint) RETURNS bool
    AS 'MODULE_PATHNAME', 'corgipile_cancel' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION corgipile.cancel(bigint) IS 'cancel a job; false if it has ended';
CREATE FUNCTION corgipile.wait(job bigint, timeout interval DEFAULT NULL) RETURNS text
    AS 'MODULE_PATHNAME', 'corgipile_wait' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION corgipile.wait(bigint, interval) IS 'wait until a job ends or the timeout passes; returns its state';

-- Predictions.
CREATE FUNCTION corgipile.predict(model text, VARIADIC features "any") RETURNS float8
    AS 'MODULE_PATHNAME', 'corgipile_predict' LANGUAGE C STABLE PARALLEL SAFE COST 10;
CREATE FUNCTION corgipile.predict_bool(model text, VARIADIC features "any") RETURNS bool
    AS 'MODULE_PATHNAME', 'corgipile_predict_bool' LANGUAGE C STABLE PARALLEL SAFE COST 10;
CREATE FUNCTION corgipile.predict_proba(model text, VARIADIC features "any") RETURNS float8[]
    AS 'MODULE_PATHNAME', 'corgipile_predict_proba' LANGUAGE C STABLE PARALLEL SAFE COST 10;
CREATE FUNCTION corgipile.decision(model text, VARIADIC features "any") RETURNS float8[]
    AS 'MODULE_PATHNAME', 'corgipile_decision' LANGUAGE C STABLE PARALLEL SAFE COST 10;
COMMENT ON FUNCTION corgipile.predict(text, "any") IS 'class of a row, or value of a linear model';
COMMENT ON FUNCTION corgipile.predict_bool(text, "any") IS 'class of a row, by a model whose label is boolean';
COMMENT ON FUNCTION corgipile.predict_proba(text, "any") IS 'probability of each class, in the order of models.classes';
COMMENT ON FUNCTION corgipile.decision IS 'scores: one, positive for the second class, or one a class for softmax';
CREATE FUNCTION corgipile.class_names(model text) RETURNS text[]
    AS 'MODULE_PATHNAME', 'corgipile_class_names' LANGUAGE C STABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION corgipile.class_names(text)
    IS 'text classes of a model, in the order of models.classes, or its labels; NULL for numeric classes';
CREATE FUNCTION corgipile.predict_text(model text, VARIADIC features "any") RETURNS text
    AS 'MODULE_PATHNAME', 'corgipile_predict_text' LANGUAGE C STABLE PARALLEL SAFE COST 10;
COMMENT ON FUNCTION corgipile.predict_text(text, "any") IS 'class of a row, by a model whose label is text';
CREATE FUNCTION corgipile.predict_labels(model text, VARIADIC features "any") RETURNS text[]
    AS 'MODULE_PATHNAME', 'corgipile_predict_labels' LANGUAGE C STABLE PARALLEL SAFE COST 10;
COMMENT ON FUNCTION corgipile.predict_labels(text, "any") IS 'predicted labels of a row, by a model of several labels';

-- Metrics, on a table or on the rows of a query.
DO $metrics$
DECLARE
    metric text[]; -- name, further arguments, result, rows, outputs, comment
BEGIN
    FOREACH metric SLICE 1 IN ARRAY ARRAY[
        ['evaluate', '', 'record', '', ', OUT loss float8, OUT accuracy float8, OUT r2 float8, OUT rows bigint,
         OUT auc float8, OUT log_loss float8, OUT rmse float8, OUT mae float8',
         'metrics of a model; auc needs two classes, log_loss probabilities, rmse and mae a regression'],
        ['evaluate_labels', '', 'record', '', ', OUT loss float8, OUT accuracy float8, OUT subset_accuracy float8,
         OUT precision_micro float8, OUT recall_micro float8, OUT f1_micro float8, OUT precision_macro float8,
         OUT recall_macro float8, OUT f1_macro float8, OUT rows bigint',
         'metrics of a model of several labels: macro means, micro figures, and the share of rows with all labels right'],
        ['confusion_matrix', '', 'SETOF record', '', ', OUT actual text, OUT predicted text, OUT rows bigint,
         OUT weight float8', 'rows, and their total weight, by actual and predicted class'],
        ['class_metrics', '', 'SETOF record', '', ', OUT class text, OUT "precision" float8, OUT recall float8,
         OUT f1 float8, OUT rows bigint, OUT weight float8',
         'precision, recall and F1 of each class or label; NULL where they are 0 / 0'],
        ['auc', 'class "any" DEFAULT NULL::text,', 'float8', '', '',
         'area under the ROC curve of a class (of two classes the second); NULL if the rows have one class'],
        ['roc', 'class "any" DEFAULT NULL::text,', 'SETOF record', '', ', OUT threshold float8, OUT fpr float8,
         OUT tpr float8, OUT false_positives bigint, OUT true_positives bigint',
         'ROC curve of a class (of two classes the second): counts of rows that score threshold or more'],
        ['calibration', 'class "any" DEFAULT NULL::text, bins int DEFAULT 10,', 'SETOF record', 'ROWS 10',
         ', OUT low float8, OUT high float8, OUT predicted float8, OUT observed float8, OUT rows bigint, OUT weight float8',
         'mean predicted probability of a class (of two classes the second) and its observed share, by probability bin'],
        ['summary', '', 'SETOF record', '', ', OUT feature text, OUT coefficient float8, OUT standard_error float8,
         OUT z float8, OUT p float8, OUT low float8, OUT high float8, OUT gap float8',
         'coefficients of a logistic, linear or poisson model with standard errors (sandwich), p-values and 95 % intervals']
    ] LOOP
        EXECUTE pg_catalog.format($create$
CREATE FUNCTION corgipile.%1$s(model text, source regclass DEFAULT NULL, features "any" DEFAULT NULL::text[],
    label text DEFAULT NULL, query text DEFAULT NULL, "where" text DEFAULT NULL, %2$s weight text DEFAULT NULL %5$s)
    RETURNS %3$s AS 'MODULE_PATHNAME', 'corgipile_%1$s' LANGUAGE C VOLATILE PARALLEL UNSAFE COST 100000 %4$s
$create$, VARIADIC metric);
        EXECUTE pg_catalog.format('COMMENT ON FUNCTION corgipile.%s IS %L', metric[1], metric[6]);
    END LOOP;
END $metrics$;

-- Models as the bytes of model files.
CREATE FUNCTION corgipile.export(model text) RETURNS bytea
    AS 'MODULE_PATHNAME', 'corgipile_export' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10000
    SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1;
COMMENT ON FUNCTION corgipile.export(text) IS 'a model as the content of a model file, which Python loads';
CREATE FUNCTION corgipile.import(model text, content bytea) RETURNS bigint
    AS 'MODULE_PATHNAME', 'corgipile_import' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 10000
    SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1;
COMMENT ON FUNCTION corgipile.import IS 'store an exported or Python-saved model under a name; returns its version';
