"""Cross validation in the server: which rows are of a fold, and what is learnt from the others."""

# ruff: noqa: S608  # tests write SQL

import numpy as np
import pyarrow as pa
import pytest

from corgipile import train_test_split
from corgipile.random import derive, randoms
from corgipile.tables.splitting import TAG

ROWS = 1000


@pytest.fixture(scope="module", autouse=True)
def rows(server):
    server.sql(f"""
        CREATE TABLE folded AS SELECT i, ARRAY[i % 7, random() + i / 500, 1]::real[] AS x, i / 500 AS label, i % 9 AS y,
            (ARRAY['a', 'b', 'c'])[1 + i * i % 3] AS kind, CASE WHEN i < 3 THEN 'rare' ELSE 'often' END AS answer
            FROM generate_series(0, {ROWS - 1}) i;
        DELETE FROM folded WHERE i = 17;
        INSERT INTO folded SELECT 17, x, label, y, kind, answer FROM folded WHERE i = 18;
    """)


@pytest.fixture
def validate(server):
    """Return what cross-validates, and gives the rows."""

    def run(source="'folded'", model="logistic", features="'x'", label="label", more="", user="postgres"):
        call = (
            f"corgipile.cross_validate({source}, model => '{model}', features => {features}, label => '{label}'{more})"
        )
        return server.rows(f"SELECT * FROM {call} ORDER BY fold", user)

    return run


def folds_of(count, folds, seed):
    """Return the fold of each row, as Python numbers them."""
    hashes = randoms(derive(TAG, seed), 0, count)
    bounds = [np.uint64(fold / folds * 2**64) for fold in range(1, folds)]
    return np.searchsorted(np.array(bounds, np.uint64), hashes, side="right")


@pytest.mark.every_server
@pytest.mark.parametrize(("folds", "seed"), [(2, 0), (5, 3), (7, -1)])
def test_folds_are_those_of_python(server, validate, folds, seed):
    """At weights that stay 0 the loss of a fold is half the mean of its squared labels: it tells which rows it has."""
    found = validate(
        model="linear", label="y", more=f", folds => {folds}, seed => {seed}, epochs => 1, learning_rate => 1e-300"
    )
    y = np.array([row["y"] for row in server.rows("SELECT y FROM folded")], float)
    of = folds_of(ROWS, folds, seed % 2**64)
    assert [row["rows"] for row in found] == np.bincount(of, minlength=folds).tolist()
    assert [row["loss"] for row in found] == pytest.approx([(y[of == fold] ** 2).mean() / 2 for fold in range(folds)])
    if seed >= 0:
        _, test = train_test_split(pa.table({"y": y}), 1 / folds, seed)
        assert test.read(0, len(test))["y"].tolist() == y[of == 0].tolist()


def test_each_fold_is_measured_by_a_model_of_the_others(server, validate):
    """As a model that is trained on a table of the other rows in the same order, whose blocks are cut elsewhere."""
    options = "\"order\" => 'no_shuffle', epochs => 3, seed => 4"
    found = validate(more=f", {options}, folds => 3")
    of = folds_of(ROWS, 3, 4)
    assert [row["epochs_run"] for row in found] == [3] * 3
    assert all(row["r2"] is None and row["seconds"] > 0 for row in found)
    for fold in range(3):
        inside = ", ".join(map(str, np.flatnonzero(of == fold)))
        server.sql(f"""
            DROP TABLE IF EXISTS numbered, others, ones;
            CREATE TABLE numbered AS SELECT *, row_number() OVER () - 1 AS number FROM folded;
            CREATE TABLE ones AS SELECT * FROM numbered WHERE number IN ({inside});
            CREATE TABLE others AS SELECT * FROM numbered WHERE number NOT IN ({inside});
            SELECT * FROM corgipile.train('others', 'logistic', 'x', 'label', name => 'others', {options});
        """)
        (wanted,) = server.rows("SELECT * FROM corgipile.evaluate('others', 'ones')")
        assert {name: found[fold][name] for name in ("loss", "accuracy", "rows")} == {
            name: pytest.approx(wanted[name], rel=1e-12) for name in ("loss", "accuracy", "rows")}  # fmt: skip


def test_a_query_is_run_once(server, validate):
    server.sql("DROP SEQUENCE IF EXISTS runs; CREATE SEQUENCE runs")
    asked = validate(source="query => $q$SELECT nextval('runs') AS run, * FROM folded$q$")
    assert server.value("SELECT last_value FROM runs") == ROWS
    server.sql("CREATE TABLE IF NOT EXISTS made AS SELECT 1::bigint AS run, * FROM folded")
    made = validate(source="'made'")
    same = ("loss", "accuracy", "rows")
    assert [[row[name] for name in same] for row in asked] == [[row[name] for name in same] for row in made]
    assert len(asked) == 5
    assert sum(row["rows"] for row in asked) == ROWS
    assert server.value("SELECT count(*) FROM pg_class WHERE relname LIKE 'corgipile_rows%'") == 0
    assert server.rows("SELECT * FROM corgipile.progress") == []


def test_what_train_takes(server, validate):
    encoded = validate(
        features="ARRAY['i', 'kind']", label="answer", more=", encode => 'onehot', learning_rate => 1e-6"
    )
    assert [row["accuracy"] is not None for row in encoded] == [True] * 5
    chosen = validate(more=", \"where\" => 'i % 2 = 0', folds => 2")
    assert sum(row["rows"] for row in chosen) == ROWS // 2
    stopped = validate(more=", epochs => 500, tolerance => 0.5")
    assert all(row["epochs_run"] < 500 for row in stopped)
    few = validate(source="query => 'SELECT x, label FROM folded WHERE i IN (1, 2, 998, 999)'", more=", folds => 9")
    assert sum(row["rows"] for row in few) == 4
    assert {row["accuracy"] is None for row in few if row["rows"] == 0} == {True}
    means = "SELECT avg(accuracy) > 0.85 AS a, bool_and(r2 IS NULL) AS b, sum(rows) AS c"
    assert server.rows(f"{means} FROM corgipile.cross_validate('folded', 'svm', 'x', 'label', epochs => 9)") == [
        {"a": True, "b": True, "c": ROWS}]  # fmt: skip


def test_a_query_may_train_too(server, validate):
    """What is held out is the fold's, not that of the training within."""
    server.sql("""CREATE OR REPLACE FUNCTION inner_rows() RETURNS bigint LANGUAGE sql AS
        $$ SELECT max(rows) FROM corgipile.train('folded', 'svm', 'x', 'label', epochs => 1) $$""")
    found = validate(
        source="query => 'SELECT x, label FROM folded, (SELECT inner_rows() AS n OFFSET 0) q WHERE n = 1000'"
    )
    assert sum(row["rows"] for row in found) == ROWS


def test_refused(server, fails):
    call = "SELECT * FROM corgipile.cross_validate({}, 'svm', 'x', 'label'{})"
    for more, said in ((", folds => 1", "folds must be 2 to 1000, got 1"), (", folds => NULL", "got NULL"),
                       (", folds => 1001", "got 1001"), (", epochs => 0", "epochs must be 1"),
                       (", name => 'm'", "does not exist"), (", holdout => 0.1", "does not exist")):  # fmt: skip
        assert said in fails(call.format("'folded'", more)), more
    assert "source must not be NULL" in fails(call.format("NULL", ""))
    server.sql("CREATE ROLE f_nobody LOGIN")
    assert "permission denied for table folded" in fails(call.format("'folded'", ""), "f_nobody")
    failing = call.format("NULL, query => 'SELECT NULL::real[] AS x, 1 AS label'", "")
    said = server.text(f"""\\set ON_ERROR_STOP off
        SET client_min_messages = panic; {failing};
        SELECT max(rows) FROM corgipile.train('folded', 'svm', 'x', 'label')""")
    assert said.split()[-1] == str(ROWS)  # nothing is held out of the next one
