"""Iceberg tables in a folder: the Parquet files of a snapshot, by the library of the format."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa

from corgipile.errors import BadArgument, CorruptFile, UnknownFormat
from corgipile.tables.concat import ConcatTable
from corgipile.tables.conformed import Conformed
from corgipile.tables.io.files import PathLike
from corgipile.tables.io.spill import Spill
from corgipile.tables.library import needs
from corgipile.tables.memory import MemoryTable
from corgipile.tables.parquet import ParquetTable
from corgipile.tables.table import Table
from corgipile.tables.values import viewless

__all__ = ["is_iceberg", "open_iceberg"]

METADATA = "metadata"
ID = b"PARQUET:field_id"


def is_iceberg(folder: Path) -> bool:
    """Say whether a folder is an Iceberg table."""
    return any((folder / METADATA).glob("*.metadata.json"))


def open_iceberg(path: PathLike, version: int | None = None, spill: Spill = None) -> Table:
    """Open the rows of an Iceberg table as they are in a snapshot.

    Columns are found in files by their number, so that renamed ones are right; files that are older than a column have
    nulls there.

    Args:
        path: The folder of the table.
        version: Number of a snapshot; the current one by default.
        spill: As for `corgipile.open`.

    Raises:
        UnknownFormat: Rows are deleted by files of their own, or the files are not Parquet.
        BadArgument: There is no such snapshot.
    """
    folder = Path(path).expanduser().absolute()
    scan = _scan(folder, version)
    try:
        fields = list(scan.projection().fields)
        schema = _schema(scan)
        tasks = list(scan.plan_files())
    except Exception as error:  # noqa: BLE001 - whatever the library meets in a damaged file
        raise CorruptFile(f"{folder}: its metadata cannot be read: {str(error)[:300]}") from None
    numbers = {field.name: str(field.field_id).encode() for field in fields}
    parts = []
    for task in sorted(tasks, key=lambda one: str(one.file.file_path)):
        if task.delete_files:
            raise UnknownFormat(f"{folder} has rows that are deleted by files of their own; {_way(folder)}")
        if str(getattr(task.file.file_format, "value", task.file.file_format)).upper() != "PARQUET":
            raise UnknownFormat(f"{folder} has files of {task.file.file_format}; those of Parquet can be read")
        parts.append(_part(_place(folder, str(task.file.file_path)), schema, numbers, spill))
    if not parts:
        return MemoryTable(schema.empty_table())
    return parts[0] if len(parts) == 1 else ConcatTable(parts)


def _part(path: Path, schema: pa.Schema, numbers: dict[str, bytes], spill: Spill) -> Conformed:
    file = ParquetTable(path, spill)
    stored = {(field.metadata or {}).get(ID): field.name for field in file.schema}
    if None in stored:
        raise UnknownFormat(
            f"{path} has columns without numbers, by which those of Iceberg are told; rewrite the table"
        )
    return Conformed(file, schema, {name: stored[one] for name, one in numbers.items() if one in stored}, {})


def _scan(folder: Path, version: int | None) -> Any:
    try:
        from pyiceberg.table import StaticTable  # noqa: PLC0415 - only for this format
    except ImportError:
        raise needs("pyiceberg", "iceberg", "Iceberg") from None
    try:
        table = StaticTable.from_metadata(str(_newest(folder)))
        snapshots = [one.snapshot_id for one in table.snapshots()]
    except Exception as error:  # noqa: BLE001 - whatever the library meets in a damaged file
        raise CorruptFile(f"{folder}: its metadata cannot be read: {str(error)[:300]}") from None
    if version is not None and version not in snapshots:
        raise BadArgument(f"{folder} has no snapshot {version}; it has {', '.join(map(str, snapshots)) or 'none'}")
    if version is None and snapshots and table.current_snapshot() is None:
        raise CorruptFile(
            f"{folder}: its metadata name no snapshot as the current one; version= takes one of "
            f"{', '.join(map(str, snapshots))}"
        )
    return table.scan(snapshot_id=version)


def _newest(folder: Path) -> Path:
    """Return the metadata as they are now, by the number in their name."""
    found = [*(folder / METADATA).glob("*.metadata.json")]

    def number(path: Path) -> int:
        said = re.match(r"v?(\d+)", path.name)
        return int(said[1]) if said else -1

    return max(found, key=lambda path: (number(path), path.stat().st_mtime_ns))


def _schema(scan: Any) -> pa.Schema:
    from pyiceberg.io.pyarrow import schema_to_pyarrow  # noqa: PLC0415 - as above

    schema = schema_to_pyarrow(scan.projection(), include_field_ids=False)
    return pa.schema([(field.name, _small(viewless(field.type))) for field in schema])


def _small(kind: pa.DataType) -> pa.DataType:
    """Return text and bytes as files have them, with offsets of 32 bits."""
    return {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}.get(kind, kind)


def _place(folder: Path, address: str) -> Path:
    """Return where a file lies, as the metadata say."""
    parts = urlparse(address)
    if parts.scheme not in ("", "file"):
        raise UnknownFormat(f"{folder} has a file elsewhere, {address}; only local files can be read")
    return Path(address if not parts.scheme else unquote(parts.path))


def _way(folder: Path) -> str:
    return (
        "rewrite_data_files by Spark writes files without, or give corgipile.open the rows: "
        f"pyiceberg.table.StaticTable.from_metadata({str(_newest(folder))!r}).scan().to_arrow()"
    )
