"""A DuckDB file with a table to train on."""

import numpy as np
import pyarrow as pa
import pytest

from corgipile.sql import connect

ROWS = 3000
TRAIN = "SELECT a, b, label FROM t TRAIN BY logistic WITH epochs = 2, learning_rate = 0.1"


def rows(count=ROWS, dtype=np.float32):
    """Return rows of two features, a label and some text."""
    made = np.random.default_rng(0)
    a, b = (made.random(count).astype(dtype) for _ in "ab")
    city = [["x", "y", "it's"][i % 3] for i in range(count)]
    return pa.table({"a": a, "b": b, "label": (a > 0.5).astype(np.int32), "city": city})


@pytest.fixture
def sql(tmp_path):
    with connect(tmp_path / "m.duckdb") as connection:
        connection.engine.session.connection.register("given", rows())
        connection.execute("CREATE TABLE t AS FROM given")
        yield connection


def value(sql, script, *values):
    ((found,),) = sql.execute(script, *values).fetchall()
    return found
