"""Columns of any name in PostgreSQL: the same models, answers and figures as under plain names."""

# ruff: noqa: S608  # tests write SQL

import pytest
from pgservers import literal

NAMES = [
    "features", "label", "weight", "by", "row", "prediction", "oid", "ctid_", "params", "encoding", '"', "'", "a.b",
    "a,b", " ", "sélection", "日本", "FEATURES", "Label", "ORDER", "é" * 31, "n" * 63, "$1", "%s", "\\", "E'x", "--",
    "/*", "q", "select", "null", "intercept", "class", "score", "t", "*", "a*",
]  # fmt: skip
PLAIN = [f"c{at}" for at in range(5)]
WAYS = {
    "weight": "features => ARRAY[{0}, {3}], label => {1}, weight => {2}",
    "by": "features => ARRAY[{0}, {2}], label => {1}, by => {3}",
    "all": "features => '*', label => {1}, encode => 'onehot'",
    "text": "features => ARRAY[{0}], text => {4}, hash_bits => 8, label => {1}",
}


def quoted(name):
    """Write a name in quotes."""
    return '"' + name.replace('"', '""') + '"'


def answers(server, names, way):
    called, given = [quoted(name) for name in names], [literal(name) for name in names]
    return server.text(f"""DROP TABLE IF EXISTS named;
        CREATE TABLE named AS SELECT sin(i) AS {called[0]}, (sin(i) > 0.1)::int AS {called[1]}, i % 7 + 1.0::float8
            AS {called[2]}, i % 4 AS {called[3]}, (ARRAY['red', 'green blue', 'blue'])[1 + i % 3] AS {called[4]}
            FROM generate_series(1, 120) i;
        SELECT epoch, loss FROM corgipile.train('named', 'logistic', {WAYS[way].format(*given)}, epochs => 2,
            name => 'named', "where" => {literal(f"{called[2]} > 0")});
        SELECT coefficients, intercepts FROM corgipile.models WHERE name = 'named';
        SELECT sum(i * corgipile.predict('named', named)) FROM (SELECT *, row_number() OVER () AS i FROM named) named;
        SELECT corgipile.evaluate('named', 'named'), corgipile.evaluate('named', query => 'TABLE named'),
            corgipile.auc('named', 'named'), corgipile.import('named again', corgipile.export('named')) > 0""")


@pytest.mark.parametrize("way", WAYS)
def test_answers_are_the_same_whatever_columns_are_called(server, way):
    try:
        wanted = answers(server, PLAIN, way)
        for at in range(0, len(NAMES), 2):
            names = (NAMES + NAMES)[at : at + 5]
            assert answers(server, names, way) == wanted, names
    finally:
        server.sql("DELETE FROM corgipile.models; DROP TABLE named")
