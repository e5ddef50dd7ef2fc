"""Single rows: their sizes without reading them, and each row as an object, in any order."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corgipile as cp
from corgipile import _kernel
from corgipile.errors import CorruptFile
from corgipile.tables import Subset, row_bytes
from corgipile.tables.io.files import File
from corgipile.tables.spans import flat, objects
from corgipile.testing import Counting

BYTES, TEXT = False, True
BLOBS = [bytes([i]) * (i * 37 % 400) for i in range(60)]


def arrow(path, rows):
    table = pa.table({"x": pa.array([BLOBS[i] for i in rows], pa.binary()), "row": np.array(rows, np.int32)})
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=9)
    return cp.open(path)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("single")
    whole = arrow(folder / "a.arrow", range(60))
    parts = [arrow(folder / f"{i}.arrow", range(20 * i, 20 * i + 20)) for i in range(3)]
    images = folder / "images"
    for kind, some in (("a", range(1, 31)), ("b", range(31, 60))):
        (images / kind).mkdir(parents=True)
        for i in some:
            (images / kind / f"{i:02d}.png").write_bytes(BLOBS[i])
    return {
        "file": (whole, "x", BLOBS),
        "files": (cp.tables.ConcatTable(parts), "x", BLOBS),
        "subset": (Subset(whole, [[3, 20], [30, 31], [50, 60]]), "x", [*BLOBS[3:20], BLOBS[30], *BLOBS[50:]]),
        "wrapped": (Counting(whole), "x", BLOBS),
        "images": (cp.open(images), "image", BLOBS[1:]),
    }


@pytest.mark.parametrize("name", ["file", "files", "subset", "wrapped", "images"])
def test_any_rows_in_any_order(tables, name):
    table, column, blobs = tables[name]

    @settings(max_examples=25, deadline=None)
    @given(st.lists(st.integers(0, len(blobs) - 1), max_size=30))
    def check(rows):
        rows = np.array(rows, np.int64)
        assert table.row_sizes(rows, [column]).tolist() == [len(blobs[row]) for row in rows]
        assert table.take_bytes(rows, column) == [blobs[row] for row in rows]
        if len(rows):
            assert table.take(rows, [column]).column(0).to_pylist() == [blobs[row] for row in rows]

    check()
    rows = np.arange(5, 25)
    assert table.row_sizes(rows, [column]).tolist() == [len(blobs[row]) for row in rows]


def test_tables_that_do_not_tell(tmp_path):
    table = pa.table({"x": [b"1", None], "s": [{"a": 1}, {"a": 2}]})
    assert cp.open(table).row_sizes(np.array([0]), ["x"]) is None
    for name, options in (("plain", None), ("packed", "zstd")):
        with pa.ipc.new_file(
            str(tmp_path / name), table.schema, options=pa.ipc.IpcWriteOptions(compression=options)
        ) as writer:
            writer.write_table(table)
        stored = cp.tables.ArrowFile(tmp_path / name) if hasattr(cp.tables, "ArrowFile") else cp.open(tmp_path / name)
        assert stored.row_sizes(np.array([0, 1]), ["x"]) is None
        assert stored.row_sizes(np.array([0, 1]), ["s"]) is None


def test_a_file_that_changed_is_an_error(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.png").write_bytes(b"12345")
    table = cp.open(tmp_path)
    for other in (b"123456", b"123", b""):
        (tmp_path / "a" / "1.png").write_bytes(other)
        with pytest.raises(CorruptFile, match="as when it was listed"):
            table.take_bytes(np.array([0]), "image")


def test_ranges_beyond_the_file_are_an_error(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"0123456789")
    file = File(path)
    assert file.gather_bytes(np.array([8, 0, 4]), np.array([2, 3, 0])) == [b"89", b"012", b""]
    assert file.gather(np.array([8, 0]), np.array([2, 3])).tobytes() == b"89012"
    with pytest.raises(CorruptFile):
        file.gather_bytes(np.array([0, 1 << 40]), np.array([1, 1 << 40]))
    path.write_bytes(b"0")
    with pytest.raises(CorruptFile):
        file.gather_bytes(np.array([0, 8]), np.array([1, 2]))


def test_the_kernel_refuses_what_is_no_range():
    with pytest.raises(ValueError, match="range"):
        _kernel.read_bytes(0, np.array([-1]), np.array([1]), 1)
    with pytest.raises(ValueError, match="range"):
        _kernel.read_bytes(0, np.array([0, 1]), np.array([1]), 1)
    one = np.array([0], np.uint64), np.array([0])
    with pytest.raises(ValueError, match="must lie within"):
        _kernel.gather_objects(*one, np.array([1], np.int32), BYTES)
    with pytest.raises(ValueError, match="must lie within"):
        _kernel.gather_objects(one[0], np.array([-1]), np.array([0], np.int32), TEXT)
    assert _kernel.gather_objects(*one, np.array([0, 0], np.int32), TEXT) == ["", ""]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"a", b"", b"bc"]),
        pa.array(["ä", "", "xyz"], pa.large_string()),
        pa.array([[1.5], [], [2.5, 3.5]], pa.large_list(pa.float32())),
        pa.array([[1], None, [2, 3]]),
        pa.array([{"a": 1}, {"a": 2}]),
    ],
)
def test_objects_of_a_column(column):
    for some in (column, column[1:], column[:0]):
        found = objects(some)
        found = (
            found.to_pylist()
            if isinstance(found, pa.Array)
            else [getattr(row, "tolist", lambda row=row: row)() for row in found]
        )
        assert found == some.to_pylist()


def test_numbers_are_not_copied():
    values = pa.array(np.arange(5, dtype=np.int16))
    assert flat(values[2:]).tolist() == [2, 3, 4]
    assert flat(values).ctypes.data == values.buffers()[1].address
    assert flat(pa.array([True, False])).tolist() == [True, False]


@pytest.mark.parametrize("name", ["file", "files", "images"])
def test_long_rows_are_measured_without_reading_them(tables, name, monkeypatch):
    """Sizes equal those measured by reading; otherwise saved states would not load."""
    table, column, _ = tables[name]
    read = row_bytes.row_bytes(table, [column])
    monkeypatch.setattr(row_bytes, "RUN_BYTES", 0)
    counting = Counting(table)
    assert row_bytes.row_bytes(counting, [column]) == pytest.approx(read, abs=0.1)
    assert counting.calls == 0
