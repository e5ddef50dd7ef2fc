-- Three operators learn from a table clustered by label; only figures that hold on every machine are shown.
SET client_min_messages = warning;
CREATE TABLE points AS
    SELECT ARRAY[i % 10 - 4.5, (i / 500) * 4 - 2]::real[] AS x, (i % 10)::real AS a, (i / 500) * 4 - 2 AS b, i / 500 AS label
    FROM generate_series(0, 999) i;

CREATE TABLE few_points AS SELECT * FROM points LIMIT 50;
EXPLAIN (COSTS OFF)
    SELECT * FROM corgipile.train('few_points', 'logistic', 'x', 'label', block_size => '8kB', epochs => 3);

SELECT epoch, accuracy > 0.95 AS learnt, r2, rows
    FROM corgipile.train('points', 'logistic', 'x', 'label', name => 'first', block_size => '8kB', epochs => 3);

SELECT epoch, accuracy > 0.95 AS learnt, rows
    FROM corgipile.train('points', 'svm', ARRAY['a', 'b'], 'label', "order" => 'corgipile', epochs => 2);

SELECT epoch, r2 > 0.9 AS learnt, accuracy, rows
    FROM corgipile.train('points', 'linear', 'x', 'label', balance => true, batch_size => 10, learning_rate => 0.05);

SELECT name, kind, dims, classes, params ->> 'order' AS "order", source,
    (SELECT count(*) FROM corgipile.history WHERE model = name) AS epochs FROM corgipile.models;

SELECT label, avg((corgipile.predict('first', x) = label)::int) > 0.95 AS right,
    bool_and(((corgipile.decision('first', x))[1] > 0) = ((corgipile.predict_proba('first', x))[2] > 0.5)) AS agree
    FROM points GROUP BY label ORDER BY label;

DELETE FROM corgipile.models WHERE name = 'first';
SELECT corgipile.predict('first', ARRAY[1, 2]);
SELECT count(*) FROM corgipile.history;
