"""Files in FROM have the same classes, columns and rows whether DuckDB or corgipile reads them."""

# ruff: noqa: S608  # tests write SQL

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile.errors import WouldOverwrite
from corgipile.orders import CorgiPile
from corgipile.sql import NotSupportedError, connect


def value(sql, script):
    return sql.execute(script).fetchone()[0]


def test_yes_and_no_of_a_csv_file_are_the_same_classes_in_any_query(tmp_path):
    path = tmp_path / "it's.csv"
    path.write_text("x;ok;flag\n" + "".join(f"{i % 7 - 3}.5;{'yes' if i % 7 > 3 else 'no'};true\n" for i in range(700)))
    name = str(path).replace("'", "''")
    with connect() as session:
        session.execute(f"SELECT x, ok FROM '{name}' TRAIN BY logistic WITH epochs = 3 INTO plain")
        session.execute(f"SELECT x, ok FROM '{name}' WHERE x > -9 TRAIN BY logistic WITH epochs = 3 INTO chosen")
        for model in ("plain", "chosen"):
            found = session.execute(f"SELECT * FROM '{name}' WHERE x > 0 PREDICT BY {model}").arrow()
            assert set(found["ok"].to_pylist()) == {"yes", "no"} == set(found["prediction"].to_pylist())
            assert found["flag"].type == pa.bool_()


def test_a_csv_file_that_only_duckdb_reads_is_read(tmp_path):
    path = tmp_path / "ragged.csv.gz"
    path.write_bytes(gzip.compress(b"x,y\n" + b"".join(b"%d.5,%d\n" % (i % 5, i % 2) for i in range(300))))
    with connect() as session:
        found = session.execute(f"SELECT * FROM '{path}' WHERE x > 1 TRAIN BY logistic WITH epochs = 1").arrow()
    assert found["rows"].to_pylist() == [240]


@pytest.mark.parametrize("more", ["", " WHERE a > -9"])
def test_the_index_that_pandas_wrote_is_neither_feature_nor_label(tmp_path, more):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [0.5, -0.5] * 50, "label": [0, 1] * 50})
    frame.sort_values("label").to_parquet(tmp_path / "t.parquet")
    with connect() as session:
        found = session.execute(f"SELECT * FROM '{tmp_path}/t.parquet'{more} TRAIN BY logistic INTO m")
        assert any("'__index_level_0__' is left out" in note for note in found.notes)
        assert {row[0] for row in session.execute("SELECT * FROM ML.WEIGHTS(MODEL m)")} == {"a", "__INTERCEPT__"}
        named = f"SELECT __index_level_0__, a, label FROM '{tmp_path}/t.parquet'{more} TRAIN BY logistic INTO m"
        session.execute(named)
        assert value(session, "SELECT count(*) FROM ML.WEIGHTS(MODEL m)") == 3


def plan(session, script):
    """Return the properties of an EXPLAIN and its notes."""
    cursor = session.execute(script)
    lines = [line.strip() for (line,) in cursor.fetchall()]
    return dict(line.split(": ", 1) for line in lines if ": " in line), cursor.notes


@pytest.mark.parametrize("way", ["EXPLAIN", "EXPLAIN ANALYZE"])
@pytest.mark.parametrize("more", ["", " WHERE a > -9"])
def test_explain_is_of_the_training_that_runs(tmp_path, way, more):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [0.5, -0.5] * 50, "label": [0, 1] * 50})
    frame.sort_values("label").to_parquet(tmp_path / "t.parquet")
    with connect() as session:
        said, notes = plan(session, f"{way} SELECT * FROM '{tmp_path}/t.parquet'{more} TRAIN BY logistic")
        assert sum("'__index_level_0__' is left out" in note for note in notes) == 1
        assert said.get("Features", "1") == "1"
        plan(session, f"{way} SELECT A, LABEL FROM '{tmp_path}/t.parquet'{more} TRAIN BY logistic")
        held = f"SELECT A, LABEL FROM '{tmp_path}/t.parquet'{more} TRAIN BY logistic WITH validation = 0.5, epochs = 1"
        (epoch,) = session.execute(held).arrow()["rows"].to_pylist()
        assert plan(session, f"{way} {held}")[0].get("Rows per Epoch", str(epoch)) == str(epoch)
        made = "CREATE MODEL m OPTIONS (model_type = 'SVM', calculate_p_values = true)"
        notes = plan(session, f"{way} {made} AS SELECT a, label FROM '{tmp_path}/t.parquet'{more}")[1]
        assert sum("p-values" in note for note in notes) == 1


def test_explain_of_a_file_that_only_we_read(tmp_path):
    table = pa.table({"a": [0.5, -0.5] * 50, "label": [0, 1] * 50})
    with pa.ipc.new_file(tmp_path / "x.arrow", table.schema) as writer:
        writer.write_table(table)
    with connect() as session:
        said, _ = plan(session, f"EXPLAIN SELECT * FROM '{tmp_path}/x.arrow' WHERE a > 0 TRAIN BY svm")
        assert said["Model"] == "svm"


def test_a_view_keeps_no_rows_that_are_lent(tmp_path):
    table = pa.table({"a": [0.5, -0.5] * 50, "label": [0, 1] * 50})
    with pa.ipc.new_file(tmp_path / "x.arrow", table.schema) as writer:
        writer.write_table(table)
    file = f"'{tmp_path}/x.arrow'"
    with connect() as session:
        session.execute(f"SELECT * FROM {file} TRAIN BY svm INTO m")
        for rows in (f"SELECT * FROM {file} PREDICT BY m", "SELECT * FROM ML.WEIGHTS(MODEL m)"):
            for kind in ("VIEW v", "OR REPLACE TEMP VIEW v", "MACRO v()"):
                with pytest.raises(NotSupportedError, match="a view cannot store these rows"):
                    session.execute(f"CREATE {kind} AS {'TABLE ' * kind.startswith('MACRO')}{rows}")
            session.execute(f"CREATE OR REPLACE TABLE view AS {rows}")
            assert session.execute("SELECT * FROM view").fetchall()
        session.execute("CREATE VIEW v AS SELECT * FROM ML.PREDICT(MODEL m, (SELECT 0.5 AS A))")
        assert value(session, "SELECT predicted_label FROM v") == 0
        session.execute("BEGIN; ALTER MODEL m RENAME TO n; CREATE VIEW w AS SELECT predict('n', 0.5) AS p; COMMIT")
        assert value(session, "SELECT p FROM w") == 0


def test_blocks_larger_than_asked_for_are_told(tmp_path, caplog):
    path = tmp_path / "t.parquet"
    rows = pa.table({"a": [0.5, -0.5] * 3000, "label": [0, 1] * 3000})
    pq.write_table(rows, path, row_group_size=1000)
    told = "block is 100, 100 rows; blocks are of 1000, "
    with connect() as session:
        script = f"SELECT * FROM '{path}' TRAIN BY logistic WITH epochs = 1, block_size ="
        assert any(note.startswith(told) for note in session.execute(f"{script} 100").notes)
        assert any(note.startswith(told) for note in session.execute(f"EXPLAIN {script} 100").notes)
        assert not any("blocks are" in note for note in session.execute(f"{script} 1000").notes)
    caplog.clear()
    cp.Loader(path, order=CorgiPile(block=100), batch_size=10)
    assert caplog.text.count(told) == 1


@pytest.mark.parametrize("predict", ["", "PREDICT BY m"])
def test_copy_overwrites_no_file_that_it_reads(tmp_path, predict):
    path, link = tmp_path / "a.parquet", tmp_path / "link.parquet"
    pq.write_table(pa.table({"x": [0.5, 1.5, 2.5], "label": [0, 1, 1]}), path)
    link.symlink_to(path)
    before = path.read_bytes()
    with connect() as sql:
        sql.execute(f"SELECT * FROM '{path}' TRAIN BY logistic INTO m")
        for goal in (path, link):
            with pytest.raises(WouldOverwrite, match="is, or would become, one of the input files"):
                sql.execute(f"COPY (SELECT * FROM '{path}' {predict}) TO '{goal}'")
        sql.execute(f"COPY (SELECT * FROM '{path}' {predict}) TO '{tmp_path / 'b.parquet'}' (FORMAT parquet)")
    assert path.read_bytes() == before
    assert pq.read_metadata(tmp_path / "b.parquet").num_rows == 3
