"""Encoded tables unpacked to spill files have equal rows for any schema, size and writer."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corgipile as cp
from corgipile.errors import BadArgument, CorruptFile, WriteFailed
from corgipile.tables import ParquetTable
from corgipile.tables import open as open_table
from corgipile.tables.encoded import group_columns, unpack, unpack_shared
from corgipile.tables.formats.arrow import file as arrow
from corgipile.tables.formats.parquet import table as parquet
from corgipile.tables.io.spill import SpillWriter, check_room, spill_folder
from corgipile.tables.subset import Subset

KINDS = ["parquet", "arrow", "arrows"]


def write(path, kind, rows, group, **options):
    path = path.with_suffix(f".{kind}")
    if kind == "parquet":
        rows = rows.drop_columns(["nothing here"]) if "nothing here" in rows.schema.names else rows
        pq.write_table(rows, path, row_group_size=group, **options)
        return path, rows
    with (pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream)(
        str(path), rows.schema, options=pa.ipc.IpcWriteOptions(compression=options.get("compression", "zstd"))
    ) as writer:
        writer.write_table(rows, max_chunksize=group)
    return path, rows


parquet_options = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["none", "snappy", "zstd", "gzip"]),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "data_page_size": st.sampled_from([64, 1000, 1 << 20]),
        "dictionary_pagesize_limit": st.sampled_from([64, 1 << 20]),
        "use_dictionary": st.booleans(),
        "write_page_index": st.booleans(),
    }
)


@pytest.fixture
def tiny(monkeypatch):
    """Treat every unit as large; decode columns separately, a few rows at a time."""
    monkeypatch.setattr(parquet, "SMALL", -1)
    monkeypatch.setattr(arrow, "SMALL", -1)
    monkeypatch.setattr("corgipile.tables.encoded.GROUP_BYTES", 1)
    monkeypatch.setattr(parquet, "BATCH_ROWS", 13)


@given(
    seed=st.integers(0, 2**32), count=st.integers(1, 70), group=st.integers(1, 40), nulls=st.booleans(),
    options=parquet_options, shared=st.booleans(),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
@pytest.mark.usefixtures("tiny")
def test_unpacked_parquet_is_the_same_table(folder, laws, rows_of, seed, count, group, nulls, options, shared):
    path, rows = write(folder / "law", "parquet", rows_of(count, seed, nulls), group, **options)
    table = ParquetTable(path, spill=folder)
    names = table.schema.names
    laws(unpack_shared(table, names) if shared else unpack(table, names, folder), rows, np.random.default_rng(seed))
    laws(table, rows, np.random.default_rng(seed))


@given(
    seed=st.integers(0, 2**32), count=st.integers(1, 70), group=st.integers(1, 40), nulls=st.booleans(),
    kind=st.sampled_from(["arrow", "arrows"]), codec=st.sampled_from(["lz4", "zstd"]), shared=st.booleans(),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
@pytest.mark.usefixtures("tiny")
def test_unpacked_compressed_arrow_is_the_same_table(
    folder, laws, rows_of, seed, count, group, nulls, kind, codec, shared
):
    path, rows = write(folder / "law", kind, rows_of(count, seed, nulls), group, compression=codec)
    table = open_table(path, spill=folder)
    names = table.schema.names
    laws(unpack_shared(table, names) if shared else unpack(table, names, folder), rows, np.random.default_rng(seed))
    laws(table, rows, np.random.default_rng(seed))


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_lie_plain_afterwards(tmp_path, layout_law, rows_of, kind):
    path, _ = write(tmp_path / "a", kind, rows_of(250), 60)
    table = unpack(open_table(path), ["label", "features"] if kind != "parquet" else ["label", "half"], tmp_path)
    assert (np.diff(table.cuts(7)) <= 7).all()
    layout_law(table, table.schema.names)


def test_dictionaries_stay_dictionaries(tmp_path):
    rows = pa.table({"kind": pa.array(["a", "b", None, "a"] * 20).dictionary_encode(), "x": pa.array(range(80))})
    path = tmp_path / "a.parquet"
    pq.write_table(rows, path, row_group_size=30)
    table = ParquetTable(path)
    plain = unpack(table, ["kind", "x"], tmp_path)
    assert plain.schema == table.schema
    assert plain.read(5, 50).to_pylist() == rows.slice(5, 45).to_pylist()
    assert plain.layout(["kind"]) is None


def test_units_are_what_is_decoded(tmp_path):
    rows = pa.table({"x": np.zeros(1000), "y": np.zeros(1000, np.int32), "text": ["seven b"] * 1000})
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=300)
    units = open_table(tmp_path / "a.parquet").units(["x", "y"])
    assert units[:4] == (300, 3600, 12000, 4)
    assert units.each == 12
    assert open_table(tmp_path / "a.parquet").units(["text"]).each >= 7
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), rows.schema) as writer:
        writer.write_table(rows)
    assert open_table(tmp_path / "a.arrow").units(["x"]) is None
    path, _ = write(tmp_path / "b", "arrow", rows, 300)
    assert open_table(path).units(["x", "x", "y"])[:4] == (300, 3600, 12000, 4)


def test_columns_are_decoded_together_up_to_a_limit():
    assert group_columns({"a": 7 << 20, "b": 1, "c": 1}) == [["a"], ["b", "c"]]


def test_many_files_are_unpacked_as_one(tmp_path, laws, rows_of):
    parts, expected = [], []
    for number, kind in enumerate(["parquet", "arrow", "parquet"]):
        rows = rows_of(60, number).drop_columns(["nothing here"])
        path, rows = write(tmp_path / f"part-{number}", kind, rows, 25)
        parts.append(path)
        expected.append(rows)
    table = open_table(parts, spill=tmp_path)
    plain = unpack_shared(table, table.schema.names)
    laws(plain, pa.concat_tables(expected), np.random.default_rng(0))
    assert plain.fingerprint == table.fingerprint
    assert set(plain.layout(["label"]).paths) == set(plain.layout(["half"]).paths)
    some = unpack_shared(Subset(table, [[3, 90], [100, 101]]), ["label"])
    assert (
        some.read(80, 88).to_pylist()
        == pa.concat_tables(expected).select(["label"]).take([*range(83, 90), 100]).to_pylist()
    )


def test_partitions_keep_their_columns(tmp_path):
    for year in (2023, 2024):
        folder = tmp_path / f"year={year}"
        folder.mkdir()
        pq.write_table(pa.table({"x": np.arange(50) + year}), folder / "a.parquet")
    table = open_table(tmp_path)
    plain = unpack_shared(table, ["x", "year"])
    assert plain.read(49, 51, ["year", "x"]).to_pylist() == [{"year": 2023, "x": 2072}, {"year": 2024, "x": 2024}]
    assert unpack_shared(table, ["year"]) is table


def spilled(folder):
    gc.collect()
    return [path.name for path in folder.iterdir() if path.name.startswith("corgipile-")]


def test_nothing_is_left_and_readers_share(tmp_path, rows_of, monkeypatch):
    path, rows = write(tmp_path / "a", "parquet", rows_of(100), 30)
    spill = tmp_path / "spill"
    spill.mkdir()
    monkeypatch.setenv("CORGIPILE_SPILL", str(spill))
    made = []
    finish = SpillWriter.finish
    monkeypatch.setattr(SpillWriter, "finish", lambda self: made.append(1) or finish(self))
    tables = [ParquetTable(path) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        plain = list(pool.map(lambda table: unpack_shared(table, ["label"]), tables))
    assert made == [1]
    assert unpack_shared(tables[0], ["label"]) is plain[0]
    assert all(one.read(0, 100).to_pylist() == rows.select(["label"]).to_pylist() for one in plain)
    assert len(spilled(spill)) == 1
    again = ParquetTable(path)
    os.utime(path)
    fresh = unpack_shared(ParquetTable(path), ["label"])  # possibly another file
    assert made == [1, 1]
    del plain, tables, fresh, again
    assert spilled(spill) == []


READER = """
    import sys, time
    from corgipile.tables import ParquetTable
    from corgipile.tables.encoded import unpack_shared
    table = ParquetTable(sys.argv[1], spill=sys.argv[2])
    plain = unpack_shared(table, ["label"])
    print(plain.read(0, len(plain)).column(0).to_pylist(), flush=True)
    sys.stdin.read()
"""


def start(path, spill):
    command = [sys.executable, "-c", textwrap.dedent(READER), str(path), str(spill)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="files of other processes cannot be opened")
def test_processes_share_and_a_killed_one_leaves_nothing(tmp_path, rows_of, monkeypatch):
    path, rows = write(tmp_path / "a", "parquet", rows_of(100), 30)
    spill = tmp_path / "spill"
    spill.mkdir()
    expected = rows.column("label").to_pylist()
    first = start(path, spill)
    assert first.stdout.readline().strip() == str(expected)
    monkeypatch.setattr(ParquetTable, "write_plain", None)  # another process wrote the file
    plain = unpack_shared(ParquetTable(path, spill=spill), ["label"])
    first.send_signal(signal.SIGKILL)
    first.wait()
    first.stdout.close()
    first.stdin.close()
    assert plain.read(0, 100).column(0).to_pylist() == expected
    assert len(spilled(spill)) == 1  # a few bytes with its location
    del plain
    assert spilled(spill) == []


def test_the_next_run_removes_what_a_killed_one_left(tmp_path, rows_of):
    path, _ = write(tmp_path / "a", "parquet", rows_of(100), 30)
    spill = tmp_path / "spill"
    spill.mkdir()
    killed = start(path, spill)
    killed.stdout.readline()
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    killed.stdout.close()
    killed.stdin.close()
    left = spilled(spill)
    assert sum((spill / name).stat().st_size for name in left) < 1000
    other, _ = write(tmp_path / "b", "parquet", rows_of(100, 1), 30)
    plain = unpack_shared(ParquetTable(other, spill=spill), ["label"])
    assert len(spilled(spill)) == 1
    assert left != spilled(spill)
    del plain


def test_terminated_while_unpacking(tmp_path, rows_of):
    path, _ = write(tmp_path / "a", "parquet", rows_of(100), 30)
    spill = tmp_path / "spill"
    spill.mkdir()
    slow = READER.replace(
        "import sys, time",
        "import sys, time\n    import corgipile.tables.formats.parquet.table as p\n"
        "    old = p.ParquetTable.write_groups\n"
        "    p.ParquetTable.write_groups = lambda *a: (old(*a), print('busy', flush=True), time.sleep(60))",
    )  # fmt: skip
    command = [sys.executable, "-c", textwrap.dedent(slow), str(path), str(spill)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as busy:
        assert busy.stdout.readline().strip() == "busy"
        busy.terminate()
    assert sum((spill / name).stat().st_size for name in spilled(spill)) < 1000
    unpack_shared(ParquetTable(path, spill=spill), ["label"])


def test_a_full_disk_is_said_before_anything_is_read(tmp_path, rows_of, monkeypatch):
    path, _ = write(tmp_path / "a", "parquet", rows_of(100), 30)
    table = ParquetTable(path, spill=tmp_path)
    monkeypatch.setattr(ParquetTable, "write_groups", None)
    status = os.statvfs(tmp_path)
    free = os.statvfs_result((*status[:4], 1, *status[5:]))
    monkeypatch.setattr(os, "statvfs", lambda _: free)
    with pytest.raises(
        WriteFailed, match=r"must have .* free plus a reserve of .*, got .*; .*open\(\.\.\., spill=FOLDER\).*convert"
    ):
        unpack_shared(table, ["label"])
    assert spilled(tmp_path) == []


def test_a_disk_that_fills_up_meanwhile(tmp_path, rows_of, monkeypatch):
    path, _ = write(tmp_path / "a", "parquet", rows_of(100), 30)
    pwrite, calls = os.pwrite, []

    def full(handle, data, at):
        calls.append(at)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return pwrite(handle, data, at)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(WriteFailed, match="No space left on device") as raised:
        unpack(ParquetTable(path), ["label"], tmp_path)
    assert raised.value.errno == 28
    assert spilled(tmp_path) == []


def test_a_folder_that_cannot_be_written(monkeypatch):
    def refuse(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("corgipile.tables.io.spill.nameless", refuse)
    with pytest.raises(WriteFailed, match=r"Read-only file system; .*open\(\.\.\., spill=FOLDER\)"):
        check_room(Path("/"), 1)


def test_folders_for_spill_files(tmp_path, monkeypatch):
    assert spill_folder(tmp_path) == tmp_path
    monkeypatch.setenv("CORGIPILE_SPILL", "OFF")
    assert spill_folder(None) is None
    assert spill_folder(spill=False) is None
    assert spill_folder(tmp_path) == tmp_path
    monkeypatch.setenv("CORGIPILE_SPILL", str(tmp_path))
    assert spill_folder(spill=True) == tmp_path
    monkeypatch.delenv("CORGIPILE_SPILL")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert spill_folder(None).is_dir()
    with pytest.raises(BadArgument, match="spill must be an existing folder or 'off'"):
        spill_folder(tmp_path / "nowhere")


def test_whether_to_spill_travels_with_a_table(tmp_path, rows_of):
    for kind in KINDS:
        path, _ = write(tmp_path / "a", kind, rows_of(20), 30)
        table = pickle.loads(pickle.dumps(open_table(path, spill=tmp_path)))  # noqa: S301
        assert table.spill == tmp_path
        assert open_table(path, spill="off").spill is None
    np.save(tmp_path / "x.npy", np.zeros((3, 2), np.float32))
    assert len(open_table(tmp_path / "x.npy", spill="off")) == 3


@pytest.mark.usefixtures("tiny")
def test_groups_are_decoded_in_memory_where_spilling_is_off(tmp_path, rows_of, monkeypatch, laws):
    path, rows = write(tmp_path / "a", "parquet", rows_of(100), 30)
    monkeypatch.setattr("corgipile.tables.io.spill.nameless", None)
    laws(ParquetTable(path, spill="off"), rows, np.random.default_rng(0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("tiny")
def test_damaged_files_never_crash_when_unpacked(folder, damage, rows_of, survives, kind):
    path, _ = write(folder / "whole", kind, rows_of(40, nulls=True), 15)
    data = path.read_bytes()

    @given(broken=damage(data))
    @settings(max_examples=150, deadline=None, derandomize=True)
    def check(broken):
        survives(folder / f"broken.{kind}", broken, "parquet" if kind == "parquet" else kind)

    check()


def test_rows_that_are_missing_are_no_table(tmp_path, rows_of, monkeypatch):
    path, _ = write(tmp_path / "a", "parquet", rows_of(100), 30)
    batches = ParquetTable._batches
    monkeypatch.setattr(ParquetTable, "_batches", lambda *a, **k: list(batches(*a, **k))[:-1])
    with pytest.raises(CorruptFile, match="rows were decoded, but the file states 100"):
        unpack(ParquetTable(path), ["label"], tmp_path)


def test_frames_of_other_writers(tmp_path, laws):
    polars = pytest.importorskip("polars")
    rng = np.random.default_rng(0)
    frame = polars.DataFrame({
        "x": rng.normal(size=5000), "label": rng.integers(0, 3, 5000), "text": [f"row {i % 7}" for i in range(5000)],
        "flag": rng.random(5000) < 0.5, "list": [[1.0, 2.0]] * 5000,
    })  # fmt: skip
    frame.write_parquet(tmp_path / "a.parquet")
    rows = pq.read_table(tmp_path / "a.parquet")
    laws(unpack(ParquetTable(tmp_path / "a.parquet"), rows.schema.names, tmp_path), rows, rng)


def test_no_spill_files_wanted_is_not_the_same_as_nothing_said(tmp_path):
    rows = pa.table({"x": range(9)})
    pq.write_table(rows, tmp_path / "t.parquet")
    wanted, off = open_table(tmp_path / "t.parquet", spill=tmp_path), open_table(tmp_path / "t.parquet", spill="off")
    for table, said in ((wanted, tmp_path), (off, None), (open_table(rows), spill_folder(None))):
        for over in (table.slice(1), table.slice(2).slice(1), cp.concat([table, table]), cp.mix([(table, 1.0)])):
            assert over.spill == said
    assert cp.concat([open_table(rows), wanted]).spill == tmp_path
    assert cp.concat([wanted, off]).spill is None
