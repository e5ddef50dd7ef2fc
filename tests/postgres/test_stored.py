"""Stored models: what is refused of them, and of rows that others wrote; what cannot be stored; going on from one."""

# ruff: noqa: S608  # tests write SQL

import pytest


@pytest.fixture(scope="module", autouse=True)
def good(server):
    """Make a small table."""
    server.sql("CREATE TABLE stored_rows AS SELECT ARRAY[i % 2 - 0.5, i / 100.0]::real[] AS x, i % 2 AS label, "
               "i % 3 AS three FROM generate_series(0, 99) i")  # fmt: skip
    yield
    server.sql("DROP TABLE stored_rows; DELETE FROM corgipile.models WHERE name IN ('refuses', 'damaged', 'high')")


def test_predicting_refuses(server, train, fails):
    train("stored_rows", model="svm", name="refuses")
    call = "SELECT corgipile.{}('{}', {})"
    for function, model, features, said in (
        ("predict", "absent", "'{1}'::real[]", 'there is no model "absent"'),
        ("predict", "refuses", "'{1}'::real[]", "the row has 1 features"),
        ("predict", "refuses", "'{1, NULL}'::real[]", "holds a NULL"),
        ("predict", "refuses", "'{1, NaN}'::real[]", "NaN, infinite or too large"),
        ("predict", "refuses", "ARRAY['a', 'b']", "got text[]"),
        ("predict_proba", "refuses", "ARRAY[1, 2]", "has no probabilities"),
        ("predict", "refuses", "'{0, 1, 2}'::int[], '{1, 2}'::real[]", "the row has 3 indices and 2 values"),
        ("predict", "refuses", "'{1, 0}'::int[], '{1, 2}'::float8[]", "indices that repeat or fall"),
        ("predict", "refuses", "'{0, 2}'::int[], '{1, 2}'::float8[]", "outside the 2 features"),
        ("predict", "refuses", "'{0, NULL}'::int[], '{1, 2}'::float8[]", "holds a NULL"),
        ("predict", "refuses", "'{0, 1}'::bigint[], '{1, 2}'::float8[]", "got bigint[]"),
        ("predict", "refuses", "1, '{1, 2}'::real[]", "an array and a number"),
        ("predict", "refuses", "'{1, 2}'::int[], 1.0::real", "an array and a number"),
    ):
        assert said in fails(call.format(function, model, features))
    assert server.value("SELECT corgipile.predict('refuses', NULL::int[])") is None
    for damage in (
        "coefficients = '{1, 2}'",
        "coefficients = '{{1}}'",
        "intercepts = '{}'",
        "classes = '{1}'",
        "dims = 3",
        "classes = '{NaN, NaN}'",
        "classes = '{1, 0}'",
        "classes = '{1, 1}'",
        "classes = '{0, Infinity}'",
    ):
        said = fails(
            f"BEGIN; UPDATE corgipile.models SET {damage}; " + call.format("predict", "refuses", "ARRAY[1, 2]")
        )
        assert "is damaged" in said


def test_what_cannot_be_stored_is_refused_before_the_first_epoch(server, fails):
    call = "SELECT * FROM corgipile.train('{}', '{}', {}, 'label', name => 'unstored')"
    said = fails("BEGIN READ ONLY; " + call.format("stored_rows", "svm", "'x'"))
    assert "cannot execute corgipile.train with a name in a read-only transaction" in said
    assert "epoch" not in said
    server.sql("CREATE TABLE broad AS SELECT ARRAY[50000000 + i] k, ARRAY[1.0::real] v, i AS label "
               "FROM generate_series(0, 2) i")  # fmt: skip
    said = fails(call.format("broad", "softmax", "ARRAY['k', 'v']"))
    assert "a model of 50000003 features and 3 outputs is too large: a column holds 134217719 numbers" in said
    assert "epoch" not in said


DAMAGE = {
    """params = '{"features": ["a", null], "label": "three"}'""": "its features hold a NULL",
    """params = '{"features": 5, "label": "three"}'""": 'has no column "5"',
    """params = '{"features": {"a": 1}, "label": "three"}'""": "has no column",
    "params = '7'": "do not name its training columns",
    "loss = 'nan'": "an epoch of its history has no loss",
    "loss = '-Infinity'": "an epoch of its history has no loss",
    "epoch = 1": "corgipile.history lacks epochs",
}


@pytest.mark.every_server
@pytest.mark.parametrize("damage", DAMAGE)
def test_rows_that_others_wrote_are_not_trusted(server, train, fails, damage):
    train("stored_rows", label="three", model="linear", name="damaged", epochs=1)
    history = damage.startswith(("loss", "epoch"))
    row = "history SET {} WHERE model" if history else "models SET {} WHERE name"
    change = f"BEGIN; UPDATE corgipile.{row.format(damage)} = 'damaged'; SELECT * FROM corgipile."
    assert DAMAGE[damage] in fails(change + "evaluate('damaged', 'stored_rows')")
    if history:
        call = "train('stored_rows', 'linear', 'x', 'three', warm_start => 'damaged')"
        assert DAMAGE[damage] in fails(change + call)


def test_a_model_goes_on_by_its_loss_and_parameter(train, fails):
    train("stored_rows", model="quantile:0.9", name="high")
    train("stored_rows", model="quantile:0.90", warm_start="high")
    for other in ("quantile", "linear"):
        call = f"SELECT * FROM corgipile.train('stored_rows', '{other}', 'x', 'label', warm_start => 'high')"
        assert f"is a quantile:0.9 model; a {other} model is needed" in fails(call)
