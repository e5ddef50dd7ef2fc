import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corgipile as cp
from corgipile.errors import BadSchema
from corgipile.tables import MemoryTable


@given(seed=st.integers(0, 2**32), counts=st.lists(st.integers(0, 30), min_size=1, max_size=4))
@settings(max_examples=30, deadline=None)
def test_agrees_with_rows_in_chunks(laws, rows_of, seed, counts):
    rows = pa.concat_tables([rows_of(count, seed + i, nulls=True) for i, count in enumerate(counts)])
    laws(MemoryTable(rows), rows, np.random.default_rng(seed))


def test_manners(manners, rows_of):
    table = MemoryTable(rows_of(100))
    manners(table)
    assert table.layout(["label"]) is None
    assert "100 rows" in repr(table)


def test_fingerprint_follows_content(rows_of):
    rows = rows_of(100)
    first = MemoryTable(rows).fingerprint
    assert MemoryTable(pa.concat_tables([rows.slice(0, 40), rows.slice(40)])).fingerprint == first
    assert MemoryTable(rows.slice(0, 99)).fingerprint != first
    assert MemoryTable(rows_of(100, seed=1)).fingerprint != first
    assert MemoryTable(rows.rename_columns(["x", *rows.schema.names[1:]])).fingerprint != first
    assert MemoryTable(rows.slice(0, 0)).fingerprint != first


@pytest.mark.parametrize("nested", [False, True])
def test_fingerprint_of_long_lists_follows_content(nested):
    def one(change=None):
        numbers = np.arange(300_000, dtype=np.float32)
        mask = np.zeros(len(numbers), bool)
        if change is not None:
            numbers[change[0]] = change[1] or 0
            mask[change[0]] = change[1] is None
        values = pa.array(numbers, mask=mask)
        if nested:
            values = pa.FixedSizeListArray.from_arrays(values, 3)
        rows = pa.ListArray.from_arrays([0, len(values) // 2, len(values)], values)
        return MemoryTable(pa.table({"x": rows})).fingerprint

    told = [one(), one((5, -1.0)), one((299_999, -1.0)), one((0, None)), one((1, None))]
    assert len({*told}) == len(told)
    assert one() == told[0]


def test_a_class_that_reads_other_rows_is_asked_for_them():
    class Doubled(MemoryTable):
        def read(self, start, stop, columns=None):
            batch = super().read(start, stop, columns)
            return pa.RecordBatch.from_arrays([pc.multiply(column, 2) for column in batch.columns], batch.schema.names)

    rows = pa.table({"x": np.arange(10.0)})
    assert MemoryTable(rows).location(["x"]) is not None
    assert Doubled(rows).location(["x"]) is None
    assert sum(batch["x"].sum() for batch in cp.Loader(Doubled(rows), order="no_shuffle")) == 90


def test_equal_names():
    rows = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    with pytest.raises(BadSchema, match="the table in memory: column names must differ, got 2 columns named 'x'"):
        MemoryTable(rows)
