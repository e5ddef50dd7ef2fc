"""A column read in place equals that of the table."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgipile.errors import CorruptFile
from corgipile.tables import open as open_table
from corgipile.tables.io import column
from corgipile.tables.io.column import PlacedColumn


def files(folder, sizes, batch):
    """Write Arrow files of a narrow and a wide column, in record batches."""
    at = 0
    for i, size in enumerate(sizes):
        label = np.arange(at, at + size, dtype=np.int16)
        wide = pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(label, 3).astype(np.float64)), 3)
        rows = pa.table({"label": label, "x": wide})
        with pa.ipc.new_file(folder / f"{i}.arrow", rows.schema) as writer:
            writer.write_table(rows, max_chunksize=batch)
        at += size
    return [folder / f"{i}.arrow" for i in range(len(sizes))]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=4), st.integers(1, 40), st.integers(1, 99), st.data())
def test_runs_of_rows(tmp_path_factory, sizes, batch, request, data):
    table = open_table(files(tmp_path_factory.mktemp("location"), sizes, batch))
    start = data.draw(st.integers(0, len(table)))
    stop = data.draw(st.integers(start, len(table)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column, "MAX_REQUEST", request)
        for name, shape in {"label": (), "x": (3,)}.items():
            found = PlacedColumn(table.layout([name]), name).read(start, stop)
            wanted = table.read(start, stop, [name]).column(0)
            assert found.shape == (stop - start, *shape)
            assert found.tolist() == wanted.to_pylist()


def test_npy(tmp_path):
    x = np.random.default_rng(0).normal(size=(1000, 5)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    table = open_table(tmp_path / "x.npy")
    (name,) = table.schema.names
    assert np.array_equal(PlacedColumn(table.layout([name]), name).read(17, 900), x[17:900])


def test_a_file_cut_short(tmp_path):
    (path,) = files(tmp_path, [5000], 1000)
    column = PlacedColumn(open_table(path).layout(["x"]), "x")
    with path.open("r+b") as file:
        file.truncate(50_000)
    with pytest.raises(CorruptFile, match="has 50000 bytes now; it had"):
        column.read(0, 5000)
