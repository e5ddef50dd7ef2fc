-- Models of several labels: of arrays and of columns, applied, measured, as bytes, refused.
SET client_min_messages = warning;
CREATE TABLE posts AS
    SELECT ARRAY[i % 10 - 4.5, (i / 500) * 4 - 2]::real[] AS x, (i / 500) = 1 AS late, i % 10 > 4 AS high,
        array_remove(ARRAY[CASE WHEN i / 500 = 1 THEN 'late' END, CASE WHEN i % 10 > 4 THEN 'high' END], NULL) AS tags,
        ARRAY(SELECT j::smallint FROM generate_series(1, 2) j WHERE (i / 500) + 1 >= j) AS codes
    FROM generate_series(0, 999) i;
SELECT epoch, loss < 0.2 AS low, accuracy > 0.9 AS learnt, rows
    FROM corgipile.train('posts', 'logistic', 'x', labels => 'tags', name => 'tags', epochs => 2);
SELECT params -> 'label' AS label, params -> 'labels' AS labels, array_length(coefficients, 1) AS models, classes
    FROM corgipile.models;
SELECT corgipile.class_names('tags');
SELECT corgipile.predict_labels('tags', '{-4, -2}'::real[]) AS none, corgipile.predict_labels('tags', 4, -2) AS one,
    corgipile.predict_labels('tags', ROW(4, 2)) AS both, array_length(corgipile.predict_proba('tags', 4, 2), 1) AS chances;
SELECT subset_accuracy, f1_micro, f1_macro, rows FROM corgipile.evaluate_labels('tags', 'posts');
SELECT class, precision, recall, f1, rows FROM corgipile.class_metrics('tags', 'posts', "where" => 'late');
SELECT accuracy, r2, auc, rows FROM corgipile.evaluate('tags', 'posts');
SELECT corgipile.import('copy', corgipile.export('tags'));
SELECT corgipile.export('copy') = corgipile.export('tags') AS same;

SELECT max(epoch) FROM corgipile.train('posts', 'svm', 'x', labels => ARRAY['late', 'high'], name => 'columns');
SELECT params -> 'label' AS label, params -> 'labels' AS labels FROM corgipile.models WHERE name = 'columns';
SELECT corgipile.predict_labels('columns', 4, 2);
SELECT corgipile.predict('tags', 4, 2);
SELECT corgipile.predict_proba('columns', 4, 2);

SELECT * FROM corgipile.train('posts', 'logistic', 'x', labels => 'codes');
SELECT * FROM corgipile.train('posts', 'logistic', 'x', labels => 'late');
SELECT * FROM corgipile.train('posts', 'logistic', 'x', 'late', labels => 'tags');
SELECT * FROM corgipile.train('posts', 'linear', 'x', labels => 'tags');

DELETE FROM corgipile.models;
DROP TABLE posts;
