"""Contract of output formats, and their common checks."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import pyarrow as pa

from corgipile.errors import BadSchema, BadValue
from corgipile.outputs import Kind
from corgipile.sizes import Size, parse_bytes
from corgipile.tables.spans import flat
from corgipile.tables.table import IntArray

__all__ = [
    "Form",
    "PartWriter",
    "Settings",
    "child_of",
    "is_text",
    "missing_row",
    "refuse_nulls",
    "refuse_type",
    "starts_of",
    "write_runs",
]


class Settings(NamedTuple):
    """Settings of output files: maximum bytes, size of a record batch or row group, codec."""

    limit: int | None = None
    record_batch: int | str | None = None
    compression: str | None = None

    @classmethod
    def of(cls, shard_size: Size | None, record_batch: int | str | None, compression: str | None) -> Self:
        """Return sizes and codec from a caller's arguments.

        Example:
            >>> Settings.of("1MB", None, None).limit
            1048576
        """
        return cls(None if shard_size is None else parse_bytes(shard_size, "shard_size"), record_batch, compression)


class PartWriter(Protocol):
    """Writes one file of an output."""

    def write(self, batch: pa.RecordBatch, first: int) -> int:
        """Write rows from number ``first`` on; return how many fit."""

    def close(self) -> Any:
        """Finish the file; return data for `Form.finish`."""


class Form(NamedTuple):
    """An output format.

    ``suffixes`` are file endings that select it, empty if an output is always a folder; ``names`` is the name of a part
    in a folder, with ``%06d`` and ``{}`` for the folder's name. ``limit`` is the default size of a part, ``wanted`` a
    hint on naming an output. ``plan`` checks that each column fits and returns the maker of part writers; ``finish``
    writes a folder's ``besides``. ``record_batch`` applies if ``grouped``; a name without an ending is a ``folder``.
    """

    kind: Kind
    suffixes: tuple[str, ...]
    names: str
    limit: int
    wanted: str
    plan: Callable[[pa.Schema, Settings], Callable[[Path], PartWriter]]
    codecs: tuple[str | None, ...] = (None,)
    grouped: bool = False
    folder: bool = False
    besides: tuple[str, ...] = ()
    finish: Callable[[Path, Sequence[Any]], None] | None = None


def refuse_type(field: pa.Field, form: str, way: str) -> BadSchema:
    """Return the error for a column that a format cannot hold."""
    return BadSchema(f"column {field.name!r} is {field.type}, which {form} cannot hold: {way}")


def missing_row(column: pa.Array) -> int | None:
    """Return the first row that is or contains null; None if there is none.

    Example:
        >>> missing_row(pa.array([[1], [2, None]])), missing_row(pa.array(["a"]))
        (1, None)
    """
    if column.null_count:
        return int(np.flatnonzero(flat(column.is_null()))[0])
    inner = child_of(column)
    place = None if inner is None else missing_row(inner)
    if place is None:
        return None
    return int(np.searchsorted(starts_of(column), place, side="right")) - 1


def child_of(column: pa.Array) -> pa.Array | None:
    """Return the items of these rows' lists; None for other columns."""
    kind = column.type
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return column.flatten()
    return None


def starts_of(column: pa.Array) -> IntArray:
    """Return the start of each list among the items of `child_of`, and the end of the last."""
    if pa.types.is_fixed_size_list(column.type):
        return np.arange(len(column) + 1, dtype=np.int64) * int(column.type.list_size)
    offsets: IntArray = flat(column.offsets).astype(np.int64)
    return offsets - offsets[:1]


def is_text(kind: pa.DataType) -> bool:
    """Return whether rows are text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def refuse_nulls(batch: pa.RecordBatch, first: int, form: str) -> None:
    """Raise BadValue if a row is or contains null."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        row = missing_row(column)
        if row is not None:
            raise BadValue(
                f"column {name!r}, row {first + row} must have no nulls for {form}: fill them in, or "
                "leave the column out (columns=)"
            )


def write_runs(samples: Sequence[bytes], room: int | None, write: Callable[[bytes], object], *, fresh: bool) -> int:
    """Write as many samples as fit, at least one into a fresh file; return how many.

    Example:
        >>> write_runs([b"ab", b"c", b"de"], 3, lambda data: print(data), fresh=False)
        b'abc'
        2
    """
    count = len(samples)
    if room is not None:
        ends = np.cumsum([len(sample) for sample in samples])
        count = max(int(np.searchsorted(ends, room, side="right")), int(fresh))
    write(b"".join(samples[:count]))
    return count
