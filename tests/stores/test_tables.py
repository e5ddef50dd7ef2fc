"""Tables in stores: every format that is read by ranges gives the rows that the same file gives on this machine."""

import gzip
import io
import json
import pickle
import shutil
import threading

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import shards
import tfrecords

import corgipile as cp
from corgipile.errors import BadArgument, BudgetTooSmall, CorruptFile, MissingFile, ReadFailed, UnknownFormat
from corgipile.tables.io.remote import RemoteFile, file_of
from corgipile.urls import RemotePath

obstore = pytest.importorskip("obstore")
LocalStore, MemoryStore, S3Store = (getattr(obstore.store, f"{kind}Store") for kind in ("Local", "Memory", "S3"))
ROWS = 3000
RANDOM = np.random.default_rng(0)
TABLE = pa.table(
    {
        "x": RANDOM.random(ROWS, np.float32),
        "label": RANDOM.integers(0, 2, ROWS),
        "text": [f"n° {i}" * (i % 5) for i in range(ROWS)],
        "maybe": [None if i % 7 == 0 else i for i in range(ROWS)],
        "list": [list(range(i % 4)) for i in range(ROWS)],
    }
)


@pytest.fixture(autouse=True)
def _indexes(tmp_path, monkeypatch):
    monkeypatch.setenv("CORGIPILE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def bucket(objects):
    return objects.root / "bucket"


def arrow(path, **options):
    with pa.ipc.new_file(path, TABLE.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(TABLE, max_chunksize=700)


def stream(path):
    with pa.ipc.new_stream(path, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=700)


def csv(path):
    TABLE.select(["x", "label", "text"]).to_pandas().to_csv(path, index=False)


def jsonl(path):
    path.write_text("".join(json.dumps(row) + "\n" for row in TABLE.to_pylist()))


def examples(path):
    tfrecords.write(path, [b"%d" % i * (i % 90) for i in range(ROWS)])


FORMATS = {
    "a.arrow": arrow,
    "lz4.arrow": lambda path: arrow(path, compression="lz4"),
    "a.feather": lambda path: pa.feather.write_feather(TABLE, path),
    "a.arrows": stream,
    "a.parquet": lambda path: pq.write_table(TABLE, path, row_group_size=800),
    "one.parquet": lambda path: TABLE.to_pandas().to_parquet(path),
    "a.npy": lambda path: np.save(path, RANDOM.random((ROWS, 5))),
    "a.csv": csv,
    "a.jsonl": jsonl,
    "a.svm": lambda path: path.write_text("".join(f"{i % 2} 1:{i} 7:0.5\n" for i in range(ROWS))),
    "a.tar": lambda path: shards.write(path, shards.numbered(300)),
    "a.tfrecord": examples,
}


@pytest.mark.parametrize("name", FORMATS)
def test_rows_are_those_of_the_file(objects, bucket, name, tmp_path):
    FORMATS[name](bucket / name)
    shutil.copy(bucket / name, tmp_path / name)
    here, there = cp.open(tmp_path / name), cp.open(f"s3://bucket/{name}")
    assert there.schema.equals(here.schema, check_metadata=True)
    assert (len(there), there.nbytes) == (len(here), here.nbytes)
    rows = np.random.default_rng(1).integers(0, len(here), 40)
    for table in (there, pickle.loads(pickle.dumps(there))):  # noqa: S301 - ours
        assert table.read(3, 290).equals(here.read(3, 290))
        assert table.take(rows).equals(here.take(rows))
        assert table.fingerprint == there.fingerprint
    assert there.read(0, len(here)).equals(here.read(0, len(here)))
    assert [*bucket.iterdir()] == [bucket / name]  # no index was left beside it
    objects.log()
    cp.open(f"s3://bucket/{name}")
    if name in ("a.tar", "a.tfrecord"):
        assert len(objects.log()) < 8  # what was scanned is known by now


def test_opening_asks_little(objects, bucket):
    for name in ("a.arrow", "a.parquet", "a.npy"):
        FORMATS[name](bucket / name)
        cp.open(f"s3://bucket/{name}")
        assert len(objects.log()) <= 10, name


def test_more_categories_than_the_memory_holds_are_refused_before_they_are_read(objects, bucket):
    texts = pa.array([f"a category that takes some bytes, number {number:08}" for number in range(300_000)])
    column = pa.DictionaryArray.from_arrays(pa.array(np.arange(400_000) % 300_000, pa.int32()), texts)
    pq.write_table(pa.table({"t": column}), bucket / "many.parquet")
    with pytest.raises(BudgetTooSmall, match="a dictionary or a chunk"):
        cp.Loader("s3://bucket/many.parquet", memory="1MB")
    assert sum(request.sent for request in objects.log()) < (bucket / "many.parquet").stat().st_size / 10


def test_http_by_a_signed_url(objects, bucket):
    FORMATS["a.parquet"](bucket / "a.parquet")
    table = cp.open(f"{objects.url}/bucket/a.parquet?X-Amz-Signature=c0ffee")
    assert table.read(0, ROWS).equals(TABLE.combine_chunks().to_batches()[0])
    assert "c0ffee" not in repr(table)
    assert b"c0ffee" not in pickle.dumps(table)
    with pytest.raises(BadArgument, match="another process"):
        pickle.loads(pickle.dumps(table))  # noqa: S301 - ours
    with pytest.raises(MissingFile):
        cp.open(f"{objects.url}/bucket/nothing.parquet")
    with pytest.raises(BadArgument, match="cannot list files"):
        cp.open(f"{objects.url}/bucket/")


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": rows}), path)


def ids(source, **options):
    table = cp.open(source, **options)
    return table.read(0, len(table)).column("id").to_pylist()


@pytest.fixture
def folder(bucket):
    for i in range(3):
        write(bucket / "data" / f"part-{i}.parquet", [10 * i, 10 * i + 1])
    (bucket / "data" / "_SUCCESS").write_text("")
    (bucket / "data" / ".hidden.parquet").write_text("no")
    (bucket / "data" / "README.md").write_text("see")
    return bucket / "data"


@pytest.mark.parametrize(
    "source",
    [
        "s3://bucket/data",
        "s3://bucket/data/",
        "s3://bucket/data/part-*.parquet",
        "s3://bucket/d?ta/[p]art-*",
        "s3://bucket/**/part-*.parquet",
        "s3://bucket/data/part-{0..2}.parquet",
        ["s3://bucket/data/part-0.parquet", "s3://bucket/data/part-1.parquet", "s3://bucket/data/part-2.parquet"],
        "s3://bucket/da*",
    ],
)
def test_many_objects_are_one_table(folder, source):
    assert ids(source) == [0, 1, 10, 11, 20, 21]


def test_lists_may_mix_places(folder, tmp_path):
    write(tmp_path / "here.parquet", [7])
    assert ids([str(tmp_path / "here.parquet"), "s3://bucket/data/part-1.parquet"]) == [7, 10, 11]
    assert ids(f"file://{tmp_path}/here.parquet") == [7]
    assert ids(f"file://{tmp_path}/*.parquet") == [7]


def test_partitions(bucket):
    for year in (2023, 2024):
        write(bucket / "t" / f"year={year}" / "city=S%C3%A3o" / "0.parquet", [year])
    for source in ("s3://bucket/t", "s3://bucket/t/**/*.parquet"):
        table = cp.open(source)
        assert table.read(0, 2).to_pydict() == {"id": [2023, 2024], "year": [2023, 2024], "city": ["São", "São"]}
    assert cp.open("s3://bucket/t/year=2024").read(0, 1).to_pydict()["year"] == [2024]
    assert cp.open("s3://bucket/t/year=2024/city=S%C3%A3o/0.parquet").read(0, 1).to_pydict()["year"] == [2024]


def test_folders_that_are_no_table(folder, bucket):
    with pytest.raises(MissingFile, match="no object matches"):
        cp.open("s3://bucket/data/*.arrow")
    with pytest.raises(MissingFile, match="s3://bucket/dat"):
        cp.open("s3://bucket/dat")
    write(folder / "more" / "x.parquet", [1])
    with pytest.raises(BadArgument, match="tables in subfolders that are no partitions"):
        cp.open("s3://bucket/data")
    shutil.rmtree(folder / "more")
    (folder / "a.csv").write_text("x,y\n1,2\n")
    with pytest.raises(UnknownFormat, match="several formats"):
        cp.open("s3://bucket/data")
    assert ids("s3://bucket/data", format="parquet") == [0, 1, 10, 11, 20, 21]
    (folder / "_delta_log").mkdir()
    (folder / "_delta_log" / "0.json").write_text("{}")
    with pytest.raises(UnknownFormat, match="Delta Lake"):
        cp.open("s3://bucket/data")


def test_names_without_a_suffix_as_hive_has_them(bucket):
    write(bucket / "h" / "000000_0", [1, 2])
    assert ids("s3://bucket/h/") == [1, 2]
    assert ids("s3://bucket/h/000000_0") == [1, 2]


def test_what_people_hold(folder, bucket):
    assert ids("data/part-*.parquet", filesystem=S3Store("bucket", client_options={"allow_http": True})) == [
        0, 1, 10, 11, 20, 21,
    ]  # fmt: skip
    assert ids("part-1.parquet", filesystem=LocalStore(folder)) == [10, 11]
    memory = MemoryStore()
    obstore.put(memory, "a/b.parquet", (folder / "part-1.parquet").read_bytes())
    assert ids("a/b.parquet", filesystem=memory) == ids("a", filesystem=memory) == [10, 11]
    with pytest.raises(BadArgument, match="an obstore store"):
        cp.open("a", filesystem=3)


@pytest.mark.parametrize("magic", [b"ORC", b"Obj\x01", b"PK\x03\x04", b"\x89HDF\r\n\x1a\n", b"SQLite format 3\x00"])
def test_formats_that_need_a_local_file_name_it(tmp_path, magic):
    (tmp_path / "rows").write_bytes(magic + bytes(100))
    with pytest.raises(BadArgument, match=r"rows must be a local file, since it has the .* format; copy it first"):
        cp.open("rows", filesystem=LocalStore(tmp_path))


def test_fsspec(folder):
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    for path in folder.glob("part-*"):
        system.pipe_file(f"/corgi/{path.name}", path.read_bytes())
    whole = [0, 1, 10, 11, 20, 21]
    assert ids("memory://corgi/part-*.parquet") == ids("memory://corgi/") == whole
    assert ids("/corgi", filesystem=system) == whole
    assert ids(fsspec.open("memory://corgi/part-1.parquet")) == [10, 11]
    assert ids(fsspec.open_files("memory://corgi/part-*.parquet")) == whole
    with pytest.raises(MissingFile):
        cp.open("memory://corgi/nothing.parquet")
    with pytest.raises(BadArgument, match="gopher:// is not supported"):
        cp.open("gopher://a/b.parquet")
    system.rm("/corgi", recursive=True)


def test_damage(bucket):
    FORMATS["a.parquet"](bucket / "a.parquet")
    data = (bucket / "a.parquet").read_bytes()
    (bucket / "cut.parquet").write_bytes(data[:-100])
    (bucket / "spoilt.parquet").write_bytes(data[:2000] + bytes(3000) + data[5000:])
    (bucket / "empty.parquet").write_bytes(b"")
    with pytest.raises(CorruptFile, match=r"s3://bucket/cut\.parquet"):
        cp.open("s3://bucket/cut.parquet")
    with pytest.raises(UnknownFormat, match=r"s3://bucket/empty\.parquet"):
        cp.open("s3://bucket/empty.parquet")
    table = cp.open("s3://bucket/spoilt.parquet")
    with pytest.raises(CorruptFile, match=r"s3://bucket/spoilt\.parquet"):
        table.read(0, ROWS)


def test_an_object_that_changes_is_an_error_and_never_mixed_rows(bucket):
    for name in ("a.arrow", "a.parquet", "a.csv"):
        FORMATS[name](bucket / name)
        table = cp.open(f"s3://bucket/{name}")
        (bucket / name).write_bytes((bucket / name).read_bytes()[::-1])
        with pytest.raises(CorruptFile, match="changed or replaced"):
            table.read(0, ROWS)


def test_compressed_text_opens_and_damage_is_an_error(bucket):
    (bucket / "a.csv.gz").write_bytes(gzip.compress(b"x,label\n0.5,1\n1.5,0\n"))
    assert cp.open("s3://bucket/a.csv.gz").read(0, 2).to_pylist() == [{"x": 0.5, "label": 1}, {"x": 1.5, "label": 0}]
    (bucket / "b.csv.gz").write_bytes(b"\x1f\x8b" + bytes(20))
    with pytest.raises(CorruptFile, match=r"b\.csv\.gz"):
        cp.open("s3://bucket/b.csv.gz")
    (bucket / "a.npy.gz").write_bytes(b"\x1f\x8b" + bytes(20))
    with pytest.raises(UnknownFormat, match="compressed"):
        cp.open("s3://bucket/a.npy.gz")


def test_commands_convert_and_outputs(bucket, tmp_path):
    FORMATS["a.parquet"](bucket / "a.parquet")
    cp.convert("s3://bucket/a.parquet", tmp_path / "out.arrow")
    assert cp.open(tmp_path / "out.arrow").read(0, ROWS).column("label").equals(TABLE.column("label").combine_chunks())
    with pytest.raises(BadArgument, match="only local files are written"):
        cp.convert("s3://bucket/a.parquet", "s3://bucket/out.arrow")


def test_small_reads_share_requests(objects, bucket):
    (bucket / "a").write_bytes(RANDOM.bytes(400_000))
    file = file_of(RemotePath("s3://bucket/a"))
    assert isinstance(file, RemoteFile)
    objects.log()
    parts = [file.read(at, 7) for at in range(1000, 9000, 100)]
    assert len(objects.log()) == 1
    assert b"".join(parts) == b"".join((bucket / "a").read_bytes()[at : at + 7] for at in range(1000, 9000, 100))
    scanned, found = file.scanned(), io.BytesIO()
    for at in range(0, 400_000, 50_000):
        found.write(scanned.read(at, 50_000))
    assert found.getvalue() == (bucket / "a").read_bytes()
    assert len(objects.log()) == 1
    objects.set(status=403, code="AccessDenied")
    with pytest.raises(ReadFailed, match="AWS_ACCESS_KEY_ID"):
        file.read(200_000, 7)


def test_a_list_is_asked_for_again(objects, folder):
    objects.set(status=503, code="SlowDown", spared=0)
    threading.Timer(0.3, objects.set, kwargs={"status": 0}).start()
    assert ids("s3://bucket/data/part-*.parquet") == [0, 1, 10, 11, 20, 21]
