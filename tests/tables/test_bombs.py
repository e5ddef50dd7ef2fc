"""Small files that state or unpack to huge sizes, or nest deeply, are rejected within little memory."""

import bz2
import gzip
import json
import lzma
import os
import sqlite3
import struct
import types
import zipfile
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bombs import BESIDE, MEMORY, deflated, long, used
from pyarrow import orc

import corgipile as cp
from corgipile import sql
from corgipile.description import about
from corgipile.errors import BadArgument, BudgetTooSmall, CorgiPileError, UnknownFormat, WriteFailed
from corgipile.nesting import MAX_DEPTH, check_types, parse_json
from corgipile.resident import peaking
from corgipile.tables import decode_image
from corgipile.tables.formats.mds import images

ZEROS = bytes(64 << 20)
DEEP = "[" * 20_000 + "]" * 20_000
ZERO = b"\0"


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def avro(fields, codec, count, data):
    """Return an Avro file of one block; `fields` are pairs of name and type, or JSON."""
    pairs = json.dumps([{"name": name, "type": kind} for name, kind in fields]) if isinstance(fields, list) else fields
    schema = f'{{"type": "record", "name": "r", "fields": {pairs}}}'.encode()
    head = b"Obj\x01" + long(2)
    for part in (b"avro.schema", schema, b"avro.codec", codec.encode()):
        head += long(len(part)) + part
    return head + long(0) + bytes(16) + long(count) + long(len(data)) + data + bytes(16)


def avro_file(*words):
    return lambda folder: write(folder / "a.avro", avro(*words))


def nested(levels, around):
    kind = '"int"'
    for at in range(levels):
        kind = around.replace("%d", str(at)).replace("%s", kind)
    return f'[{{"name": "x", "type": {kind}}}]'


NAMED = [("a0", {"type": "record", "name": "R0", "fields": [{"name": "x", "type": "int"}]})]
TWICE = [
    {"type": "record", "name": f"R{i}", "fields": [{"name": name, "type": f"R{i - 1}"} for name in "lr"]}
    for i in range(1, 40)
]
CHAIN = [{"type": "record", "name": f"R{i}", "fields": [{"name": "l", "type": f"R{i - 1}"}]} for i in range(1, 2000)]
ARRAY = '{"type": "array", "items": %s}'
RECORD = '{"type": "record", "name": "r%d", "fields": [{"name": "f", "type": %s}]}'


def mds(codec, pack):
    def make(folder):
        data = pack(ZEROS)
        shard = {
            "column_encodings": ["int"], "column_names": ["label"], "column_sizes": [8], "compression": codec,
            "format": "mds", "samples": 10, "version": 2,
            "raw_data": {"basename": "s.mds", "bytes": 1000}, "zip_data": {"basename": "s.packed", "bytes": len(data)},
        }  # fmt: skip
        write(folder / "mds" / "s.packed", data)
        return write(folder / "mds" / "index.json", json.dumps({"version": 2, "shards": [shard]})).parent

    return make


def npz(name, dtype):
    def make(folder):
        members = {"indices": np.zeros(1, np.int32), "indptr": np.array([0, 1]), "data": np.ones(1)}
        members |= {"format": np.array(b"csr"), "shape": np.array([1, 2])}
        members[name] = np.frombuffer(ZEROS, dtype)
        with zipfile.ZipFile(folder / "a.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for key, array in members.items():
                with archive.open(f"{key}.npy", "w") as out:
                    np.lib.format.write_array(out, array)
        return folder / "a.npz"

    return make


def text(name, data, pack=bytes):
    return lambda folder: write(folder / name, pack(data))


def hdf5(**settings):
    def make(folder):
        h5py = pytest.importorskip("h5py")
        with h5py.File(folder / "a.h5", "w") as file:
            file.create_dataset("x", **settings)
        return folder / "a.h5"

    return make


def wide_hdf5(codec):
    """Return a maker of two rows in chunks of 256 MB."""

    def make(folder):
        h5py = pytest.importorskip("h5py")
        with h5py.File(folder / "a.h5", "w") as file:
            data = file.create_dataset("x", (2, 1), "u1", maxshape=(2, None), chunks=(1, 1 << 28), compression=codec)
            packed = zlib.compress(ZEROS * 4, 1) if codec == "gzip" else bytes(8)
            data.id.write_direct_chunk((0, 0), packed)
        return folder / "a.h5"

    return make


def zarr_rows(folder):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(folder / "z.zarr", mode="w")
    group.create_array("x", shape=(1 << 50,), chunks=(1 << 20,), dtype="f8")
    return folder / "z.zarr"


def orc_levels(folder):
    kind = pa.int64()
    for _ in range(MAX_DEPTH + 72):
        kind = pa.list_(kind)
    orc.write_table(pa.table({"x": pa.nulls(2, kind)}), folder / "a.orc")
    return folder / "a.orc"


def saved(name, data):
    return lambda folder: write(folder / "saved" / name, data).parent


def arrow(rows, codec="zstd", forge=None):
    """Return a maker of an Arrow file; `forge` replaces the stated size of its first buffer of given bytes."""

    def make(folder):
        batch = rows()
        path = folder / "a.arrow"
        with pa.ipc.new_file(path, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as file:
            file.write_batch(batch)
        if forge is not None:
            magic = {"zstd": b"\x28\xb5\x2f\xfd", "lz4": b"\x04\x22\x4d\x18"}[codec]
            stated, lie = (struct.pack("<q", size) + magic for size in forge)
            data = path.read_bytes()
            assert stated in data
            path.write_bytes(data.replace(stated, lie))
        return path

    return make


def parquet(rows, **settings):
    def make(folder):
        pq.write_table(pa.table(rows()), folder / "a.parquet", compression="zstd", **settings)
        return folder / "a.parquet"

    return make


DELTA = {"use_dictionary": False, "column_encoding": {"x": "DELTA_BYTE_ARRAY"}}
PLAIN = {"use_dictionary": False}


def short_then_long(rows=500):
    """Return short values, then long ones that few bytes repeat."""
    return {"x": ["a"] * 100 + ["b" * (1 << 19)] * rows}


def second_group(folder):
    """Write a large row group of short values, then a small one of a page that no budget holds."""
    with pq.ParquetWriter(folder / "a.parquet", pa.schema({"x": pa.string()}), compression="zstd", **PLAIN) as file:
        file.write_table(pa.table({"x": ["a"] * 1000}))
        file.write_table(pa.table(short_then_long(200)))
    return folder / "a.parquet"


def coded(value, rows=2):
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), pa.array([value]))


def nulls_in_a_list():
    return pa.record_batch({"x": pa.ListArray.from_arrays(pa.array([0, 1 << 30], pa.int32()), pa.nulls(1 << 30))})


def zarr_chunk(codec, payload, version=3):
    """Return a maker of a Zarr array whose single chunk unpacks to much more than its shape."""

    def make(folder):
        zarr = pytest.importorskip("zarr")
        group = zarr.open_group(folder / "z.zarr", mode="w", zarr_format=version)
        packer = codec(zarr.codecs if version == 3 else pytest.importorskip("numcodecs"))
        group.create_array("x", shape=(1000,), chunks=(1000,), dtype="f8", compressors=packer)[...] = 1
        (chunk,) = [path for path in (folder / "z.zarr" / "x").rglob("*") if path.name == "0"]
        chunk.write_bytes(payload())
        return folder / "z.zarr"

    return make


def zarr_shard(folder):
    """Write a shard whose parts all are one that unpacks to much more than its shape."""
    zarr = pytest.importorskip("zarr")
    array = zarr.open_group(folder / "z.zarr", mode="w").create_array(
        "x", shape=(40,), chunks=(10,), shards=(40,), dtype="f8", compressors=zarr.codecs.ZstdCodec()
    )
    array[...] = 1
    packed = pa.Codec("zstd").compress(ZEROS, asbytes=True)
    index = struct.pack("<QQ", 0, len(packed)) * 4
    checksum = pytest.importorskip("google_crc32c").value(index)
    write(folder / "z.zarr" / "x" / "c" / "0", packed + index + struct.pack("<I", checksum))
    return folder / "z.zarr"


def zarr_stated_texts(version=3, packer=None, **settings):
    """Return a maker of text whose chunk states more values than it has."""

    def make(folder):
        zarr = pytest.importorskip("zarr")
        group = zarr.open_group(folder / "z.zarr", mode="w", zarr_format=version)
        packed = {} if packer is None else {"compressors": packer[0](zarr.codecs)}
        array = group.create_array("x", shape=(2,), chunks=(2,), dtype=str, **packed, **settings)
        array[...] = np.array(["a", "b"], object)
        [chunk] = [path for path in (folder / "z.zarr" / "x").rglob("*") if path.name == "0"]
        stated = struct.pack("<I", 1 << 31) + struct.pack("<I", 1) + b"a" + struct.pack("<I", 1) + b"b"
        chunk.write_bytes(stated if packer is None else packer[1](stated))
        return folder / "z.zarr"

    return make


def zarr_2(array, chunk):
    """Return a maker of a Zarr array of version 2, described and stored as given."""

    def make(folder):
        pytest.importorskip("zarr")
        stated = {"zarr_format": 2, "shape": [2], "chunks": [2], "fill_value": None, "order": "C", "filters": None}
        write(folder / "z.zarr" / ".zgroup", '{"zarr_format": 2}')
        write(folder / "z.zarr" / "x" / ".zarray", json.dumps({**stated, "compressor": None, **array}))
        write(folder / "z.zarr" / "x" / "0", chunk)
        return folder / "z.zarr"

    return make


def zarr_texts(folder):
    zarr = pytest.importorskip("zarr")
    array = zarr.open_group(folder / "z.zarr", mode="w").create_array("x", shape=(2,), chunks=(2,), dtype=str)
    array[...] = np.array(["a", "b"], object)
    texts = struct.pack("<I", 2) + (struct.pack("<I", len(ZEROS)) + ZEROS) * 2
    write(folder / "z.zarr" / "x" / "c" / "0", pa.Codec("zstd").compress(texts, asbytes=True))
    return folder / "z.zarr"


def sqlite_generated(folder):
    with sqlite3.connect(folder / "a.sqlite") as database:
        database.execute("create table t (x real, y blob as (zeroblob(400000000)))")
        database.execute("insert into t (x) values (1), (2)")
    database.close()
    return folder / "a.sqlite"


def npy_header(folder):
    return write(folder / "a.npy", b"\x93NUMPY\x02\0" + struct.pack("<I", len(ZEROS)) + ZEROS)


OBJECTS = '{"a":' * 10_000 + "1" + "}" * 10_000 + "\n"
LISTS = '{"b": 1, "a":' + "[" * 10_000 + "1" + "]" * 10_000 + "}\n"
BOMBS = {
    "jsonl, objects": text("a.jsonl", OBJECTS.encode()),
    "jsonl, lists": text("a.jsonl", LISTS.encode()),
    "jsonl, over lines": text("a.jsonl", b'{"a":[\n' * 10_000),
    "jsonl, one line": text("a.jsonl", b'{"a":"' + ZEROS),
    "jsonl, a long line": text(
        "a.jsonl", b'{"a": 1}\n' * 9 + b'{"a":"' + ZEROS[: 14 << 20].replace(ZERO, b"b") + b'"}\n'
    ),
    "csv, a long line": text("a.csv", b"a,b\n" + b"1,2\n" * 9 + b"1," + ZEROS[: 14 << 20].replace(ZERO, b"b") + b"\n"),
    "svmlight, one line": text("a.svm", b"1 1:1\n1 " + ZEROS.replace(ZERO, b" ")),
    "avro, 150 arrays": avro_file(nested(150, ARRAY), "null", 1, ZERO),
    "avro, 5,000 arrays": avro_file(nested(5000, ARRAY), "null", 1, ZERO),
    "avro, 400 unions": avro_file(nested(400, f'["null", {ARRAY}]'), "null", 1, ZERO),
    "avro, 400 records": avro_file(nested(400, RECORD), "null", 1, ZERO),
    "avro, types twice in types": avro_file(NAMED + [(one["name"], one) for one in TWICE], "null", 1, ZERO),
    "avro, types in types": avro_file(NAMED + [(one["name"], one) for one in CHAIN], "null", 1, ZERO),
    "avro, a long array": avro_file(
        [("x", {"type": "array", "items": "long"})], "deflate", 1, deflated(long(9 << 20) + bytes((9 << 20) + 1))
    ),
    "avro, long bytes": avro_file([("x", "bytes")], "bzip2", 1, bz2.compress(long(len(ZEROS)) + ZEROS)),
    "avro, empty records": avro_file([("x", "null")], "null", 1 << 39, b""),
    "avro, nulls in an array": avro_file([("x", {"type": "array", "items": "null"})], "null", 1, long(1 << 33)),
    "avro, more rows than bytes": avro_file([("x", "double")], "null", 1 << 39, bytes(80)),
    "avro, snappy": avro_file([("x", "long")], "snappy", 5, b"\xff\xff\xff\xff\x0fabcdefgh"),
    "mds, gz": mds("gz", lambda data: gzip.compress(data, 1)),
    "mds, zstd": mds("zstd", lambda data: pa.Codec("zstd").compress(data, asbytes=True)),
    "mds, br": mds("br", lambda data: pa.Codec("brotli", 1).compress(data, asbytes=True)),
    "mds, snappy": mds("snappy", lambda _: b"\xff\xff\xff\xff\x0fabcdefgh"),
    "mds, index": lambda folder: write(folder / "m/index.json", f'{{"version": 2, "shards": {DEEP}}}').parent,
    "npz, format": npz("format", "S1"),
    "npz, shape": npz("shape", "i8"),
    "hdf5, a value": hdf5(shape=(2,), dtype="S400000000", chunks=(1,), compression="gzip"),
    "hdf5, rows": hdf5(shape=(1 << 50,), dtype="f8", chunks=(1024,)),
    "hdf5, a wide chunk": wide_hdf5("gzip"),
    "hdf5, a wide chunk of lzf": wide_hdf5("lzf"),
    "zarr, rows": zarr_rows,
    "orc, lists": orc_levels,
    "arrow, a dictionary": arrow(lambda: pa.record_batch({"x": coded("a" * len(ZEROS))})),
    "arrow, a dictionary in a list": arrow(
        lambda: pa.record_batch({"x": pa.ListArray.from_arrays([0, 1, 2], coded("a" * (96 << 20)))})
    ),
    "arrow, a stated dictionary": arrow(lambda: pa.record_batch({"x": coded("a" * 1000)}), forge=(1000, 1 << 32)),
    "arrow, a stated buffer": arrow(lambda: pa.record_batch({"x": np.zeros(5000)}), forge=(40_000, 300 << 20)),
    "arrow, a stated buffer of lz4": arrow(lambda: pa.record_batch({"x": np.zeros(5000)}), "lz4", (40_000, 1 << 50)),
    "arrow, a value": arrow(lambda: pa.record_batch({"x": ["a" * len(ZEROS)]})),
    "arrow, a list": arrow(lambda: pa.record_batch({"x": pa.ListArray.from_arrays([0, 8 << 20], np.zeros(8 << 20))})),
    "arrow, nulls in a list": arrow(nulls_in_a_list, None),
    "parquet, a value": parquet(lambda: {"x": ["a" * len(ZEROS)]}, use_dictionary=False),
    "parquet, a list": parquet(lambda: {"x": pa.ListArray.from_arrays([0, 16 << 20], np.zeros(16 << 20))}),
    "parquet, a page of another group": second_group,
    "parquet, a page of numbers": parquet(
        lambda: {"x": np.zeros(1 << 24)},
        data_page_size=1 << 30,
        max_rows_per_page=1 << 24,
        write_batch_size=1 << 24,
        row_group_size=1 << 24,
        **PLAIN,
    ),
    "parquet, a long delta value": parquet(lambda: {"x": ["a"] * 100 + ["a" * len(ZEROS)]}, **DELTA),
    "parquet, delta lengths": parquet(
        short_then_long, use_dictionary=False, column_encoding={"x": "DELTA_LENGTH_BYTE_ARRAY"}
    ),
    "parquet, a value of fixed length": parquet(lambda: {"x": pa.array([ZEROS], pa.binary(len(ZEROS)))}),
    "zarr, zstd": zarr_chunk(lambda c: c.ZstdCodec(), lambda: pa.Codec("zstd").compress(ZEROS, asbytes=True)),
    "zarr, gzip": zarr_chunk(lambda c: c.GzipCodec(), lambda: gzip.compress(ZEROS, 1)),
    "zarr, blosc": zarr_chunk(lambda c: c.BloscCodec(), lambda: struct.pack("<BBBBIII", 2, 1, 1, 1, 1 << 30, 0, 99)),
    "zarr 2, zlib": zarr_chunk(lambda c: c.Zlib(), lambda: zlib.compress(ZEROS, 1), 2),
    "zarr 2, lz4": zarr_chunk(lambda c: c.LZ4(), lambda: struct.pack("<i", 1 << 30) + b"abcdefgh", 2),
    "zarr 2, bz2": zarr_chunk(lambda c: c.BZ2(), lambda: bz2.compress(ZEROS), 2),
    "zarr, a shard": zarr_shard,
    "zarr, texts": zarr_texts,
    "zarr, stated texts": zarr_stated_texts(compressors=None),
    "zarr, stated texts in zstd": zarr_stated_texts(
        packer=(lambda c: c.ZstdCodec(), lambda data: pa.Codec("zstd").compress(data, asbytes=True))
    ),
    "zarr, stated texts in blosc": zarr_stated_texts(
        packer=(lambda c: c.BloscCodec(), lambda data: pytest.importorskip("numcodecs").Blosc().encode(data))
    ),
    "zarr 2, stated texts": zarr_stated_texts(2, compressors=None),
    "zarr 2, stated bytes": zarr_2({"dtype": "|O", "filters": [{"id": "vlen-bytes"}]}, struct.pack("<I", 1 << 31)),
    "zarr 2, stated lists": zarr_2(
        {"dtype": "|O", "filters": [{"id": "vlen-array", "dtype": "<f8"}]}, struct.pack("<I", 1 << 31)
    ),
    "zarr 2, json": zarr_2({"dtype": "|O", "filters": [{"id": "json2"}]}, f'["a", "|O", [{1 << 31}]]'),
    "zarr 2, a wide filter": zarr_2(
        {
            "dtype": "<U1",
            "chunks": [1000],
            "shape": [1000],
            "filters": [{"id": "categorize", "labels": ["a"], "dtype": "<U200000", "astype": "|u1"}],
        },
        bytes(1000),
    ),
    "zarr 2, packed twice": zarr_2(
        {"dtype": "<f8", "filters": [{"id": "zlib"}], "compressor": {"id": "gzip", "level": 1}},
        gzip.compress(zlib.compress(ZEROS)),
    ),
    "zarr 2, raw lzma": zarr_2(
        {"dtype": "<f8", "compressor": {"id": "lzma", "format": 2}}, lzma.compress(ZEROS, lzma.FORMAT_ALONE)
    ),
    "zarr, fixed texts": zarr_2({"dtype": "<U400000", "shape": [1 << 16], "chunks": [1 << 16]}, b"a"),
    "zarr, a wide chunk": zarr_2(
        {"dtype": "<f8", "shape": [2, 1], "chunks": [1, 32 << 20], "compressor": {"id": "zlib", "level": 1}},
        zlib.compress(ZEROS * 4, 1),
    ),
    "sqlite, a generated column": sqlite_generated,
    "npy, a header": npy_header,
    "hugging face, state": saved("state.json", f'{{"_data_files": [], "a": {DEEP}}}'),
    "hugging face, splits": saved("dataset_dict.json", f'{{"splits": {DEEP}}}'),
}


@pytest.mark.parametrize("host", ["open", "convert"])
@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_within_the_budget(tmp_path, name, host):
    path = BOMBS[name](tmp_path)
    with peaking() as before:
        pass
    with peaking() as peak, pytest.raises(CorgiPileError):
        cp.convert(path, tmp_path / "out.arrow") if host == "convert" else used(cp.open(path))
    assert peak.nbytes - before.nbytes <= (64 << 20 if host == "convert" else MEMORY) + BESIDE


def test_many_rows_of_a_small_file_are_decoded_in_parts(tmp_path):
    pytest.importorskip("fastavro")
    rows = 400_000
    fields = [("x", "long"), ("y", "long")]
    path = write(tmp_path / "a.avro", avro(fields, "deflate", rows, deflated(bytes(2 * rows))))
    cp.open(write(tmp_path / "tiny.avro", avro(fields, "deflate", 1, deflated(bytes(2))))).take([0])  # imports
    with peaking() as before:
        pass
    with peaking() as peak:
        assert cp.open(path).take([rows - 1]).to_pylist() == [{"x": 0, "y": 0}]
    assert peak.nbytes - before.nbytes <= (4 << 20) + BESIDE


def test_what_follows_the_rows_of_a_block_is_damage(tmp_path):
    pytest.importorskip("fastavro")
    path = write(tmp_path / "a.avro", avro([("x", "long")], "null", 2, bytes(3)))
    with pytest.raises(CorgiPileError, match="data after its 2 stated rows"):
        cp.open(path).read(0, 1)


@pytest.mark.parametrize("kind", ["hdf5", "zarr"])
def test_a_chunk_that_no_budget_holds_is_told_before_it_is_read(tmp_path, kind):
    rows = 4 << 20
    if kind == "hdf5":
        path = hdf5(shape=(rows,), dtype="f8", chunks=(rows,), compression="gzip")(tmp_path)
    else:
        zarr = pytest.importorskip("zarr")
        zarr.open_group(tmp_path / "z.zarr", mode="w").create_array("x", shape=(rows,), chunks=(rows,), dtype="f8")
        path = tmp_path / "z.zarr"
    with pytest.raises(BudgetTooSmall, match=r"give memory='(64|96)MB'") as refused:
        cp.Loader(path, batch_size=64, memory="16MB")
    with cp.Loader(path, batch_size=1 << 20, memory=str(refused.value).split("memory='")[1].split("'")[0]) as loader:
        assert sum(len(batch["x"]) for batch in loader) == rows


@pytest.mark.parametrize(
    "meta",
    [
        "[" * 20_000,
        json.dumps({"format": 1, "classes": [1], "class_type": "f8,(100000000)f8"}),
        json.dumps({"format": 1, "classes": ["a" * 20_000, *map(str, range(2000))], "class_type": "str"}),
    ],
)
def test_model_files_state_no_more_than_they_hold(tmp_path, meta):
    full = {"kind": "linear", "params": {}, "history": []}
    meta = json.dumps(full | json.loads(meta)) if meta.startswith("{") else meta
    tensors = {name: {"dtype": "F64", "shape": shape, "data_offsets": at} for name, shape, at in (
        ("coef", [1, 1], [0, 8]), ("intercept", [1], [8, 16])
    )}  # fmt: skip
    head = json.dumps({"__metadata__": {"corgipile.model": meta}, **tensors}).encode()
    path = write(tmp_path / "m.safetensors", struct.pack("<Q", len(head)) + head + bytes(16))
    with peaking() as before:
        pass
    with peaking() as peak, pytest.raises(CorgiPileError):
        cp.load(path)
    assert peak.nbytes - before.nbytes <= BESIDE


def test_an_index_does_not_state_more_weights_than_fit(tmp_path, monkeypatch):
    monkeypatch.setattr("os.sysconf", lambda name: 1 << 20 if name == "SC_PHYS_PAGES" else 4096)
    path = write(tmp_path / "a.svm", "1 1:2 2147483646:1\n-1 1:1\n")
    with pytest.raises(BudgetTooSmall, match="largest index"):
        cp.train(path, label="label", memory=MEMORY)


def test_brackets_of_a_statement_end():
    pytest.importorskip("duckdb")
    with sql.connect() as connection:
        assert connection.execute("SELECT " + "(" * 200 + "1" + ")" * 200).fetchall() == [(1,)]
        with pytest.raises(CorgiPileError, match="levels deep"):
            connection.execute("SELECT " + "(" * 100_000 + "1" + ")" * 100_000)


def test_what_nests_less_deep_is_read(tmp_path):
    levels = MAX_DEPTH - 1
    row = '{"a":' + "[" * levels + "1" + "]" * levels + "}\n"
    path = write(tmp_path / "a.jsonl", row + json.dumps({"a": None}) + "\n")
    table = cp.open(path)
    assert table.read(0, 1).num_rows == 1
    with pytest.raises(CorgiPileError, match="62 levels deep"):  # as many as Arrow writes
        cp.convert(path, tmp_path / "out.arrow")
    text = write(tmp_path / "b.jsonl", json.dumps({"a": "[" * 1000 + '"\\' * 9}) + "\n")
    assert len(cp.open(text)) == 1


@pytest.mark.parametrize(("said", "fits"), [("[" * 128 + "]" * 128, True), ("[" * 129 + "]" * 129, False)])
def test_the_depth_of_json(said, fits):
    if fits:
        assert parse_json(said, "it") is not None
        return
    with pytest.raises(BadArgument, match="it must nest at most 128 levels deep, got 129"):
        parse_json(said, "it", BadArgument)


def test_types_of_too_many_fields():
    kind = pa.struct([("a", pa.int8())])
    for _ in range(20):
        kind = pa.struct([("l", kind), ("r", kind)])
    with pytest.raises(CorgiPileError, match="inner fields"):
        check_types([pa.field("x", kind)], "it")


@pytest.mark.parametrize("name", ["a.arrow", "a.csv", "a.parquet", "a.csv.gz", "a", "folder/class/1.png"])
def test_a_pipe_is_not_waited_for(tmp_path, name):
    path = write(tmp_path / name, b"")
    path.unlink()
    os.mkfifo(path)
    held = os.open(path, os.O_RDWR)  # otherwise opening it blocks
    try:
        with pytest.raises(UnknownFormat, match="must be a regular file"):
            cp.open(tmp_path / "folder" if "/" in name else path)
    finally:
        os.close(held)


def test_text_unpacks_to_no_more_than_the_disk_has(tmp_path, monkeypatch):
    path = write(tmp_path / "a.csv.gz", gzip.compress(b"a,b\n" + b"1,2\n" * (4 << 20), 1))
    monkeypatch.setattr("os.statvfs", lambda _: types.SimpleNamespace(f_bavail=20 << 20, f_frsize=1))
    with pytest.raises(WriteFailed, match="a reserve of 16 MB, got 20 MB"):
        cp.open(path)


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 60_000, 60_000) + b"\x08\x02\0\0\0"


@pytest.mark.parametrize(
    "data",
    [
        PNG + struct.pack(">I", zlib.crc32(PNG[12:])) + bytes(40),
        b"BM" + struct.pack("<IHHIIiiHHIIiiII", 99, 0, 0, 54, 40, 60_000, 60_000, 1, 24, *bytes(6)) + bytes(40),
        b"GIF89a" + struct.pack("<HHBBB", 60_000, 60_000, 128, 0, 0) + bytes(6) + b"," + bytes(12),
        b"P6 60000 60000 255\n" + bytes(40),
    ],
)
def test_images_state_no_more_pixels_than_the_limit(data):
    pytest.importorskip("PIL")
    with peaking() as before:
        pass
    with peaking() as peak, pytest.raises(CorgiPileError, match="complete image"):
        decode_image(data)
    assert peak.nbytes - before.nbytes <= BESIDE


def test_images_of_too_many_pixels(monkeypatch):
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(image, "MAX_IMAGE_PIXELS", 4)
    with pytest.raises(CorgiPileError, match=r"may have 4 pixels, got 6|limit of 4 pixels"):
        decode_image(b"P5 3 2 255 abcdef", "L")
    monkeypatch.setattr(image, "MAX_IMAGE_PIXELS", None)
    assert decode_image(b"P5 3 2 255 abcdef", "L").shape == (2, 3)
    with pytest.raises(CorgiPileError, match="60000 x 60000 pixels in 2 bytes"):
        images._image(struct.pack("<III", 60000, 60000, 1) + b"Lxy", lambda row: f"row {row}", 0)


REPEATED = {
    "a dictionary": ({"dictionary_pagesize_limit": 8 << 20}, 100),
    "delta": (DELTA, 100),
    "delta, second version": ({**DELTA, "data_page_version": "2.0"}, 100),
    "delta, late": (DELTA, 50_000),
    "pages of one value": ({**PLAIN, "write_batch_size": 1}, 1000),
}


@pytest.mark.parametrize("name", REPEATED)
def test_values_that_few_bytes_repeat_are_decoded_in_parts(tmp_path, name):
    settings, short = REPEATED[name]
    values = ["a"] * short + ["b" * (1 << 19)] * 100
    path = parquet(lambda: {"x": values}, **settings)(tmp_path)
    (tmp_path / "tiny").mkdir()
    tiny = parquet(lambda: {"x": values[:9]})(tmp_path / "tiny")
    uses = [
        lambda path: [len(batch["x"]) for batch in cp.Loader(path, batch_size=1, memory=MEMORY, order="no_shuffle")],
        lambda path: cp.convert(path, tmp_path / "out.arrow", memory=MEMORY),
        lambda path: about(cp.open(path), columns=True),
        lambda path: cp.open(path).take([8], ["x"]),
    ]
    for use in uses[short > 100 :]:  # a pass over many rows takes long
        use(tiny)  # imports
        with peaking() as before:
            pass
        with peaking() as peak:
            assert use(path)
        assert peak.nbytes - before.nbytes <= MEMORY + BESIDE
    assert cp.open(tmp_path / "out.arrow").read(0, len(values)).column("x").to_pylist() == values


def test_a_description_leaves_out_what_no_budget_holds(tmp_path):
    batch = pa.record_batch({"x": coded("a" * len(ZEROS)), "label": [0.0, 1.0]})
    found = about(cp.open(arrow(lambda: batch)(tmp_path)), columns=True)
    assert found.rows == 2
    assert found.classes == {"0": 1, "1": 1}


def test_a_larger_budget_converts_larger_units(tmp_path):
    path = hdf5(shape=(6 << 20,), dtype="f8", chunks=(6 << 20,), compression="gzip")(tmp_path)
    with pytest.raises(BudgetTooSmall, match="give memory='96MB'"):
        cp.convert(path, tmp_path / "out.arrow")
    assert cp.convert(path, tmp_path / "out.arrow", memory="96MB") == 6 << 20


def test_nulls_take_no_memory(tmp_path):
    rows = 1 << 24
    path = parquet(lambda: {"x": pa.nulls(rows)}, row_group_size=rows)(tmp_path)
    with peaking() as before:
        pass
    with peaking() as peak:
        assert cp.open(path).read(rows - 2, rows).num_rows == 2
        assert cp.convert(path, tmp_path / "out.arrow") == rows
        assert cp.open(tmp_path / "out.arrow").read(0, rows).num_rows == rows
    assert peak.nbytes - before.nbytes <= MEMORY + BESIDE


def test_few_long_rows_are_looked_at_to_describe_a_table(tmp_path):
    rows = pa.record_batch({"x": ["a" * (1 << 19)] * 200})
    with pa.ipc.new_file(tmp_path / "a.arrow", rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as file:
        file.write_batch(rows)
    assert about(cp.open(tmp_path / "a.arrow"), columns=True).sampled < 80


def test_a_dictionary_that_no_budget_holds_is_told(tmp_path):
    values = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), pa.array(["a" * (40 << 20)]))
    rows = pa.record_batch({"x": values})
    with pa.ipc.new_file(tmp_path / "a.arrow", rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as file:
        file.write_batch(rows)
    with pytest.raises(BudgetTooSmall, match="would take 40 MB while"):
        cp.Loader(tmp_path / "a.arrow", batch_size=1, memory="16MB")
