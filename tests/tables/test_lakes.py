"""Delta Lake, Iceberg and Lance tables at a version, with the files that their logs list."""

import gzip
import json
import multiprocessing
import os
import shutil
import struct
import warnings
import zlib
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.errors import BadArgument, CorruptFile, UnknownFormat
from corgipile.tables import open as open_table
from corgipile.testing import check_table


def rows_of(table):
    return sorted(table.read(0, len(table)).to_pylist(), key=lambda row: row["x"])


@pytest.fixture
def delta(tmp_path):
    library = pytest.importorskip("deltalake")
    path = tmp_path / "delta"
    library.write_deltalake(path, pa.table({"x": [1, 2], "y": ["a", "b"], "p": ["u v", "w"]}), partition_by=["p"])
    more = pa.table({"x": [3, 4], "y": ["c", "d"], "p": ["w", None], "z": [1.5, 2.5]})
    library.write_deltalake(path, more, mode="append", schema_mode="merge")
    library.DeltaTable(path).delete("x = 3")
    return path


def test_delta_at_a_version(delta):
    table = open_table(delta)
    assert rows_of(table) == [
        {"x": 1, "y": "a", "p": "u v", "z": None},
        {"x": 2, "y": "b", "p": "w", "z": None},
        {"x": 4, "y": "d", "p": None, "z": 2.5},
    ]
    check_table(table, pa.Table.from_batches([table.read(0, 3)]))
    assert [len(open_table(delta, version=version)) for version in range(3)] == [2, 4, 3]
    assert open_table(delta, version=0).schema.names == ["x", "y", "p"]
    assert open_table(delta, version=1).fingerprint != table.fingerprint
    for version, says in (
        (3, "the latest is 2"),
        (-1, "number, at least 0"),
        ("x", "number, at least 0"),
    ):
        with pytest.raises(BadArgument, match=says):
            open_table(delta, version=version)
    with cp.Loader(delta, batch_size=2, columns=["x", "p"]) as loader:
        assert sorted(int(x) for batch in loader for x in batch["x"]) == [1, 2, 4]
    assert cp.convert(delta, delta.parent / "o.arrow") == 3
    with pytest.raises(UnknownFormat, match=r"open the table, corgipile\.open"):
        open_table(next(delta.rglob("*.parquet")))
    with pytest.raises(BadArgument, match="tables in subfolders that are no partitions"):
        open_table(delta.parent)


def changed(folder, change):
    """Edit the first file of a log line by line."""
    path = folder / "_delta_log" / "00000000000000000000.json"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        change(line)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for other in (folder / "_delta_log").glob("*"):
        if other != path:
            other.unlink()


def deletes(folder, place, rows):
    """Delete rows of the first file by a deletion vector like Spark's; return the data of a vector file."""
    bitmap = pytest.importorskip("pyroaring").BitMap(rows).serialize()
    data = struct.pack("<iqI", 1681511377, 1, 0) + bitmap

    def vectors(line):
        if "protocol" in line:
            features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
            line["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
        if "add" in line and rows:
            line["add"]["deletionVector"] = {**place, "sizeInBytes": len(data), "cardinality": len(rows)}

    changed(folder, vectors)
    return b"\1" + struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))


def test_delta_with_deleted_rows(tmp_path, monkeypatch):
    library = pytest.importorskip("deltalake")
    path = tmp_path / "delta"
    rows = pa.table({"x": np.arange(40), "y": [f"row {i}" for i in range(40)]})
    library.write_deltalake(path, rows.slice(0, 30))
    whole = open_table(path).fingerprint
    place = {"storageType": "p", "pathOrInlineDv": (path / "gone rows.bin").as_uri(), "offset": 1}
    data = deletes(path, place, [0, 7, 29])
    (path / "gone rows.bin").write_bytes(data)
    library.write_deltalake(path, rows.slice(30), mode="append")
    table = open_table(path)
    left = [x for x in range(40) if x not in (0, 7, 29)]
    assert [row["x"] for row in rows_of(table)] == left
    assert table.fingerprint != whole
    check_table(table, pa.Table.from_batches([table.read(0, 37)]))
    with cp.Loader(path, batch_size=5, columns=["x", "y"], memory="1MB") as loader:
        assert sorted((int(x), y) for batch in loader for x, y in zip(batch["x"], batch["y"], strict=True)) == [
            (x, f"row {x}") for x in left
        ]
    assert cp.convert(path, tmp_path / "o.arrow") == 37
    (path / "gone rows.bin").write_bytes(data[:-1] + bytes((data[-1] ^ 1,)))
    with pytest.raises(CorruptFile, match=r"a vector of deleted rows cannot be read: .*CRC"):
        open_table(path)
    monkeypatch.delattr(library.DeltaTable, "deletion_vectors")
    with pytest.raises(UnknownFormat, match=r"pip install -U deltalake; or rewrite the files by REORG TABLE"):
        open_table(path)


def test_delta_whose_readers_know_of_vectors_that_there_are_none_of(delta):
    deletes(delta, {}, [])
    assert len(open_table(delta)) == 2


def test_delta_that_is_damaged(delta):
    next(delta.rglob("*.parquet")).unlink()
    with pytest.raises(FileNotFoundError):
        open_table(delta, version=1)
    shutil.rmtree(delta / "_delta_log")
    (delta / "_delta_log").mkdir()
    with pytest.raises(CorruptFile, match="log cannot be read"):
        open_table(delta)


@pytest.fixture
def iceberg(tmp_path):
    pytest.importorskip("sqlalchemy")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        catalog = pytest.importorskip("pyiceberg.catalog.sql")
        types = pytest.importorskip("pyiceberg.types")
        made = catalog.SqlCatalog("c", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/ice")
        made.create_namespace("n")
        table = made.create_table("n.t", schema=pa.schema([("x", pa.int64()), ("y", pa.string())]))
        table.append(pa.table({"x": [1, 2], "y": ["a", "b"]}))
        with table.update_schema() as update:
            update.add_column("z", types.DoubleType())
            update.rename_column("y", "why")
        table.append(pa.table({"x": [3], "why": ["c"], "z": [1.5]}))
        made.engine.dispose()
    return tmp_path / "ice" / "n" / "t", [one.snapshot_id for one in table.snapshots()]


@pytest.mark.filterwarnings("ignore")  # warnings of the library and its dependencies
def test_iceberg_that_says_no_snapshot(iceberg):
    folder, snapshots = iceberg
    newest = max((folder / "metadata").glob("*.metadata.json"))
    newest.write_text(newest.read_text().replace('"current-snapshot-id"', '"currenu-snapshot-id"'))
    with pytest.raises(CorruptFile, match=f"no current snapshot; select one by version=: {snapshots[0]}"):
        open_table(folder)
    assert len(open_table(folder, version=snapshots[0])) == 2


@pytest.mark.parametrize("packed", [False, True])
def test_iceberg_whose_metadata_no_budget_holds(iceberg, packed):
    folder, _ = iceberg
    path = max(folder.glob("metadata/*.metadata.json"))
    data = path.read_bytes().rstrip()[:-1] + b', "more": "' + bytes(8 << 20).replace(b"\0", b"a") + b'"}'
    if packed:
        path.unlink()
        path = path.with_name(path.name.replace(".metadata.json", ".gz.metadata.json"))
    path.write_bytes(gzip.compress(data, 1) if packed else data)
    with pytest.raises(CorruptFile, match="must have at most 8388608 bytes unpacked"):
        open_table(folder)


def test_iceberg_at_a_snapshot(iceberg, tmp_path):
    folder, snapshots = iceberg
    table = open_table(folder)
    assert rows_of(table) == [
        {"x": 1, "why": "a", "z": None},
        {"x": 2, "why": "b", "z": None},
        {"x": 3, "why": "c", "z": 1.5},
    ]
    check_table(table, pa.Table.from_batches([table.read(0, 3)]))
    assert rows_of(open_table(folder, version=snapshots[0])) == [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]
    with pytest.raises(BadArgument, match="has no snapshot 5; it has"):
        open_table(folder, version=5)
    folder.rename(tmp_path / "moved")
    with pytest.raises(CorruptFile, match="metadata cannot be read"):  # with its old location
        open_table(tmp_path / "moved")
    (tmp_path / "moved" / "metadata").joinpath("99999-x.metadata.json").write_text("{")
    with pytest.raises(CorruptFile, match="metadata cannot be read"):
        open_table(tmp_path / "moved")


@pytest.mark.parametrize(("content", "status"), [(1, 1), (1, 2), (0, 2)])
def test_iceberg_with_delete_files(iceberg, content, status):
    """Only live delete files are refused."""
    fastavro = pytest.importorskip("fastavro")
    newest = max((iceberg[0] / "metadata").glob("*-m0.avro"), key=lambda path: path.stat().st_mtime_ns)
    with newest.open("rb") as file:
        reader = fastavro.reader(file)
        schema, [entry] = reader.writer_schema, list(reader)
        metadata = {key: value for key, value in reader.metadata.items() if not key.startswith("avro.")}
    path = entry["data_file"]["file_path"].replace(".parquet", "-other.parquet")
    other = entry | {"status": status, "data_file": entry["data_file"] | {"content": content, "file_path": path}}
    with newest.open("wb") as file:
        fastavro.writer(file, schema, [entry, other], metadata=metadata)
    if status == 2:
        assert len(open_table(iceberg[0])) == 3
        return
    with pytest.raises(UnknownFormat, match="must not have delete files"):
        open_table(iceberg[0])


@pytest.fixture
def lance(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library = pytest.importorskip("lance")
        path = tmp_path / "a.lance"
        rows = pa.table(
            {
                "x": np.arange(300),
                "v": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(600, dtype=np.float32)), 2),
                "s": [None if k % 9 == 0 else f"né {k}" for k in range(300)],
                "b": [bytes(k % 5) for k in range(300)],
            }
        )
        library.write_dataset(rows, path, max_rows_per_file=100)
        library.dataset(path).delete("x % 10 = 3")
    return path, rows


@pytest.mark.filterwarnings("ignore")  # lance warns at every fork
def test_lance(lance):
    path, rows = lance
    left = rows.take(pa.array([k for k in range(300) if k % 10 != 3]))
    table = open_table(path)
    check_table(table, left)
    check_table(open_table(path, version=1), rows)
    assert len(open_table(f"{path.parent}/*.lance")) == 270
    with pytest.raises(BadArgument, match="has no version 9"):
        open_table(path, version=9)
    with cp.Loader(path, batch_size=16, columns=["x", "v"]) as loader:
        assert sorted(int(x) for batch in loader for x in batch["x"]) == left["x"].to_pylist()
    process = os.fork()
    if not process:  # the library sometimes blocks on its threads
        try:
            table.take(np.array([5, 0]), ["x"])
        except BadArgument as error:
            os._exit(0 if "multiprocessing_context='spawn'" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(process, 0)[1] == 0
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(table.take, np.array([5, 0]), ["x"]).result().to_pylist() == [{"x": 6}, {"x": 0}]
    assert cp.convert(path, path.parent / "o.arrow") == 270
    for file in (path / "data").iterdir():
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(CorruptFile, match=r"a\.lance"):
        open_table(path).read(0, 200)
