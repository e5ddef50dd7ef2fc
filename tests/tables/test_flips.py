"""Single bits of small files flipped: equal rows, other values, or an error of ours; never more or fewer rows."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shards
from tfrecords import write

from corgipile.errors import CorgiPileError
from corgipile.tables import open as open_table
from corgipile.tables.arrow.note import write_note
from corgipile.tables.io.index_cache import INDEX_SUFFIX

ROWS = pa.table({"x": pa.array(np.arange(97), pa.int16())})
STRIDE = 31  # bits from one flip to the next: odd, so that every bit of a byte has its turn
SPARSE = {"a.tar": 11}  # times that: headers of half a kilobyte a row, all of one form


def arrow(path, codec=None):
    with pa.ipc.new_file(path, ROWS.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(ROWS, 20)


def noted(path):
    arrow(path)
    write_note(path)


def stream(path):
    with pa.ipc.new_stream(path, ROWS.schema) as writer:
        writer.write_table(ROWS, 20)


WRITERS = {
    "a.arrow": arrow,
    "noted.arrow": noted,
    "lz4.arrow": lambda path: arrow(path, "lz4"),
    "a.arrows": stream,
    "a.npy": lambda path: np.save(path, np.arange(97, dtype=np.int16)),
    "a.parquet": lambda path: pq.write_table(ROWS, path, row_group_size=40),
    "a.tfrecord": lambda path: write(path, [b"row %d" % i for i in range(97)]),
    "a.csv": lambda path: path.write_text("x,y\n" + "".join(f"{i},1\n" for i in range(97))),
    "a.tar": lambda path: shards.write(path, [(f"{i:03}.txt", b"row %d" % i) for i in range(97)]),
}


def rows_in(path):
    try:
        table = open_table(path)
        return table.read(0, len(table)).to_pylist()
    except CorgiPileError:
        return None


@pytest.mark.parametrize("name", WRITERS)
def test_a_bit_changes_no_count(tmp_path, name):
    path = tmp_path / name
    WRITERS[name](path)
    good = path.read_bytes()
    for bit in range(0, 8 * len(good), STRIDE * SPARSE.get(name, 1)):
        broken = bytearray(good)
        broken[bit // 8] ^= 1 << bit % 8
        path.write_bytes(broken)
        path.with_name(name + INDEX_SUFFIX).unlink(missing_ok=True)
        rows = rows_in(path)
        assert rows is None or len(rows) == 97, f"bit {bit}"


@pytest.mark.parametrize("name", ["a.tfrecord", "a.svm", "a.tar"])
def test_a_bit_of_an_index_changes_nothing(tmp_path, name):
    path = tmp_path / name
    if name == "a.svm":
        path.write_text("".join(f"{i % 2} {i % 5 + 1}:{i}\n" for i in range(97)))
    else:
        WRITERS[name](path)
    expected = rows_in(path)
    index = path.with_name(name + INDEX_SUFFIX)
    good = index.read_bytes()
    for bit in range(0, 8 * len(good), 5 * STRIDE):
        broken = bytearray(good)
        broken[bit // 8] ^= 1 << bit % 8
        index.write_bytes(broken)
        assert rows_in(path) == expected, f"bit {bit}"
