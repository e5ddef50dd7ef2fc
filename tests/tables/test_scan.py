"""A scan of a whole table takes little memory."""

import pyarrow as pa

from corgipile.tables import open as open_table
from corgipile.tables.scan import READ_BYTES, scan


def test_every_row_once_in_small_parts():
    rows = 30_000
    table = open_table(pa.table({"x": range(rows), "long": ["a" * 300] * rows}))
    parts = list(scan(table, ["x", "long"]))
    assert [number for _, part in parts for number in part["x"].to_pylist()] == list(range(rows))
    assert [start for start, _ in parts] == [part["x"][0].as_py() for _, part in parts]
    assert max(part.nbytes for _, part in parts) <= 1.1 * READ_BYTES
    assert list(scan(table.slice(0, 0), ["x"])) == []
