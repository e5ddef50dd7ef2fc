"""URLs in FROM: what reads them is ours, whether the rows are learnt from as they lie or by way of DuckDB."""

# ruff: noqa: S608  # tests write SQL

import numpy as np
import pyarrow as pa
import pytest
from pyarrow.csv import write_csv

import corgipile as cp
from corgipile.sql import connect


@pytest.fixture
def rows(objects):
    x = np.random.default_rng(1).standard_normal((600, 2))
    table = pa.table({"a": x[:, 0], "b": x[:, 1], "label": (x[:, 0] > 0).astype(int)})
    for name in ("t.parquet", "t.arrow"):
        cp.convert(table, objects.root / "bucket" / name)
    write_csv(table, objects.root / "bucket" / "t.csv")
    return table


@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.arrow"])
@pytest.mark.parametrize("where", ["s3://bucket", "{url}/bucket"])
def test_urls_train_and_predict(rows, objects, where, name):
    url = f"{where.format(url=objects.url)}/{name}"
    with connect() as sql:
        sql.execute(f"SELECT * FROM '{url}' TRAIN BY logistic WITH epochs = 2 INTO m")
        model = sql.engine.models.find("m").model
        python = cp.train(url, epochs=2)
        assert (model.coef == python.coef).all()
        some = sql.execute(f"SELECT a, b, label FROM '{url}' WHERE b > 0.5 TRAIN BY logistic WITH epochs = 1")
        assert some.arrow()["rows"].to_pylist() == [int((np.asarray(rows["b"]) > 0.5).sum())]
        found = sql.execute(f"SELECT a, b FROM '{url}' PREDICT BY m").arrow()
        assert found["prediction"].to_pylist() == python.predict(rows).tolist()
        assert sql.execute(f"SELECT rows FROM ML.EVALUATE(MODEL m, TABLE '{url}')").fetchone() == (600,)
        plan = sql.execute(f"EXPLAIN SELECT * FROM '{url}' TRAIN BY logistic").fetchall()
    assert f"Table: {url}" in str(plan)
