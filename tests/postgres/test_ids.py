"""Labels of which there are nearly as many as rows are asked about: they may be ids."""

# ruff: noqa: S608  # tests write SQL

import pytest


@pytest.mark.parametrize("kind", ["int", "text"])
def test_labels_that_look_like_ids_are_told(server, kind):
    server.sql(f"CREATE TABLE ids AS SELECT random() AS x, (i % 250)::{kind} AS y FROM generate_series(0, 299) i")
    call = "SELECT * FROM corgipile.train('ids', 'softmax', 'x', 'y', epochs => 1{})"
    assert 'label "y" has 250 values in 300 rows: is it an id, not a class?' in server.said(call.format(""))[1]
    assert "is it an id" in server.said(call.format(", holdout => 0.1"))[1]
    server.sql(f"INSERT INTO ids SELECT random(), (i % 250)::{kind} FROM generate_series(0, 299) i")
    assert "is it an id" not in server.said(call.format(""))[1]
    server.sql("DROP TABLE ids")
