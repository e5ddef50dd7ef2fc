"""ORC and Avro files written by their libraries with the defaults and every codec."""

import datetime as dt
import decimal
import shutil
import uuid
import zlib

import numpy as np
import pyarrow as pa
import pytest
from columns import make_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc

import corgipile as cp
from corgipile.errors import BadSchema, CorruptFile, UnknownFormat
from corgipile.tables import encoded
from corgipile.tables import open as open_table
from corgipile.testing import check_table

fastavro = pytest.importorskip("fastavro")
ROWS = 120
UTC = dt.UTC
KINDS = [
    ("i", "int"),
    ("l", ["null", "long"]),
    ("s", "string"),
    ("b", "bytes"),
    ("f", "float"),
    ("e", {"type": "enum", "name": "kind", "symbols": ["A", "B"]}),
    ("again", "kind"),
    ("a", {"type": "array", "items": "double"}),
    ("m", {"type": "map", "values": "int"}),
    ("inner", {"type": "record", "name": "inner", "fields": [{"name": "q", "type": ["null", "string"]}]}),
    ("day", {"type": "int", "logicalType": "date"}),
    ("at", ["null", {"type": "long", "logicalType": "timestamp-micros"}]),
    ("local", {"type": "long", "logicalType": "local-timestamp-millis"}),
    ("money", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    ("fixed", {"type": "fixed", "name": "three", "size": 3}),
    ("id", {"type": "string", "logicalType": "uuid"}),
    ("wide", ["int", "long"]),
]
SCHEMA = {
    "type": "record",
    "name": "row",
    "namespace": "some.space",
    "fields": [{"name": name, "type": kind} for name, kind in KINDS],
}


def long(value):
    """Return a non-negative integer in Avro's encoding."""
    value, out = value << 1, bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def record(k):
    return {
        "i": k - 3,
        "l": None if k % 5 == 0 else k * 10**12,
        "s": f"né {k}",
        "b": bytes(k % 9),
        "f": k / 2,
        "e": "AB"[k % 2],
        "again": "A",
        "a": [float(k)] * (k % 3),
        "m": {"k": k},
        "inner": {"q": None if k % 2 else "x"},
        "day": dt.date(2020, 1, 1 + k % 28),
        "at": None if k % 7 == 0 else dt.datetime(2020, 1, 1, microsecond=k, tzinfo=UTC),
        "local": dt.datetime(2020, 1, 1, microsecond=1000 * k),  # noqa: DTZ001 - of no zone, as it is stored
        "money": decimal.Decimal(k) / 4,
        "fixed": b"abc",
        "id": uuid.UUID(int=k),
        "wide": k << 33,
    }


def write_avro(path, codec="null", rows=ROWS, **options):
    with path.open("wb") as file:
        fastavro.writer(file, SCHEMA, map(record, range(rows)), codec=codec, **options)
    return path


def expected(rows=ROWS):
    made = [record(k) for k in range(rows)]
    return [row | {"id": str(row["id"]), "m": list(row["m"].items())} for row in made]


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_avro_of_every_codec(tmp_path, codec):
    table = open_table(write_avro(tmp_path / "a.avro", codec, sync_interval=2000))
    found = pa.Table.from_batches([table.read(0, ROWS)])
    assert found.to_pylist() == expected()
    assert len(table.cuts(1)) > 5
    if codec == "deflate":
        check_table(table, found)
        unpacked = encoded.unpack_shared(table, table.schema.names)
        assert unpacked.read(0, ROWS).to_pylist() == expected()
        assert "decoded whole" in table.advice


def write_packed(path, codec, arrow, checksum=zlib.crc32):
    """Write a file in a codec that fastavro needs further packages for."""
    write_avro(path, sync_interval=2000)
    plain = open_table(path)
    data = path.read_bytes()
    first = int(plain._places[0])
    head = data[:first].replace(b"\x14avro.codec\x08null", b"\x14avro.codec" + bytes([2 * len(codec)]) + codec.encode())
    head = head[: head.index(plain._mark) + 16]

    parts = [head]
    for at, size, rows in zip(plain._places, plain._sizes, np.diff(plain._starts), strict=True):
        raw = data[at : at + size]
        packed = pa.Codec(arrow).compress(raw, asbytes=True)
        packed += checksum(raw).to_bytes(4, "big") if codec == "snappy" else b""
        parts += [long(int(rows)), long(len(packed)), packed, plain._mark]
    path.write_bytes(b"".join(parts))


@pytest.mark.parametrize(("codec", "arrow"), [("snappy", "snappy"), ("zstandard", "zstd")])
def test_avro_of_codecs_that_arrow_has(tmp_path, codec, arrow):
    write_packed(tmp_path / "a.avro", codec, arrow)
    assert open_table(tmp_path / "a.avro").read(0, ROWS).to_pylist() == expected()


def test_snappy_blocks_with_a_wrong_checksum_are_refused(tmp_path):
    write_packed(tmp_path / "a.avro", "snappy", "snappy", checksum=lambda raw: zlib.crc32(raw) ^ 1)
    with pytest.raises(CorruptFile, match="wrong checksum"):
        open_table(tmp_path / "a.avro").read(0, ROWS)


def test_avro_that_is_no_table(tmp_path):
    head = {"type": "record", "name": "r"}
    for schema, says in (
        ("long", "records"),
        ({**head, "fields": [{"name": "x", "type": ["int", "string"]}]}, "values of one type"),
        ({**head, "fields": [{"name": "x", "type": ["null", "r"]}]}, "not recursive"),
    ):
        with (tmp_path / "a.avro").open("wb") as file:
            fastavro.writer(file, schema, [])
        with pytest.raises(BadSchema, match=says):
            open_table(tmp_path / "a.avro")
    data = write_avro(tmp_path / "b.avro").read_bytes()
    (tmp_path / "b.avro").write_bytes(data[:-5])
    with pytest.raises(CorruptFile, match=r"claims|mark"):
        open_table(tmp_path / "b.avro")
    (tmp_path / "b.avro").write_bytes(data.replace(b"avro.codec\x08null", b"avro.codec\x08lz5!", 1))
    with pytest.raises(UnknownFormat, match="'lz5!'"):
        open_table(tmp_path / "b.avro")


@pytest.mark.parametrize("codec", ["uncompressed", "zlib", "snappy", "lz4", "zstd"])
def test_orc_of_every_codec(tmp_path, codec):
    rows = make_rows(300, nulls=True).drop_columns(["half", "nothing here", "fixed", "small"])
    orc.write_table(rows, tmp_path / "a.orc", compression=codec, stripe_size=1024, batch_size=100)
    table = open_table(tmp_path / "a.orc")
    written = orc.read_table(tmp_path / "a.orc")
    assert table.read(0, 300).to_pylist() == written.to_pylist()
    if codec in ("uncompressed", "zstd"):
        check_table(table, written)
        assert encoded.unpack_shared(table, written.schema.names).read(0, 300).to_pylist() == written.to_pylist()
    assert (len(table.cuts(1)) == 4) == (codec == "uncompressed")


def test_few_rows_of_a_large_stripe_are_not_decoded_with_all_others(tmp_path, monkeypatch):
    rows = pa.table({"x": np.arange(1 << 19, dtype=np.float64), "label": np.arange(1 << 19) % 2})
    orc.write_table(rows, tmp_path / "a.orc")
    table = open_table(tmp_path / "a.orc", spill=tmp_path)
    monkeypatch.setattr(type(table), "_decode", None)
    assert table.read(5, 8, ["x"])["x"].to_pylist() == [5.0, 6.0, 7.0]
    assert table.take(np.array([70_000, 3]), ["label", "x"])["x"].to_pylist() == [70_000.0, 3.0]


def test_every_row_is_delivered_once(tmp_path):
    orc.write_table(pa.table({"x": np.arange(5000.0), "label": np.arange(5000) % 2}), tmp_path / "a.orc")
    write_avro(tmp_path / "a.avro", sync_interval=2000)
    for name, column, rows in (("a.orc", "x", 5000), ("a.avro", "i", ROWS)):
        for memory in ("64KB", "8MB"):
            with cp.Loader(tmp_path / name, batch_size=32, memory=memory, columns=[column]) as loader:
                found = sorted(float(one) for batch in loader for one in batch[column])
            assert found == sorted(float(k - 3 * (name == "a.avro")) for k in range(rows))
    assert cp.convert(tmp_path / "a.orc", tmp_path / "o.arrow") == 5000
    assert cp.convert(tmp_path / "a.avro", tmp_path / "o2.arrow") == ROWS
    assert open_table(tmp_path / "o2.arrow").read(0, ROWS).to_pylist() == expected()
    shutil.copy(tmp_path / "a.orc", tmp_path / "b.orc")
    assert len(open_table(f"{tmp_path}/*.orc")) == 10_000


@given(data=st.data(), name=st.sampled_from(["a.orc", "z.orc", "a.avro", "d.avro"]))
@settings(max_examples=80, deadline=None)
def test_damage_is_noticed_or_other_values(folder, damage, survives, data, name):
    good = folder / f"good-{name}"
    if not good.exists():
        if name.endswith("orc"):
            codec = "uncompressed" if name == "a.orc" else "zlib"
            orc.write_table(pa.table({"x": range(90), "s": ["a"] * 90}), good, compression=codec)
        else:
            write_avro(good, "null" if name == "a.avro" else "deflate", sync_interval=1000)
    survives(folder / name, data.draw(damage(good.read_bytes())), name[-4:].strip("."))
