"""Iceberg tables in a folder: the Parquet files of a snapshot, listed by ``pyiceberg``."""

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow.fs import LocalFileSystem

from corgipile.errors import BadArgument, CorgiPileError, CorruptFile, UnknownFormat
from corgipile.extras import extra
from corgipile.tables.cast_table import CastTable
from corgipile.tables.concat import ConcatTable
from corgipile.tables.format import folder_format
from corgipile.tables.formats.avro.table import check_file
from corgipile.tables.formats.parquet.table import ParquetTable
from corgipile.tables.io.files import PathLike
from corgipile.tables.io.spill import Spill
from corgipile.tables.memory import MemoryTable
from corgipile.tables.reach import Trust, local, trusting, trusts_paths
from corgipile.tables.table import Table
from corgipile.tables.values import viewless

__all__ = ["FORMAT", "is_iceberg", "open_iceberg"]

METADATA = "metadata"
MAX_METADATA = 8 << 20  # unpacked bytes of a metadata file; the library takes ten times as many
MAX_MANIFEST, MAX_BLOCK = 64 << 20, 1 << 20  # unpacked bytes of a manifest, and of a block of it
MAX_PLANNED = 1 << 14  # files that the library matches with delete files, at 5 KB or more each
DATA, DELETED = 0, 2  # content of a file and status of an entry
ID = b"PARQUET:field_id"


def is_iceberg(folder: Path) -> bool:
    """Return whether a folder is an Iceberg table."""
    return any((folder / METADATA).glob("*.metadata.json"))


def open_iceberg(path: PathLike, version: int | None = None, spill: Spill = None) -> Table:
    """Open the rows of an Iceberg table in a snapshot.

    Columns match by field id, so renamed columns are read correctly; files older than a column have nulls there.

    Args:
        path: The folder of the table.
        version: Id of a snapshot; the current snapshot by default.
        spill: As for `corgipile.open`.

    Raises:
        UnknownFormat: The snapshot has delete files, or data files that are not Parquet.
        BadArgument: The snapshot does not exist.
    """
    folder = Path(path).expanduser().absolute()
    scan = _scan(folder, version)
    try:
        fields = list(scan.projection().fields)
        schema = _schema(scan)
        files = _data_files(scan, folder)
    except UnknownFormat:
        raise
    except CorgiPileError as error:
        raise type(error)(f"{folder}: its metadata cannot be read: {error}") from None
    except Exception as error:  # noqa: BLE001 - the library raises any error for a damaged file
        raise CorruptFile(f"{folder}: its metadata cannot be read: {str(error)[:300]}") from None
    numbers = {field.name: str(field.field_id).encode() for field in fields}
    parts = []
    for name, kind in sorted(files.items()):
        if kind.upper() != "PARQUET":
            raise UnknownFormat(f"{folder} must have Parquet files, got {kind}")
        parts.append(_part(local(folder, name, folder / METADATA), schema, numbers, spill))
    if not parts:
        return MemoryTable(schema.empty_table())
    return parts[0] if len(parts) == 1 else ConcatTable(parts)


def _data_files(scan: Any, folder: Path) -> dict[str, str]:
    """Return the format of each data file that has rows, by path; the library would collect all statistics.

    Raises:
        CorruptFile: A data file or manifest is named twice.
        UnknownFormat: Delete files apply to a data file, or may do so in a table of too many files to match.
    """
    found, manifests, deletes, snapshot = dict[str, str](), dict[str, None](), 0, scan.snapshot()
    for one in _records(scan.io, snapshot.manifest_list) if snapshot else ():
        _add(manifests, one["manifest_path"], None, folder)
        for entry in _records(scan.io, one["manifest_path"]):
            file = entry["data_file"]
            if entry["status"] != DELETED and file.get("content") not in (None, DATA):
                deletes += 1
            elif entry["status"] != DELETED and file["record_count"]:
                _add(found, file["file_path"], file["file_format"], folder)
    if deletes and (len(found) + deletes > MAX_PLANNED or any(task.delete_files for task in scan.plan_files())):
        raise UnknownFormat(f"{folder} must not have delete files; {_rewrite_hint(folder)}")
    return found


def _records(files: Any, location: str) -> Iterator[dict[str, Any]]:
    """Yield the records of an Avro file."""
    with _library("avro.file").AvroFile(files.new_input(location)) as reader:
        for record in reader:
            yield _named(record, reader.schema)


def _named(record: Any, kind: Any) -> dict[str, Any]:
    """Return the fields of a record, and those of records directly within it, by name."""
    values = ((field, record[at]) for at, field in enumerate(kind.fields))
    return {
        field.name: _named(value, field.field_type) if field.name == "data_file" else value for field, value in values
    }


def _add(found: dict[str, Any], path: str, value: Any, folder: Path) -> None:
    if path in found:
        raise CorruptFile(f"{folder} must name each file once in its metadata, got {path!r:.200} twice; rewrite it")
    found[path] = value


def _part(path: Path, schema: pa.Schema, numbers: dict[str, bytes], spill: Spill) -> CastTable:
    file = ParquetTable(path, spill)
    stored = {(field.metadata or {}).get(ID): field.name for field in file.schema}
    if None in stored:
        raise UnknownFormat(f"{path} has columns without Iceberg field ids; rewrite the table")
    return CastTable(file, schema, {name: stored[one] for name, one in numbers.items() if one in stored}, {})


def _library(module: str) -> Any:
    return extra(f"pyiceberg.{module}", "reading Iceberg", "iceberg")


def _scan(folder: Path, version: int | None) -> Any:
    catalog, reading = _library("catalog.noop").NoopCatalog("static-table"), _library("serializers").FromInputFile
    newest, files = str(_newest(folder)), _files(folder)
    try:  # StaticTable.from_metadata would let table properties load code and contact hosts
        _check_size(newest)
        metadata = reading.table_metadata(files.new_input(newest))
        table = _library("table").StaticTable(("static-table", newest), metadata, newest, files, catalog)
        snapshots = [one.snapshot_id for one in table.snapshots()]
    except CorgiPileError:
        raise
    except Exception as error:  # noqa: BLE001 - the library raises any error for a damaged file
        raise CorruptFile(f"{folder}: its metadata cannot be read: {str(error)[:300]}") from None
    if version is not None and version not in snapshots:
        raise BadArgument(f"{folder} has no snapshot {version}; it has {', '.join(map(str, snapshots)) or 'none'}")
    if version is None and snapshots and table.current_snapshot() is None:
        raise CorruptFile(
            f"{folder}: its metadata name no current snapshot; select one by version=: {', '.join(map(str, snapshots))}"
        )
    return table.scan(snapshot_id=version)


def _check_size(path: str) -> None:
    """Raise CorruptFile if a metadata file unpacks to more than the library parses within the default budget."""
    with (gzip.open if path.endswith(".gz.metadata.json") else open)(path, "rb") as file:
        size = len(file.read(MAX_METADATA + 1))
    if size > MAX_METADATA:
        raise CorruptFile(f"{path} must have at most {MAX_METADATA} bytes unpacked, got more; expire old snapshots")


def _files(folder: Path) -> Any:
    """Return a reader of metadata that opens only local files that `within` accepts."""
    input_file = _library("io.pyarrow").PyArrowFile
    trust: Trust = "paths" if trusts_paths() else None  # the library's threads do not inherit this context

    class Files(_library("io").FileIO):  # type: ignore[misc]
        def new_input(self, location: str) -> Any:
            with trusting(trust):
                path = str(local(folder, location, folder / METADATA))
            if not path.endswith(".metadata.json"):
                check_file(path, MAX_MANIFEST, MAX_BLOCK)
            return input_file(path, path, LocalFileSystem())

        def new_output(self, location: str) -> Any:
            raise BadArgument(f"{folder} is read-only; {location} is not written")

        def delete(self, location: Any) -> None:
            raise BadArgument(f"{folder} is read-only; {location} is not deleted")

    return Files()


def _newest(folder: Path) -> Path:
    """Return the latest metadata file, by the number in its name."""
    files = [*(folder / METADATA).glob("*.metadata.json")]

    def number(path: Path) -> int:
        digits = re.match(r"v?(\d+)", path.name)
        return int(digits[1]) if digits else -1

    return max(files, key=lambda path: (number(path), path.stat().st_mtime_ns))


def _schema(scan: Any) -> pa.Schema:
    schema = _library("io.pyarrow").schema_to_pyarrow(scan.projection(), include_field_ids=False)
    return pa.schema([(field.name, _narrow_offsets(viewless(field.type))) for field in schema])


def _narrow_offsets(kind: pa.DataType) -> pa.DataType:
    """Return the type with 32-bit offsets for text and bytes, as files store them."""
    return {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}.get(kind, kind)


def _rewrite_hint(folder: Path) -> str:
    return (
        "rewrite the files by rewrite_data_files in Spark, or give corgipile.open the rows: "
        f"pyiceberg.table.StaticTable.from_metadata({str(_newest(folder))!r}).scan().to_arrow()"
    )


FORMAT = folder_format(open_iceberg, is_iceberg, "spill", "version", log=True)
