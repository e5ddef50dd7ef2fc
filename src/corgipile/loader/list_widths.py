"""Which list columns are read as arrays of (rows, length): those said, or those that look even."""

from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema
from corgipile.loader.materialize import bring
from corgipile.sizes import Size, whole
from corgipile.tables.even_lists import list_width
from corgipile.tables.io.remote import is_remote
from corgipile.tables.table import Table, check_columns, is_list, item_bytes
from corgipile.tables.unit_check import check_decoding

__all__ = ["widths_of"]

PAIR = {"_k": "_v", "_v": "_k"}  # indices and values of sparse rows

_known: "WeakKeyDictionary[Table, dict[str, int | None]]" = WeakKeyDictionary()


def widths_of(
    table: Table, columns: Sequence[str] | None, said: Mapping[str, int] | None, memory: Size | None = None
) -> dict[str, int]:
    """Return the row length of each list column that is read as an array of (rows, length).

    Args:
        table: The table.
        columns: Columns that are read; None for all.
        said: What the caller knows; None: columns of number lists of which rows at the beginning, the middle and the
            end are of one length, but for the columns of sparse pairs, such as ``x_k`` and ``x_v``.
        memory: The budget of what reads them.

    Raises:
        BadArgument: A length is no number from 1 on, or ``said`` is no dictionary.
        BadSchema: A column that is said has no lists of numbers.

    Example:
        >>> from corgipile.tables import open
        >>> rows = pa.table({"x": [[1, 2], [3, 4]], "tokens": [[1, 2], [3]], "y_k": [[0], [1]], "y_v": [[5], [6]]})
        >>> widths_of(open(rows), None, None)
        {'x': 2}
    """
    if said is not None:
        return _checked(table.schema, said)
    if columns is not None and (isinstance(columns, str) or not set(columns) <= set(table.schema.names)):
        return {}  # `columns_of` says what is wrong
    if memory is not None and not is_remote(table):
        check_decoding(table, columns or table.schema.names, memory)
    names = [name for name in columns or table.schema.names if _may_be_even(table.schema, name)]
    if names and not hasattr(table, "list_width"):  # rows are read for it
        bring(table, columns or table.schema.names, memory)
    found = {name: _width(table, name) for name in names}
    return {name: width for name, width in found.items() if width}


def _checked(schema: pa.Schema, said: Mapping[str, int]) -> dict[str, int]:
    if not isinstance(said, Mapping):
        raise BadArgument(
            f"widths must be a dictionary of column names and row lengths, such as {{'x': 3}}; got {said!r}"
        )
    for name in check_columns(schema, list(said)):
        kind = schema.field(name).type
        if not (is_list(kind) and item_bytes(kind)):
            raise BadSchema(f"widths names column {name!r}, which is {kind}; lists of numbers are needed")
    return {name: whole(width, f"widths[{name!r}]", 1) for name, width in said.items()}


def _may_be_even(schema: pa.Schema, name: str) -> bool:
    kind = schema.field(name).type
    partner = name[:-2] + PAIR.get(name[-2:], "")
    paired = name[-2:] in PAIR and schema.get_field_index(partner) >= 0 and is_list(schema.field(partner).type)
    return is_list(kind) and item_bytes(kind) > 0 and not paired


def _width(table: Table, name: str) -> int | None:
    """Return the length of all rows looked at, once for a table; None where they differ, are empty or hold nulls."""
    try:
        known = _known.setdefault(table, {})
    except TypeError:  # a table of others that cannot be a key
        known = {}
    if name not in known:
        known[name] = list_width(table, name)
    return known[name]
