"""Models of every engine equal Python's bit for bit."""

# ruff: noqa: S608  # tests write SQL

import numpy as np
import pyarrow as pa
import pytest
from sqlengines import OnDuckDB, OnPostgreSQL

import corgipile as cp
from corgipile.losses import NAMES


class Bits:
    """Tests for every engine."""

    def arrow(self, sql, query):
        """Return rows of two features and an integer label."""
        columns = list(zip(*sql.execute(query).fetchall(), strict=True))
        kinds = {"a": pa.float32(), "b": pa.float32(), "label": pa.int32()}
        return pa.table({name: pa.array(values, kinds[name]) for name, values in zip(kinds, columns, strict=True)})

    def same(self, sql, name, python):
        """Check that a stored model equals Python's bit for bit."""
        several = len(python.coef) > 1
        classes = python.classes.tolist() if several else [None]
        lines = zip(classes, python.coef.tolist(), python.intercept.tolist(), strict=True)
        expected = {
            (of, column): value
            for of, line, constant in lines
            for column, value in zip(("a", "b", "__INTERCEPT__"), [*line, constant], strict=True)
        }
        found = self.weights(sql, name)
        assert {(of and float(of), column): value for (of, column), value in found.items()} == expected

    @pytest.mark.parametrize("model", ["svm of three", *NAMES])
    @pytest.mark.parametrize(("batch", "standardize"), [(1, False), (16, True), (1, None)])
    def test_models_are_those_of_python_bit_for_bit(self, sql, model, batch, standardize):
        label = {
            "softmax": "part % 3",
            "ovr_logistic": "part % 3",
            "svm of three": "part % 3",
            "logistic": "label",
            "svm": "label",
            "squared_hinge": "label",
        }.get(model, "part")
        kind = model.split()[0]
        settings = {
            "epochs": 3,
            "learning_rate": 0.05,
            "l2": 0.01,
            "batch_size": batch,
            "order": "no_shuffle",
            "standardize": standardize,
            "average": batch > 1,
            "step": "normalized" if batch > 1 else "decay",
            "l1": 0.001 if batch > 1 else 0,
            "max_norm": 0.5 if batch > 1 else None,
        }
        apart = " * 4096" if standardize is None else ""
        sql.execute(f"CREATE TABLE bits AS SELECT (a{apart})::real AS a, b, {label} AS label FROM t")
        given = ", ".join(f"{name} = {value}" for name, value in settings.items() if value is not None)
        rows = self.rows(sql, f"SELECT * FROM bits TRAIN BY {kind} WITH {given} INTO m")
        table = self.arrow(sql, "SELECT * FROM bits")
        python = cp.train(table, model=kind, **settings)
        assert python.params["standardize"] is (standardize is not False)
        self.same(sql, "m", python)
        score = python.loss.score
        assert [(row["loss"], row[score]) for row in rows] == [(one["loss"], one[score]) for one in python.history]
        predicted = [row["prediction"] for row in self.rows(sql, "SELECT * FROM bits PREDICT BY m")]
        assert np.array_equal(predicted, python.predict(table))

    @pytest.mark.parametrize("order", ["no_shuffle", "block_only", "corgipile", "riffle", "balanced"])
    def test_orders_are_those_of_python_in_blocks_of_the_same_rows(self, sql, order):
        sql.execute("CREATE TABLE many AS SELECT x.a, x.b, x.label FROM t x, generate_series(1, 8) y ORDER BY x.i, 1")
        asked, sizes = self.sizes(sql, order)
        settings = {"epochs": 2, "learning_rate": 0.05, "seed": 5}
        given = ", ".join(f"{name} = {value}" for name, value in settings.items())
        sql.execute(f"SELECT * FROM many TRAIN BY svm WITH order = {order}, {asked}, {given} INTO m")
        make = {"no_shuffle": cp.orders.NoShuffle, "block_only": cp.orders.BlockOnly, "corgipile": cp.orders.CorgiPile}
        more = {"balance": "label"} if order == "balanced" else {}
        made = make.get(order, cp.orders.Riffle)(**sizes(), **more)
        self.same(
            sql,
            "m",
            cp.train(
                self.arrow(sql, "SELECT * FROM many"),
                model="svm",
                order=made,
                memory=None,
                **settings,
            ),
        )


class TestDuckDB(Bits, OnDuckDB):
    """The tests on DuckDB."""


class TestPostgreSQL(Bits, OnPostgreSQL):
    """The tests on PostgreSQL."""
