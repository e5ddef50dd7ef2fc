"""Ordered categories keep their order in a spill file."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile.errors import BadSchema
from corgipile.tables.encoded import write_plain
from corgipile.tables.formats.arrow import file as arrow
from corgipile.tables.io.spill import SpillWriter

SIZES = ["tiny", "small", "medium", "huge"]


def ordered(values, names):
    codes = pa.array([None if value is None else names.index(value) for value in values], pa.int8())
    return pa.DictionaryArray.from_arrays(codes, names, ordered=True)


@pytest.mark.parametrize("groups", [200_000, 60_000])
def test_ordered_categories_keep_their_order_unpacked(tmp_path, groups):
    values = np.array(SIZES)[np.random.default_rng(0).integers(0, 3, 200_000)].tolist()
    rows = pa.table({"size": ordered([None, *values[1:]], SIZES), "row": np.arange(200_000)})
    pq.write_table(rows, path := str(tmp_path / "a.parquet"), row_group_size=groups)
    table = cp.open(path)
    for found in (table.read(5, 70_000), table.take([199_999, 0, 70_000]), table.read(0, len(rows))):
        assert found["size"].dictionary.to_pylist() == SIZES
        assert found["size"].to_pylist() == rows["size"].take(found["row"]).to_pylist()
    how = {"memory": "1MB", "features": ["size", "row"], "encode": {"size": "ordinal"}, "missing": -2}
    with cp.Loader(path, batch_size=512, dtype="float64", **how) as loader:
        assert loader.encoding.features[0].values == (*SIZES, None)
        for batch in loader:
            code, row = batch["features"].T.astype(int)
            assert [(*SIZES, None)[one] for one in code] == rows["size"].take(row).to_pylist()


def test_ordered_categories_of_other_numbers_are_those_of_the_first(tmp_path):
    schema = pa.schema([("size", pa.dictionary(pa.int8(), pa.string(), ordered=True))])
    parts = [(["huge", "tiny"], SIZES), (["medium", None, "tiny"], ["tiny", "medium"])]

    def written(parts):
        batches = [pa.record_batch([ordered(*part)], schema=schema) for part in parts]
        with SpillWriter(tmp_path) as out:
            write_plain(out, schema, batches, sum(map(len, batches)))
            return arrow.ArrowFile(next(out.finish().sections()))

    found = written(parts).read(0, 5)["size"]
    assert found.to_pylist() == ["huge", "tiny", "medium", None, "tiny"]
    assert found.dictionary.to_pylist() == SIZES
    with pytest.raises(BadSchema, match="'size' must have the same ordered categories in all parts"):
        written([*parts, (["vast"], ["vast"])])
