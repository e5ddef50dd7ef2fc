"""Tables whose log says which files count: Delta Lake, Iceberg and Lance, at a version."""

import json
import os
import shutil
import warnings

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
    for version, says in ((3, "the latest is 2"), (-1, "0 for the first"), ("x", "0 for the first")):
        with pytest.raises(BadArgument, match=says):
            open_table(delta, version=version)
    with cp.Loader(delta, batch_size=2, columns=["x", "p"]) as loader:
        assert sorted(int(x) for batch in loader for x in batch["x"]) == [1, 2, 4]
    assert cp.convert(delta, delta.parent / "o.arrow") == 3
    with pytest.raises(UnknownFormat, match=r"open the table, corgipile\.open"):
        open_table(next(delta.rglob("*.parquet")))
    with pytest.raises(BadArgument, match="tables in other folders"):
        open_table(delta.parent)


def changed(folder, change):
    """Change what the first file of a log says, line by line."""
    path = folder / "_delta_log" / "00000000000000000000.json"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        change(line)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for other in (folder / "_delta_log").glob("*"):
        if other != path:
            other.unlink()


@pytest.mark.parametrize("deleted", [False, True])
def test_delta_that_readers_must_know_more_for(delta, deleted):
    def vectors(line):
        if "protocol" in line:
            features = ["deletionVectors"]
            line["protocol"] = {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": features,
                "writerFeatures": features,
            }
        if "add" in line and deleted:
            place = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4}
            line["add"]["deletionVector"] = {**place, "sizeInBytes": 40, "cardinality": 1}

    changed(delta, vectors)
    if not deleted:
        assert len(open_table(delta)) == 2
        return
    with pytest.raises(UnknownFormat, match=r"deleted by vectors.*REORG TABLE"):
        open_table(delta)


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


@pytest.mark.filterwarnings("ignore")  # what the library and its own say of each other
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
    with pytest.raises(CorruptFile, match="metadata cannot be read"):  # which say where it was
        open_table(tmp_path / "moved")
    (tmp_path / "moved" / "metadata").joinpath("99999-x.metadata.json").write_text("{")
    with pytest.raises(CorruptFile, match="metadata cannot be read"):
        open_table(tmp_path / "moved")


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
    if not process:
        os._exit(0 if table.take(np.array([5, 0]), ["x"]).to_pylist() == [{"x": 6}, {"x": 0}] else 1)
    assert os.waitpid(process, 0)[1] == 0
    assert cp.convert(path, path.parent / "o.arrow") == 270
    for file in (path / "data").iterdir():
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(CorruptFile, match=r"a\.lance"):
        open_table(path).read(0, 200)
