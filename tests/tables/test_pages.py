"""Page runs: a row belongs to the run of its first byte, in every format with located rows."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corgipile.tables import open as open_table
from corgipile.tables.pages import varlen_cuts
from corgipile.tables.table import ColumnLayout, Layout, Table
from corgipile.testing import Counting


def by_definition(runs):
    """Return the cuts between rows of different runs."""
    return [0, *(np.flatnonzero(runs[1:] != runs[:-1]) + 1).tolist(), len(runs)] if len(runs) else [0]


@st.composite
def columns(draw):
    """Columns in several pieces and files, like record batches; pieces ascend within a file."""
    width = draw(st.integers(1, 50))
    starts, files, offsets, at, file = [0], [], [], draw(st.integers(0, 40)), 0
    for _ in range(draw(st.integers(1, 6))):
        rows = draw(st.integers(1, 60))
        if draw(st.integers(0, 3)) == 0:
            file, at = file + 1, draw(st.integers(0, 40))
        starts.append(starts[-1] + rows)
        files.append(file)
        offsets.append(at)
        at += rows * width + draw(st.integers(0, 100))
    shape = (width,)
    return ColumnLayout(np.dtype("u1"), shape, np.array(starts), np.array(files, np.int32), np.array(offsets))


class Location(Table):
    """A table with only a layout."""

    schema, nbytes = None, 1

    def __init__(self, *layouts):
        self.layouts = layouts

    def __len__(self):
        return int(self.layouts[0].starts[-1])

    def layout(self, names):
        return Layout(("a",), dict(zip(names, self.layouts, strict=True)))


@given(columns(), st.integers(1, 300))
def test_fixed_rows_belong_to_the_run_of_their_first_byte(column, run_bytes):
    piece = np.repeat(np.arange(len(column.files)), np.diff(column.starts))
    row = np.arange(column.starts[-1])
    first = column.offsets[piece] + (row - column.starts[piece]) * column.width
    runs = column.files[piece] * 10**6 + first // run_bytes
    assert Location(column).run_cuts(["x"], run_bytes).tolist() == by_definition(runs)


@given(st.lists(st.integers(1, 90), max_size=200), st.integers(1, 300), st.integers(1, 40))
def test_rows_of_any_length_belong_to_the_run_of_their_first_byte(lengths, run_bytes, part):
    begins = np.cumsum([0, *lengths], dtype=np.int64)[:-1]
    parts = [begins[at : at + part] for at in range(0, len(begins), part)]
    assert varlen_cuts(parts, run_bytes).tolist() == by_definition(begins // run_bytes)


def test_the_widest_column_decides(tmp_path):
    rows = 5000
    np.save(tmp_path / "x.npy", np.zeros((rows, 25), np.float32))
    np.save(tmp_path / "y.npy", np.zeros(rows, np.int64))
    table = open_table(tmp_path / "x.npy", label=tmp_path / "y.npy")
    alone = table.run_cuts(["features"], 65536)
    assert table.run_cuts(["features", "label"], 65536).tolist() == alone.tolist()
    assert Counting(table).run_cuts(["features", "label"], 65536).tolist() == alone.tolist()
    assert table.run_cuts(["label"], 8192)[1] == (8192 - 128) // 8
    assert set(np.diff(alone[1:-1]).tolist()) == {655, 656}


def test_text_is_cut_by_its_index(tmp_path, monkeypatch):
    monkeypatch.setattr("corgipile.tables.formats.svmlight.table.INDEX_ROWS", 77)
    lines = [f"{i % 2} " + " ".join(f"{k}:1" for k in range(1, 2 + i % 9)) + "\n" for i in range(500)]
    for part in ("a", "b"):
        (tmp_path / f"{part}.svm").write_text("".join(lines))
    begins = np.cumsum([0, *map(len, lines)])[:-1]
    expected = by_definition(begins // 1000)
    assert open_table(tmp_path / "a.svm").run_cuts(["label"], 1000).tolist() == expected
    both = open_table(str(tmp_path / "*.svm")).run_cuts(["label"], 1000).tolist()
    assert both == expected + [cut + 500 for cut in expected[1:]]


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_rows_without_a_place_are_cut_on_natural_units(tmp_path, compression):
    rows = pa.table({"x": pa.array(range(10_000), pa.int64())})
    with pa.ipc.new_file(
        str(tmp_path / "a.arrow"), rows.schema, options=pa.ipc.IpcWriteOptions(compression=compression)
    ) as writer:
        writer.write_table(rows, max_chunksize=1000)
    stored = open_table(tmp_path / "a.arrow").run_cuts(["x"], 4096)
    assert (stored % 1000 == 0).all() == (compression is not None)
    assert open_table(rows).run_cuts(["x"], 4096).tolist() == [*range(0, 10_000, 512), 10_000]
    assert open_table(rows.slice(0, 0)).run_cuts(["x"], 4096).tolist() == [0]
