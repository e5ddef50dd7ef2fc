"""What `convert` writes besides Arrow, read by each format's own package; what it refuses; and when files appear."""

import gc
import json
import signal
import subprocess
import sys
import tarfile
import time
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tfrecords
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import PATIENCE

import corgipile as cp
from corgipile import cli
from corgipile.conversion.writers.tfrecord import varints
from corgipile.errors import BadArgument, BadSchema, BadValue, MissingFile, WouldOverwrite, WriteFailed

ROWS = 60
TABLE = pa.table(
    {
        "x": pa.array(np.arange(ROWS) / 8, pa.float32()),
        "features": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(3.0 * ROWS).astype(np.float32)), 3),
        "label": np.arange(ROWS) - 7,
        "text": [f"né {k}" for k in range(ROWS)],
        "image": [bytes([k]) * k for k in range(ROWS)],
        "ids": [list(range(1 + k % 4)) for k in range(ROWS)],
        "truth": np.arange(ROWS) % 3 == 0,
    }
)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_parquet_has_small_row_groups_and_a_page_index(tmp_path, rows_of_all_types):
    assert cp.convert(rows_of_all_types, tmp_path / "a.parquet") == rows_of_all_types.num_rows
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == rows_of_all_types.to_pylist()
    many = pa.table({"x": np.arange(1_000_000.0), "label": np.zeros(1_000_000, np.int8)})
    cp.convert(many, tmp_path / "b.parquet")
    facts = pq.ParquetFile(tmp_path / "b.parquet").metadata
    assert 4 <= facts.num_row_groups <= 6
    assert facts.row_group(0).column(0).has_offset_index
    assert facts.row_group(0).column(0).compression == "ZSTD"
    assert cp.open(tmp_path / "b.parquet").units(["x", "label"]).nbytes <= 2 << 20
    cp.convert(many, tmp_path / "b.parquet", record_batch=400_000, compression="snappy")  # ours: replaced
    facts = pq.ParquetFile(tmp_path / "b.parquet").metadata
    assert [facts.row_group(i).num_rows for i in range(3)] == [400_000, 400_000, 200_000]


@pytest.fixture
def rows_of_all_types():
    from columns import make_rows  # noqa: PLC0415

    return make_rows(50, nulls=True)


def test_tfrecord_has_the_bytes_that_others_write(tmp_path):
    assert cp.convert(TABLE, tmp_path / "a.tfrecord") == ROWS
    kinds = {"x": 2, "features": 2, "label": 3, "text": 1, "image": 1, "ids": 3, "truth": 3}
    records = []
    for row in TABLE.to_pylist():
        values = {name: one if isinstance(one, list) else [one] for name, one in row.items()}
        values["text"] = [row["text"].encode()]
        records.append(tfrecords.example({name: (kinds[name], values[name]) for name in kinds}))
    tfrecords.write(tmp_path / "b", records)
    assert (tmp_path / "a.tfrecord").read_bytes() == (tmp_path / "b").read_bytes()
    table = cp.open(tmp_path / "a.tfrecord")
    back = table.read(0, ROWS, ["features", "label", "ids", "image"]).to_pylist()
    assert back == TABLE.select(["features", "label", "ids", "image"]).to_pylist()
    assert cp.convert(cp.open(tmp_path / "a.tfrecord", decode=False), tmp_path / "c.tfrecord") == ROWS
    assert (tmp_path / "a.tfrecord").read_bytes() == (tmp_path / "c.tfrecord").read_bytes()  # records as they are


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_varints_are_those_of_protobuf(values):
    data, ends = varints(np.array(values, np.int64))
    assert [data[low:high] for low, high in pairwise(ends)] == list(map(tfrecords.varint, values))


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the package leaves files to the collector
def test_webdataset_is_decoded_by_the_package(tmp_path):
    wds = pytest.importorskip("webdataset")
    for out in (tmp_path / "a-%03d.tar", tmp_path / "shards"):
        assert cp.convert(TABLE, out, to="webdataset", shard_size="100KB") == ROWS
    assert len(names_in(tmp_path / "shards")) > 3
    paths = sorted((tmp_path / "shards").iterdir())
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in sorted(tmp_path.glob("a-*.tar"))]
    assert all(path.stat().st_size <= 110_000 for path in paths)
    theirs = list(wds.WebDataset(list(map(str, paths)), shardshuffle=False).decode())
    gc.collect()
    assert [row["__key__"] for row in theirs] == [f"{k:09}" for k in range(ROWS)]
    for row, written in zip(theirs, TABLE.to_pylist(), strict=True):
        assert row["features.npy"].tolist() == written["features"]
        assert row["ids.npy"].tolist() == written["ids"]
        found = [row["x.json"], int(row["label"]), *(row[name] for name in ("text", "image", "truth.json"))]
        assert found == [written[name] for name in ("x", "label", "text", "image", "truth")]
    ours = cp.open(tmp_path / "shards")
    assert (
        ours.read(0, ROWS, ["label", "text", "image"]).to_pylist()
        == TABLE.select(["label", "text", "image"]).to_pylist()
    )


def test_webdataset_keeps_keys_and_leaves_nulls_out(tmp_path):
    rows = pa.table({"__key__": ["a/0", "a/1", "b"], "jpg": [b"1", None, b""], "age": [1, 2, None]})
    cp.convert(rows, tmp_path / "a.tar")
    with tarfile.open(tmp_path / "a.tar") as archive:
        assert archive.getnames() == ["a/0.jpg", "a/0.age.cls", "a/1.age.cls", "b.jpg"]
    assert cp.open(tmp_path / "a.tar", paths=True).read(0, 3).to_pylist() == [
        {"jpg": row["jpg"], "age.cls": row["age"], "__key__": row["__key__"]} for row in rows.to_pylist()
    ]
    cp.convert(rows, tmp_path / "a.tar")  # ours: replaced
    for keys, says in (
        (["a", "a", "b"], "differ from the row before"),
        (["a.b", "c", "d"], "without a dot"),
        ([None] * 3, "None"),
    ):
        with pytest.raises(BadValue, match=says):
            cp.convert(rows.set_column(0, "__key__", pa.array(keys, pa.string())), tmp_path / "a.tar")
    with pytest.raises(BadValue, match="row 1 must have a value for WebDataset"):
        cp.convert(rows.select(["__key__", "jpg"]), tmp_path / "a.tar")


@pytest.mark.parametrize("out", ["a.tfrecord", "a.tar", "a.parquet", "m"])
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_rows_come_back(tmp_path_factory, out, data):
    folder = tmp_path_factory.mktemp("law")
    rows = data.draw(
        st.lists(st.tuples(st.binary(max_size=9), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=9)
    )
    table = pa.table({"jpg": pa.array([a for a, _ in rows], pa.binary()), "label": pa.array([b for _, b in rows])})
    if out == "a.tar" and any(abs(b) >= 10**18 for _, b in rows):
        return  # the reader leaves such digits text
    cp.convert(table, folder / out, to="mds" if out == "m" else None)
    assert cp.open(folder / out).read(0, len(rows), ["jpg", "label"]).to_pylist() == table.to_pylist()


NESTED = pa.array([[[1]]] * 2)
REFUSED = [
    ("tfrecord", NESTED, "'bad' is list"),
    ("tfrecord", pa.array([{"a": 1}] * 2), "'bad' is struct"),
    ("tfrecord", pa.array([0, 1], pa.timestamp("s")), r"'bad' is timestamp\[s\]"),
    ("webdataset", NESTED, "'bad' is list"),
    ("webdataset", pa.array([["a"]] * 2), "'bad' is list"),
    ("webdataset", pa.array([0, 1], pa.date32()), "'bad' is date32"),
    ("mds", pa.array([0, 1], pa.timestamp("s")), r"'bad' is timestamp\[s\]"),
    ("mds", pa.array([[b"a"]] * 2), "'bad' is list"),
    ("parquet", pa.array([{}] * 2, pa.struct([])), "'bad' is struct"),
    ("parquet", pa.array([(1, 2, 3)] * 2, pa.month_day_nano_interval()), "'bad' is month_day_nano"),
]


@pytest.mark.parametrize(("to", "column", "says"), REFUSED)
def test_a_column_without_a_place_is_refused_before_rows_are_read(tmp_path, to, column, says):
    read = []

    def batches():
        read.append(1)
        yield pa.record_batch({"good": [1, 2], "bad": column})

    reader = pa.RecordBatchReader.from_batches(pa.schema([("good", pa.int64()), ("bad", column.type)]), batches())
    with pytest.raises(BadSchema, match=f"{says}.*cannot hold"):
        cp.convert(reader, tmp_path / "out", to=to)
    assert names_in(tmp_path) == []
    assert cp.convert(pa.table({"good": [1, 2], "bad": column}), tmp_path / "out", to=to, columns=["good"]) == 2


@pytest.mark.parametrize(
    ("to", "column", "says"),
    [
        ("tfrecord", [1, None], "'bad', row 31 must have no nulls"),
        ("tfrecord", [[1], [2, None]], "'bad', row 31 must have no nulls"),
        ("tfrecord", [0.5, 0.1], "0.1 must be a 32-bit float"),
        ("tfrecord", pa.array([1, 2**63], pa.uint64()), "signed 64-bit integers, got 9223372036854775808"),
        ("mds", ["a", None], "'bad', row 31 must have no nulls"),
        ("mds", [[1], []], "'bad', row 31 is an empty list"),
        ("webdataset", [[1], [2, None]], "hold no nulls"),
    ],
)
def test_a_value_without_a_place_is_refused_and_nothing_appears(tmp_path, to, column, says):
    rows = pa.table({"bad": pa.concat_arrays([pa.array(column).slice(0, 1)] * 30 + [pa.array(column)])})
    with pytest.raises(BadValue, match=says):
        cp.convert(rows, tmp_path / "out", to=to)
    assert names_in(tmp_path) == []


def test_tables_without_rows(tmp_path):
    none = TABLE.slice(0, 0)
    for to in ("parquet", "mds", "tfrecord"):
        assert cp.convert(none, tmp_path / f"a.{to}", to=to) == 0
        assert len(cp.open(tmp_path / f"a.{to}")) == 0
    with pytest.raises(BadValue, match="WebDataset needs rows"):
        cp.convert(none, tmp_path / "a.tar")
    assert {"a.mds", "a.parquet", "a.tfrecord"} <= set(names_in(tmp_path))


def test_names_that_an_archive_cannot_have(tmp_path):
    for names, says in (
        (["a/b"], "'a/b' cannot be"),
        ([".x"], "cannot be"),
        (["A", "a"], "'A' and 'a' have the same ending"),
    ):
        with pytest.raises(BadSchema, match=says):
            cp.convert(pa.table([pa.array([b"1"])] * len(names), names=names), tmp_path / "a.tar")


def test_what_is_said_wrongly(tmp_path):
    for out, options, says in (
        ("a", {"to": "mdss"}, "did you mean mds"),
        ("a.parquet", {"to": "arrow"}, "must not end like parquet"),
        ("a.arrow", {"to": "parquet"}, "must not end like arrow"),
        ("a.arrow", {"shard_size": "1MB"}, "one Arrow file"),
        ("a.tar", {"shard_size": "1MB"}, "rows-%06d.tar are many"),
        ("a.tar", {"compression": "zstd"}, "got 'zstd'"),
        ("a.tar", {"record_batch": 5}, "no row groups"),
        ("a-%d-%d.tar", {}, "at most one file number"),
        ("m-%d", {"to": "mds"}, "name a folder"),
        ("m", {"to": "mds", "shard_size": "5GB"}, "bytes for MDS"),
        ("a.parquet", {"record_batch": 0}, "at least 1"),
        ("s3://bucket/a.parquet", {}, "is a URL"),
    ):
        with pytest.raises(BadArgument, match=says):
            cp.convert(TABLE, out if "//" in out else tmp_path / out, **options)
    assert names_in(tmp_path) == []


def test_shards_are_replaced_together_or_not_at_all(tmp_path):
    small = TABLE.slice(0, 5)
    for out, to, size in ((tmp_path / "m", "mds", "700B"), (tmp_path / "w/%d.tar", "webdataset", "20KB")):
        (tmp_path / "w").mkdir(exist_ok=True)
        cp.convert(TABLE, out, to=to, shard_size=size)
        folder = out if to == "mds" else out.parent
        before = {path: path.read_bytes() for path in folder.iterdir()}
        with pytest.raises(WouldOverwrite, match="--overwrite"):
            cp.convert(small, out, to=to)
        with pytest.raises(BadValue):
            cp.convert(pa.table({"x": [[1], [None]]}), out, to=to, overwrite=True)
        with pytest.raises(WouldOverwrite):
            cp.convert(folder if to == "mds" else str(folder / "*.tar"), out, to=to, overwrite=True)
        assert {path: path.read_bytes() for path in folder.iterdir()} == before
        cp.convert(small, out, to=to, overwrite=True)
        assert len(cp.open(folder)) == 5  # none of the old ones is left
        assert names_in(tmp_path) in (["m", "w"], ["m", "w"])


def test_a_folder_with_something_else_is_not_replaced(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "notes.txt").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(WouldOverwrite, match=r"notes\.txt lies in the folder"):
            cp.convert(TABLE, tmp_path / "m", to="mds", overwrite=overwrite)
    with pytest.raises(WriteFailed, match="it is a file"):
        cp.convert(TABLE, tmp_path / "m" / "notes.txt", to="mds", overwrite=True)
    with pytest.raises(WriteFailed, match="there is no folder"):
        cp.convert(TABLE, tmp_path / "no" / "m", to="mds")
    (tmp_path / "empty").mkdir()
    assert cp.convert(TABLE, tmp_path / "empty", to="mds") == ROWS


def test_from_the_command_line(tmp_path, capsys):
    cp.convert(TABLE, tmp_path / "a.arrow")
    words = ["convert", str(tmp_path / "a.arrow")]
    assert cli.main([*words, str(tmp_path / "m"), "--to", "mds", "--shard-size", "1KB", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == ROWS
    assert cli.main([*words, str(tmp_path / "p-%02d.parquet"), "--shard-size", "1KB", "--record-batch", "10"]) == 0
    assert len(cp.open(str(tmp_path / "p-*.parquet"))) == ROWS
    assert cli.main([*words, str(tmp_path / "x"), "--to", "hdf5"]) == 2
    assert "one of 'arrow', 'mds'" in capsys.readouterr().err


@pytest.mark.parametrize("to", ["mds", "webdataset"])
def test_a_stopped_command_leaves_nothing(tmp_path, to):
    cp.convert(pa.table({"image": [bytes(3000)] * 5_000}), tmp_path / "a.arrow")
    sources = [str(tmp_path / "a.arrow")] * 200  # so many that it does not end before
    words = [sys.executable, "-m", "corgipile.cli", "convert", *sources, str(tmp_path / "out"), "--to", to]
    running = subprocess.Popen(words, stderr=subprocess.PIPE)
    while not any(name.startswith(".out") for name in names_in(tmp_path)) and running.poll() is None:
        time.sleep(0.02)
    running.send_signal(signal.SIGTERM)
    _, told = running.communicate(timeout=PATIENCE)
    assert running.returncode == 143, told
    assert names_in(tmp_path) == ["a.arrow"]


FULL = """
import resource, signal, sys
import pyarrow as pa
import corgipile as cp
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
rows = pa.table({"x": [bytes(k % 256 for k in range(n, n + 1000)) for n in range(500)]})
for to, codec in (("parquet", "none"), ("mds", None), ("webdataset", None), ("tfrecord", None)):
    try:
        cp.convert(rows, sys.argv[1], to=to, compression=codec)
    except cp.errors.WriteFailed as error:
        print(to)
"""


def test_a_disk_without_room_is_said(tmp_path):
    words = [sys.executable, "-c", FULL, str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["parquet", "mds", "webdataset", "tfrecord"], done.stderr
    assert names_in(tmp_path) == []


def test_missing_sources_are_said_first(tmp_path):
    with pytest.raises(MissingFile):
        cp.convert(tmp_path / "no.csv", tmp_path / "m", to="mds")
    assert names_in(tmp_path) == []
