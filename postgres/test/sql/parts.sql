-- Partitions and children are read one after the other, as one table.
SET client_min_messages = warning;
CREATE TABLE parted (label int, x real[]) PARTITION BY LIST (label);
CREATE TABLE parted_0 PARTITION OF parted FOR VALUES IN (0);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
SELECT * FROM corgipile.train('parted', 'svm', 'x', 'label');
INSERT INTO parted SELECT i / 50, ARRAY[i / 50 - 0.5, i % 7] FROM generate_series(0, 99) i;
SELECT epoch, rows FROM corgipile.train('parted', 'svm', 'x', 'label', epochs => 2, name => 'parted');
EXPLAIN (COSTS OFF) SELECT * FROM corgipile.train('parted', 'svm', 'x', 'label');
SELECT rows FROM corgipile.evaluate('parted', 'parted_1');

CREATE TABLE parent AS SELECT * FROM parted;
CREATE TABLE child (more int) INHERITS (parent);
INSERT INTO child SELECT label, x, 1 FROM parted;
SELECT rows FROM corgipile.evaluate('parted', 'parent');
SELECT epoch, rows FROM corgipile.train('parent', 'svm', 'x', 'label', epochs => 1);

CREATE MATERIALIZED VIEW made AS SELECT * FROM parted;
CREATE UNLOGGED TABLE unlogged AS SELECT * FROM parted;
CREATE TEMPORARY TABLE temporary AS SELECT * FROM parted;
SELECT source, rows FROM unnest('{made, unlogged, temporary}'::regclass[]) source, corgipile.evaluate('parted', source);

CREATE FOREIGN DATA WRAPPER nowhere;
CREATE SERVER nowhere FOREIGN DATA WRAPPER nowhere;
CREATE FOREIGN TABLE far (label int, x real[]) SERVER nowhere;
SELECT * FROM corgipile.train('far', 'svm', 'x', 'label');
ALTER FOREIGN TABLE far RENAME TO parted_2;
ALTER TABLE parted ATTACH PARTITION parted_2 FOR VALUES IN (2);
SELECT * FROM corgipile.train('parted', 'svm', 'x', 'label');
DELETE FROM corgipile.models;
