-- Rows held out, models to go on from, early stop, progress.
SET client_min_messages = warning;
CREATE TABLE steps AS
    SELECT ARRAY[i % 10 - 4.5, (i / 500) * 4 - 2]::real[] AS x, i / 500 AS label FROM generate_series(0, 999) i;

SELECT epoch, holdout_loss < 0.2 AS low, holdout_accuracy > 0.95 AS learnt, holdout_r2, rows BETWEEN 850 AND 950 AS most
    FROM corgipile.train('steps', 'logistic', 'x', 'label', name => 'first', epochs => 2, holdout => 0.1,
        learning_rate => 0.1);

SELECT epoch, rows FROM corgipile.train('steps', 'logistic', 'x', 'label', name => 'first', epochs => 2,
    warm_start => 'first');

SELECT epoch, holdout_loss IS NOT NULL AS held_out, params ->> 'warm_start' AS warm_start
    FROM corgipile.history JOIN corgipile.models ON name = model ORDER BY epoch;

SELECT count(*) < 50 AS early FROM corgipile.train('steps', 'logistic', 'x', 'label', epochs => 100, tolerance => 0.5);

SELECT * FROM corgipile.train('steps', 'svm', 'x', 'label', warm_start => 'first');
SELECT * FROM corgipile.train('steps', 'svm', 'x', 'label', warm_start => 'nothing');
SELECT * FROM corgipile.train('steps', 'svm', 'x', 'label', holdout => 1.5);
SELECT * FROM corgipile.train('steps', 'svm', 'x', 'label', tolerance => -1);

SELECT * FROM corgipile.progress;
CREATE TABLE few AS SELECT * FROM steps LIMIT 50;
EXPLAIN (COSTS OFF)
    SELECT * FROM corgipile.train('few', 'logistic', 'x', 'label', holdout => 0.1, warm_start => 'first');
DELETE FROM corgipile.models;
