"""Flipping a bit of a small file yields equal rows, other values, or a CorgiPileError; never another row count."""

import contextlib
import multiprocessing
import sqlite3
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shards
from patience import PATIENCE
from pyarrow import orc
from tfrecords import write

from corgipile.conversion import convert
from corgipile.errors import CorgiPileError
from corgipile.tables import open as open_table
from corgipile.tables.formats.arrow.note import write_note
from corgipile.tables.io.index_cache import INDEX_SUFFIX

NUMBERS = np.arange(97, dtype=np.int16)
ROWS = pa.table({"x": NUMBERS})
STRIDE = 31  # bits from one flip to the next: odd, so that every bit of a byte has its turn
SPARSE = {"a.tar": 11}  # times that: headers of half a kilobyte per row, all alike in form


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


def hdf5(path, **how):
    with pytest.importorskip("h5py").File(path, "w") as file:
        file.create_dataset("x", data=NUMBERS, **how)


def zarr(path):
    group = pytest.importorskip("zarr").open_group(path, mode="w")
    group.create_array("x", shape=(97,), chunks=(60,), dtype="i2")[:] = NUMBERS


def avro(path):
    kind = {"type": "record", "name": "row", "fields": [{"name": "x", "type": "int"}]}
    with path.open("wb") as file:
        pytest.importorskip("fastavro").writer(file, kind, ROWS.to_pylist())


def sqlite(path):
    with contextlib.closing(sqlite3.connect(path)) as made, made:
        made.execute("create table t (x integer)")
        made.executemany("insert into t values (?)", [(i,) for i in range(97)])


def duckdb(path):
    with pytest.importorskip("duckdb").connect(str(path)) as made:
        made.execute("create table t as select range::smallint as x from range(97)")


def iceberg(path):
    warnings.simplefilter("ignore")
    catalog = pytest.importorskip("pyiceberg.catalog.sql").SqlCatalog(
        "a", uri=f"sqlite:///{path.parent}/catalog.db", warehouse=str(path.parent)
    )
    catalog.create_namespace("n")
    catalog.create_table("n.t", ROWS.schema, location=str(path)).append(ROWS)
    catalog.close()


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


# Written by the format's own library, and its files flipped so many times each.
LIBRARIES = {
    "a.h5": (hdf5, 60),
    "checked.h5": (lambda path: hdf5(path, fletcher32=True, chunks=(40,)), 60),
    "a.npz": (lambda path: np.savez(path, x=NUMBERS), 120),
    "packed.npz": (lambda path: np.savez_compressed(path, x=NUMBERS), 120),
    "a.zarr": (zarr, 8),
    "a.orc": (lambda path: orc.write_table(ROWS, path), 60),
    "a.avro": (avro, 120),
    "a.sqlite": (sqlite, 60),
    "a.duckdb": (duckdb, 20),
    "mds": (lambda path: convert(ROWS, path, to="mds"), 60),
    "lance": (lambda path: pytest.importorskip("lance").write_dataset(ROWS, path), 8),
    "delta": (lambda path: pytest.importorskip("deltalake").write_deltalake(path, ROWS), 20),
    "iceberg": (iceberg, 10),
}
FRAGILE = ("a.h5", "checked.h5", "a.orc", "a.duckdb")
CHECKED = ("checked.h5", "a.npz", "packed.npz", "a.duckdb")  # formats with checksums


def flip(path, times, expected, *, checked):
    """Flip bits of all files of a table."""
    for file in sorted(part for part in path.rglob("*") if part.is_file()) if path.is_dir() else [path]:
        good = file.read_bytes()
        for bit in range(0, 8 * len(good), max(1, 8 * len(good) // times) | 1):
            broken = bytearray(good)
            broken[bit // 8] ^= 1 << bit % 8
            file.write_bytes(broken)
            rows = rows_in(path)
            assert rows is None or len(rows) == 97, f"bit {bit} of {file}"
            assert not checked or rows in (None, expected), f"bit {bit} of {file}"
        file.write_bytes(good)


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_bit_changes_no_count_of_libraries(tmp_path, name):
    write_table, times = LIBRARIES[name]
    path = tmp_path / name
    write_table(path)
    expected = rows_in(path)
    assert [row["x"] for row in expected] == list(range(97))
    if name not in FRAGILE:
        flip(path, times, expected, checked=name in CHECKED)
        return
    context = multiprocessing.get_context("spawn")  # such a library may crash the process
    process = context.Process(target=flip, args=(path, times, expected), kwargs={"checked": name in CHECKED})
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == 0


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
