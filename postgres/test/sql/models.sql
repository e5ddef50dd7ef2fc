-- A model measured and applied, features in all their forms.
SET client_min_messages = warning;
CREATE TABLE forms AS
    SELECT ARRAY[i % 10 - 4.5, (i / 500) * 4 - 2]::real[] AS x, (i % 10 - 4.5)::real AS a, (i / 500) * 4 - 2 AS b,
        (i / 500)::smallint AS label FROM generate_series(0, 999) i;
SELECT count(*) FROM corgipile.train('forms', 'logistic', 'x', 'label', name => 'm', learning_rate => 0.1);

SELECT loss < 0.1 AS low, accuracy > 0.95 AS learnt, r2, rows FROM corgipile.evaluate('m', 'forms');
SELECT e.rows FROM corgipile.evaluate('m', 'forms', ARRAY['a', 'b'], 'label') e;
SELECT rows FROM corgipile.evaluate('m', 'forms', 'x');

SELECT bool_and(corgipile.predict('m', x) = corgipile.predict('m', a, b)) AS columns,
    bool_and(corgipile.predict('m', x) = corgipile.predict('m', x::float8[])) AS doubles,
    bool_and(corgipile.predict('m', x) = corgipile.predict('m', VARIADIC x)) AS variadic,
    bool_and(corgipile.decision('m', 2, 1::bigint) = corgipile.decision('m', '{2, 1}'::smallint[])) AS integers
    FROM forms;

SELECT corgipile.predict('m', 1);
SELECT corgipile.predict('m', 'a'::text, 1);
SELECT corgipile.predict('m', a, NULL::real) FROM forms LIMIT 1;

BEGIN;
UPDATE corgipile.models SET intercepts = '{1000}';
SELECT corgipile.predict('m', 0, -100);
ROLLBACK;
SELECT corgipile.predict('m', 0, -100);

DELETE FROM corgipile.models;
SELECT corgipile.evaluate('m', 'forms');
