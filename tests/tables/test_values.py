"""Dictionaries inside lists and structs decode only the rows of a slice."""

import numpy as np
import pyarrow as pa
import pytest

from corgipile.tables.values import values

CODED = pa.DictionaryArray.from_arrays(pa.array(np.arange(30_000) % 3, pa.int32()), pa.array(["a", "b", "c"]))
NESTED = {
    "list": pa.ListArray.from_arrays(pa.array(np.arange(0, 30_001, 3), pa.int32()), CODED),
    "fixed list": pa.FixedSizeListArray.from_arrays(CODED, 3),
    "struct": pa.StructArray.from_arrays([CODED, CODED], names=["x", "y"]),
}


@pytest.mark.parametrize("name", NESTED)
def test_a_slice_decodes_its_own_items(name):
    batch = pa.record_batch({"x": NESTED[name]}).slice(5000, 2)
    found = values(batch)
    assert found.to_pylist() == batch.to_pylist()
    assert found.column(0).nbytes < 200
    assert sum(buffer.size for buffer in found.column(0).buffers() if buffer is not None) < 2000
