"""What is missing in a row, where nothing was when the model was trained, or rows are left out."""

# ruff: noqa: S608  # tests write SQL

import pytest

import corgipile as cp
from corgipile.features import Encoding

CALL = "SELECT (corgipile.decision('{}', {}))[1]"


@pytest.fixture(scope="module")
def cities(server):
    """Make a table in which nothing is missing."""
    server.sql("""
        CREATE TABLE cities AS SELECT (ARRAY['Rome', 'Oslo', 'Bern'])[1 + i % 3] AS city, i / 100.0::float8 AS x,
            i % 3 = 0 AS y FROM generate_series(0, 199) i
    """)
    yield "cities"
    server.sql("DROP TABLE cities")


@pytest.mark.parametrize("way", ["onehot", "ordinal"])
def test_a_null_that_training_never_met_is_a_category_never_seen(server, cities, train, way):
    train(cities, name=way, features=["city", "x"], label="y", encode=way, missing="mean")
    found = [server.text(CALL.format(way, row)) for row in ("NULL::text, 1", "'elsewhere', 1")]
    assert found[0] == found[1]
    assert found[0] is not None
    params = server.value(f"SELECT params FROM corgipile.models WHERE name = '{way}'")
    rows = cp.tables.open({"city": ["Rome", "Oslo", "Bern"], "x": [1.0, 2.0, 3.0]})
    python = cp.features.fit_encoding(rows, ["city", "x"], encode=way, missing="mean")
    assert Encoding.of(params["encoding"]).features[0] == python.features[0]
    assert server.value(f"SELECT (corgipile.evaluate('{way}', 'cities')).rows") == 200
    server.sql(f"SELECT corgipile.import('{way} again', corgipile.export('{way}'))")
    assert server.text(CALL.format(f"{way} again", "NULL::text, 1")) == found[0]


def test_rows_of_no_category_are_skipped_where_categories_are_hashed(server, train):
    server.sql("CREATE TABLE gaps AS SELECT CASE WHEN i % 5 > 0 THEN 'c' || i % 4 END AS city, i % 2 AS y "
               "FROM generate_series(0, 99) i")  # fmt: skip
    history = train("gaps", name="gaps", features=["city"], label="y", encode="hash:16", missing="skip")
    assert history[0]["rows"] == 80
    assert server.value("SELECT corgipile.predict_text('gaps', NULL::text)") is None
    server.sql("DROP TABLE gaps")
