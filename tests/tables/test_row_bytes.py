"""Sizes of rows: exact for fixed-width rows, else sampled once per table."""

import pyarrow as pa

from corgipile.loader.budget import columns_of
from corgipile.tables import open as open_table
from corgipile.tables.row_bytes import row_bytes
from corgipile.testing import Counting


def test_rows_are_sampled_once():
    table = Counting(open_table(pa.table({"text": ["some words"] * 1000, "label": [0, 1] * 500})))
    size = row_bytes(table)
    seen = table.rows
    assert 0 < seen < 1000
    assert row_bytes(table, ["label", "text"]) == size
    assert columns_of(table).row_bytes > size
    assert table.rows == seen


def test_row_bytes_is_exact_for_fixed_width():
    rows = {"y": pa.array([1, 2], pa.int16()), "x": pa.array([[1.0] * 5] * 2, pa.list_(pa.float32(), 5))}
    assert row_bytes(open_table(pa.table(rows))) == 22
    assert row_bytes(open_table(pa.table(rows)), ["x"]) == 20


def test_row_bytes_is_sampled_else():
    table = open_table(pa.table({"y": [1.0] * 500, "text": ["x" * 100] * 500}))
    assert 110 <= row_bytes(table) <= 116
    assert row_bytes(open_table(pa.table({"text": pa.array([], pa.string())}))) == 0
