"""Rows as binary COPY has them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgipile.errors import BadSchema, BadValue
from corgipile.postgres.copy import SIGNATURE, decode, encode, row_layout

KINDS = {pa.int16(): "i2", pa.int32(): "i4", pa.int64(): "i8", pa.float32(): "f4", pa.float64(): "f8"}


@settings(deadline=None)
@given(st.data(), st.integers(0, 5), st.integers(1, 4))
def test_what_is_encoded_is_decoded(data, rows, width):
    columns = {}
    for at in range(data.draw(st.integers(1, 3))):
        kind = data.draw(st.sampled_from(list(KINDS)))
        column = pa.array(np.arange(rows * width).astype(KINDS[kind]))
        many = data.draw(st.booleans())
        columns[f"c{at}"] = pa.FixedSizeListArray.from_arrays(column, width) if many else column[:rows]
    batch = pa.record_batch(columns)
    found = decode(SIGNATURE + encode(batch) + b"\xff\xff", batch.schema)
    for name, column in columns.items():
        values = found[name]["items"]["value"] if pa.types.is_fixed_size_list(column.type) else found[name]["value"]
        assert values.tolist() == column.to_pylist()


def test_parts_of_a_batch_are_encoded():
    batch = pa.record_batch({"x": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int16(), 2))})
    assert encode(batch.slice(1, 1)) == encode(batch)[len(encode(batch)) // 3 : 2 * len(encode(batch)) // 3]


@pytest.mark.parametrize("kind", [pa.string(), pa.list_(pa.float32()), pa.list_(pa.string(), 2), pa.bool_()])
def test_columns_that_cannot_be_copied(kind):
    with pytest.raises(BadSchema, match="column 'x' must be numeric"):
        row_layout(pa.schema({"x": kind}))


@pytest.mark.parametrize("values", [[None, [1, 2]], [[1, None], [1, 2]]])
def test_nulls_are_refused(values):
    with pytest.raises(BadValue, match="column 'x' must not contain nulls"):
        encode(pa.record_batch({"x": pa.array(values, pa.list_(pa.int32(), 2))}))


def test_other_rows_are_refused():
    sent = SIGNATURE + encode(pa.record_batch({"x": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2))})) + b"\xff\xff"
    with pytest.raises(BadValue, match="must be a multiple of"):
        decode(sent[:-1], pa.schema({"x": pa.list_(pa.int32(), 2)}))
    with pytest.raises(BadValue, match="nulls or lists of other lengths"):
        decode(sent, pa.schema([(name, pa.int32()) for name in "abcde"]))
