"""Lake tables whose logs, vectors or manifests state or unpack to huge sizes are rejected within little memory."""

import base64
import json
import struct
import uuid
import zlib

import hostile_lakes
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bombs import BESIDE, MEMORY, deflated, long, used

import corgipile as cp
from corgipile import cli
from corgipile.errors import CorgiPileError, CorruptFile
from corgipile.resident import peaking
from corgipile.tables.formats.avro import table as avro
from corgipile.tables.formats.delta import log as delta_log
from corgipile.tables.io.files import File

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of libraries about such files


def bitmap(key, row, bitmaps=1, high=0):
    """Return a bitmap of 64 bits of one row."""
    return struct.pack("<iQIIIHHIH", delta_log.TREEMAP, bitmaps, high, 12346, 1, key, 0, 16, row)


def z85(data):
    """Encode bytes as ZeroMQ does."""
    back = {delta_log.ASCII85[byte]: byte for byte in range(256) if delta_log.ASCII85[byte] != byte}
    return bytes(back.get(byte, byte) for byte in base64.b85encode(data)).decode()


def vector(bits, kind="p", **more):
    """Return a maker of a table whose file has a deletion vector."""

    def make(folder):
        pytest.importorskip("deltalake")
        code = uuid.UUID(int=7)
        path = folder / "ab" / f"deletion_vector_{code}.bin"
        path.parent.mkdir()
        path.write_bytes(b"\1" + struct.pack(">I", len(bits)) + bits + struct.pack(">I", zlib.crc32(bits)))
        name = {"p": path.as_uri(), "u": f"ab{z85(code.bytes)}", "i": z85(bits + bytes(-len(bits) % 4))}[kind]

        def change(line):
            hostile_lakes._features(line, "deletionVectors")
            if "add" in line:
                stated = {"storageType": kind, "pathOrInlineDv": name, "sizeInBytes": len(bits), "cardinality": 1}
                line["add"]["deletionVector"] = stated | more

        hostile_lakes._delta(folder, change)
        return folder

    return make


def log_line(folder):
    pytest.importorskip("deltalake")
    hostile_lakes._delta(folder, lambda _: None)
    with next((folder / "_delta_log").glob("*.json")).open("a") as file:
        file.write("\n" + json.dumps({"commitInfo": {"a": "b" * (3 << 20)}}))
    return folder


def log_columns(folder):
    def change(line):
        if "metaData" in line:
            fields = [{"name": f"c{i}", "type": "double", "nullable": True, "metadata": {}} for i in range(40_000)]
            line["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": fields})

    pytest.importorskip("deltalake")
    hostile_lakes._delta(folder, change)
    return folder


def checkpoint(change):
    """Return a maker of a table whose checkpoint is changed."""

    def make(folder):
        library = pytest.importorskip("deltalake")
        hostile_lakes._delta(folder, lambda _: None)
        library.DeltaTable(folder).create_checkpoint()
        [path] = (folder / "_delta_log").glob("*.parquet")
        pq.write_table(change(pq.read_table(path)), path, compression="zstd")
        for other in (folder / "_delta_log").glob("*[tn]"):
            other.unlink() if other.suffix != ".parquet" else None
        return folder

    return make


def repeated(table):
    return pa.concat_tables([table] + [table.filter(table["add"].is_valid())] * 20_000).combine_chunks()


def manifest(which, change):
    """Return a maker of a table of which the data of a manifest, or of the list of these, are changed."""

    def make(folder):
        pytest.importorskip("pyiceberg")
        pytest.importorskip("sqlalchemy")
        found = hostile_lakes._iceberg(None, folder)
        [path] = [one for one in found.glob("metadata/*.avro") if one.name.startswith("snap-") == (which == "list")]
        header, mark, begin = avro._head(File(path))
        _, [at], [size] = avro._blocks(File(path), begin, mark)
        header["avro.codec"], head = b"deflate", b"Obj\x01" + long(len(header))
        for key, value in header.items():
            head += long(len(key)) + key.encode() + long(len(value)) + value
        data = path.read_bytes()[at : at + size]
        blocks = [
            long(rows) + long(len(packed)) + packed + mark
            for rows, packed in ((rows, deflated(raw)) for rows, raw in change(data))
        ]
        path.write_bytes(head + long(0) + mark + b"".join(blocks))
        return found

    return make


def padded(data):
    return [(1, data + bytes(48 << 20))]


def twice(data):
    return [(100, data * 100)] * 10


LAKES = {
    "delta, a vector": vector(bitmap(32767, 65535)),
    "delta, a vector in the log": vector(bitmap(32767, 65535), "i"),
    "delta, a vector by number": vector(bitmap(32767, 65535), "u", offset=1),
    "delta, a vector of 64 bits": vector(bitmap(0, 1, 1, 1 << 31)),
    "delta, vectors of 64 bits": vector(bitmap(0, 1, 1 << 62)),
    "delta, a line": log_line,
    "delta, columns": log_columns,
    "delta, a file 20,000 times": checkpoint(repeated),
    "iceberg, a block of the list": manifest("list", padded),
    "iceberg, a block": manifest("data", padded),
    "iceberg, an empty block": manifest("list", lambda data: [(0, bytes(48 << 20)), (1, data)]),
    "iceberg, a manifest 1,000 times": manifest("list", twice),
    "iceberg, a file 1,000 times": manifest("data", twice),
    "iceberg, more rows than bytes": manifest("data", lambda data: [(1 << 39, data)]),
}
SQL = "delta, a line", "iceberg, a file 1,000 times"


@pytest.mark.parametrize(("name", "host"), [(name, "open") for name in LAKES] + [(name, "sql") for name in SQL])
def test_lakes_are_refused_within_the_budget(tmp_path, name, host, capsys):
    path = LAKES[name](tmp_path)
    if host == "sql":
        cli.main(["sql", "SELECT 1"])  # imports
    with peaking() as before:
        pass
    with peaking() as peak:
        if host == "sql":
            assert cli.main(["sql", f"SELECT * FROM '{path}' TRAIN BY logistic WITH max_epoch_num = 1"]) == 2  # noqa: S608
        else:
            with pytest.raises(CorgiPileError):
                used(cp.open(path))
    assert "Traceback" not in capsys.readouterr().err
    assert peak.nbytes - before.nbytes <= MEMORY + BESIDE


@pytest.mark.parametrize(("kind", "more"), [("i", {}), ("p", {}), ("p", {"offset": 1}), ("u", {"offset": 1})])
def test_small_vectors_are_read(tmp_path, kind, more):
    table = cp.open(vector(bitmap(0, 3), kind, **more)(tmp_path))
    assert table.read(0, len(table))["x"].to_pylist() == [0, 1, 2, 4, 5, 6, 7]


def test_texts_of_checkpoints_are_bounded(tmp_path, monkeypatch):
    def long_text(table):
        rows = [
            row | {"domainMetadata": {"domain": "a" * (2 << 20), "configuration": "", "removed": False}}
            if row["add"]
            else row
            for row in table.to_pylist()
        ]
        return pa.Table.from_pylist(rows, table.schema)

    monkeypatch.setattr(delta_log, "MAX_BYTES", 1 << 20)
    with pytest.raises(CorruptFile, match="at most 1048576 bytes of actions"):
        cp.open(checkpoint(long_text)(tmp_path))


def test_the_encoding_of_vectors():
    assert z85(bytes.fromhex("864FD26FB559F75B")) == "HelloWorld"  # from ZeroMQ's specification
    assert delta_log._ascii85("HelloWorld") == bytes.fromhex("864FD26FB559F75B")
