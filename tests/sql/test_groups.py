"""Grouped models in SQL equal Python's, in predictions and model calls; other uses are rejected."""

# ruff: noqa: S608  # tests write SQL

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile.errors import BadArgument, BadStatement, BadValue
from corgipile.linear.groups import Groups
from corgipile.sql import connect
from corgipile.sql.grammar import parse
from corgipile.sql.options import bind_settings


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    x, side = rng.normal(size=(900, 2)).astype(np.float32), rng.integers(0, 3, 900)
    label = (x[:, 0] * np.array([1, -1, 1])[side] + x[:, 1] * np.array([0, 1, 3])[side] > 0) * 1
    region = pa.array([("north", "south", None)[one] for one in side])
    return pa.table({"a": x[:, 0], "b": x[:, 1], "region": region, "label": label})


@pytest.mark.parametrize("said", ["GROUP BY Region WITH epochs = 2 INTO m", "WITH epochs = 2, by = region INTO m"])
def test_models_by_group_are_those_of_python(rows, tmp_path, said):
    pq.write_table(rows, tmp_path / "t.parquet")
    file = f"'{tmp_path}/t.parquet'"
    with connect() as sql:
        sql.execute(f"SELECT * FROM {file} TRAIN BY logistic {said}")
        python = cp.train(tmp_path / "t.parquet", by="region", epochs=2)
        found = sql.engine.models.find("m").model
        assert isinstance(found, Groups)
        assert found.coef.tobytes() == python.coef.tobytes()
        answer = sql.execute(f"SELECT * FROM {file} PREDICT BY m").arrow()
        assert answer["prediction"].to_pylist() == python.predict(rows).tolist()  # null is a group
        measured = sql.execute(f"SELECT * FROM ML.EVALUATE(MODEL m, (SELECT * FROM {file}))").arrow().to_pylist()[0]
        assert measured["accuracy"] == python.measure(rows)["accuracy"]
        weights = sql.execute("SELECT * FROM ML.WEIGHTS(MODEL m)").arrow().to_pylist()
        mine = {one["processed_input"]: one["weight"] for one in weights if one["region"] == "south"}
        assert [mine["a"], mine["b"]] == python.of("south").coef[0].tolist()
        (area,) = sql.execute(f"SELECT roc_auc FROM ML.EVALUATE(MODEL m, (SELECT * FROM {file}))").fetchone()
        assert area == pytest.approx(python.judge(rows).figures["auc"])
        bins = sql.execute(f"SELECT * FROM ML.CALIBRATION(MODEL m, (SELECT * FROM {file}))").arrow()
        assert bins["observed"].to_pylist() == python.judge(rows).calibration["observed"].to_pylist()
        with pytest.raises(BadArgument, match="Train one group's model with WHERE instead of GROUP BY"):
            sql.execute(f"SELECT * FROM ML.ADVANCED_WEIGHTS(MODEL m, (SELECT * FROM {file}))").arrow()
        with pytest.raises(Exception, match="group 'west' of 'region'") as caught:
            sql.execute("SELECT 1::FLOAT AS a, 2::FLOAT AS b, 'west' AS region PREDICT BY m").arrow()
        assert isinstance(caught.value, BadValue)
        nulls = sql.execute("SELECT NULL::FLOAT AS a, 2::FLOAT AS b, 'north' AS region PREDICT BY m").arrow()
        assert nulls["prediction"].to_pylist() == [None]


def test_the_clause_is_read_and_checked():
    (train,) = parse("SELECT * FROM t TRAIN BY svm WITH epochs = 3 GROUP BY region LABEL y")
    assert bind_settings(train).settings == {"epochs": 3, "by": "region"}
    for wrong, message in (
        ("GROUP region", "BY and a column"),
        ("GROUP BY (a, b)", "must name one column|column"),
        ("GROUP BY a WITH by = b", "both name the group column"),
    ):
        with pytest.raises(BadStatement, match=message):
            parse(f"SELECT * FROM t TRAIN BY svm {wrong}")


def test_one_model_cannot_go_on_from_many(rows):
    with connect() as sql:
        sql.engine.session.connection.register("t", rows)
        sql.execute("SELECT * FROM t TRAIN BY svm GROUP BY region WITH epochs = 1 INTO m")
        with pytest.raises(BadArgument, match="models by group"):
            sql.execute("SELECT a, b, label FROM t TRAIN BY svm USING m INTO n")
