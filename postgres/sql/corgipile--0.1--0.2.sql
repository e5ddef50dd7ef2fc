\echo Use "ALTER EXTENSION corgipile UPDATE TO '0.2'" to load this file. \quit

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
            AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend m
                WHERE m.classid OPERATOR(pg_catalog.=) d.classid AND m.objid OPERATOR(pg_catalog.=) d.objid
                    AND m.deptype OPERATOR(pg_catalog.=) 'e'
                    AND m.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_extension'::pg_catalog.regclass::pg_catalog.oid
                    AND m.refobjid OPERATOR(pg_catalog.=) place.extension)
        LIMIT 1;
    IF found IS NOT NULL THEN
        RAISE EXCEPTION 'schema corgipile holds %, which is none of the extension''s', found
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Drop it or move it to another schema.';
    END IF;
END $check$;

-- A role, kept by its number and shown by its name: "public" is everybody, "none" a role that is gone.
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
COMMENT ON TYPE corgipile.role IS 'a role: public, or none where it is gone';

CREATE FUNCTION corgipile.may(privilege text, owner corgipile.role, may_use corgipile.role[], may_read corgipile.role[],
    may_replace corgipile.role[]) RETURNS bool
    AS 'MODULE_PATHNAME', 'corgipile_may' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION corgipile.may(text, corgipile.role, corgipile.role[], corgipile.role[], corgipile.role[])
    IS 'whether you may use, read, replace or own a model';
CREATE FUNCTION corgipile.may(privilege text, who corgipile.role, owner corgipile.role, may_use corgipile.role[],
    may_read corgipile.role[], may_replace corgipile.role[]) RETURNS bool
    AS 'MODULE_PATHNAME', 'corgipile_may' LANGUAGE C STABLE STRICT PARALLEL SAFE;
REVOKE ALL ON FUNCTION corgipile.may(text, corgipile.role, corgipile.role, corgipile.role[], corgipile.role[],
    corgipile.role[]) FROM PUBLIC;

-- Which kinds there are is for the library to say.
ALTER TABLE corgipile.models DROP CONSTRAINT models_kind_check;

-- Models belong to roles. Those of earlier versions could be read by everybody, and still can.
DROP POLICY use_all ON corgipile.models;
DROP POLICY insert_own ON corgipile.models;
DROP POLICY update_own ON corgipile.models;
DROP POLICY delete_own ON corgipile.models;
ALTER TABLE corgipile.models ALTER owner DROP DEFAULT;
SET LOCAL client_min_messages = error; -- about roles that are gone
ALTER TABLE corgipile.models ALTER owner TYPE corgipile.role USING owner::text::corgipile.role;
RESET client_min_messages;
ALTER TABLE corgipile.models ALTER owner SET DEFAULT current_user::text::corgipile.role,
    ADD may_use corgipile.role[] NOT NULL DEFAULT '{}',
    ADD may_read corgipile.role[] NOT NULL DEFAULT '{public}',
    ADD may_replace corgipile.role[] NOT NULL DEFAULT '{}';
ALTER TABLE corgipile.models ALTER may_read SET DEFAULT '{}';
CREATE POLICY see ON corgipile.models FOR SELECT
    USING (corgipile.may('read', owner, may_use, may_read, may_replace));
CREATE POLICY add ON corgipile.models FOR INSERT
    WITH CHECK (corgipile.may('own', owner, may_use, may_read, may_replace));
CREATE POLICY replace ON corgipile.models FOR UPDATE
    USING (corgipile.may('replace', owner, may_use, may_read, may_replace))
    WITH CHECK (true); -- what may change is for the trigger to say, which sees both rows
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
CREATE EVENT TRIGGER corgipile_follow_roles ON ddl_command_start WHEN TAG IN ('DROP OWNED', 'DROP EXTENSION')
    EXECUTE FUNCTION corgipile.follow_roles();
UPDATE corgipile.models SET owner = owner; -- the triggers see to it that the server knows the roles

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
COMMENT ON FUNCTION corgipile.grant_model(text, text, text)
    IS 'let a role, or public, use, read or replace a model, or all of these';
CREATE FUNCTION corgipile.revoke_model(model text, grantee text, privilege text) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, pg_temp
    AS 'SELECT corgipile.change_grant($1, $2, $3, false)';
COMMENT ON FUNCTION corgipile.revoke_model(text, text, text) IS 'take back what grant_model gave';

-- Epochs are rows.
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
COMMENT ON TABLE corgipile.history IS 'epochs of models; loss, accuracy and r2 are measured while learning, those of holdout after the epoch';
INSERT INTO corgipile.history
    SELECT m.name, e.number - 1, (e.value ->> 'loss')::float8, (e.value ->> 'accuracy')::float8,
        (e.value ->> 'r2')::float8, (e.value ->> 'holdout_loss')::float8, (e.value ->> 'holdout_accuracy')::float8,
        (e.value ->> 'holdout_r2')::float8, (e.value ->> 'rows')::bigint, (e.value ->> 'seconds')::float8
    FROM corgipile.models m,
        jsonb_array_elements(CASE jsonb_typeof(m.history) WHEN 'array' THEN m.history ELSE '[]' END)
            WITH ORDINALITY e (value, number)
    WHERE jsonb_typeof(e.value -> 'loss') = 'number';
ALTER TABLE corgipile.models DROP history;
SELECT pg_catalog.pg_extension_config_dump('corgipile.history', '');
ALTER TABLE corgipile.history ENABLE ROW LEVEL SECURITY;
CREATE POLICY see ON corgipile.history FOR SELECT
    USING (EXISTS (SELECT FROM corgipile.models m WHERE m.name = model));

-- Training: balanced by default, the weights in the result if asked for. Who may call it stays as it was.
CREATE FUNCTION corgipile.train(
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
    buffer_size text DEFAULT NULL,
    "order" text DEFAULT 'balanced',
    balance bool DEFAULT NULL,
    seed bigint DEFAULT 0,
    intercept bool DEFAULT true,
    classes float8[] DEFAULT NULL,
    holdout float8 DEFAULT NULL,
    warm_start text DEFAULT NULL,
    tolerance float8 DEFAULT NULL,
    threads int DEFAULT 2,
    weights bool DEFAULT false,
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
    OUT intercepts float8[]
) RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'corgipile_train' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 5
    SUPPORT corgipile.train_support;
COMMENT ON FUNCTION corgipile.train(regclass, text, text[], text, text, int, float8, float8, float8, int, text, text,
    text, bool, bigint, bool, float8[], float8, text, float8, int, bool)
    IS 'train a linear model; one row an epoch. loss, accuracy and r2 are measured while learning, each row before it is learnt from; those of holdout after the epoch';

CREATE FUNCTION corgipile.train(
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
    buffer_size text DEFAULT NULL,
    "order" text DEFAULT 'balanced',
    balance bool DEFAULT NULL,
    seed bigint DEFAULT 0,
    intercept bool DEFAULT true,
    classes float8[] DEFAULT NULL,
    holdout float8 DEFAULT NULL,
    warm_start text DEFAULT NULL,
    tolerance float8 DEFAULT NULL,
    threads int DEFAULT 2,
    weights bool DEFAULT false,
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
    OUT intercepts float8[]
) RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'corgipile_train' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 5
    SUPPORT corgipile.train_support;
COMMENT ON FUNCTION corgipile.train(regclass, text, text, text, text, int, float8, float8, float8, int, text, text,
    text, bool, bigint, bool, float8[], float8, text, float8, int, bool)
    IS 'train a linear model; one row an epoch. loss, accuracy and r2 are measured while learning, each row before it is learnt from; those of holdout after the epoch';

DO $copy$
DECLARE
    call record;
    given record;
BEGIN
    FOR call IN SELECT o.proacl AS acl, n.oid::pg_catalog.regprocedure AS new
        FROM pg_catalog.pg_proc o, pg_catalog.pg_proc n
        WHERE o.pronamespace = 'corgipile'::pg_catalog.regnamespace AND n.pronamespace = o.pronamespace
            AND o.proname = 'train' AND n.proname = 'train' AND n.pronargs = o.pronargs + 1
            AND n.proargtypes[2] = o.proargtypes[2] AND o.proacl IS NOT NULL
    LOOP
        EXECUTE pg_catalog.format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', call.new);
        FOR given IN SELECT DISTINCT a.grantee, a.is_grantable FROM pg_catalog.aclexplode(call.acl) a LOOP
            EXECUTE pg_catalog.format('GRANT EXECUTE ON FUNCTION %s TO %s%s', call.new, CASE given.grantee
                WHEN 0 THEN 'PUBLIC' ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(given.grantee)) END,
                CASE WHEN given.is_grantable THEN ' WITH GRANT OPTION' END);
        END LOOP;
    END LOOP;
END $copy$;
DROP FUNCTION corgipile.train(regclass, text, text[], text, text, int, float8, float8, float8, int, text, text, text, bool, bigint,
    bool, float8[], float8, text, float8, int);
DROP FUNCTION corgipile.train(regclass, text, text, text, text, int, float8, float8, float8, int, text, text, text, bool, bigint,
    bool, float8[], float8, text, float8, int);

CREATE FUNCTION corgipile.predict_bool(model text, VARIADIC features "any") RETURNS bool
    AS 'MODULE_PATHNAME', 'corgipile_predict_bool' LANGUAGE C STABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION corgipile.predict_bool(text, "any") IS 'class of a row, by a model whose label is boolean';

-- Default privileges may have granted what goes past row security.
DO $revoke$
DECLARE
    given record;
BEGIN
    FOR given IN SELECT DISTINCT c.oid::pg_catalog.regclass AS relation, a.grantee
        FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a
        WHERE c.relnamespace = 'corgipile'::pg_catalog.regnamespace AND a.grantee <> c.relowner
            AND c.relname IN ('models', 'history')
    LOOP
        EXECUTE pg_catalog.format('REVOKE %s ON %s FROM %s',
            CASE WHEN given.relation = 'corgipile.models'::regclass THEN 'TRUNCATE, REFERENCES, TRIGGER' ELSE 'ALL' END,
            given.relation, CASE given.grantee WHEN 0 THEN 'PUBLIC'
                ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(given.grantee)) END);
    END LOOP;
END $revoke$;
GRANT SELECT ON corgipile.history TO PUBLIC;
