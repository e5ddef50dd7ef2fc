"""Hostile folders of Delta Lake, Iceberg, Lance, Hugging Face and MosaicML."""

import json
import shutil
import struct
import warnings
import zlib
from importlib import import_module

import pyarrow as pa
import pyarrow.parquet as pq
from hostile import ROWS, SECRET, kind, plain

from corgipile import exchange
from corgipile.tables.formats.part import crc_of

DELTA, LANCE = ("deltalake",), ("lance",)
ICEBERG = ("pyiceberg", "sqlalchemy")


def _delta(folder, change):
    """Write a table of Delta Lake, and change the actions in its log."""
    deltalake = import_module("deltalake")

    deltalake.write_deltalake(folder, pa.table({"x": range(ROWS), "label": [0, 1] * (ROWS // 2)}))
    log = folder / "_delta_log" / "00000000000000000000.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        change(line)
    log.write_text("\n".join(map(json.dumps, lines)))
    return lines


@kind("absolute", "relative", "winding", "url", "quoted", "http", "s3", needs=DELTA)
def delta_file(trap, folder, way):
    def change(line):
        if "add" in line:
            line["add"]["path"] = trap.address(way, trap.parquet, folder)

    (folder / "a").mkdir()
    _delta(folder, change)
    return folder


@kind(needs=DELTA, refused=False)
def delta_options(trap, folder):
    def change(line):
        if "metaData" in line:
            endpoint = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{trap.port}", "AWS_ALLOW_HTTP": "true"}
            line["metaData"]["format"]["options"] = endpoint
            line["metaData"]["configuration"] = endpoint

    _delta(folder, change)
    return folder


def _features(line, name):
    if "protocol" in line:
        features = {"readerFeatures": [name], "writerFeatures": [name]}
        line["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **features}


@kind("absolute", "url", "http", "prefix", "checkpoint", needs=(*DELTA, "pyroaring"))
def delta_vector(trap, folder, way):
    pyroaring = import_module("pyroaring")

    bits = struct.pack("<iqI", 1681511377, 1, 0) + pyroaring.BitMap([1]).serialize()
    vector = trap.folder / "deletion_vector_00000000-0000-0000-0000-000000000000.bin"
    vector.write_bytes(b"\1" + struct.pack(">I", len(bits)) + bits + struct.pack(">I", zlib.crc32(bits)))
    name = (
        f"../{'../' * 9}{trap.folder}/" + "0" * 20
        if way == "prefix"
        else trap.address("url" if way == "checkpoint" else way, vector, folder)
    )
    said = {"storageType": "u" if way == "prefix" else "p", "pathOrInlineDv": name, "offset": 1}

    def change(line):
        _features(line, "deletionVectors")
        if "add" in line:
            line["add"]["deletionVector"] = {**said, "sizeInBytes": len(bits), "cardinality": 1}

    _delta(folder, change)
    if way == "checkpoint":
        deltalake = import_module("deltalake")
        deltalake.DeltaTable(folder).create_checkpoint()
        for path in (folder / "_delta_log").glob("*.json"):
            path.unlink()
    return folder


@kind("absolute", "relative", "url", "tab", "twice", "parquet", needs=DELTA)
def delta_sidecar(trap, folder, way):
    lines = _delta(folder, lambda line: _features(line, "v2Checkpoint"))
    log = folder / "_delta_log"
    [add] = [line["add"] for line in lines if "add" in line]
    kinds = [("path", pa.string()), ("partitionValues", pa.map_(pa.string(), pa.string())), ("size", pa.int64())]
    kinds += [("modificationTime", pa.int64()), ("dataChange", pa.bool_())]
    row = {name: add[name] for name, _ in kinds} | {"partitionValues": []}
    side = trap.folder / f"{way}-side.parquet"
    pq.write_table(pa.Table.from_pylist([{"add": row}], pa.schema([("add", pa.struct(kinds))])), side)
    base = log / "_sidecars"
    name = trap.address({"tab": "relative", "twice": "url", "parquet": "url"}.get(way, way), side, base)
    said = {"path": name.replace("../", ".\t./") if way == "tab" else name, "sizeInBytes": 1, "modificationTime": 0}
    said["sizeInBytes"] = side.stat().st_size
    kept = [line for line in lines if "add" not in line and "commitInfo" not in line]
    text = "\n".join(map(json.dumps, [{"checkpointMetadata": {"version": 0}}, *kept, {"sidecar": said}]))
    if way == "twice":
        text = text.replace('"sizeInBytes"', '"path": "x.parquet", "sizeInBytes"')
    point = log / f"{0:020}.checkpoint.00000000-0000-0000-0000-000000000000.json"
    if way == "parquet":
        pq.write_table(pa.Table.from_pylist([{"sidecar": said}]), point.with_suffix(".parquet"))
    else:
        point.write_text(text)
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, kept)))
    return folder


def _iceberg(trap, folder, change=lambda said: None):
    """Write a table of Iceberg, and change its metadata."""
    sql = import_module("pyiceberg.catalog.sql")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        catalog = sql.SqlCatalog("c", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/ice")
        catalog.create_namespace("n")
        schema = pa.schema([("x", pa.float64()), ("label", pa.int64())])
        table = catalog.create_table("n.t", schema, properties={"write.avro.compression-codec": "null"})
        table.append(plain())
        catalog.engine.dispose()
    found = folder / "ice" / "n" / "t"
    newest = max((found / "metadata").glob("*.metadata.json"))
    said = json.loads(newest.read_text())
    change(said)
    newest.write_text(json.dumps(said))
    return found


@kind("code", "host", "location", needs=ICEBERG, refused=False)
def iceberg_property(trap, folder, way):
    properties = {
        "code": {"touch": "", str(trap.ran): "", "py-io-impl": "subprocess.Popen"},  # properties become its arguments
        "host": {"s3.endpoint": f"http://127.0.0.1:{trap.port}", "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"},
        "location": {"write.py-location-provider.impl": "subprocess.Popen", "write.metadata.path": str(trap.folder)},
    }[way]
    return _iceberg(trap, folder, lambda said: said.update(properties=properties))


@kind("absolute", "relative", "url", "http", "s3", needs=ICEBERG)
def iceberg_manifest_list(trap, folder, way):
    def change(said):
        place = said["snapshots"][-1]["manifest-list"].removeprefix("file://")
        goal = trap.folder / f"{way}-list.avro"
        shutil.move(place, goal)
        said["snapshots"][-1]["manifest-list"] = trap.address(way, goal, folder)
        said["properties"] = {"s3.endpoint": f"http://127.0.0.1:{trap.port}", "s3.access-key-id": "k"}

    return _iceberg(trap, folder, change)


@kind("manifest", "data", needs=ICEBERG)
def iceberg_elsewhere(trap, folder, way):
    """Refer to files of a neighbouring table, whose path is equally long."""
    found, goal = _iceberg(trap, folder), folder / "icf" / "n" / "t"
    shutil.copytree(found / "metadata", goal / "metadata")
    for path in (goal / "metadata").glob("*.json" if way == "manifest" else "*"):
        if path.suffix == ".json" or path.name.startswith("snap-"):  # the list of manifests
            path.write_bytes(path.read_bytes().replace(b"/ice/n/t/metadata", b"/icf/n/t/metadata"))
    return goal


@kind("outside", "s3", "clone", needs=LANCE)
def lance_base(trap, folder, way):
    lance = import_module("lance")

    base, path, there = trap.folder / "base", folder / "a.lance", trap.folder / "whole.lance"
    base.mkdir(exist_ok=True)
    if way == "clone":
        if not there.exists():
            lance.write_dataset(trap.rows, there)
        lance.dataset(there).shallow_clone(str(path), 1)
        return path
    one = lance.DatasetBasePath(str(base) if way == "outside" else "s3://bucket/base", name="b", is_dataset_root=False)
    target = {"target_bases": ["b"]} if way == "outside" else {}
    lance.write_dataset(trap.rows, path, initial_bases=[one], **target)
    return path


@kind(needs=LANCE)
def lance_winding(trap, folder):
    lance = import_module("lance")

    lance.write_dataset(trap.rows, folder / "a.lance")
    [file] = (folder / "a.lance" / "data").iterdir()
    goal = "../../".ljust(len(file.name) - 6, "q") + ".lance"
    shutil.move(file, folder / "a.lance" / "data" / goal)
    for one in (folder / "a.lance" / "_versions").glob("*.manifest"):
        one.write_bytes(one.read_bytes().replace(file.name.encode(), goal.encode()))
    return folder / "a.lance"


@kind(needs=LANCE)
def lance_blob(trap, folder):
    lance = import_module("lance")

    blobs = lance.blob_array([lance.Blob.from_uri(trap.bytes.as_uri())] * ROWS)
    rows = pa.table([blobs, plain()["label"]], schema=pa.schema([lance.blob_field("x"), ("label", pa.int64())]))
    more = {"data_storage_version": "2.2", "allow_external_blob_outside_bases": True}
    lance.write_dataset(rows, folder / "a.lance", **more)
    return folder / "a.lance"


def _link(trap, folder):
    (folder / "link").symlink_to(trap.folder)


@kind("absolute", "relative", "winding", "null", "link")
def huggingface_file(trap, folder, way):
    (folder / "a").mkdir()
    _link(trap, folder)
    name = trap.address(way, trap.arrows, folder)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
    return folder


@kind(refused=False)
def huggingface_info(trap, folder):
    """Name a script, a host and a class to decode with."""
    rows = plain()
    features = {"x": {"dtype": "float64", "_type": "os.system"}, "label": {"dtype": "int64", "_type": "Value"}}
    noted = rows.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    with pa.ipc.new_stream(folder / "data.arrow", noted.schema) as out:
        out.write_table(noted)
    said = {"_data_files": [{"filename": "data.arrow"}], "_format_type": "os.system"}
    (folder / "state.json").write_text(json.dumps(said))
    host = f"http://127.0.0.1:{trap.port}/script.py"
    (folder / "dataset_info.json").write_text(json.dumps({"builder_name": host, "download_checksums": {host: {}}}))
    (folder / "a.py").write_text(f"open({str(trap.ran)!r}, 'w')")
    return folder


def _shard(values):
    """Return a shard of MDS with a column of bytes."""
    samples = [struct.pack("<I", len(value)) + value for value in values]
    ends = [4 * (len(samples) + 2)]
    for sample in samples:
        ends.append(ends[-1] + len(sample))
    return struct.pack(f"<{len(ends) + 1}I", len(samples), *ends) + b"".join(samples)


def _mds(folder, raw, size, packed=None, encoding="bytes"):
    shard = {
        "version": 2, "format": "mds", "samples": ROWS, "compression": "zstd" if packed else None,
        "column_names": ["x"], "column_encodings": [encoding], "column_sizes": [None],
        "raw_data": {"basename": raw, "bytes": size, "hashes": {}},
        "zip_data": packed and {"basename": packed, "bytes": 1, "hashes": {}},
    }  # fmt: skip
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": [shard]}))
    return folder


@kind("absolute", "relative", "winding", "null", "link")
def mds_shard(trap, folder, way):
    (folder / "a").mkdir()
    _link(trap, folder)
    shard = trap.folder / "secret.mds"
    shard.write_bytes(_shard([SECRET] * ROWS))
    return _mds(folder, trap.address(way, shard, folder), shard.stat().st_size)


@kind("absolute", "relative")
def mds_packed(trap, folder, way):
    shard, packed = _shard([SECRET] * ROWS), trap.folder / "secret.mds.zstd"
    packed.write_bytes(pa.compress(shard, "zstd", asbytes=True))
    return _mds(folder, "gone.mds", len(shard), trap.address(way, packed, folder))


@kind(refused=False)
def mds_pickle(trap, folder):
    shard = _shard([trap.code] * ROWS)
    (folder / "a.mds").write_bytes(shard)
    return _mds(folder, "a.mds", len(shard), encoding="pkl")


@kind("absolute", "relative")
def part_places(trap, folder, way):
    """Name a file of places outside the part of a rank."""
    exchange.stage(plain(64), folder / "p", rank=0, world=1, unit=4)
    manifest = folder / "p" / "manifest.json"
    said = json.loads(manifest.read_text())
    live = trap.folder / f"{way}-{said['live']}"
    shutil.copy(folder / "p" / said["live"], live)
    said["live"] = trap.address(way, live, folder / "p")
    said.pop("crc")
    manifest.write_text(json.dumps({**said, "crc": crc_of(said, live.read_bytes())}))
    return folder / "p"
