import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgipile.errors import BadSchema, CorruptFile, MissingFile, UnknownFormat
from corgipile.tables import ArrowFile
from corgipile.tables.encoded import unpack
from corgipile.tables.io.files import File

CODECS = [None, "lz4", "zstd"]


def write(path, rows, codec=None, batch=100, metadata=None):
    schema = rows.schema.with_metadata(metadata)
    with pa.ipc.new_file(path, schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(rows.cast(schema), max_chunksize=batch)
    return path


@given(
    seed=st.integers(0, 2**32),
    count=st.integers(0, 70),
    batch=st.integers(1, 40),
    codec=st.sampled_from(CODECS),
    nulls=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_agrees_with_rows_written(folder, laws, rows_of, seed, count, batch, codec, nulls):
    rows = rows_of(count, seed, nulls)
    laws(ArrowFile(write(folder / "law.arrow", rows, codec, batch)), rows, np.random.default_rng(seed))


@pytest.mark.parametrize("codec", CODECS)
def test_manners(tmp_path, manners, rows_of, codec):
    manners(ArrowFile(write(tmp_path / "a.arrow", rows_of(250, nulls=True), codec)))


def test_dictionary_columns(tmp_path, laws, manners):
    words = pa.array(["a", "b", None] * 30).dictionary_encode()
    rows = pa.table(
        {
            "word": words,
            "label": range(90),
        }
    )
    table = ArrowFile(write(tmp_path / "d.arrow", rows, batch=25))
    for seed in range(10):
        laws(table, rows, np.random.default_rng(seed))
    manners(table)


def test_view_columns(tmp_path, rows_of):
    views = pa.array(["x" * (i % 20) for i in range(90)], pa.string_view())
    table = ArrowFile(write(tmp_path / "v.arrow", pa.table({"view": views, "label": range(90)}), batch=25))
    assert table.read(20, 60, ["view"]).column(0).to_pylist() == views.to_pylist()[20:60]
    assert table.take(np.array([70, 3, 3])).to_pydict() == {
        "view": ["x" * 10, "x" * 3, "x" * 3],
        "label": [70, 3, 3],
    }
    assert table.layout(["view"]) is None
    assert table.layout(["label"]).columns["label"].starts.tolist() == [0, 25, 50, 75, 90]


def test_cuts_are_even_where_rows_can_be_read_apart(tmp_path, rows_of):
    rows = rows_of(250)
    assert ArrowFile(write(tmp_path / "a.arrow", rows)).cuts(60).tolist() == [0, 60, 120, 180, 240, 250]
    assert ArrowFile(write(tmp_path / "b.arrow", rows, "zstd")).cuts(60).tolist() == [0, 100, 200, 250]
    assert ArrowFile(write(tmp_path / "b.arrow", rows, "zstd")).cuts(190).tolist() == [0, 200, 250]


@given(count=st.integers(1, 80), batch=st.integers(1, 40))
@settings(max_examples=20, deadline=None)
def test_layout_names_the_bytes(folder, layout_law, rows_of, count, batch):
    table = ArrowFile(write(folder / "layout.arrow", rows_of(count, nulls=True), batch=batch))
    layout_law(table, ["label", "features", "half"])


def test_layout_of_nested_fixed_lists(tmp_path, layout_law):
    values = pa.array(np.arange(240, dtype=np.int16))
    images = pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(values, 4), 3)
    table = ArrowFile(write(tmp_path / "n.arrow", pa.table({"image": images}), batch=7))
    layout_law(table, ["image"])
    assert table.layout(["image"]).columns["image"].shape == (3, 4)


def test_layout_absent_where_rows_have_no_place(tmp_path, rows_of):
    plain = ArrowFile(write(tmp_path / "a.arrow", rows_of(50, nulls=True)))
    assert plain.layout(["label", "small"]) is None
    assert plain.layout(["flag"]) is None
    assert plain.layout(["text"]) is None
    assert ArrowFile(write(tmp_path / "b.arrow", rows_of(50), "lz4")).layout(["label"]) is None


def test_layout_of_compressed_batches_is_none_at_once(tmp_path, monkeypatch, rows_of):
    table = ArrowFile(write(tmp_path / "a.arrow", rows_of(250), "zstd"))
    monkeypatch.setattr(File, "gather", lambda *_: pytest.fail("no head is needed"))
    assert table.layout(["label"]) is None


def test_reads_only_the_bytes_of_the_rows(tmp_path, monkeypatch, rows_of):
    table = ArrowFile(write(tmp_path / "a.arrow", rows_of(5000), batch=5000))
    table.read(0, 1)
    reads = []
    read = File.read
    monkeypatch.setattr(File, "read", lambda file, at, size: reads.append(size) or read(file, at, size))
    table.read(3001, 3011, ["features"])
    assert reads == [10 * 3 * 4]
    reads.clear()
    table.read(3001, 3011)
    assert sum(reads) < 2500
    gather = File.gather
    monkeypatch.setattr(File, "gather", lambda file, at, sizes: reads.extend(sizes.tolist()) or gather(file, at, sizes))
    reads.clear()
    table.take(np.array([4000, 7]), ["label"])
    assert reads[-2:] == [8, 8]
    assert sum(reads[:-2]) < 2000  # heads of two record batches


def test_scattered_rows_are_asked_for_together(tmp_path, monkeypatch, rows_of):
    rows = rows_of(5000)
    table = ArrowFile(write(tmp_path / "a.arrow", rows, batch=100))
    names = ["features", "label", "text", "image", "features_k", "half"]
    wanted = np.random.default_rng(1).integers(0, 5000, 60)
    assert table.take(wanted, names).to_pylist() == rows.select(names).take(pa.array(wanted)).to_pylist()
    monkeypatch.setattr(File, "read", None)
    assert table.take(wanted, names).to_pylist() == rows.select(names).take(pa.array(wanted)).to_pylist()


def test_compressed_batches_are_kept_a_while(tmp_path, monkeypatch, rows_of):
    table = ArrowFile(write(tmp_path / "a.arrow", rows_of(300), "zstd"))
    decoded = []
    decode = ArrowFile._decode_now
    monkeypatch.setattr(ArrowFile, "_decode_now", lambda self, i, names: decoded.append(i) or decode(self, i, names))
    for start in range(0, 100, 10):
        table.read(start, start + 10, ["label"])
    assert decoded == [0]


@pytest.mark.parametrize("coded", [False, True])
def test_the_last_rows_are_decompressed_alone(tmp_path, coded):
    """A small last batch is read without reading the large ones, even if those are damaged."""
    rows = 1100
    data = pa.table({"x": np.random.default_rng(0).standard_normal(rows), "label": range(rows)})
    if coded:
        data = data.append_column("word", pa.array(["a", "b"] * (rows // 2)).dictionary_encode())
    path = write(tmp_path / "z.arrow", data, "zstd", batch=1000)
    content = bytearray(path.read_bytes())
    first = content.index(b"\x28\xb5\x2f\xfd", 0 if not coded else 2000)  # the magic number of zstd
    content[first : first + 64] = bytes(64)
    path.write_bytes(content)
    assert ArrowFile(path).read(1000, rows) == data.combine_chunks().to_batches()[0].slice(1000)
    with pytest.raises(CorruptFile):
        ArrowFile(path).read(0, 1000)


@pytest.mark.parametrize("codec", [None, "zstd"])
def test_many_files_keep_little_each(tmp_path, codec):
    """Files of one schema share its metadata, and that of their batches is small."""
    data = pa.table({f"x{i}": np.random.default_rng(i).standard_normal(40) for i in range(30)})
    for i in range(60):
        write(tmp_path / f"{i}.arrow", data, codec)
    names = data.schema.names
    ArrowFile(tmp_path / "0.arrow").layout(names)
    tracemalloc.start()
    try:
        tables = [ArrowFile(tmp_path / f"{i}.arrow") for i in range(60)]
        if codec:
            tables = [unpack(table, names, tmp_path) for table in tables]
        assert all(len(table) == 40 for table in tables)
        each = tracemalloc.get_traced_memory()[0] / 60
    finally:
        tracemalloc.stop()
    assert each < 12_000


def test_fingerprint_follows_the_file(tmp_path, rows_of):
    first = ArrowFile(write(tmp_path / "a.arrow", rows_of(30))).fingerprint
    assert ArrowFile(tmp_path / "a.arrow").fingerprint == first
    assert ArrowFile(write(tmp_path / "a.arrow", rows_of(31))).fingerprint != first


def test_stream_is_told_apart(tmp_path):
    path = tmp_path / "s.arrow"
    rows = pa.table({"label": [1]})
    with pa.ipc.new_stream(path, rows.schema) as writer:
        writer.write_table(rows)
    with pytest.raises(UnknownFormat, match=r"must begin with .* to be an Arrow IPC file"):
        ArrowFile(path)


def test_bad_files(tmp_path, rows_of):
    path = write(tmp_path / "a.arrow", rows_of(30))
    data = path.read_bytes()
    with pytest.raises(MissingFile, match=r"no file at .*nowhere"):
        ArrowFile(tmp_path / "nowhere")
    with pytest.raises(UnknownFormat, match="must be a file, got a directory"):
        ArrowFile(tmp_path)
    for broken, error, message in [
        (b"", UnknownFormat, r"must begin with b'ARROW1' to be an Arrow IPC file, but it is empty"),
        (b"hello" * 9, UnknownFormat, "begins with b'helloh'"),
        (data[:-20], CorruptFile, "is truncated: an Arrow IPC file must end with"),
        (data[:100], CorruptFile, "is truncated: an Arrow IPC file must end with"),
        (data[:-10] + b"\xff\xff\xff\x7fARROW1", CorruptFile, "the footer states 2147483647 bytes"),
        (data[:1000] + data[2000:], CorruptFile, "a.arrow"),
    ]:
        path.write_bytes(broken)
        with pytest.raises(error, match=message):
            ArrowFile(path).read(0, 30)


def test_truncation_after_opening(tmp_path, rows_of):
    path = write(tmp_path / "a.arrow", rows_of(3000), batch=1000)
    table = ArrowFile(path)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(CorruptFile, match="has 5000 bytes now; it had"):
        table.read(2000, 3000)


def test_equal_names(tmp_path):
    rows = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    with pytest.raises(BadSchema, match="2 columns named 'x'"):
        ArrowFile(write(tmp_path / "a.arrow", rows))


@pytest.mark.parametrize(("codec", "coded"), [(None, False), ("lz4", False), ("zstd", False), (None, True)])
def test_damaged_files_never_crash(folder, damage, survives, rows_of, codec, coded):
    rows = rows_of(40, nulls=True)
    if coded:
        rows = rows.append_column("word", pa.array(["a", "b"] * 20).dictionary_encode())
    data = write(folder / "whole.arrow", rows, codec, batch=15).read_bytes()

    @given(broken=damage(data))
    @settings(max_examples=200, deadline=None, derandomize=True)
    def check(broken):
        survives(folder / "broken.arrow", broken, "arrow")

    check()
