"""Delta Lake tables: the Parquet files that count at a version, by the library of the format."""

from pathlib import Path
from typing import Any
from urllib.parse import unquote

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

__all__ = ["is_delta", "open_delta"]

LOG = "_delta_log"
KNOWN = {"timestampNtz", "columnMapping", "deletionVectors", "v2Checkpoint", "vacuumProtocolCheck", "typeWidening"}


def is_delta(folder: Path) -> bool:
    """Say whether a folder is a Delta table."""
    return (folder / LOG).is_dir()


def open_delta(path: PathLike, version: int | None = None, spill: Spill = None) -> Table:
    """Open the rows of a Delta table as they are at a version.

    The columns are those of that version: null in files that are older than a column. Values of partitions are columns.

    Args:
        path: The folder.
        version: The version; the latest by default.
        spill: As for `corgipile.open`.

    Raises:
        UnknownFormat: Rows are deleted by vectors, or columns have other names in the files.
        BadArgument: There is no such version.
    """
    folder = Path(path).expanduser().absolute()
    log = _log(folder, version)
    schema = _schema(log)
    _check(log, folder)
    actions = pa.table(log.get_add_actions(flatten=False))
    partitioned = set(log.metadata().partition_columns)
    _check_vectors(log, folder)
    parts = []
    for action in sorted(actions.to_pylist(), key=lambda one: str(one["path"])):
        values = {
            name: _scalar(value, schema.field(name).type, folder)
            for name, value in (action.get("partition") or {}).items()
            if name in partitioned
        }
        file = ParquetTable(_place(folder, str(action["path"])), spill)
        parts.append(Conformed(file, schema, {name: name for name in schema.names if name not in partitioned}, values))
    if not parts:
        return MemoryTable(schema.empty_table())
    return parts[0] if len(parts) == 1 else ConcatTable(parts)


def _log(folder: Path, version: int | None) -> Any:
    try:
        import deltalake  # noqa: PLC0415 - only for this format
    except ImportError:
        raise needs("deltalake", "delta", "Delta Lake") from None
    if version is not None and (isinstance(version, bool) or not isinstance(version, int) or version < 0):
        raise BadArgument(f"version is {version!r}; a whole number, 0 for the first, is right")
    try:
        log = deltalake.DeltaTable(str(folder))
        latest = log.version()
        if version is not None and version < latest:
            log = deltalake.DeltaTable(str(folder), version=version)
    except Exception as error:  # noqa: BLE001 - of a class of its own, that is no other's
        reason = str(error).splitlines()[0][:300]
        raise CorruptFile(f"{folder}: its log cannot be read: {reason}") from None
    if version is not None and version > latest:
        raise BadArgument(f"{folder} has no version {version}; the latest is {latest}")
    return log


def _schema(log: Any) -> pa.Schema:
    schema = pa.schema(log.schema().to_arrow())
    return pa.schema([(field.name, viewless(field.type)) for field in schema])


def _check(log: Any, folder: Path) -> None:
    protocol = log.protocol()
    unknown = set(protocol.reader_features or ()) - KNOWN
    if unknown:
        raise UnknownFormat(
            f"{folder} is a Delta table whose readers need {', '.join(sorted(unknown))}; {_way(folder)}"
        )
    mapping = log.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mapping != "none":
        raise UnknownFormat(
            f"{folder} is a Delta table whose columns have other names in its files (columnMapping {mapping!r}); "
            f"{_way(folder)}"
        )


def _check_vectors(log: Any, folder: Path) -> None:
    """Raise UnknownFormat unless the library says that no file has rows that are deleted by a vector."""
    if "deletionVectors" not in (log.protocol().reader_features or ()):
        return
    try:
        none = pa.table(log.deletion_vectors()).num_rows == 0
    except Exception:  # noqa: BLE001 - an older library does not tell, and of damaged ones none
        none = False
    if not none:
        raise UnknownFormat(f"{folder} has rows that are deleted by vectors (deletionVectors); {_way(folder)}")


def _way(folder: Path) -> str:
    return (
        "REORG TABLE ... APPLY (PURGE) by Spark writes files without, or give corgipile.open the rows: "
        f"polars.read_delta({str(folder)!r})"
    )


def _place(folder: Path, path: str) -> Path:
    """Return where a file lies, of which the log has the address as in a URL."""
    if "://" in path and not path.startswith("file://"):
        raise UnknownFormat(f"{folder} has a file elsewhere, {path}; only local files can be read")
    plain = unquote(path.removeprefix("file://"))
    return Path(plain) if plain.startswith("/") else folder / plain


def _scalar(value: Any, kind: pa.DataType, folder: Path) -> pa.Scalar:
    try:
        return pa.scalar(value, kind) if not isinstance(value, str) else pa.scalar(value, pa.string()).cast(kind)
    except (pa.ArrowException, TypeError, ValueError):
        raise CorruptFile(f"{folder}: a partition has the value {value!r}, which is no {kind}") from None
