"""TFRecord tables against a test writer that encodes frames, CRCs and messages bit by bit."""

import gzip
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tfrecords import crc32c, example, field, frame, fresh, names_in, numbered, rows_of, text_index, varint, write

from corgipile import Loader, _kernel, convert
from corgipile.conversion import records as streamed
from corgipile.errors import (
    BadArgument,
    BadSchema,
    CorruptFile,
    RaggedRows,
    UnknownFormat,
)
from corgipile.tables import open as open_table
from corgipile.tables.formats.tfrecord import index as recordindex
from corgipile.tables.formats.tfrecord.table import TFRecordTable
from corgipile.tables.io.files import File


@given(records=st.lists(st.binary(max_size=60), max_size=20), text=st.booleans(), seed=st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_records_as_bytes(folder, laws, records, text, seed):
    path = write(folder / "law.tfrecord", records)
    fresh(path)
    path.with_name("law.tfrecord.idx").unlink(missing_ok=True)
    if text:
        text_index(path, records)
    table = TFRecordTable(path, decode=False)
    laws(table, pa.table({"record": pa.array(records, pa.binary())}), np.random.default_rng(seed))
    assert table.nbytes == path.stat().st_size


COLUMN = {
    1: (pa.binary(), st.binary(max_size=9)),
    2: (pa.float32(), st.floats(width=32, allow_nan=False)),
    3: (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
}


@st.composite
def tables(draw):
    """Draw columns of all types and shapes: type, values of each row, code."""
    rows = draw(st.integers(1, 12))
    columns = {}
    for name in draw(st.lists(st.text("aé\n語 _", max_size=4), min_size=1, max_size=4, unique=True)):
        kind, shape = draw(st.sampled_from([1, 2, 3])), draw(st.sampled_from([1, 2, 5, None]))
        value, values = COLUMN[kind]
        room = st.lists(values, min_size=shape or 0, max_size=shape or 4)
        found = [draw(room) for _ in range(rows)]
        columns[name] = (value if shape == 1 else pa.list_(value, shape or -1), found, kind)
    return rows, columns


@given(drawn=tables(), packed=st.booleans(), seed=st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_examples_agree_with_what_was_written(folder, laws, drawn, packed, seed):
    rows, columns = drawn
    records = []
    for i in range(rows):
        names = random.Random(seed + i).sample(list(columns), len(columns))  # noqa: S311
        records.append(example({name: (columns[name][2], columns[name][1][i]) for name in names}, packed))
    path = write(folder / "examples.tfrecord", records)
    fresh(path)
    expected = pa.table(
        {
            name: pa.array(values if pa.types.is_nested(kind) else [value for (value,) in values], kind)
            for name, (kind, values, _) in columns.items()
        }
    )
    table = TFRecordTable(path, features={name: kind for name, (kind, _, _) in columns.items()})
    laws(table, expected, np.random.default_rng(seed))
    assert table.layout(table.schema.names[:1]) is None


def test_columns_are_found(tmp_path, manners):
    table = TFRecordTable(write(tmp_path / "a.tfrecord", numbered(300)))
    assert table.schema == pa.schema(
        [("ids", pa.list_(pa.int64())), ("label", pa.int64()), ("name", pa.binary()), ("x", pa.list_(pa.float32(), 2))]
    )
    assert table.read(0, 300).to_pylist() == rows_of(range(300))
    manners(table)
    assert table.cuts(100).tolist() == [0, 100, 200, 300]
    with Loader(table, batch_size=32, seed=3, columns=["label", "x", "name"]) as loader:
        batches = list(loader)
    assert sorted(label for batch in batches for label in batch["label"]) == list(range(300))
    assert all((batch["x"][:, 0] == batch["label"] + 0.5).all() for batch in batches)
    assert batches[0]["name"].tolist() == [b"%d" % i for i in batches[0]["label"]]


def test_few_columns_of_many_rows_take_little_memory(tmp_path, monkeypatch):
    table = TFRecordTable(write(tmp_path / "a.tfrecord", numbered(300)))
    monkeypatch.setattr("corgipile.tables.formats.tfrecord.table.MAX_RUN_BYTES", 1000)
    reads = []
    read = File.read
    monkeypatch.setattr(File, "read", lambda file, at, size: reads.append(size) or read(file, at, size))
    assert table.read(0, 300, ["label"]).to_pydict() == {"label": list(range(300))}
    assert max(reads) < 2000


def test_features_can_be_told(tmp_path):
    path = write(tmp_path / "a.tfrecord", numbered(5))
    assert TFRecordTable(path, features=["x", "label"]).schema.names == ["x", "label"]
    told = TFRecordTable(path, features={"x": "float", "label": None, "ids": pa.list_(pa.int64())})
    assert told.schema.types == [pa.list_(pa.float32(), 2), pa.int64(), pa.list_(pa.int64())]
    assert TFRecordTable(path, features={"x": pa.list_(pa.float32())}).read(4, 5).to_pylist() == [{"x": [4.5, -4]}]
    assert open_table(path, decode=False).schema.names == ["record"]
    assert open_table(path, features=["label"]).read(0, 5).to_pydict() == {"label": list(range(5))}
    for given_features, message in [
        ("x", "to types, got 'x'"),
        ([], "at least one"),
        ({"x": "floats"}, "feature 'x' must be 'byte', 'float', 'int', or int64"),
        ({"x": pa.int8()}, "feature 'x' must be .*, got DataType"),
    ]:
        with pytest.raises(BadArgument, match=message):
            TFRecordTable(path, features=given_features)
    with pytest.raises(BadSchema, match=r"record 0 at byte 0: feature 'x' must hold int values, got float"):
        TFRecordTable(path, features={"x": "int"})
    with pytest.raises(BadArgument, match="decode must be"):
        TFRecordTable(path, features=["x"], decode=False)
    with pytest.raises(BadArgument, match=r'on_bad must be "raise" or "skip", got \'drop\''):
        TFRecordTable(path, on_bad="drop")


def test_shards_share_their_columns(tmp_path):
    for shard, counts in enumerate([(2, 2), (3, 3), ()]):
        records = [example({"x": (2, [1.0] * count), "label": (3, [7])}) for count in counts]
        write(tmp_path / f"train.tfrecord-{shard:05}-of-00003", records)
    table = open_table(tmp_path)
    assert table.schema.field("x").type == pa.list_(pa.float32())
    assert table.read(0, 4).column("x").to_pylist() == [[1.0] * 2] * 2 + [[1.0] * 3] * 2
    write(tmp_path / "train.tfrecord-00001-of-00003", [example({"x": (2, [1.0, 1.0])})])
    with pytest.raises(BadSchema, match=r"lacks|has no column"):
        open_table(tmp_path)


def test_format_is_told(tmp_path):
    assert isinstance(open_table(write(tmp_path / "a.data", [b"x"])), TFRecordTable)
    with pytest.raises(UnknownFormat, match="of no known format"):
        (tmp_path / "b.data").write_bytes(bytes(40)) and open_table(tmp_path / "b.data")
    for data in (bytes(40), b"hello world, this is text and no record"):
        (tmp_path / "b.tfrecord").write_bytes(data)
        fresh(tmp_path / "b.tfrecord")
        for _ in range(2):
            with pytest.raises(UnknownFormat, match=r"b.tfrecord is not a TFRecord file: it begins with b'.* no rec"):
                open_table(tmp_path / "b.tfrecord")
    (tmp_path / "b.tfrecord").write_bytes(b"damaged" + frame(b"x"))
    with pytest.raises(CorruptFile, match="record 0 at byte 0: the CRC of the length is wrong"):
        open_table(tmp_path / "b.tfrecord")
    (tmp_path / "c.tfrecord").write_bytes(gzip.compress(frame(b"x")))
    with pytest.raises(UnknownFormat, match=r"compressed \(gzip\).*corgipile convert"):
        open_table(tmp_path / "c.tfrecord")


def test_compressed_files_are_converted(tmp_path, monkeypatch):
    records, out = numbered(300), tmp_path / "out.arrow"
    for chunk in (1 << 22, 50):
        monkeypatch.setattr(streamed, "CHUNK", chunk)
        (tmp_path / "a.tfrecord.gz").write_bytes(gzip.compress(b"".join(map(frame, records))))
        assert convert(tmp_path / "a.tfrecord.gz", out) == 300
        assert open_table(out).read(0, 300).to_pylist() == rows_of(range(300))
    assert names_in(tmp_path) == ["a.tfrecord.gz", "out.arrow"]
    (tmp_path / "b.gz").write_bytes(gzip.compress(frame(bytes(65536)) + frame(b"two")))
    assert convert(tmp_path / "b.gz", out) == 2
    assert open_table(out).read(1, 2).to_pydict() == {"record": [b"two"]}
    assert convert(write(tmp_path / "c.tfrecord", records), out) == 300
    bad = example({"ids": (3, []), "label": (3, []), "name": (1, [b""]), "x": (2, [1, 2])})
    for data, error, message in [
        (b"".join(map(frame, records))[:-3], CorruptFile, "record 299: the file is truncated within the record"),
        (frame(records[0]) + frame(records[1])[:-1] + b"x", CorruptFile, "record 1: the CRC of the data is wrong"),
        (
            b"".join(map(frame, [*records, *records * 20, bad])),
            RaggedRows,
            "record 6300: feature 'label' must have 1 values, got 0",
        ),
    ]:
        (tmp_path / "d.gz").write_bytes(gzip.compress(data, 1))
        monkeypatch.setattr(streamed, "CHUNK", 1 << 16)
        with pytest.raises(error, match=message):
            convert(tmp_path / "d.gz", out)


def test_no_record_one_record_and_empty_records(tmp_path, laws):
    table = open_table(write(tmp_path / "a.tfrecord", []))
    laws(table, pa.table({"record": pa.array([], pa.binary())}), np.random.default_rng(0))
    assert TFRecordTable(tmp_path / "a.tfrecord", features={"x": "int"}).schema.types == [pa.list_(pa.int64())]
    table = open_table(write(tmp_path / "b.tfrecord", numbered(1)))
    assert table.read(0, 1).to_pylist() == [{"ids": [], "label": 0, "name": b"0", "x": [0.5, 0]}]
    assert open_table(write(tmp_path / "c.tfrecord", [b"", b""])).read(0, 2).to_pydict() == {"record": [b"", b""]}


def test_records_longer_than_a_chunk(tmp_path, monkeypatch):
    monkeypatch.setattr(recordindex, "CHUNK", 64)
    records = [bytes([i]) * (i * 37 % 500) for i in range(60)]
    table = TFRecordTable(write(tmp_path / "a.tfrecord", records), decode=False)
    assert table.read(0, 60).column(0).to_pylist() == records


def test_messages_are_read_as_protobuf_says(tmp_path):
    """Unknown fields, duplicate entries, messages in parts, and numbers of ten bytes are decoded."""
    entry = field(1, b"x") + field(2, field(3, field(1, varint(-5))))
    parts = field(1, field(1, entry)) + field(1, field(1, field(1, b"y") + field(2, field(2, b"")))) + b"\x38\x05"
    twice = field(1, field(1, field(1, b"x") + field(2, field(3, field(1, b"\x01"))))) + parts
    split = field(1, field(1, field(1, b"x") + field(2, field(3, b"\x08\x07") + field(3, field(1, b"\x08\x09")))))
    table = TFRecordTable(
        write(tmp_path / "a.tfrecord", [parts, twice, split + parts[len(field(1, field(1, entry))) :]])
    )
    assert table.read(0, 2).to_pydict() == {"x": [[-5], [-5]], "y": [[], []]}
    assert table.read(2, 3).to_pydict() == {"x": [[7, 8, 9]], "y": [[]]}


@pytest.mark.parametrize("decode", [True, False])
@pytest.mark.parametrize("skip", ["raise", "skip"])
def test_damaged_files_never_crash(folder, damage, survives, monkeypatch, decode, skip):
    data = b"".join(map(frame, numbered(12)))
    place = folder / f"broken-{decode}-{skip}"
    place.mkdir(exist_ok=True)

    @given(broken=damage(data))
    @settings(max_examples=150, deadline=None, derandomize=True)
    def check(broken):
        for path in place.glob("*.corgipile*"):
            path.unlink()
        survives(place / "a.tfrecord", broken, "tfrecord", decode=decode, on_bad=skip)

    check()


def test_damaged_messages_never_crash(folder, damage, survives):
    """Damaged messages in valid frames reach the decoder."""
    good = numbered(3)

    @given(broken=st.lists(damage(good[2]), min_size=1, max_size=3))
    @settings(max_examples=200, deadline=None, derandomize=True)
    def check(broken):
        for path in folder.glob("messages*.corgipile*"):
            path.unlink()
        survives(folder / "messages.tfrecord", b"".join(map(frame, [*good, *broken])), "tfrecord", decode=True)

    check()


@given(data=st.binary(max_size=100))
def test_crc_is_that_of_the_reference(data):
    assert _kernel.crc32c(data) == crc32c(data)


def test_feature_lists_are_refused(tmp_path):
    lists = field(2, field(1, field(1, b"s") + field(2, field(1, b""))))
    context = [example({"a": (3, [k])}) for k in range(3)]
    for number, records in enumerate(([one + lists for one in context], [lists])):
        path = write(tmp_path / f"{number}.tfrecord", records)
        with pytest.raises(BadSchema, match=r"record 0.*is a tensorflow.SequenceExample"):
            open_table(path)
        assert len(open_table(path, decode=False)) == len(records)
    late = open_table(write(tmp_path / "b.tfrecord", [*context * 300, context[0] + lists, *context * 400]))
    with pytest.raises(CorruptFile, match=r"record 900 .*not a tensorflow.Example"):
        late.read(0, len(late))
