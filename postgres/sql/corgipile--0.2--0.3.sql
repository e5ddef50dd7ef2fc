\echo Use "ALTER EXTENSION corgipile UPDATE TO '0.3'" to load this file. \quit

-- Training: labels and features of text, missing values. The second form takes a parameter without a type as one column; it
-- has no default there, so that calls without features are of the first.
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
            AND (n.proargtypes[2] = 'text'::pg_catalog.regtype) = (o.proargtypes[2] = 'text'::pg_catalog.regtype)
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

-- A model as it was learnt, where its weights do not say it all: what was taken from features, what they were divided by, the
-- weights of each output, the intercept behind them, and what else was known.
ALTER TABLE corgipile.models ADD learnt float8[];

-- Classes of text: as numbers they are their places.
CREATE FUNCTION corgipile.class_names(model text) RETURNS text[]
    AS 'MODULE_PATHNAME', 'corgipile_class_names' LANGUAGE C STABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION corgipile.class_names(text)
    IS 'classes of a model whose label is text, in the order of models.classes, or the labels of models of several; else NULL';
CREATE FUNCTION corgipile.predict_text(model text, VARIADIC features "any") RETURNS text
    AS 'MODULE_PATHNAME', 'corgipile_predict_text' LANGUAGE C STABLE PARALLEL SAFE COST 10;
COMMENT ON FUNCTION corgipile.predict_text(text, "any") IS 'class of a row, by a model whose label is text';
CREATE FUNCTION corgipile.predict_labels(model text, VARIADIC features "any") RETURNS text[]
    AS 'MODULE_PATHNAME', 'corgipile_predict_labels' LANGUAGE C STABLE PARALLEL SAFE COST 10;
COMMENT ON FUNCTION corgipile.predict_labels(text, "any") IS 'labels that a row is said to have, by models of several';

-- Types that stand for roles stay as they are.
DROP EVENT TRIGGER corgipile_follow_roles;
CREATE EVENT TRIGGER corgipile_follow_roles ON ddl_command_start
    WHEN TAG IN ('DROP OWNED', 'DROP EXTENSION', 'ALTER DOMAIN', 'ALTER TYPE', 'DROP DOMAIN', 'DROP TYPE')
    EXECUTE FUNCTION corgipile.follow_roles();

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

-- Versions of models, models as bytes, measures.
ALTER TABLE corgipile.models
    ADD version bigint NOT NULL DEFAULT 1 CHECK (version > 0),
    ADD before bigint;
COMMENT ON COLUMN corgipile.models.before IS 'the version before this one, to which rollback goes back';
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
COMMENT ON TABLE corgipile.past IS 'earlier versions of models, as many as corgipile.keep_versions says; forget one with DELETE';
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
COMMENT ON VIEW corgipile.versions IS 'versions of models that are kept, with the figures of the last epoch of each';

CREATE FUNCTION corgipile.keep_version() RETURNS trigger AS 'MODULE_PATHNAME', 'corgipile_keep_version' LANGUAGE C;
REVOKE ALL ON FUNCTION corgipile.keep_version() FROM PUBLIC;
CREATE TRIGGER keep_version BEFORE UPDATE ON corgipile.models
    FOR EACH ROW EXECUTE FUNCTION corgipile.keep_version();

CREATE FUNCTION corgipile.rollback(model text, version bigint DEFAULT NULL) RETURNS bigint
    AS 'MODULE_PATHNAME', 'corgipile_rollback' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION corgipile.rollback(text, bigint)
    IS 'bring back the version before the present one, or the one of this number; returns its number';

-- Default privileges may have granted more.
DO $revoke$
DECLARE
    given record;
BEGIN
    FOR given IN SELECT DISTINCT c.oid::pg_catalog.regclass AS relation, a.grantee
        FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a
        WHERE c.relnamespace = 'corgipile'::pg_catalog.regnamespace AND a.grantee <> c.relowner
            AND c.relname IN ('past', 'past_history', 'versions')
    LOOP
        EXECUTE pg_catalog.format('REVOKE ALL ON %s FROM %s', given.relation, CASE given.grantee WHEN 0 THEN 'PUBLIC'
            ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(given.grantee)) END);
    END LOOP;
END $revoke$;
GRANT SELECT ON corgipile.past, corgipile.past_history, corgipile.versions TO PUBLIC;
GRANT DELETE ON corgipile.past TO PUBLIC;

-- Measures, on a table or on the rows of a query. Who may evaluate stays as it was: who could in both forms.
DO $evaluate$
DECLARE
    old oid[] := ARRAY(SELECT p.oid FROM pg_catalog.pg_proc p
        WHERE p.pronamespace = 'corgipile'::pg_catalog.regnamespace AND p.proname = 'evaluate');
    known bool := EXISTS (SELECT FROM pg_catalog.pg_proc WHERE oid = ANY (old) AND proacl IS NOT NULL);
    given record;
    gone oid;
BEGIN
    CREATE FUNCTION corgipile.evaluate(model text, source regclass DEFAULT NULL, features "any" DEFAULT NULL::text[],
        label text DEFAULT NULL, query text DEFAULT NULL, "where" text DEFAULT NULL, weight text DEFAULT NULL,
        OUT loss float8, OUT accuracy float8, OUT r2 float8, OUT rows bigint, OUT auc float8, OUT log_loss float8,
        OUT rmse float8, OUT mae float8)
        RETURNS record AS 'MODULE_PATHNAME', 'corgipile_evaluate' LANGUAGE C VOLATILE PARALLEL UNSAFE COST 100000;
    IF known THEN
        REVOKE ALL ON FUNCTION corgipile.evaluate(text, regclass, "any", text, text, text, text) FROM PUBLIC;
    END IF;
    FOR given IN SELECT a.grantee, pg_catalog.bool_and(a.is_grantable) AS is_grantable
        FROM pg_catalog.pg_proc p,
            pg_catalog.aclexplode(coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))) a
        WHERE known AND p.oid = ANY (old)
        GROUP BY a.grantee HAVING pg_catalog.count(DISTINCT p.oid) = pg_catalog.cardinality(old)
    LOOP
        EXECUTE pg_catalog.format('GRANT EXECUTE ON FUNCTION corgipile.evaluate(text, regclass, "any", text, text, text, text) '
            'TO %s%s', CASE given.grantee
            WHEN 0 THEN 'PUBLIC' ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(given.grantee)) END,
            CASE WHEN given.is_grantable AND given.grantee <> 0 THEN ' WITH GRANT OPTION' END);
    END LOOP;
    FOREACH gone IN ARRAY old LOOP
        EXECUTE pg_catalog.format('DROP FUNCTION %s', gone::pg_catalog.regprocedure);
    END LOOP;
END $evaluate$;
COMMENT ON FUNCTION corgipile.evaluate(text, regclass, "any", text, text, text, text)
    IS 'a model measured on rows; auc is of models of two classes, log_loss of those with probabilities, rmse and mae of numbers';
CREATE FUNCTION corgipile.evaluate_labels(model text, source regclass DEFAULT NULL, features "any" DEFAULT NULL::text[],
    label text DEFAULT NULL, query text DEFAULT NULL, "where" text DEFAULT NULL, weight text DEFAULT NULL,
    OUT loss float8, OUT accuracy float8, OUT subset_accuracy float8, OUT precision_micro float8, OUT recall_micro float8,
    OUT f1_micro float8, OUT precision_macro float8, OUT recall_macro float8, OUT f1_macro float8, OUT rows bigint)
    RETURNS record AS 'MODULE_PATHNAME', 'corgipile_evaluate_labels' LANGUAGE C VOLATILE PARALLEL UNSAFE COST 100000;
COMMENT ON FUNCTION corgipile.evaluate_labels(text, regclass, "any", text, text, text, text)
    IS 'models of several labels measured on rows: means over labels, figures of all together (micro), rows that are wholly right';
CREATE FUNCTION corgipile.confusion_matrix(model text, source regclass DEFAULT NULL, features "any" DEFAULT NULL::text[],
    label text DEFAULT NULL, query text DEFAULT NULL, "where" text DEFAULT NULL, weight text DEFAULT NULL,
    OUT actual text, OUT predicted text, OUT rows bigint, OUT weight float8) RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'corgipile_confusion_matrix' LANGUAGE C VOLATILE PARALLEL UNSAFE COST 100000;
COMMENT ON FUNCTION corgipile.confusion_matrix(text, regclass, "any", text, text, text, text)
    IS 'how many rows of each class a model takes for each, and what they count for by a column of weights';
CREATE FUNCTION corgipile.class_metrics(model text, source regclass DEFAULT NULL, features "any" DEFAULT NULL::text[],
    label text DEFAULT NULL, query text DEFAULT NULL, "where" text DEFAULT NULL, weight text DEFAULT NULL,
    OUT class text, OUT "precision" float8, OUT recall float8, OUT f1 float8, OUT rows bigint, OUT weight float8)
    RETURNS SETOF record AS 'MODULE_PATHNAME', 'corgipile_class_metrics' LANGUAGE C VOLATILE PARALLEL UNSAFE COST 100000;
COMMENT ON FUNCTION corgipile.class_metrics(text, regclass, "any", text, text, text, text)
    IS 'precision, recall and F1 of each class, or of each label of several; NULL where they are 0 / 0';
CREATE FUNCTION corgipile.auc(model text, source regclass DEFAULT NULL, features "any" DEFAULT NULL::text[],
    label text DEFAULT NULL, query text DEFAULT NULL, "where" text DEFAULT NULL, class "any" DEFAULT NULL::text,
    weight text DEFAULT NULL) RETURNS float8
    AS 'MODULE_PATHNAME', 'corgipile_auc' LANGUAGE C VOLATILE PARALLEL UNSAFE COST 100000;
COMMENT ON FUNCTION corgipile.auc(text, regclass, "any", text, text, text, "any", text)
    IS 'area under the ROC curve of a class, of two the second; NULL where all rows are of one side';
CREATE FUNCTION corgipile.roc(model text, source regclass DEFAULT NULL, features "any" DEFAULT NULL::text[],
    label text DEFAULT NULL, query text DEFAULT NULL, "where" text DEFAULT NULL, class "any" DEFAULT NULL::text,
    weight text DEFAULT NULL, OUT threshold float8, OUT fpr float8, OUT tpr float8, OUT false_positives bigint,
    OUT true_positives bigint) RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'corgipile_roc' LANGUAGE C VOLATILE PARALLEL UNSAFE COST 100000;
COMMENT ON FUNCTION corgipile.roc(text, regclass, "any", text, text, text, "any", text)
    IS 'ROC curve of a class, of two the second: rows of which the score is threshold or more';

CREATE FUNCTION corgipile.calibration(model text, source regclass DEFAULT NULL, features "any" DEFAULT NULL::text[],
    label text DEFAULT NULL, query text DEFAULT NULL, "where" text DEFAULT NULL, class "any" DEFAULT NULL::text,
    bins int DEFAULT 10, weight text DEFAULT NULL, OUT low float8, OUT high float8, OUT predicted float8,
    OUT observed float8, OUT rows bigint, OUT weight float8) RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'corgipile_calibration' LANGUAGE C VOLATILE PARALLEL UNSAFE COST 100000 ROWS 10;
COMMENT ON FUNCTION corgipile.calibration(text, regclass, "any", text, text, text, "any", int, text)
    IS 'mean probability of a class, of two the second, beside the share of rows that are of it, by bins of probability';
CREATE FUNCTION corgipile.summary(model text, source regclass DEFAULT NULL, features "any" DEFAULT NULL::text[],
    label text DEFAULT NULL, query text DEFAULT NULL, "where" text DEFAULT NULL, weight text DEFAULT NULL,
    OUT feature text, OUT coefficient float8, OUT standard_error float8, OUT z float8, OUT p float8, OUT low float8,
    OUT high float8, OUT gap float8) RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'corgipile_summary' LANGUAGE C VOLATILE PARALLEL UNSAFE COST 100000;
COMMENT ON FUNCTION corgipile.summary(text, regclass, "any", text, text, text, text)
    IS 'coefficients of a logistic, linear or poisson model with standard errors (sandwich), p-values and 95 % intervals';

-- Models as the bytes of model files.
CREATE FUNCTION corgipile.export(model text) RETURNS bytea
    AS 'MODULE_PATHNAME', 'corgipile_export' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10000
    SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1;
COMMENT ON FUNCTION corgipile.export(text) IS 'a model as the content of a model file, which Python loads';
CREATE FUNCTION corgipile.import(model text, content bytea) RETURNS bigint
    AS 'MODULE_PATHNAME', 'corgipile_import' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 10000
    SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1;
COMMENT ON FUNCTION corgipile.import(text, bytea)
    IS 'store a model that Python saved, or that was exported, under a name; returns its version';
