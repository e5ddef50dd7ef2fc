-- Each message says what was wrong, what was got, and what would be right.
CREATE TABLE rows_of_two (x float8[], label int);
SELECT * FROM corgipile.train('rows_of_two', 'svm', 'x', 'label');
INSERT INTO rows_of_two VALUES ('{1, 2}', 0), ('{1, 3}', 1), ('{1}', 1);
SELECT * FROM corgipile.train('rows_of_two', 'svm', 'x', 'label');
UPDATE rows_of_two SET x = '{1, NaN}' WHERE array_length(x, 1) = 1;
SELECT * FROM corgipile.train('rows_of_two', 'svm', 'x', 'label');
SELECT * FROM corgipile.train('rows_of_two', 'svm', 'y', 'label');
SELECT * FROM corgipile.train('rows_of_two', 'svm', 'x', 'label', epochs => 0);
SELECT corgipile.train('rows_of_two', 'svm', 'x', 'label');
CREATE VIEW seen AS SELECT * FROM rows_of_two;
SELECT * FROM corgipile.train('seen', 'svm', 'x', 'label');
