"""Delta Lake tables: the live Parquet files of a version, listed by ``deltalake``."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, CorgiPileError, CorruptFile, UnknownFormat
from corgipile.extras import extra
from corgipile.tables.cast_table import CastTable
from corgipile.tables.concat import ConcatTable
from corgipile.tables.format import folder_format
from corgipile.tables.formats.delta.log import LOG, check_log, check_vectors, place
from corgipile.tables.formats.parquet.table import ParquetTable
from corgipile.tables.io.files import PathLike
from corgipile.tables.io.spill import Spill
from corgipile.tables.memory import MemoryTable
from corgipile.tables.row_mask import RowMask
from corgipile.tables.selection import MaskTable
from corgipile.tables.spans import flat
from corgipile.tables.table import Table
from corgipile.tables.values import viewless

__all__ = ["FORMAT", "is_delta", "open_delta"]

SUPPORTED = {"timestampNtz", "columnMapping", "deletionVectors", "v2Checkpoint", "vacuumProtocolCheck", "typeWidening"}


def is_delta(folder: Path) -> bool:
    """Return whether a folder is a Delta table."""
    return (folder / LOG).is_dir()


def open_delta(path: PathLike, version: int | None = None, spill: Spill = None) -> Table:
    """Open the rows of a Delta table at a version.

    Columns are those of that version; files older than a column have nulls there. Partition values are columns.

    Args:
        path: The folder.
        version: The version; the latest by default.
        spill: As for `corgipile.open`.

    Raises:
        UnknownFormat: Column mapping renames columns, or the table needs unsupported reader features.
        BadArgument: The version does not exist.
    """
    folder = Path(path).expanduser().absolute()
    log = _open_log(folder, version)
    with _converted_errors(folder, "its log cannot be read"):
        schema = _schema(log)
        _check(log, folder)
        actions = _actions(log, folder)
        partitioned = set(log.metadata().partition_columns)
    parts: dict[Path, Table] = {}
    for action in sorted(actions, key=lambda one: str(one["path"])):
        values = {
            name: _scalar(value, schema.field(name).type, folder)
            for name, value in (action.get("partition") or {}).items()
            if name in partitioned
        }
        path = place(folder, str(action["path"]))
        names = {name: name for name in schema.names if name not in partitioned}
        parts[path] = CastTable(ParquetTable(path, spill), schema, names, values)
    if not parts:
        return MemoryTable(schema.empty_table())
    vectors = _live_masks(log, folder, parts)
    tables = list(parts.values())
    return _live_rows(parts, vectors, tables[0] if len(tables) == 1 else ConcatTable(tables))


def _open_log(folder: Path, version: int | None) -> Any:
    deltalake = extra("deltalake", "reading Delta Lake", "delta")
    if version is not None and (isinstance(version, bool) or not isinstance(version, int) or version < 0):
        raise BadArgument(f"version must be a whole number, at least 0, got {version!r}")
    with _converted_errors(folder, "its log cannot be read"):
        check_log(folder)
        log = deltalake.DeltaTable(str(folder))
        latest = log.version()
        if version is not None and version < latest:
            log = deltalake.DeltaTable(str(folder), version=version)
    if version is not None and version > latest:
        raise BadArgument(f"{folder} has no version {version}; the latest is {latest}")
    return log


def _actions(log: Any, folder: Path) -> list[dict[str, Any]]:
    """Return the live files and their partition values."""
    found = pa.table(log.get_add_actions(flatten=False))
    actions: list[dict[str, Any]] = found.select(
        [n for n in ("path", "partition") if n in found.schema.names]
    ).to_pylist()
    if len({one["path"] for one in actions}) < len(actions):
        raise CorruptFile(f"{folder} must name each file once in its log; write its checkpoint again")
    return actions


def _schema(log: Any) -> pa.Schema:
    schema = pa.schema(log.schema().to_arrow())
    return pa.schema([(field.name, viewless(field.type)) for field in schema])


def _check(log: Any, folder: Path) -> None:
    protocol = log.protocol()
    unknown = set(protocol.reader_features or ()) - SUPPORTED
    if unknown:
        raise UnknownFormat(
            f"{folder} is a Delta table with unsupported features {', '.join(sorted(unknown))}; {_rewrite_hint(folder)}"
        )
    mapping = log.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mapping != "none":
        raise UnknownFormat(
            f"{folder} is a Delta table that renames columns in its files (columnMapping {mapping!r}); "
            f"{_rewrite_hint(folder)}"
        )


def _live_masks(log: Any, folder: Path, parts: Mapping[Path, Table]) -> dict[Path, npt.NDArray[np.bool_]]:
    """Return the mask of live rows of each file that has a deletion vector.

    Raises:
        UnknownFormat: This release of the library does not return deletion vectors.
    """
    if "deletionVectors" not in (log.protocol().reader_features or ()):
        return {}
    if not hasattr(log, "deletion_vectors"):
        raise UnknownFormat(
            f"{folder} has deletion vectors (deletionVectors), which this release of deltalake does not return: "
            f"pip install -U deltalake; or {_rewrite_hint(folder)}"
        )
    with _converted_errors(folder, "a vector of deleted rows cannot be read"):
        check_vectors(folder, {path: len(part) for path, part in parts.items()})
        rows = pa.table(log.deletion_vectors())
        masks = [flat(mask.values) for mask in rows["selection_vector"]]
    return dict(zip((place(folder, path) for path in rows["filepath"].to_pylist()), masks, strict=True))


@contextlib.contextmanager
def _converted_errors(folder: Path, what: str) -> Iterator[None]:
    """Convert errors of the library to CorruptFile, and its panics, which do not derive from Exception."""
    try:
        yield
    except CorgiPileError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CorruptFile(f"{folder}: {what}: {reason[:300]}") from None


def _live_rows(parts: Mapping[Path, Table], vectors: Mapping[Path, npt.NDArray[np.bool_]], table: Table) -> Table:
    """Return the rows that are not deleted; rows beyond the end of a vector are live."""
    if not vectors:
        return table
    if strange := vectors.keys() - parts.keys():
        raise CorruptFile(f"{min(strange)} has a deletion vector, but is no file of the table")

    def masks() -> Iterator[npt.NDArray[np.bool_]]:
        for path, part in parts.items():
            mask = vectors.get(path, np.ones(0, np.bool_))
            if len(mask) > len(part):
                raise CorruptFile(f"{path} has {len(part)} rows, but its deletion vector has {len(mask)}")
            yield from (mask, np.ones(len(part) - len(mask), np.bool_))

    return MaskTable(table, RowMask.joined(masks()))


def _rewrite_hint(folder: Path) -> str:
    return (
        "rewrite the files by REORG TABLE ... APPLY (PURGE) in Spark, or give corgipile.open the rows: "
        f"polars.read_delta({str(folder)!r})"
    )


def _scalar(value: Any, kind: pa.DataType, folder: Path) -> pa.Scalar:
    try:
        return pa.scalar(value, kind) if not isinstance(value, str) else pa.scalar(value, pa.string()).cast(kind)
    except (pa.ArrowException, TypeError, ValueError):
        raise CorruptFile(f"{folder}: a partition value must be {kind}, got {value!r}") from None


FORMAT = folder_format(open_delta, is_delta, "spill", "version", log=True)
