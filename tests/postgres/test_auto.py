"""What order => 'auto' balances by: what the survey saw decides, is told, and is kept with the model."""

# ruff: noqa: S608  # tests write SQL

import numpy as np
import pytest
from samebits import TYPES, WIDTH, in_python

import corgipile as cp

ROWS, CELL = 20_000, 100  # rows; of a run of neighbours that are alike
MADE = {  # the label, and what is added to each feature
    "sorted": (f"i * 2 / {ROWS}", f"2 * (i * 2 / {ROWS} = j % 2)::int"),
    "celled": ("i * 7919 % 2", f"2 * sin(i / {CELL} * 7.1 + j)"),
    "mixed": ("i * 7919 % 2", "0"),
}


@pytest.fixture
def stored(server):
    """Return what makes one of the tables, whose buffer then holds some of its blocks."""

    def make(lies):
        label, more = MADE[lies]
        server.sql(f"""
            DROP TABLE IF EXISTS {lies};
            SELECT setseed(0.5);
            CREATE TABLE {lies} AS SELECT i, (SELECT array_agg(random() + {more}) FROM generate_series(1, {WIDTH}) j
                                              WHERE i >= 0)::real[] AS x, {label} AS label, 1::real AS w
            FROM generate_series(0, {ROWS - 1}) i
        """)
        return lies

    return make


def trained(server, table, **options):
    """Train; return the model and what was said."""
    given = {"order": "auto", "block_size": "8kB", "buffer_size": "600kB", **options}
    words = ", ".join(f"\"{name}\" => '{value}'" for name, value in given.items() if value)
    said = server.said(
        f"SELECT * FROM corgipile.train('{table}', 'logistic', 'x', 'label', name => 'auto', epochs => 2, {words})"
    )
    return server.rows("SELECT * FROM corgipile.models WHERE name = 'auto'")[0], said[1]


@pytest.mark.parametrize(("lies", "by"), [("sorted", True), ("celled", "content"), ("mixed", True)])
def test_the_survey_decides(server, stored, lies, by):
    model, said = trained(server, stored(lies))
    params = model["params"]
    assert (params["order"], params["asked_order"], params["balance"]) == ("riffle", "auto", by)
    assert params["buffer_blocks"] < min(params["blocks"], 256)
    assert ("balanced by content" in said) == (by == "content")
    assert np.array_equal(np.array(model["coefficients"]), in_python(server, model, "real").coef.astype(np.float64))
    same = trained(server, lies, order="riffle", balance="content" if by == "content" else "on")
    assert same[0]["coefficients"] == model["coefficients"]
    assert "asked_order" not in same[0]["params"]
    assert trained(server, lies, order=None)[0]["coefficients"] == model["coefficients"]  # auto is the default


def test_python_chooses_alike(server, stored):
    """The default order of both hosts, which deal from as many blocks at a time."""
    for lies in MADE:
        params = trained(server, stored(lies))[0]["params"]
        rows = server.rows(f"SELECT x, label FROM {lies} ORDER BY i")
        table = {"x": np.array([row["x"] for row in rows], TYPES["real"].to_pandas_dtype()),
                 "label": np.array([row["label"] for row in rows])}  # fmt: skip
        block = -(-ROWS // params["blocks"])
        order = cp.orders.Auto(block=block, buffer=params["buffer_blocks"] * block)
        with cp.Loader(table, order=order) as loader:
            assert loader.order.balance == ("label" if params["balance"] is True else params["balance"])


def test_what_is_said_counts(server, stored):
    lies = stored("celled")
    for balance, kept in (("off", False), ("on", True)):
        model, said = trained(server, lies, balance=balance)
        assert model["params"]["balance"] is kept
        assert "asked_order" not in model["params"]
        assert "by content" not in said
    whole, _ = trained(server, lies, buffer_size="64MB")  # all blocks are in memory
    assert whole["params"]["balance"] is True
    plan = (
        "SELECT * FROM corgipile.train('celled', 'logistic', 'x', 'label', block_size => '8kB', buffer_size => '600kB')"
    )
    assert "Order: auto" in server.text(f"EXPLAIN {plan}")
    run = server.text(f"EXPLAIN ANALYZE {plan}")
    assert "Order: riffle" in run
    assert "Balanced: content" in run
