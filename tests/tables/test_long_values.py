"""Small files of short rows, then long ones, are read within the budget or rejected before they are decoded."""

import contextlib
import sqlite3

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import corgipile as cp
from corgipile.description import about
from corgipile.errors import BadSchema, BadValue, BudgetTooSmall, CorgiPileError, ParseError
from corgipile.resident import peaking
from corgipile.tables.formats.arrow.grouping import Groups
from corgipile.tables.unit_check import DEFAULT_MEMORY

MEMORY, BESIDE = 16 << 20, 36 << 20  # the budget; decoding and libraries
SHORT, LONG = 100, 1 << 19  # rows of one letter come first; bytes of the others
TEXT = ["a"] * SHORT + ["b" * LONG] * 100
LISTS = [[0.5]] * SHORT + [np.zeros(LONG // 8)] * 100
LONG_LISTS = [np.arange(at, at + LONG // 8) / 7 for at in range(100)]


def write_orc(values):
    def make(folder):
        rows = pa.table({"label": np.arange(len(values)) % 2, "x": values})
        orc.write_table(rows, folder / "a.orc", compression="zstd")
        return folder / "a.orc"

    return make


def write_duckdb(value, rows=200):
    def make(folder):
        duckdb = pytest.importorskip("duckdb")
        with duckdb.connect(str(folder / "a.duckdb")) as database:
            short, long = value
            values = f"case when range < {SHORT} then {short} else {long} end as x"
            database.execute(f"create table t as select range % 2 as label, {values} from range({rows})")  # noqa: S608
        return folder / "a.duckdb"

    return make


def write_parquet(*groups, **settings):
    def make(folder):
        kind = pa.list_(pa.float64())
        with pq.ParquetWriter(folder / "a.parquet", pa.schema({"label": pa.int64(), "x": kind}), **settings) as file:
            for values in groups:
                file.write_table(pa.table({"label": np.arange(len(values)) % 2, "x": pa.array(values, kind)}))
        return folder / "a.parquet"

    return make


def write_lance(values):
    def make(folder):
        lance = pytest.importorskip("lance")
        lance.write_dataset(pa.table({"label": np.arange(len(values)) % 2, "x": values}), folder / "a.lance")
        return folder / "a.lance"

    return make


def write_hdf5(kind, values, **settings):
    def make(folder):
        h5py = pytest.importorskip("h5py")
        types = {"text": h5py.string_dtype(), "lists": h5py.vlen_dtype("f8")}
        with h5py.File(folder / "a.h5", "w") as file:
            file["label"] = np.arange(len(values)) % 2
            rows = file.create_dataset("x", (len(values),), types[kind], **settings)
            for at, value in enumerate(values):
                rows[at] = value
        return folder / "a.h5"

    return make


def write_sqlite(declared, values):
    def make(folder):
        with sqlite3.connect(folder / "a.sqlite") as database:
            database.execute(f"create table t (label integer, x {declared})")
            database.executemany("insert into t values (?, ?)", [(at % 2, value) for at, value in enumerate(values)])
        database.close()
        return folder / "a.sqlite"

    return make


def write_stream(rows, end=True):
    def make(folder):
        batch = rows()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(folder / "a.arrows", batch.schema, options=options) as stream:
            stream.write_batch(batch)
        if not end:
            data = (folder / "a.arrows").read_bytes()
            (folder / "a.arrows").write_bytes(data[:-8])
        return folder / "a.arrows"

    return make


def write_runs(folder):
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1 << 16], pa.int32()), pa.array([1.0]))
    batch = pa.record_batch({"label": runs})
    with pa.ipc.new_file(folder / "a.arrow", batch.schema) as file:
        file.write_batch(batch)
    return folder / "a.arrow"


def write_text(name, line, rows=3):
    def make(folder):
        (folder / name).write_text(line * rows)
        return folder / name

    return make


def write_npz(folder):
    np.savez_compressed(folder / "a.npz", X=np.zeros((2, 8 << 20), "f4"), y=[0, 1])
    return folder / "a.npz"


def write_npy(folder):
    np.save(folder / "a.npy", np.zeros((2, 8 << 20), "f4"))
    return folder / "a.npy"


def coded(value, rows=2):
    return pa.record_batch(
        {"x": pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), pa.array([value])), "y": np.ones(rows)}
    )


@pytest.fixture(scope="module", autouse=True)
def imported(tmp_path_factory):
    """Load the libraries before memory is measured."""
    folder = tmp_path_factory.mktemp("imports")
    for make in (write_orc([0.5]), write_lance(["a"]), write_hdf5("text", ["a"]), write_duckdb(("'a'", "'b'"), 1)):
        with contextlib.suppress(pytest.skip.Exception):
            path = make(folder)
            for use in USES.values():
                use(path, folder / "out.arrow")


HUGE = "a" * (96 << 20)
REFUSED = {
    "duckdb, text": write_duckdb(("'a'", f"repeat('b', {LONG})")),
    "duckdb, bytes": write_duckdb(("'a'::blob", f"repeat('b', {LONG})::blob")),
    "duckdb, a text": write_duckdb(("'a'", f"repeat('b', {96 * LONG})"), SHORT + 1),
    "duckdb, a list": write_duckdb(("[0.5]", "list_resize([0.5], 4000000, 0.5)"), SHORT + 1),
    "duckdb, text in a list": write_duckdb(("['a']", f"[repeat('b', {LONG}) for i in range(80)]"), SHORT + 1),
    "orc, text": write_orc(TEXT),
    "orc, a list": write_orc([[0.5]] * SHORT + [np.zeros(12 << 20)]),
    "lance, text": write_lance(["a"] * SHORT + ["b" * (48 << 20)] * 2),
    "lance, one text": write_lance(["b" * (48 << 20)] * 2),
    "lance, bytes": write_lance([b"a"] * SHORT + [np.random.default_rng(0).bytes(24 << 20)]),
    "lance, a list": write_lance([[0.5]] * SHORT + [np.arange(4 << 20) / 7]),
    "hdf5, a text": write_hdf5("text", ["a", "b" * (40 << 20)]),
    "hdf5, a text in a chunk": write_hdf5("text", ["a", "b" * (40 << 20)], chunks=(2,), compression="gzip"),
    "hdf5, a list": write_hdf5("lists", [[1.0], np.zeros(5 << 20)]),
    "sqlite, bytes": write_sqlite("blob", [b"a"] * SHORT + [bytes(40 << 20)]),
    "sqlite, undeclared": write_sqlite("", ["a"] * SHORT + ["b" * (40 << 20)]),
    "npz, wide rows": write_npz,
    "npy, wide rows": write_npy,
    "json lines, numbers": write_text("a.jsonl", '{"label": 1, "x": [' + "1," * (3 << 20) + "1]}\n"),
    "json lines, objects": write_text("a.jsonl", '{"label": 1, "x": [' + "{}," * (2 << 20) + "{}]}\n"),
    "arrow, runs": write_runs,
    "arrow stream, a dictionary": write_stream(lambda: coded(HUGE)),
    "arrow stream, no end": write_stream(lambda: pa.record_batch({"x": [HUGE], "y": [1.0]}), end=False),
}
READ = {
    "json lines, long": write_text(
        "a.jsonl", '{"label": 1, "x": "a"}\n' + '{"label": 0, "x": "' + "b" * (3 << 20) + '"}\n'
    ),
    "duckdb, shorter text": write_duckdb(("'a'", "repeat('b', 10000)"), 2500),
    "hdf5, text": write_hdf5("text", TEXT),
    "parquet, lists": write_parquet([[0.5]] * 2000 + LONG_LISTS),
    "parquet, lists of a second version": write_parquet(
        [[0.5]] * 2000 + LONG_LISTS, use_dictionary=False, data_page_version="2.0"
    ),
    "parquet, lists of a later group": write_parquet([[0.5]] * 2000, LONG_LISTS, use_dictionary=False),
    "parquet, lists of a dictionary": write_parquet([[0.5]] * 2000, LONG_LISTS),
    "lance, text": write_lance(TEXT),
    "lance, lists": write_lance(LISTS),
    "hdf5, lists": write_hdf5("lists", LISTS),
    "sqlite, text": write_sqlite("text", TEXT),
    "sqlite, undeclared text": write_sqlite("", TEXT),
}


def rows_of(path):
    with cp.Loader(cp.open(path), batch_size=1, memory=MEMORY, order="no_shuffle") as loader:
        return sum(1 for _ in loader)


USES = {
    "loader": lambda path, _: rows_of(path),
    "info": lambda path, _: about(cp.open(path), columns=True).rows,
    "convert": lambda path, out: cp.convert(path, out, memory=MEMORY),
}


def peak_of(use):
    """Run a function; return the growth of the peak, and its result or the error."""
    with peaking() as before:
        pass
    with peaking() as peak:
        try:
            found = use()
        except CorgiPileError as error:
            found = error
    return peak.nbytes - before.nbytes, found


@pytest.mark.parametrize("name", REFUSED)
def test_long_values_are_rejected_before_they_are_decoded(name, tmp_path):
    path = REFUSED[name](tmp_path)
    for command, use in USES.items():
        grown, found = peak_of(lambda use=use: use(path, tmp_path / "out.arrow"))
        assert grown <= MEMORY + BESIDE, command
        assert isinstance(found, CorgiPileError) or command == "info"
    assert not (tmp_path / "out.arrow").exists()


@pytest.mark.parametrize("name", READ)
def test_long_values_that_fit_are_read_in_parts(name, tmp_path):
    path = READ[name](tmp_path)
    for command, use in USES.items():
        grown, found = peak_of(lambda use=use: use(path, tmp_path / "out.arrow"))
        assert grown <= (DEFAULT_MEMORY if command == "info" else MEMORY) + BESIDE, command
        assert found == len(cp.open(path)), command


def test_hints_name_a_budget_that_works(tmp_path):
    path = write_hdf5("text", ["a", "b" * (12 << 20)])(tmp_path)
    with pytest.raises(BudgetTooSmall, match="give memory='36MB'"):
        cp.convert(path, tmp_path / "out.arrow", memory=MEMORY)
    assert cp.convert(path, tmp_path / "out.arrow", memory="36MB") == 2


def test_errors_of_single_values(tmp_path):
    with pytest.raises(BadValue, match="a value must have at most 16777216 bytes, got a longer one"):
        cp.open(write_sqlite("blob", [bytes(17 << 20)])(tmp_path)).read(0, 1)
    with pytest.raises(ParseError, match="a row must have at most 1048576 values, got 3145730"):
        cp.open(REFUSED["json lines, numbers"](tmp_path))
    path = write_text("a.csv", "label,x\n" + "1,a\n0," + "b" * (3 << 20) + "\n", 1)(tmp_path)
    grown, found = peak_of(lambda: rows_of(path))
    assert (grown <= MEMORY + BESIDE, found) == (True, 2)
    with pytest.raises(ParseError, match="lines of at most 1048576 bytes, got a longer one"):
        cp.convert(path, tmp_path / "out.arrow")
    with pytest.raises(BadSchema, match="column 'label' must store plain values, got run_end_encoded"):
        cp.convert(write_runs(tmp_path), tmp_path / "out.arrow")


def test_rows_of_a_stream_are_decoded_in_parts(tmp_path):
    path = write_stream(lambda: coded("a" * LONG, 100))(tmp_path)
    grown, found = peak_of(lambda: cp.convert(path, tmp_path / "out.arrow", memory=MEMORY))
    assert found == 100
    assert grown <= MEMORY + BESIDE


@pytest.mark.parametrize("out", ["out.arrow", "out.parquet"])
def test_groups_of_longer_rows_are_smaller(tmp_path, out):
    path = tmp_path / "a.arrow"
    with pa.ipc.new_file(path, pa.schema({"x": pa.string()})) as file:
        file.write_batch(pa.record_batch({"x": ["a"] * 1000}))
        for _ in range(100):
            file.write_batch(pa.record_batch({"x": ["b" * LONG]}))
    grown, found = peak_of(lambda: cp.convert(path, tmp_path / out, memory=MEMORY))
    assert found == 1100
    assert grown <= MEMORY + BESIDE
    table = pq.read_table(tmp_path / out) if out.endswith("parquet") else cp.open(tmp_path / out).read(0, found)
    assert table.column("x").to_pylist() == ["a"] * 1000 + ["b" * LONG] * 100


def test_groups_hold_all_rows_in_order():
    groups, found = Groups("100B", pa.schema({"x": pa.string()})), []
    lengths = np.random.default_rng(0).choice([1, 1, 1, 500], 300)
    for at in range(0, 300, 7):
        rows = pa.record_batch({"x": [f"{row}:" + "a" * lengths[row] for row in range(at, min(300, at + 7))]})
        found += groups.add(rows)
    found += filter(None, [groups.rest()])
    rows = [value for group in found for value in group.column(0).to_pylist()]
    assert [int(row.partition(":")[0]) for row in rows] == list(range(300))
    assert max(group.nbytes for group in found) < 2000
