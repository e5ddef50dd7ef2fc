"""Row lengths of list columns that are read as arrays of (rows, length)."""

from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema
from corgipile.loader.materialize import bring
from corgipile.sizes import Size, whole
from corgipile.tables.io.remote import is_remote
from corgipile.tables.table import Table, check_columns, is_list, item_bytes
from corgipile.tables.unit_check import check_decoding

__all__ = ["widths_of"]

PAIR = {"_k": "_v", "_v": "_k"}  # indices and values of sparse rows

_widths: "WeakKeyDictionary[Table, dict[str, int | None]]" = WeakKeyDictionary()


def widths_of(
    table: Table, columns: Sequence[str] | None, given: Mapping[str, int] | None, memory: Size | None = None
) -> dict[str, int]:
    """Return the row length of each list column that is read as an array of (rows, length).

    Without the caller's lengths they are inferred from rows at the beginning, the middle and the end, except those of
    sparse pairs, such as ``x_k`` and ``x_v``.

    Raises:
        BadArgument: A length is not a positive integer, or ``given`` is not a dictionary.
        BadSchema: A column of ``given`` has no lists of numbers.

    Example:
        >>> from corgipile.tables import open
        >>> rows = pa.table({"x": [[1, 2], [3, 4]], "tokens": [[1, 2], [3]], "y_k": [[0], [1]], "y_v": [[5], [6]]})
        >>> widths_of(open(rows), None, None)
        {'x': 2}
    """
    if given is not None:
        return _checked(table.schema, given)
    if columns is not None and (isinstance(columns, str) or not set(columns) <= set(table.schema.names)):
        return {}  # `columns_of` raises the error
    if memory is not None and not is_remote(table):
        check_decoding(table, columns or table.schema.names, memory)
    names = [name for name in columns or table.schema.names if _may_be_even(table.schema, name)]
    if names and table.samples_widths:
        bring(table, columns or table.schema.names, memory)
    lengths = {name: _sampled_width(table, name) for name in names}
    return {name: width for name, width in lengths.items() if width}


def _checked(schema: pa.Schema, given: Mapping[str, int]) -> dict[str, int]:
    if not isinstance(given, Mapping):
        raise BadArgument(
            f"widths must be a dictionary of column names and row lengths such as {{'x': 3}}, got {given!r}"
        )
    for name in check_columns(schema, list(given)):
        kind = schema.field(name).type
        if not (is_list(kind) and item_bytes(kind)):
            raise BadSchema(f"widths needs columns with lists of numbers; column {name!r} is {kind}")
    return {name: whole(width, f"widths[{name!r}]", 1) for name, width in given.items()}


def _may_be_even(schema: pa.Schema, name: str) -> bool:
    kind = schema.field(name).type
    partner = name[:-2] + PAIR.get(name[-2:], "")
    paired = name[-2:] in PAIR and schema.get_field_index(partner) >= 0 and is_list(schema.field(partner).type)
    return is_list(kind) and item_bytes(kind) > 0 and not paired


def _sampled_width(table: Table, name: str) -> int | None:
    """Return the length of all sampled rows, cached per table; None if they differ, are empty or hold nulls."""
    widths = _widths.setdefault(table, {})
    if name not in widths:
        widths[name] = table.list_width(name)
    return widths[name]
