"""SQL columns with the names of internal arrays give the same results as others."""

# ruff: noqa: S608  # tests write SQL

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corgipile.sql import connect
from corgipile.tables.databases import quoted

NAMES = [
    "features", "label", "weight", "x", "y", "row", "rows", "index", "values", "prediction", "probability", "_id",
    "epoch", "labels", "group", "fold", "hashed_k", " ", '"', "a.b", "sélection", "select", "null", "score", "actual",
    "n", "p", "e", "cuts", "share", "reached",
]  # fmt: skip
PLAIN = [f"c{at}" for at in range(5)]
WAYS = {
    "weight and group": ", weight = {2}, validation = 0.25, group = {3}",
    "by": ", by = {3}, encode = 'onehot'",
    "text": ", text = {4}, hash_bits = 8",
}


def answers(path, names, way):
    random = np.random.default_rng(3)
    x, weight = random.normal(size=120), random.random(120)
    words = [("red", "green blue", "blue")[at] for at in random.integers(3, size=120)]
    columns = [x, (x > 0.1).astype(int), weight, np.arange(120) % 4, words]
    pq.write_table(pa.table([pa.array(one) for one in columns], names), path)
    called = [quoted(name) for name in names]
    chosen = ", ".join(called if way in ("text", "by") else called[:4])
    with connect() as sql:
        for rows in (f"'{path}'", f"'{path}' WHERE {called[2]} > -1"):
            how = f"label = {called[1]}, epochs = 2{WAYS[way].format(*called)}"
            trained = sql.execute(f"SELECT {chosen} FROM {rows} TRAIN BY logistic WITH {how} INTO m").arrow()
            yield trained.drop_columns(["seconds"]).to_pydict()
        yield sql.execute(f"SELECT {chosen} FROM '{path}' PREDICT BY m AS answer").arrow()["answer"].to_pylist()
        for call in ("EVALUATE", "CONFUSION_MATRIX", "ROC_CURVE"):
            for rows in (f"TABLE '{path}'", f"(SELECT * FROM '{path}')"):
                yield sql.execute(f"SELECT * FROM ML.{call}(MODEL m, {rows})").fetchall()
        yield [row[:2] for row in sql.execute(f"SELECT * FROM ML.PREDICT(MODEL m, TABLE '{path}')").fetchall()]


@pytest.mark.parametrize("way", WAYS)
def test_answers_are_the_same_whatever_columns_are_called(tmp_path, way):
    wanted = [str(one) for one in answers(tmp_path / "t.parquet", PLAIN, way)]
    for at in range(0, len(NAMES), 5):
        names = (NAMES + NAMES)[at : at + 5]
        assert [str(one) for one in answers(tmp_path / "t.parquet", names, way)] == wanted, names
